//! Which messages of a window stay raw.
//!
//! A compaction keeps the fresh tail, which is the end of the conversation, and before it the
//! user's last message and the last answer. The model needs those to know what it is working on. No
//! cut separates a tool call from its results or thinking from what follows it, because providers
//! reject such requests.
//!
//! [`Outline::of`] finds these places in a window once. [`Outline::split`] then applies a
//! [`Protection`], so that a compaction can try weaker and weaker ones until the window is small
//! enough. What replaces the other messages is decided in `plan`.

use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, in_flight};
use contexture_summaries::{Groups, is_answer, tail_within};

/// The number of messages at the end that stay raw even with the weakest protection.
const MIN_TAIL: usize = 3;

/// The properties of a window that decide at which positions it may be cut. Positions are indexes
/// into the messages of the window.
pub(crate) struct Outline {
    tokens: Vec<u64>,
    pub(crate) groups: Groups,
    /// The range from the last assistant message with unanswered calls to the end. Results of these
    /// calls are still to come, so the range stays as it is.
    pub(crate) in_flight: Option<Range<usize>>,
    /// The position of the last message written by the user.
    pub(crate) last_user: Option<usize>,
    /// The position of the last assistant message with text, other than a summary.
    last_answer: Option<usize>,
    /// The start of the assistant's last turn. The model has seen everything before it. If no
    /// assistant message exists, it is the length of the window.
    pub(crate) last_turn: usize,
}

/// How much of the end of the window stays raw. The larger of the two limits applies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protection {
    /// The minimum number of messages that stay raw, whatever their size.
    pub(crate) messages: usize,
    /// The number of tokens within which further messages stay raw.
    pub(crate) tokens: u64,
    /// Whether the last answer stays raw. It is useful, but no request becomes invalid without it.
    pub(crate) last_answer: bool,
}

impl Protection {
    /// The weakest protection, for a window that does not fit otherwise.
    pub(crate) const LEAST: Self = Self {
        messages: MIN_TAIL,
        tokens: 0,
        last_answer: false,
    };
}

/// What stays raw: every position from `tail` on, and the islands before it. An island is a whole
/// group of messages that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    pub(crate) tail: usize,
    pub(crate) islands: Vec<Range<usize>>,
}

impl Split {
    pub(crate) fn keeps(&self, at: usize) -> bool {
        at >= self.tail || self.islands.iter().any(|island| island.contains(&at))
    }
}

impl Outline {
    pub(crate) fn of(messages: &[MessageView<'_>]) -> Self {
        let groups = Groups::of(messages);
        let last_assistant = messages.iter().rposition(|message| {
            message.role() == "assistant" && message.kind() != MessageKind::Summary
        });
        let last_turn = last_assistant.map_or(messages.len(), |at| groups.cut_before(at));
        Self {
            tokens: messages.iter().map(MessageView::tokens).collect(),
            groups,
            in_flight: in_flight(messages).map(|at| at..messages.len()),
            last_user: messages.iter().rposition(MessageView::is_real_user),
            last_answer: messages.iter().rposition(is_answer),
            last_turn,
        }
    }

    /// Applies a protection and returns what stays raw. Messages in flight and the assistant's last
    /// turn are always part of the tail, and its start is moved back so that it cuts no group in
    /// two.
    pub(crate) fn split(&self, protection: Protection) -> Split {
        let len = self.tokens.len();
        let mut tail = tail_within(&self.tokens, protection.tokens)
            .min(len.saturating_sub(protection.messages.max(1)));
        if let Some(in_flight) = &self.in_flight {
            tail = tail.min(in_flight.start);
        }
        // The model has not seen these results yet. They are what it works on next, so they are not
        // summarised.
        if self.last_turn < len {
            tail = tail.min(self.last_turn);
        }
        let tail = self.groups.cut_before(tail);
        let last_answer = self.last_answer.filter(|_| protection.last_answer);
        let mut islands: Vec<Range<usize>> = [self.last_user, last_answer]
            .into_iter()
            .flatten()
            .filter(|at| *at < tail)
            .map(|at| self.groups.whole(at))
            .collect();
        islands.sort_unstable_by_key(|island| island.start);
        // Both messages may be in the same group, which is one island then.
        islands.dedup();
        Split { tail, islands }
    }
}

#[cfg(test)]
mod tests;
