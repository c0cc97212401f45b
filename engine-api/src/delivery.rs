//! The part of a conversation that a host shows to an engine.
//!
//! A conversation does not only grow. A client can cut it back, or send a message again in another
//! form. A [`Delivery`] reports all of that in one value: first what was cut ([`Cut`]), then which
//! messages are new forms of earlier ones, then the new messages.
//!
//! Engines that derive something from the messages read it in
//! [`observe`](crate::ContextEngine::observe). An engine without memory can ignore this module.

use serde::{Deserialize, Serialize};

use crate::message::{MessageId, MessageView};
use crate::window::WindowState;

/// How a conversation changed since an engine last saw it.
///
/// A delivery may come twice: if the call was given up, or if the process ended before the host had
/// recorded that it returned. An engine recognises a message that it has by its id. A message that
/// an earlier cut removed may come again too, and is then part of the conversation again.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Delivery<'a> {
    /// Where the conversation was cut back before these messages arrived, or `None` if nothing was
    /// cut.
    pub cut: Option<Cut>,
    /// The messages that are new forms of earlier ones, as pairs of the new id and the earlier id.
    /// The earlier message is no longer part of the conversation. A message that replaces one which
    /// the engine was never shown has no pair.
    pub revisions: &'a [(MessageId, MessageId)],
    /// The messages, in the order of their ids. The list can be empty if there is a cut.
    pub messages: &'a [MessageView<'a>],
}

impl<'a> Delivery<'a> {
    /// Creates a delivery of messages that are all new, without a cut.
    pub const fn new(messages: &'a [MessageView<'a>]) -> Self {
        Self {
            cut: None,
            revisions: &[],
            messages,
        }
    }

    /// Adds a cut that comes before the messages, if there is one.
    #[must_use]
    pub const fn after(self, cut: Option<Cut>) -> Self {
        Self { cut, ..self }
    }

    /// Adds the pairs of new and earlier ids, if some messages are new forms of earlier ones.
    #[must_use]
    pub const fn with_revisions(self, revisions: &'a [(MessageId, MessageId)]) -> Self {
        Self { revisions, ..self }
    }
}

/// A cut in a conversation: everything after a certain message is no longer part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Cut {
    /// The last message that stays, or `None` if no message stays.
    pub last: Option<MessageId>,
}

impl Cut {
    /// Creates a cut after this message. `None` removes the whole conversation.
    pub const fn after(last: Option<MessageId>) -> Self {
        Self { last }
    }

    /// Returns true if the message with this id is still part of the conversation after the cut.
    pub fn keeps(self, id: MessageId) -> bool {
        // `None` is smaller than every id, so a cut of everything keeps nothing.
        Some(id) <= self.last
    }
}

/// What an engine is told and asked in one step. If the engine runs in another process, one call
/// instead of two saves two context switches. The parts are handled in the order of the fields.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Follow<'a> {
    /// What the engine is shown, or `None` if there is nothing new.
    pub delivery: Option<Delivery<'a>>,
    /// The window to decide about, or `None` if no decision is needed.
    pub window: Option<&'a WindowState>,
}

impl<'a> Follow<'a> {
    /// Creates a step with these parts. Each part may be `None`.
    pub const fn new(delivery: Option<Delivery<'a>>, window: Option<&'a WindowState>) -> Self {
        Self { delivery, window }
    }
}
