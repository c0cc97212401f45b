//! What an engine answers when it cannot do what it was asked.

use serde::{Deserialize, Serialize};

use crate::model::ModelFailure;

/// Why an engine could not do what it was asked. The host decides what becomes of the turn
/// (`on_failure`); the conversation is untouched in any case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EngineError {
    /// The settings under `context.engines.<name>` are wrong.
    #[error("settings: {0}")]
    Settings(String),
    /// The engine's own store failed: a full disk, a lock, a damaged file.
    #[error("storage: {0}")]
    Storage(String),
    /// A model call failed and the engine has nothing to put in its place.
    #[error("model: {0}")]
    Model(ModelFailure),
    /// The engine does not offer this tool or method.
    #[error("{0} is not supported by this engine")]
    Unsupported(String),
    /// The arguments of a tool call are wrong.
    #[error("invalid input: {0}")]
    InvalidInput(String),
    /// The host asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// The engine panicked. Its session is closed to it. (Only the ABI guard and the host make this.)
    #[error("panicked: {0}")]
    Panicked(String),
    /// What crossed the boundary could not be read. (Only the ABI and the host make this.)
    #[error("broken answer: {0}")]
    Protocol(String),
    /// The other side is of a version that has no such method. (Only the protocol makes this.)
    #[error("its version has no method `{0}`")]
    UnknownMethod(String),
    /// The process that it ran in ended. (Only a host that runs engines in processes of their own makes this.)
    #[error("{0}")]
    Gone(String),
    /// Anything else, and what a later version calls by a name that this one does not know.
    #[error("{0}")]
    Other(String),
}

impl From<ModelFailure> for EngineError {
    fn from(failure: ModelFailure) -> Self {
        Self::Model(failure)
    }
}
