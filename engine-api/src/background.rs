//! Model calls that an engine wants made between turns.
//!
//! A background call is data: the engine returns it from
//! [`background`](crate::ContextEngine::background), and the host makes it when nobody waits for an
//! answer.

use serde::{Deserialize, Serialize};

use crate::message::MessageId;
use crate::model::ModelRequest;

open_struct! {
    /// A model call that an engine wants made while nobody waits for it. The answer arrives in
    /// [`background_done`](crate::ContextEngine::background_done).
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct BackgroundCall {
        /// A number that the engine chooses. The answer comes with the same number, so two calls
        /// that are open at the same time must not share one.
        pub id: u64,
        /// The messages that the call is about. If one of them leaves the conversation, the host
        /// discards the answer.
        #[serde(default)]
        pub covers: Vec<MessageId>,
        /// The question to the model.
        pub request: ModelRequest,
    }
}

impl BackgroundCall {
    /// Creates the call number `id` about these messages.
    pub fn new(id: u64, covers: Vec<MessageId>, request: ModelRequest) -> Self {
        Self {
            id,
            covers,
            request,
        }
    }
}
