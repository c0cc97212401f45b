//! The error type of engines.

use serde::{Deserialize, Serialize};

use crate::model::ModelFailure;

/// Why an engine could not do what it was asked to do. The conversation is unchanged in every case.
/// What happens to the turn is decided by the host's configuration (`context.on_failure`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EngineError {
    /// The settings under `context.engines.<name>` are wrong. The text names the key.
    #[error("settings: {0}")]
    Settings(String),
    /// The engine's own store failed, for example because the disk is full or the file is locked or
    /// damaged.
    #[error("storage: {0}")]
    Storage(String),
    /// A model call failed, and the engine has no result to use instead.
    #[error("model: {0}")]
    Model(ModelFailure),
    /// The engine does not have this tool or method.
    #[error("{0} is not supported by this engine")]
    Unsupported(String),
    /// The arguments of a tool call are wrong. The text says what is wrong with them.
    #[error("{0}")]
    InvalidInput(String),
    /// The host asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The engine panicked, and its session is closed. Only the ABI guard and the host create this.
    #[error("panicked: {0}")]
    Panicked(String),
    /// The other side sent something that could not be read. Only the protocol and the ABI create
    /// this.
    #[error("broken answer: {0}")]
    Protocol(String),
    /// The version of the other side does not have this method. Only the protocol creates this, and
    /// the caller then uses the method's default.
    #[error("its version has no method `{0}`")]
    UnknownMethod(String),
    /// The process that the engine ran in has ended. Only a host that runs engines in separate
    /// processes creates this.
    #[error("{0}")]
    Gone(String),
    /// Any other failure. An error of a later version arrives as this, with its name in the text.
    #[error("{0}")]
    Other(String),
}

impl From<ModelFailure> for EngineError {
    fn from(failure: ModelFailure) -> Self {
        Self::Model(failure)
    }
}
