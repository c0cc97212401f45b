//! A scripted model.
//!
//! [`ScriptedModel`] is the auxiliary model of a [`ScriptedHost`](crate::ScriptedHost). A test
//! decides what it answers: with [`will`](ScriptedModel::will) for single requests in order, and
//! with [`now_says`](ScriptedModel::now_says) for all requests after these. Without either it gives
//! a short fixed answer.
//!
//! The model remembers every request, so a test can check what an engine asked and how often. One
//! rule cannot be scripted away: a request that is larger than the model's window fails.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};

use crate::chat::count;
use crate::locked;

/// The name of a scripted model until [`becomes`](ScriptedModel::becomes) gives it another.
pub const MODEL_NAME: &str = "stand-in";

type Reply = Result<String, FailureKind>;
type ReplyFn = Box<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

/// The auxiliary model of a [`ScriptedHost`](crate::ScriptedHost). By default there is none, and
/// each call fails with [`FailureKind::NoProvider`]. If a request and the limit of its answer
/// together exceed the model's window, it fails with [`FailureKind::TooLong`], whatever the script
/// says.
#[derive(Default)]
pub struct ScriptedModel {
    info: Mutex<Option<ModelInfo>>,
    next: Mutex<VecDeque<Reply>>,
    script: Mutex<Option<ReplyFn>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    /// Creates a model with a window of 20,000 tokens that answers every request with `script`.
    pub fn new(
        script: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) -> Self {
        let model = Self::default();
        model.becomes(MODEL_NAME, 20_000);
        model.now_says(script);
        model
    }

    /// Gives the model this name and a window of `context_length` tokens. A host without a model
    /// has one from now on.
    pub fn becomes(&self, name: &str, context_length: u64) {
        *locked(&self.info) = Some(ModelInfo::new(name.to_owned(), context_length));
    }

    /// Gives the model this [`fingerprint`](ModelInfo::fingerprint), as if its address or its key had
    /// changed.
    pub fn is_at(&self, fingerprint: &str) {
        if let Some(info) = &mut *locked(&self.info) {
            fingerprint.clone_into(&mut info.fingerprint);
        }
    }

    /// Answers with `script` from now on, once the replies of [`will`](Self::will) are used up.
    /// `script` is locked while it runs, so it must not call this method itself.
    pub fn now_says(
        &self,
        script: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) {
        *locked(&self.script) = Some(Box::new(script));
    }

    /// Adds a reply or a failure for one request. Replies are used in the order in which they were
    /// added.
    pub fn will(&self, reply: Result<&str, FailureKind>) {
        locked(&self.next).push_back(reply.map(str::to_owned));
    }

    /// Returns how often the model was called, including calls that failed.
    pub fn calls(&self) -> usize {
        locked(&self.requests).len()
    }

    /// Returns all requests to the model, oldest first. A request that failed is among them.
    pub fn requests(&self) -> Vec<ModelRequest> {
        locked(&self.requests).clone()
    }

    /// Returns what an engine learns of the model, or `None` if there is no model.
    pub fn info(&self) -> Option<ModelInfo> {
        locked(&self.info).clone()
    }

    /// Answers a request as the host would have it answered, and remembers the request.
    ///
    /// # Errors
    /// Returns the scripted failure, [`FailureKind::NoProvider`] if there is no model, or
    /// [`FailureKind::TooLong`] if the request does not fit the window.
    pub fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        // Noted before anything can fail, so that a test sees failed attempts too.
        locked(&self.requests).push(request.clone());
        let fails = |kind| ModelFailure::new(kind, format!("scripted: {kind:?}"));
        let Some(info) = self.info() else {
            return Err(fails(FailureKind::NoProvider));
        };
        let used = count(&request.system) + count(&request.prompt) + request.max_tokens;
        if used > info.context_length {
            return Err(fails(FailureKind::TooLong));
        }
        let next = locked(&self.next).pop_front();
        let reply = next.unwrap_or_else(|| match &*locked(&self.script) {
            Some(script) => script(request),
            None => Ok("## Goal\nThe model's notes.".to_owned()),
        });
        reply.map(Self::answer).map_err(fails)
    }

    /// Creates an answer with this text, as [`complete`](Self::complete) returns it. Use it to
    /// answer background calls by hand.
    pub fn answer(text: impl Into<String>) -> ModelAnswer {
        ModelAnswer::new(text, MODEL_NAME.to_owned())
            .input_tokens(0)
            .output_tokens(0)
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScriptedModel")
            .field("info", &self.info())
            .field("calls", &self.calls())
            .finish_non_exhaustive()
    }
}
