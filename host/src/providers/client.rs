//! The model client that sessions share: blocking calls from any thread.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};

use super::endpoint::{Endpoint, Wire};
use super::network::Models;
use super::resolve::{NoModel, Resolved};
use crate::formats::Format;

/// Replaces the secrets in a text before it leaves the machine.
pub type Mask = fn(&str) -> Cow<'_, str>;

/// The longest time limit of one request that makes sense; also keeps the clock from overflowing.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// A question, and the body that puts it to the agent's own model as the next message of the conversation that it has
/// in its cache.
pub(crate) struct Question<'q> {
    pub(crate) request: &'q ModelRequest,
    pub(crate) continued: Option<String>,
}

/// Makes model calls. Cheap to clone; clones share their limit of 8 open requests.
///
/// Calls block their thread and may come from any thread, those of a tokio runtime's blocking pool
/// included. The HTTP work runs on one thread of its own, started by the first call of the process.
#[derive(Clone)]
pub struct ModelClient {
    models: Result<Arc<Models>, NoModel>,
}

impl ModelClient {
    /// A client for what [`resolve`](super::resolve) decided. `timeout` limits one request; a call with
    /// its retries and pauses has twice as long. `mask` replaces the secrets in everything that is sent
    /// and in every server's words that a message quotes. Opens no connection.
    pub fn new(resolved: Resolved, timeout: Duration, mask: Mask) -> Self {
        let models = match resolved {
            Resolved::NoModel(reason) => Err(reason),
            Resolved::Model { endpoint, fallback } => {
                let fallback = fallback.map(|endpoint| *endpoint);
                Models::new(*endpoint, fallback, timeout.min(LONGEST_TIMEOUT), mask).map(Arc::new)
            }
        };
        Self { models }
    }

    /// Whether the model is the one that the agent itself uses, and takes bodies of this format.
    pub(crate) fn continues(&self, format: Format) -> bool {
        let wire = match format {
            Format::Anthropic => Wire::Anthropic,
            Format::OpenAiChat => Wire::OpenAi,
            _ => return false,
        };
        (self.endpoint()).is_ok_and(|endpoint| endpoint.is_agents() && endpoint.wire() == wire)
    }

    /// The model that is asked.
    ///
    /// # Errors
    /// Why there is no model.
    pub fn endpoint(&self) -> Result<&Endpoint, NoModel> {
        match &self.models {
            Ok(models) => Ok(models.endpoint()),
            Err(reason) => Err(*reason),
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
    pub(crate) fn ask(
        &self,
        questions: Vec<Question<'_>>,
        cancel: &AtomicBool,
    ) -> Vec<Result<ModelAnswer, ModelFailure>> {
        match &self.models {
            Ok(models) => models.ask(questions, cancel),
            Err(reason) => {
                let failure = ModelFailure::new(FailureKind::NoProvider, reason.to_string());
                vec![Err(failure); questions.len()]
            }
        }
    }
}

impl std::fmt::Debug for ModelClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModelClient")
            .field(&self.endpoint().map(ToString::to_string))
            .finish()
    }
}

/// A call that ended without an answer, which only a bug of ours can cause.
pub(super) fn lost() -> ModelFailure {
    ModelFailure::new(
        FailureKind::Other,
        "the model call ended without an answer; please report this as a bug of contexture",
    )
}
