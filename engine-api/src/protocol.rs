//! The protocol between a host and an engine, independent of what carries it.
//!
//! Every call is a method name, an argument as JSON text, and an answer as JSON text. A [`Carrier`]
//! transports it: a table of functions in a cdylib, or a stream to another process. If both sides
//! are in one process, messages are lent next to the text as [`MessageView`]. Otherwise a [`Call`]
//! contains them.
//!
//! Each side ignores what it does not know and uses defaults for what is missing. A method that the
//! other side does not have is answered with [`EngineError::UnknownMethod`], and the caller goes on
//! without it.
//!
//! 1. The host sends its [`HostInfo`], and the engine answers with its
//!    [`EngineDescription`](crate::EngineDescription).
//! 2. The host makes the factory with [`Create`] and opens sessions with [`Open`].
//! 3. The host calls the methods of [`ContextEngine`](crate::ContextEngine) on a session. The engine
//!    calls the services of the host, [`HostServices`](crate::HostServices), during these calls and
//!    from its own threads.

pub(crate) mod engine_side;
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

pub use crate::delivery::Follow;
pub use crate::methods::takes_messages;
pub use engine_side::{LentServices, serve};
#[cfg(feature = "host")]
pub use host_side::{RemoteEngine, serve_services};
pub use pipe::Frame;

/// A transport that carries calls to the other side. Implement it to run engines behind a new kind
/// of boundary. `RemoteEngine` and [`LentServices`] then do the rest.
pub trait Carrier {
    /// Makes one call and waits for its answer. The `messages` are lent only until the call
    /// returns.
    ///
    /// # Errors
    /// Returns the error that the other side answered, or [`EngineError::Protocol`] if the other
    /// side could not be reached.
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError>;

    /// Whether a call costs a switch to another process, so that it is worth to join the calls of a
    /// turn into one, `follow`. If not, an engine is asked for each of them alone and needs no such
    /// method.
    fn joins_calls(&self) -> bool {
        true
    }

    /// Counts tokens without JSON, if the carrier has a faster way to the service `count_tokens`.
    /// Otherwise returns `None`, and the service is called as usual.
    fn count_tokens(&self, text: &str) -> Option<u64> {
        let _ = text;
        None
    }

    /// Asks for cancellation without JSON, if the carrier has a faster way to the service
    /// `is_cancelled`. Otherwise returns `None`, and the service is called as usual.
    fn is_cancelled(&self) -> Option<bool> {
        None
    }
}

/// A call as one value that owns its messages, for a carrier that cannot lend them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Call {
    /// The name of the method.
    pub method: String,
    /// The argument of the method, as JSON text.
    pub argument: String,
    /// The messages of the call. If `window` is set, these are only the messages that the other
    /// side does not have yet.
    #[serde(default)]
    pub messages: Vec<OwnedMessage>,
    /// If the call is about a window, the ids of all its messages in order. A message that is not
    /// in `messages` is unchanged since the last such call. `None` if `messages` is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<Vec<MessageId>>,
}

impl Call {
    /// Creates a call that owns copies of the argument and the messages.
    pub fn new(method: &str, argument: &str, messages: &[MessageView<'_>]) -> Self {
        Self {
            method: method.to_owned(),
            argument: argument.to_owned(),
            messages: messages.iter().map(OwnedMessage::from).collect(),
            window: None,
        }
    }

    /// Marks the call as being about a window of these messages. The caller may then leave out of
    /// `messages` what the other side already has.
    #[must_use]
    pub fn of_window(self, window: Vec<MessageId>) -> Self {
        Self {
            window: Some(window),
            ..self
        }
    }
}

/// The arguments for making a factory: a [`FactoryRequest`] that owns its
/// data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Create {
    /// The settings under `context.engines.<name>` as JSON text.
    pub settings: String,
    /// The engine's own directory.
    pub data_dir: PathBuf,
    /// The host's version and features. It is empty if an older host did not send it.
    #[serde(default)]
    pub host: HostInfo,
}

impl Create {
    /// Copies a request into this form.
    pub fn of(request: &FactoryRequest<'_>) -> Self {
        Self {
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
            host: request.host.clone(),
        }
    }

    /// Returns the request that this was made from. It borrows from `self`.
    pub fn request(&self) -> FactoryRequest<'_> {
        FactoryRequest::new(&self.settings, &self.data_dir, &self.host)
    }
}

