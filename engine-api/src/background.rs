//! Background work, as data: model calls that an engine would like made between turns.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;
use crate::model::ModelRequest;

/// A model call that an engine would like made while nobody waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackgroundCall {
    /// The engine's number for it; the answer carries it.
    pub id: u64,
    /// The messages it is about. The answer is discarded once one of them is no longer in the
    /// conversation.
    pub covers: Vec<MessageId>,
    /// The call.
    pub request: ModelRequest,
}
