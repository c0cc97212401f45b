//! What an engine is shown of a conversation.

use serde::{Deserialize, Serialize};

use crate::message::{MessageId, MessageView};

/// What became of a conversation since an engine last saw it. It is taken in whole or not at all: an engine that
/// forgot what was cut off, and then did not get what came in its place, might be the only one that had the words.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Delivery<'a> {
    /// Where the conversation was cut back before these messages came.
    pub cut: Option<Cut>,
    /// Which of the messages are other forms of earlier ones: each new id, and the id of the message that it stands
    /// in for, which is no longer part of the conversation.
    pub revisions: &'a [(MessageId, MessageId)],
    /// The messages, in the order of their ids. There may be none where there is a cut.
    pub messages: &'a [MessageView<'a>],
    /// The host's chain hash after the last of them, to be given back by
    /// [`observed_through`](crate::ContextEngine::observed_through).
    pub chain: u64,
}

impl<'a> Delivery<'a> {
    /// Messages that are all new.
    pub const fn new(messages: &'a [MessageView<'a>], chain: u64) -> Self {
        Self {
            cut: None,
            revisions: &[],
            messages,
            chain,
        }
    }

    /// The same after a cut.
    #[must_use]
    pub const fn after(self, cut: Option<Cut>) -> Self {
        Self { cut, ..self }
    }

    /// The same where some messages are other forms of earlier ones.
    #[must_use]
    pub const fn with_revisions(self, revisions: &'a [(MessageId, MessageId)]) -> Self {
        Self { revisions, ..self }
    }
}

/// A cut: everything after a message is no longer part of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cut {
    /// The last message that stays; none where none does.
    pub last: Option<MessageId>,
}

impl Cut {
    /// A cut after this message.
    pub const fn after(last: Option<MessageId>) -> Self {
        Self { last }
    }

    /// Whether a message came before it.
    pub fn keeps(self, id: MessageId) -> bool {
        Some(id) <= self.last
    }
}
