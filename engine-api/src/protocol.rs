//! The owned protocol: every call between a host and an engine as a name and JSON text, with an answer as JSON
//! text, over whatever carries them.
//!
//! Each side ignores what it does not know and defaults what it misses. A method that the other side lacks is
//! answered with [`EngineError::UnknownMethod`], and done without. Where both sides are in one process, messages
//! are lent beside the text ([`MessageView`]); where they are not, a [`Call`] holds them.
//!
//! 1. The host says what it is ([`HostInfo`]), and the engine what it is ([`EngineDescription`]).
//! 2. The host makes the factory ([`Create`]), and opens sessions with it ([`Open`]).
//! 3. It calls the methods of [`ContextEngine`](crate::ContextEngine) on a session; the engine calls those of
//!    [`HostServices`](crate::HostServices) meanwhile.

pub(crate) mod engine_side;
pub(crate) mod follow;
#[cfg(feature = "host")]
pub(crate) mod host_side;
mod pipe;

use std::path::PathBuf;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::about::HostInfo;
use crate::compaction::CurrentCompaction;
use crate::delivery::{Cut, Delivery};
use crate::engine::FactoryRequest;
use crate::error::EngineError;
use crate::message::{MessageId, MessageView, OwnedMessage};
use crate::model::{ModelAnswer, ModelFailure};
use crate::services::{OpenRequest, Services};
use crate::window::WindowState;

pub use engine_side::{LentServices, serve};
pub use follow::{Expected, Follow, Followed, preflight};
#[cfg(feature = "host")]
pub use host_side::{RemoteEngine, serve_services};
pub use pipe::Frame;

/// What carries calls to the other side.
pub trait Carrier {
    /// Makes one call; `messages` are lent for its length.
    ///
    /// # Errors
    /// What the other side answered, or [`EngineError::Protocol`] where it could not be reached.
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError>;

    /// A shorter way to the service `count_tokens`, where there is one.
    fn count_tokens(&self, text: &str) -> Option<u64> {
        let _ = text;
        None
    }

    /// A shorter way to the service `is_cancelled`, where there is one.
    fn is_cancelled(&self) -> Option<bool> {
        None
    }
}

/// A call as one value, for a carrier that can lend nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Call {
    /// The method's name.
    pub method: String,
    /// Its argument: JSON text.
    pub argument: String,
    /// The messages that it is about.
    #[serde(default)]
    pub messages: Vec<OwnedMessage>,
    /// Where it is about a window, the ids of all that stands there, in order: what is not among `messages` is as it was
    /// in the last such call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Vec<MessageId>>,
}

impl Call {
    /// This call, with what it borrows.
    pub fn new(method: &str, argument: &str, messages: &[MessageView<'_>]) -> Self {
        Self {
            method: method.to_owned(),
            argument: argument.to_owned(),
            messages: messages.iter().map(OwnedMessage::from).collect(),
            window: None,
        }
    }

    /// The same about a window in which these stand.
    #[must_use]
    pub fn of_window(self, window: Vec<MessageId>) -> Self {
        Self {
            window: Some(window),
            ..self
        }
    }
}

/// What makes a factory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Create {
    /// As in [`FactoryRequest`](crate::FactoryRequest), and so are the others.
    pub settings: String,
    /// The engine's own directory.
    pub data_dir: PathBuf,
    /// The host.
    #[serde(default)]
    pub host: HostInfo,
}

impl Create {
    /// What is asked, owned.
    pub fn of(request: &FactoryRequest<'_>) -> Self {
        Self {
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
            host: request.host.clone(),
        }
    }

    /// What is asked, as a factory is asked it.
    pub fn request(&self) -> FactoryRequest<'_> {
        FactoryRequest::new(&self.settings, &self.data_dir, &self.host)
    }
}

/// What opens a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Open {
    /// As in [`OpenRequest`](crate::OpenRequest), and so are the others.
    pub session: String,
    /// The settings.
    pub settings: String,
    /// The engine's own directory.
    pub data_dir: PathBuf,
    /// The window, empty of messages.
    #[serde(default)]
    pub window: WindowState,
    /// The compaction in force.
    #[serde(default)]
    pub compaction: Option<CurrentCompaction>,
}

impl Open {
    /// What is asked, owned; the services stay where they are.
    pub fn of(request: &OpenRequest<'_>) -> Self {
        Self {
            session: request.session.to_owned(),
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
            window: request.window.clone(),
            compaction: request.compaction.cloned(),
        }
    }

