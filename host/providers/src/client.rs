//! The model client that sessions share: blocking calls from any thread.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use contexture_base::lock;
use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use contexture_formats::Format;

use super::endpoint::{Endpoint, Wire};
use super::network::Models;
use super::resolve::{NoModel, Resolved};

/// Replaces the secrets in a text before it leaves the machine.
pub type Mask = fn(&str) -> Cow<'_, str>;

/// The longest time limit of one request that makes sense; also keeps the clock from overflowing.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A question, and the body that puts it to the agent's own model as the next message of the conversation that it has
/// in its cache.
pub struct Question<'q> {
    /// The question with its material.
    pub request: &'q ModelRequest,
    /// The body that continues the conversation; none if the question is put with its material.
    pub continued: Option<String>,
}

/// How often a waiting call checks its cancel flag.
pub(super) const POLL: Duration = Duration::from_millis(20);

/// The most requests that are open at a time.
pub(super) const AT_ONCE: usize = 8;

/// Makes one model call and blocks. Called from any thread, from up to 8 at a time.
pub type Ask = dyn Fn(&ModelRequest) -> Result<ModelAnswer, ModelFailure> + Send + Sync;

/// The model of the program that embeds the host, which asks it itself.
#[derive(Clone)]
pub struct LentModel {
    /// Its name.
    pub name: String,
    /// Its window, in tokens.
    pub context_length: Option<u64>,
    /// Asks it.
    pub ask: Arc<Ask>,
}

impl std::fmt::Debug for LentModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LentModel").field(&self.name).finish()
    }
}

/// Makes model calls. Cheap to clone; clones share their limit of 8 open requests.
///
/// Calls block their thread and may come from any thread, those of a tokio runtime's blocking pool
/// included. The HTTP work runs on one thread of its own, started by the first call of the process.
#[derive(Clone)]
pub struct ModelClient {
    models: Who,
}

#[derive(Clone)]
enum Who {
    Own(Arc<Models>),
    Lent(LentModel, Mask),
    Nobody(NoModel),
}

impl ModelClient {
    /// A client for what [`resolve`](super::resolve) decided. `timeout` limits one request; a call with
    /// its retries and pauses has twice as long. `mask` replaces the secrets in everything that is sent
    /// and in every server's words that a message quotes. Opens no connection.
    pub fn new(resolved: Resolved, timeout: Duration, mask: Mask) -> Self {
        let models = match resolved {
            Resolved::NoModel(reason) => Who::Nobody(reason),
            Resolved::Model { endpoint, fallback } => {
                let fallback = fallback.map(|endpoint| *endpoint);
                Models::new(*endpoint, fallback, timeout.min(LONGEST_TIMEOUT), mask)
                    .map_or_else(Who::Nobody, |models| Who::Own(Arc::new(models)))
            }
        };
        Self { models }
    }

    /// Whether the model is the one that the agent itself uses, and takes bodies of this format.
    pub fn continues(&self, format: Format) -> bool {
        let wire = match format {
            Format::Anthropic => Wire::Anthropic,
            Format::OpenAiChat => Wire::OpenAi,
            _ => return false,
        };
        self.endpoint()
            .is_some_and(|endpoint| endpoint.is_agents() && endpoint.wire() == wire)
    }

    /// A client for a model that the embedding program asks.
    pub fn lent(model: LentModel, mask: Mask) -> Self {
        Self {
            models: Who::Lent(model, mask),
        }
    }

    /// The model that is asked: its name, and its window in tokens where that was said.
    ///
    /// # Errors
    /// Why there is no model.
    pub fn model(&self) -> Result<(&str, Option<u64>), NoModel> {
        match &self.models {
            Who::Own(models) => {
                let endpoint = models.endpoint();
                Ok((endpoint.model(), endpoint.context_length()))
            }
            Who::Lent(model, _) => Ok((&model.name, model.context_length)),
            Who::Nobody(reason) => Err(*reason),
        }
    }

    /// Where the model is asked; none where that is the embedding program's matter, or there is no model.
    pub fn endpoint(&self) -> Option<&Endpoint> {
        match &self.models {
            Who::Own(models) => Some(models.endpoint()),
            Who::Lent(..) | Who::Nobody(_) => None,
        }
    }

