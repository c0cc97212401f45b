//! A whole conversation at once: what a file holds, rather than what a client sends.

use std::sync::Arc;

use contexture_engine_api::{Decision, MessageId};

use super::turn::Request;
use super::{Session, SessionError};
use crate::formats::Conversation;

/// What came of taking a conversation in.
#[derive(Debug)]
pub struct Taken {
    /// Whether a compaction is due, and why.
    pub decision: Decision,
    /// The messages that were not known before, in order; revisions are among them.
    pub new: Vec<MessageId>,
}

impl Session {
    /// Takes in a conversation that was read from a document: finds out what of it is new, and shows that
    /// to the engine. The window is the conversation with the compaction in force; its messages are those
    /// of `conversation`. `shown` is told how many messages went over to the engine at a time.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn take(
        &mut self,
        conversation: &Arc<Conversation>,
        shown: &mut dyn FnMut(usize),
    ) -> Result<Taken, SessionError> {
        self.set_frame(conversation);
        let request = Request::of(conversation);
        let arrival = self.take_in(&request)?;
        let decision = self.show(Some(&request), arrival.slots, shown)?;
        Ok(Taken {
            decision,
            new: arrival.new,
        })
    }
}
