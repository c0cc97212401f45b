//! Model calls over the network: what the feature `network` adds.

mod anthropic;
mod call;
mod connections;
mod failure;
mod openai;
mod reply;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client::{AT_ONCE, Mask, POLL, Question, cancelled, lost, masked};
use super::endpoint::Endpoint;
use super::resolve::NoModel;
use call::{Asked, ModelCall, Target};
use connections::Connections;

/// The model that answers, and the one that stands in where it does not exist.
pub(super) struct Models {
    first: Target,
    fallback: Option<Target>,
    timeout: Duration,
    mask: Mask,
    open: Semaphore,
}

impl Models {
    pub(super) fn new(
        endpoint: Endpoint,
        fallback: Option<Endpoint>,
        timeout: Duration,
        mask: Mask,
    ) -> Result<Self, NoModel> {
        Ok(Self {
            first: Target::new(endpoint),
            fallback: fallback.map(Target::new),
            timeout,
            mask,
            open: Semaphore::new(AT_ONCE),
        })
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.first.endpoint
    }

    pub(super) fn ask(
        self: &Arc<Self>,
        questions: Vec<Question<'_>>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let count = questions.len();
        let all_fail = |failure: ModelFailure| vec![Err(failure); count];
        if cancel.load(Ordering::Relaxed) {
            return all_fail(cancelled());
        }
        match Connections::shared() {
            Ok(connections) => self.run(connections, questions, cancel),
            Err(failure) => all_fail(failure),
        }
    }

    fn run(
        self: &Arc<Self>,
        connections: &'static Connections,
        questions: Vec<Question<'_>>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let (sender, answers) = channel();
        let mut results: Vec<Option<_>> = questions.iter().map(|_| None).collect();
        let running: Vec<_> = questions
            .into_iter()
            .enumerate()
            .map(|(index, question)| {
                let models = Arc::clone(self);
                let request = masked(question.request, self.mask);
                let continued = question.continued;
                let sender = sender.clone();
                Running(connections.runtime.spawn(async move {
                    let answer = models.answer(connections, &request, continued).await;
                    // The receiver is gone only if the caller was cancelled.
                    let _ = sender.send((index, answer));
                }))
            })
            .collect();
        drop(sender);

        let mut keep = |(index, answer): (usize, _)| {
            if let Some(slot) = results.get_mut(index) {
                *slot = Some(answer);
            }
        };
        let failure = loop {
            match answers.recv_timeout(POLL) {
                Ok(answer) => keep(answer),
                // Every call has answered or panicked.
                Err(RecvTimeoutError::Disconnected) => break lost(),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if cancel.load(Ordering::Relaxed) {
                answers.try_iter().for_each(&mut keep);
                break cancelled();
            }
        };
        drop(running);
        results
            .into_iter()
            .map(|result| result.unwrap_or_else(|| Err(failure.clone())))
            .collect()
    }

    async fn answer(
        &self,
        connections: &Connections,
        request: &ModelRequest,
        continued: Option<String>,
    ) -> Result<ModelAnswer, ModelFailure> {
        // Waiting for the semaphore does not count as the model's time; the semaphore is never closed.
        let _turn = self.open.acquire().await;
        let started = Instant::now();
        let is_continued = continued.is_some();
        let ask = |target, asked| self.ask_one(connections, target, asked, started);
        let mut result = match continued {
            Some(body) => ask(&self.first, Asked::Continued(body)).await,
            None => ask(&self.first, Asked::Fresh(request)).await,
        };
        if let (Err(failure), true) = (&result, is_continued)
            && may_do_better_afresh(failure.kind)
        {
            tracing::debug!(purpose = request.purpose, kind = ?failure.kind, %failure, "asked without the conversation");
            result = ask(&self.first, Asked::Fresh(request)).await;
        }
        if let (Err(failure), Some(fallback)) = (&result, &self.fallback)
            && failure.kind == FailureKind::UnknownModel
        {
            tracing::warn!(%failure, fallback = %fallback.endpoint, "the agent's own model is asked instead");
            result = ask(fallback, Asked::Fresh(request)).await;
        }
        let ms = started.elapsed().as_millis() as u64;
        match &result {
            Ok(answer) => tracing::debug!(
                purpose = request.purpose,
                model = answer.model,
                input_tokens = answer.input_tokens,
                output_tokens = answer.output_tokens,
                ms,
                "model call answered"
            ),
            Err(failure) => {
                tracing::debug!(purpose = request.purpose, kind = ?failure.kind, %failure, ms, "model call failed");
            }
        }
        result
    }

    async fn ask_one(
        &self,
        connections: &Connections,
        target: &Target,
        asked: Asked<'_>,
        started: Instant,
    ) -> Result<ModelAnswer, ModelFailure> {
        let call = ModelCall {
            client: connections.client(&target.endpoint),
            target,
            asked,
            mask: self.mask,
            timeout: self.timeout,
            deadline: started + self.timeout * 2,
        };
        call.run().await
    }
}

/// Whether a question that failed with the conversation before it may be answered without: the same provider is as busy
/// and as strict as before.
fn may_do_better_afresh(failure: FailureKind) -> bool {
    !matches!(
        failure,
        FailureKind::Auth
            | FailureKind::RateLimited
            | FailureKind::Overloaded
            | FailureKind::Network
            | FailureKind::Timeout
            | FailureKind::Cancelled
            | FailureKind::UnknownModel
    )
}

/// A call under way; dropping it ends the call and closes its connection.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
