//! A model that says what a test tells it to.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;

use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};

use crate::{count, locked};

/// What a scripted model is called until it [`becomes`](ScriptedModel::becomes) another.
pub const MODEL_NAME: &str = "stand-in";

type Reply = Result<String, FailureKind>;
type Script = Box<dyn Fn(&ModelRequest) -> Reply + Send + Sync>;

/// The auxiliary model of a [`ScriptedHost`](crate::ScriptedHost). By default there is none, and each call
/// fails with [`FailureKind::NoProvider`]. A request larger than the model's window is refused as
/// [`FailureKind::TooLong`], whatever the script says.
#[derive(Default)]
pub struct ScriptedModel {
    info: Mutex<Option<ModelInfo>>,
    next: Mutex<VecDeque<Reply>>,
    script: Mutex<Option<Script>>,
    requests: Mutex<Vec<ModelRequest>>,
}

impl ScriptedModel {
    /// A model with a window of 20,000 tokens that answers each request like this.
    pub fn new(
        script: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) -> Self {
        let model = Self::default();
        model.becomes(MODEL_NAME, 20_000);
        model.now_says(script);
        model
    }

    /// From now on it has this name and this window.
    pub fn becomes(&self, name: &str, context_length: u64) {
        *locked(&self.info) = Some(ModelInfo::new(name.to_owned(), context_length));
    }

    /// From now on it answers like this, once the replies of [`will`](Self::will) are used up.
    pub fn now_says(
        &self,
        script: impl Fn(&ModelRequest) -> Result<String, FailureKind> + Send + Sync + 'static,
    ) {
        *locked(&self.script) = Some(Box::new(script));
    }

    /// The next request that has no reply yet is answered, or fails, like this.
    pub fn will(&self, reply: Result<&str, FailureKind>) {
        locked(&self.next).push_back(reply.map(str::to_owned));
    }

    /// How often it was called.
    pub fn calls(&self) -> usize {
        locked(&self.requests).len()
    }

    /// What it was asked, oldest first.
    pub fn requests(&self) -> Vec<ModelRequest> {
        locked(&self.requests).clone()
    }

    /// What an engine knows of it.
    pub fn info(&self) -> Option<ModelInfo> {
        locked(&self.info).clone()
    }

    /// Answers as the host would have it answer.
    ///
    /// # Errors
    /// The failure that was scripted, no model, or a request larger than the window.
    pub fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
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

    /// An answer of this text, as [`complete`](Self::complete) gives it.
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