    /// What is asked, as a factory is asked it.
    pub fn request(&self, services: Services) -> OpenRequest<'_> {
        OpenRequest::new(
            &self.session,
            &self.settings,
            &self.data_dir,
            services,
            &self.window,
        )
        .compaction(self.compaction.as_ref())
    }
}

/// A [`Delivery`](crate::Delivery) beside its messages.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Delivered {
    /// As in [`Delivery`](crate::Delivery), and so are the others.
    pub cut: Option<Cut>,
    /// The new id and the earlier one.
    pub revisions: Vec<(MessageId, MessageId)>,
    /// The host's chain hash.
    pub chain: u64,
}

impl Delivered {
    #[cfg(feature = "host")]
    pub(crate) fn of(delivery: &Delivery<'_>) -> Self {
        Self {
            cut: delivery.cut,
            revisions: delivery.revisions.to_vec(),
            chain: delivery.chain,
        }
    }

    pub(crate) fn over<'a>(&'a self, messages: &'a [MessageView<'a>]) -> Delivery<'a> {
        Delivery::new(messages, self.chain)
            .after(self.cut)
            .with_revisions(&self.revisions)
    }
}

pub(crate) type AnswerToCall = Result<ModelAnswer, ModelFailure>;

methods! {
    /// The methods of an engine.
    pub enum EngineMethod {
        ShouldCompress = "should_compress",
        Compress = "compress",
        ObservedThrough = "observed_through",
        Observe = "observe",
        Follow = "follow",
        UpdateUsage = "update_usage",
        ShouldCompressPreflight = "should_compress_preflight",
        DefersPreflight = "defers_preflight_to_reported_usage",
        HasContent = "has_content_to_compress",
        Prune = "prune_tool_results",
        Rewrite = "rewrite",
        Select = "select",
        Committed = "committed",
        Discarded = "discarded",
        Recall = "recall",
        MayCallTools = "may_call_tools",
        Tools = "tools",
        CallTool = "call_tool",
        WantsRestored = "wants_restored",
        TurnComplete = "turn_complete",
        Background = "background",
        BackgroundDone = "background_done",
        ModelChanged = "model_changed",
        Reset = "reset",
        End = "end",
        Status = "status",
    }
}

methods! {
    /// The methods of the services that a host lends.
    pub enum ServiceMethod {
        Supports = "supports",
        Model = "model",
        Complete = "complete",
        CompleteMany = "complete_many",
        CountTokens = "count_tokens",
        Log = "log",
        IsCancelled = "is_cancelled",
        NowMs = "now_ms",
        MayReadSession = "may_read_session",
        Transcript = "transcript",
        Artifact = "artifact",
        PutArtifact = "put_artifact",
        Artifacts = "artifacts",
    }
}

/// What `services.supports` knows by name: the methods, the services and the entries of this version.
pub(crate) fn features() -> impl Iterator<Item = &'static str> {
    let all = [
        EngineMethod::NAMES,
        ServiceMethod::NAMES,
        crate::Entry::NAMES,
    ];
    all.into_iter().flatten().copied()
}

/// A value as JSON text.
///
/// # Errors
/// [`EngineError::Protocol`] for one that JSON cannot say.
pub fn write<T: Serialize + ?Sized>(value: &T) -> Result<String, EngineError> {
    serde_json::to_string(value).map_err(|error| EngineError::Protocol(error.to_string()))
}

/// A value from JSON text.
///
/// # Errors
/// [`EngineError::Protocol`] that shows how the text begins.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, EngineError> {
    serde_json::from_str(text).map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        EngineError::Protocol(format!("{error} in `{shown}`"))
    })
}

/// An error as JSON text.
pub(crate) fn write_error(error: &EngineError) -> String {
    // An error is two strings at most; should it fail to serialise all the same, an empty text reads
    // back as a broken answer.
    serde_json::to_string(error).unwrap_or_default()
}

/// An error from JSON text; one that only a later version knows by its name and what it says.
pub(crate) fn read_error(text: &str) -> EngineError {
    read(text).unwrap_or_else(|broken| match read::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(one)) if one.len() == 1 => {
            let said = one.iter().map(|(name, value)| format!("{name}: {value}"));
            EngineError::Other(said.collect())
        }
        _ => broken,
    })
}
