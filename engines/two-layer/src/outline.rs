//! What a conversation is made of: rounds of tool calls, turns, and what must stay whole.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, in_flight, thinking_leads_to, whole_groups};

/// A conversation, read once.
pub(crate) struct Outline<'m, 'a> {
    pub(crate) messages: &'m [MessageView<'a>],
    /// For each tool result the message with its call.
    pub(crate) call_of: Vec<Option<usize>>,
    /// The user's last message.
    pub(crate) question: Option<usize>,
    /// From here on results are still to come.
    pub(crate) waits_from: usize,
    /// Spans that stay together, one for each message that belongs to no other: disjoint, in order, all of it.
    pub(crate) units: Vec<Range<usize>>,
}

impl<'m, 'a> Outline<'m, 'a> {
    pub(crate) fn of(messages: &'m [MessageView<'a>]) -> Self {
        let mut callers: HashMap<&str, usize> = HashMap::new();
        let mut call_of = vec![None; messages.len()];
        for (at, message) in messages.iter().enumerate() {
            for call in message.tool_calls() {
                callers.insert(call.id(), at);
            }
            call_of[at] = (message.tool_call_id()).and_then(|id| callers.get(id).copied());
        }
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
            call_of,
            question: messages.iter().rposition(MessageView::is_real_user),
            waits_from: in_flight(messages).unwrap_or(messages.len()),
            units,
        }
    }

    /// The message with the call that this one answers.
    pub(crate) fn caller(&self, at: usize) -> Option<&'m MessageView<'a>> {
        self.call_of[at].map(|call| &self.messages[call])
    }

    /// Where the newest `keep` rounds of tool calls begin: a round is a message that calls and its results.
    pub(crate) fn recent_rounds(&self, keep: usize) -> usize {
        let mut begins: Vec<usize> = Vec::new();
        for (at, message) in self.messages.iter().enumerate() {
            if message.role() != "tool" {
                continue;
            }
            let begin = self.call_of[at].unwrap_or(at);
            // A result without its call goes with the one before it.
            let is_new =
                self.call_of[at].is_some() || self.messages[at - at.min(1)].role() != "tool";
            if is_new && begins.last() != Some(&begin) {
                begins.push(begin);
            }
        }
        let first = begins.len().checked_sub(keep.max(1));
        first.map_or(0, |at| begins[at])
    }

    /// Where turns begin: with what the user says.
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

    /// The unit that this message belongs to.
    pub(crate) fn unit_of(&self, at: usize) -> usize {
        self.units.partition_point(|unit| unit.end <= at)
    }

    /// Whether this message has to be left as it is or leave: thinking about the question, what of the model's a message
    /// of nothing but thinking leads to, and calls in flight.
    pub(crate) fn is_untouchable(&self, at: usize) -> bool {
        let is_current = self.question.is_none_or(|question| at > question);
        is_current && self.messages[at].has_thinking()
            || thinking_leads_to(self.messages, at)
            || at >= self.waits_from
    }
}
