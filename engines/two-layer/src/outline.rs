//! The structure of a conversation: rounds of tool calls, turns, and the messages that belong
//! together.
//!
//! Both layers need the same facts, so [`Outline::of`] computes them in one pass. A *round* is a
//! message with tool calls and its results, and the newest rounds are left alone by Layer 1. A
//! *turn* begins with what the user says, and the newest turns are left alone by Layer 2. A *unit*
//! is a range of messages that must stay together. All positions are indices into the messages of
//! the request.

use std::ops::Range;

use contexture_engine_api::{
    MessageKind, MessageView, ToolPairs, in_flight, thinking_leads_to, whole_groups,
};

/// A conversation, read once. `waits_from` is the position from which results are still to come.
pub(crate) struct Outline<'m, 'a> {
    pub(crate) messages: &'m [MessageView<'a>],
    pub(crate) pairs: ToolPairs,
    /// The user's last message, which no layer shortens or summarises.
    pub(crate) question: Option<usize>,
    pub(crate) waits_from: usize,
    /// Ranges of messages that stay together. They are disjoint and sorted, and cover all messages,
    /// so a message on its own is a range of one.
    pub(crate) units: Vec<Range<usize>>,
}

impl<'m, 'a> Outline<'m, 'a> {
    pub(crate) fn of(messages: &'m [MessageView<'a>]) -> Self {
        let mut units: Vec<Range<usize>> = Vec::new();
        for group in whole_groups(messages) {
            let before = units.last().map_or(0, |unit| unit.end);
            units.extend((before..group.start).map(|at| at..at + 1));
            units.push(group);
        }
        let before = units.last().map_or(0, |unit| unit.end);
        units.extend((before..messages.len()).map(|at| at..at + 1));
        Self {
            messages,
            pairs: ToolPairs::of(messages),
            question: messages.iter().rposition(MessageView::is_real_user),
            waits_from: in_flight(messages).unwrap_or(messages.len()),
            units,
        }
    }

    /// Returns the message with the call that this tool result answers, or `None` if it is unknown.
    pub(crate) fn caller(&self, at: usize) -> Option<&'m MessageView<'a>> {
        self.pairs.call_of(at).map(|call| &self.messages[call])
    }

    /// Returns the position at which the newest `keep` rounds of tool calls begin. A round is a
    /// message that calls tools, together with its results. If there are fewer rounds, it is 0.
    pub(crate) fn recent_rounds(&self, keep: usize) -> usize {
        let mut begins: Vec<usize> = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            if message.role() != "tool" {
                continue;
            }
            let begin = self.pairs.call_of(at).unwrap_or(at);
            // A result without its call belongs to the same round as the result before it.
            let is_new =
                self.pairs.call_of(at).is_some() || self.messages[at - at.min(1)].role() != "tool";
            if is_new && begins.last() != Some(&begin) {
                begins.push(begin);
            }
        }
        let first = begins.len().checked_sub(keep.max(1));
        first.map_or(0, |at| begins[at])
    }

    /// Returns the positions at which turns begin. These are the messages of the user, except
    /// notices and summaries.
    pub(crate) fn turns(&self) -> Vec<usize> {
        let said = |message: &MessageView<'_>| {
            message.role() == "user"
                && matches!(
                    message.kind(),
                    MessageKind::Original | MessageKind::Replaced
                )
        };
        let places = self.messages.iter().enumerate();
        places
            .filter(|(_, message)| said(message))
            .map(|(at, _)| at)
            .collect()
    }

    /// Returns the number of the unit that contains this message, or the number of units if there
    /// is none.
    pub(crate) fn unit_of(&self, at: usize) -> usize {
        self.units.partition_point(|unit| unit.end <= at)
    }

    /// Whether a message has to stay unchanged if it stays. That holds for thinking about the
    /// current question, for a message of the model that follows one of nothing but thinking, and
    /// for calls in flight.
    pub(crate) fn is_untouchable(&self, at: usize) -> bool {
        let is_current = self.question.is_none_or(|question| at > question);
        is_current && self.messages[at].has_thinking()
            || thinking_leads_to(self.messages, at)
            || at >= self.waits_from
    }
}