    /// Makes one model call and blocks until it is answered, fails permanently or `cancel` is set (noticed
    /// within 20 ms; the connection is closed). Only transient faults are retried: overload, rate limits
    /// and broken connections. A model that does not exist is replaced by the agent's own.
    ///
    /// # Errors
    /// The typed reason why there is no usable answer; the message says what happened and what to do, and
    /// never contains the key.
    pub fn complete(
        &self,
        request: &ModelRequest,
        cancel: &AtomicBool,
    ) -> Result<ModelAnswer, ModelFailure> {
        self.complete_many(std::slice::from_ref(request), cancel)
            .pop()
            .unwrap_or_else(|| Err(lost()))
    }

    /// Makes several model calls side by side, at most 8 at a time; the answers are in the order of the
    /// requests. When `cancel` is set, the answers received so far are kept.
    pub fn complete_many(
        &self,
        requests: &[ModelRequest],
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        let question = |request| Question {
            request,
            continued: None,
        };
        self.ask(requests.iter().map(question).collect(), cancel)
    }

    /// As [`complete_many`](Self::complete_many), with the conversation before the questions where they have a body
    /// that continues it. Where that gives nothing usable, they are asked as any other.
    pub fn ask(
        &self,
        questions: Vec<Question<'_>>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        match &self.models {
            Who::Own(models) => models.ask(questions, cancel),
            Who::Lent(model, mask) => ask_lent(model, *mask, &questions, cancel),
            Who::Nobody(reason) => {
                let failure = ModelFailure::new(FailureKind::NoProvider, reason.to_string());
                vec![Err(failure); questions.len()]
            }
        }
    }
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelClient").field(&self.model()).finish()
    }
}

/// Makes the calls in parallel. A running call cannot be stopped. Once `cancel` is set, it is no longer waited for, and
/// no further call starts.
fn ask_lent(
    model: &LentModel,
    mask: Mask,
    questions: &[Question<'_>],
    cancel: &AtomicBool,
) -> Vec<Result<ModelAnswer, ModelFailure>> {
    let requests = questions
        .iter()
        .map(|question| masked(question.request, mask));
    let waiting: VecDeque<_> = requests.enumerate().collect();
    let waiting = Arc::new(Mutex::new(waiting));
    let (sender, answers) = channel();
    for _ in 0..questions.len().min(AT_ONCE) {
        let (ask, waiting, sender) = (Arc::clone(&model.ask), Arc::clone(&waiting), sender.clone());
        let work = move || {
            loop {
                // The lock is held only to take the next call.
                let next = lock(&waiting).pop_front();
                let Some((at, request)) = next else { return };
                let _ = sender.send((at, ask(&request)));
            }
        };
        // If no thread can be started, the existing threads do the work.
        let _ = Builder::new()
            .name("contexture-lent-model".to_owned())
            .spawn(work);
    }
    drop(sender);
    let mut results: Vec<Option<_>> = questions.iter().map(|_| None).collect();
    let failure = loop {
        if cancel.load(Ordering::Relaxed) {
            lock(&waiting).clear();
            break cancelled();
        }
        match answers.recv_timeout(POLL) {
            Ok((at, answer)) => {
                if let Some(result) = results.get_mut(at) {
                    *result = Some(answer);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Every call has returned or panicked.
            Err(RecvTimeoutError::Disconnected) => break lost(),
        }
    };
    results
        .into_iter()
        .map(|result| result.unwrap_or_else(|| Err(failure.clone())))
        .collect()
}

/// The request without the secrets in it.
pub(super) fn masked(request: &ModelRequest, mask: Mask) -> ModelRequest {
    ModelRequest::new(
        request.purpose.clone(),
        mask(&request.system).into_owned(),
        mask(&request.prompt).into_owned(),
        request.max_tokens,
    )
}

/// A call that ended without an answer, which only a bug of ours can cause.
pub(super) fn lost() -> ModelFailure {
    ModelFailure::new(
        FailureKind::Other,
        "the model call ended without an answer; please report this as a bug of contexture",
    )
}

/// The failure of a call that the caller cancelled.
pub fn cancelled() -> ModelFailure {
    ModelFailure::new(FailureKind::Cancelled, "the model call was cancelled")
}
