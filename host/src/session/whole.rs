//! A whole conversation at once: what a file holds, rather than what a client sends.

use std::sync::Arc;

use contexture_engine_api::{Decision, MessageId};

use super::align::{Fate, align};
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

/// How a conversation compares with the one that a session holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// Messages of the session.
    pub held: usize,
    /// Messages that both have.
    pub common: usize,
    /// Messages of the session that the conversation has in another form.
    pub revised: usize,
    /// Messages that the conversation has beside these.
    pub new: usize,
    /// Messages at the session's end that the conversation has not: taking it in would cut them off.
    pub cut: usize,
}

impl Session {
    /// Compares a conversation with the one that the session holds, and changes nothing.
    ///
    /// # Errors
    /// A message of the conversation cannot be read.
    pub fn compare(&self, conversation: &Arc<Conversation>) -> Result<Comparison, SessionError> {
        let request = Request::of(conversation);
        let known = match self.history.carries_on(&request.raw) {
            true => &self.history.handed,
            false => &self.history.sent,
        };
        let alignment = align(known, &request.raw, request.joins(), |wires| {
            request.units(wires)
        })?;
        let count = |is: fn(Fate) -> bool| {
            let fates = alignment.rest.iter().map(|aligned| aligned.fate);
            fates.filter(|fate| is(*fate)).count()
        };
        Ok(Comparison {
            held: known.messages().len(),
            common: alignment.known + count(|fate| matches!(fate, Fate::Same(_))),
            revised: count(|fate| matches!(fate, Fate::Revises(_))),
            new: count(|fate| fate == Fate::New),
            cut: if alignment.cut {
                alignment.lost.len()
            } else {
                0
            },
        })
    }

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
