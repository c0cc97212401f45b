//! Model calls over the network: what the feature `network` adds.
//!
//! Callers block on their own threads. [`Models::ask`] spawns one task per question on a shared
//! runtime, waits for the results, and polls the cancel flag. If the flag is set, dropping the
//! tasks closes their connections.
//!
//! One question may take several calls. It is first put to the model with the conversation before
//! it, if it has such a body, then without, and at last to the fallback if the model does not exist
//! ([`Models::answer`]).
//!
//! `call` makes one call with its retries, `openai`, `anthropic` and `gemini` know the formats, `reply`
//! and `failure` judge the result, and `connections` owns the runtime and the HTTP clients.

mod anthropic;
mod call;
mod connections;
mod failure;
mod gemini;
mod openai;
mod reply;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::question::{AT_ONCE, Mask, Question, collect};
use super::resolve::NoModel;
use super::usage_by_model::UsageByModel;
use call::{Asked, ModelCall, Target};
use connections::Connections;

/// The model that is asked, and the fallback that is asked if it does not exist. All clones of a
/// client share one, and with it the limit of open requests.
pub(super) struct Models {
    first: Target,
    fallback: Option<Target>,
    timeout: Duration,
    mask: Mask,
    open: Semaphore,
}

impl Models {
    /// Creates the models of a client. This build has a network, so it never fails.
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

    /// Answers the questions in parallel and blocks until all are answered or `cancel` is set. The
    /// results have the order of the questions.
    pub(super) fn ask(
        self: &Arc<Self>,
        questions: Vec<Question<'_>>,
        used: &Arc<UsageByModel>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        match Connections::shared() {
            Ok(connections) => self.run(connections, questions, used, cancel),
            Err(failure) => vec![Err(failure); questions.len()],
        }
    }

    /// Spawns a task for each question and collects the results.
    fn run(
        self: &Arc<Self>,
        connections: &'static Connections,
        questions: Vec<Question<'_>>,
        used: &Arc<UsageByModel>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let (sender, answers) = channel();
        let count = questions.len();
        let running: Vec<_> = questions
            .into_iter()
            .enumerate()
            .map(|(index, question)| {
                let (models, used) = (Arc::clone(self), Arc::clone(used));
                let request = question.masked(self.mask);
                let continued = question.continued;
                let sender = sender.clone();
                Running(connections.runtime.spawn(async move {
                    let answer = models.answer(connections, &used, &request, continued).await;
                    // The receiver is gone only if the caller was cancelled.
                    let _ = sender.send((index, answer));
                }))
            })
            .collect();
        // Otherwise the channel would never disconnect, and a panic in a task would block `collect`
        // forever.
        drop(sender);
        let results = collect(count, &answers, cancel);
        drop(running);
        results
    }

    /// Answers one question. It waits until fewer than the allowed number of requests are open, and
    /// then tries the forms of the question and the fallback in turn.
    async fn answer(
        &self,
        connections: &Connections,
        used: &UsageByModel,
        request: &ModelRequest,
        continued: Option<String>,
    ) -> Result<ModelAnswer, ModelFailure> {
        // The time limit starts after this wait, because it limits the model and not the queue. The
        // result can be ignored: the semaphore is never closed.
        let _turn = self.open.acquire().await;
        let started = Instant::now();
        let is_continued = continued.is_some();
        let ask = |target, asked| self.ask_one(connections, used, target, asked, started);
        let mut result = match continued {
            Some(body) => ask(&self.first, Asked::Continued(body)).await,
            None => ask(&self.first, Asked::Fresh(request)).await,
        };
        if let (Err(failure), true) = (&result, is_continued)
            && may_do_better_afresh(failure.kind)
        {
            tracing::debug!(purpose = request.purpose, kind = ?failure.kind, %failure, "retrying without the conversation");
            result = ask(&self.first, Asked::Fresh(request)).await;
        }
        if let (Err(failure), Some(fallback)) = (&result, &self.fallback)
            && failure.kind == FailureKind::UnknownModel
        {
            tracing::warn!(%failure, fallback = %fallback.endpoint, "using the agent's own model instead");
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

    /// Makes one call to one model. All calls of a question share the deadline, twice the time
    /// limit after `started`.
    async fn ask_one(
        &self,
        connections: &Connections,
        used: &UsageByModel,
        target: &Target,
        asked: Asked<'_>,
        started: Instant,
    ) -> Result<ModelAnswer, ModelFailure> {
        let call = ModelCall {
            client: connections.client(&target.endpoint),
            target,
            used,
            asked,
            mask: self.mask,
            timeout: self.timeout,
            deadline: started + self.timeout * 2,
        };
        call.run().await
    }
}

/// Whether a question that failed as a continuation of the conversation may succeed without it. It
/// cannot if the provider is busy, slow or unreachable, rejects the key, or does not know the
/// model, because none of that depends on the question.
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

/// A task in progress. Dropping it aborts the task, which closes its connection, so that a
/// cancelled call costs no more tokens.
struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