/// The arguments for opening a session: an [`OpenRequest`] that owns its data,
/// without the services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Open {
    /// The id of the session.
    pub session: String,
    /// The settings under `context.engines.<name>` as JSON text.
    pub settings: String,
    /// The engine's own directory.
    pub data_dir: PathBuf,
    /// The window of the agent's model, without messages.
    #[serde(default)]
    pub window: WindowState,
    /// The compaction that is in force, or `None` if the session has none.
    #[serde(default)]
    pub compaction: Option<CurrentCompaction>,
}

impl Open {
    /// Copies a request into this form. The services cannot be sent, so they are left out.
    pub fn of(request: &OpenRequest<'_>) -> Self {
        Self {
            session: request.session.to_owned(),
            settings: request.settings.to_owned(),
            data_dir: request.data_dir.to_owned(),
            window: request.window.clone(),
            compaction: request.compaction.cloned(),
        }
    }

    /// Returns the request that this was made from, with the given services added.
    pub fn request(&self, services: Services) -> OpenRequest<'_> {
        OpenRequest::new(
            &self.session, &self.settings, &self.data_dir, services, &self.window,
        )
        .compaction(self.compaction.as_ref())
    }
}

/// A [`Delivery`](crate::Delivery) without its messages, which are lent or sent separately.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Delivered {
    pub cut: Option<Cut>,
    pub revisions: Vec<(MessageId, MessageId)>,
}

impl Delivered {
    #[cfg(feature = "host")]
    pub(crate) fn of(delivery: &Delivery<'_>) -> Self {
        Self {
            cut: delivery.cut,
            revisions: delivery.revisions.to_vec(),
        }
    }

    pub(crate) fn over<'a>(&'a self, messages: &'a [MessageView<'a>]) -> Delivery<'a> {
        Delivery::new(messages)
            .after(self.cut)
            .with_revisions(&self.revisions)
    }
}

/// A [`Follow`] without the messages of its delivery, which are lent or sent separately.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Following {
    delivery: Option<Delivered>,
    window: Option<WindowState>,
}

impl Following {
    #[cfg(feature = "host")]
    pub(crate) fn of(step: &Follow<'_>) -> Self {
        Self {
            delivery: step.delivery.as_ref().map(Delivered::of),
            window: step.window.cloned(),
        }
    }

    pub(crate) fn over<'a>(&'a self, messages: &'a [MessageView<'a>]) -> Follow<'a> {
        Follow {
            delivery: (self.delivery.as_ref()).map(|delivered| delivered.over(messages)),
            window: self.window.as_ref(),
        }
    }
}

pub(crate) type AnswerToCall = Result<ModelAnswer, ModelFailure>;

/// Writes a value as JSON text.
///
/// # Errors
/// Returns [`EngineError::Protocol`] if the value has no JSON form.
pub fn write<T: Serialize + ?Sized>(value: &T) -> Result<String, EngineError> {
    serde_json::to_string(value).map_err(|error| EngineError::Protocol(error.to_string()))
}

/// Reads a value from JSON text.
///
/// # Errors
/// Returns [`EngineError::Protocol`] with the beginning of the text if it does not match `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, EngineError> {
    serde_json::from_str(text).map_err(|error| {
        // The whole text may be a conversation. Its beginning is enough to recognise it in a log.
        let shown: String = text.chars().take(80).collect();
        let error = error.to_string();
        // What the parser says of a variant with a second key, which the text of valid JSON has no
        // comma too much in.
        let is_json = || serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
        let error = match error.strip_prefix("trailing comma") {
            Some(place) if is_json() => {
                format!("an object with more than one key, of which only one is allowed,{place}")
            }
            _ => error,
        };
        EngineError::Protocol(format!("{error} in `{shown}`"))
    })
}

/// Writes an error as JSON text, for the other side to read with [`read_error`].
pub(crate) fn write_error(error: &EngineError) -> String {
    // An error contains two strings at most, so this should not fail. If it does, the empty text is
    // read back as a broken answer.
    serde_json::to_string(error).unwrap_or_default()
}

/// Reads an error from JSON text. If only a later version knows the error, the result is
/// [`EngineError::Other`] with its name and content.
pub(crate) fn read_error(text: &str) -> EngineError {
    read(text).unwrap_or_else(|broken| match read::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(one)) if one.len() == 1 => {
            let said = one.iter().map(|(name, value)| format!("{name}: {value}"));
            EngineError::Other(said.collect())
        }
        _ => broken,
    })
}
