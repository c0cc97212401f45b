//! Background work, as data: model calls that an engine would like made between turns.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;
use crate::model::ModelRequest;

open_struct! {
    /// A model call that an engine would like made while nobody waits.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BackgroundCall {
        /// The engine's number for it; the answer carries it.
        pub id: u64,
        /// The messages it is about. The answer is discarded once one of them is no longer in the
        /// conversation.
        #[serde(default)]
        pub covers: Vec<MessageId>,
        /// The call.
        pub request: ModelRequest,
    }
}

impl BackgroundCall {
    /// The call `id` about these messages.
    pub fn new(id: u64, covers: Vec<MessageId>, request: ModelRequest) -> Self {
        Self {
            id,
            covers,
            request,
        }
    }
}
