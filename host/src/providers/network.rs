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

use super::client::{AT_ONCE, Mask, cancelled, lost, masked};
use super::endpoint::Endpoint;
use super::resolve::NoModel;
use call::{ModelCall, Target};
use connections::Connections;

/// How often a waiting call looks at its cancel flag.
const POLL: Duration = Duration::from_millis(20);

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
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let all_fail = |failure: ModelFailure| vec![Err(failure); requests.len()];
        if cancel.load(Ordering::Relaxed) {
            return all_fail(cancelled());
        }
        match Connections::shared() {
            Ok(connections) => self.run(connections, requests, cancel),
            Err(failure) => all_fail(failure),
        }
    }

    fn run(
        self: &Arc<Self>,
        connections: &'static Connections,
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let (sender, answers) = channel();
        let running: Vec<_> = requests
            .iter()
            .enumerate()
            .map(|(index, request)| {
                let models = Arc::clone(self);
                let request = masked(request, self.mask);
                let sender = sender.clone();
                Running(connections.runtime.spawn(async move {
                    let answer = models.answer(connections, &request).await;
                    // The receiver is gone only if the caller was cancelled.
                    let _ = sender.send((index, answer));
                }))
            })
            .collect();
        drop(sender);

        let mut results: Vec<Option<_>> = requests.iter().map(|_| None).collect();
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
    ) -> Result<ModelAnswer, ModelFailure> {
        // Waiting for the semaphore does not count as the model's time; the semaphore is never closed.
        let _turn = self.open.acquire().await;
        let started = Instant::now();
        let mut result = self
            .ask_one(connections, &self.first, request, started)
            .await;
        if let (Err(failure), Some(fallback)) = (&result, &self.fallback)
            && failure.kind == FailureKind::UnknownModel
        {
            tracing::warn!(%failure, fallback = %fallback.endpoint, "the agent's own model is asked instead");
            result = self.ask_one(connections, fallback, request, started).await;
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
        request: &ModelRequest,
        started: Instant,
    ) -> Result<ModelAnswer, ModelFailure> {
        let call = ModelCall {
            client: connections.client(&target.endpoint),
            target,
            request,
            mask: self.mask,
            timeout: self.timeout,
            deadline: started + self.timeout * 2,
        };
        call.run().await
    }
}

/// A call under way; dropping it ends the call and closes its connection.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
