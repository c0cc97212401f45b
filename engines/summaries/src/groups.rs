//! Finds the positions at which a window may be cut.
//!
//! Some messages are valid only together, such as a tool call and its results. [`Groups`] is
//! computed once from the messages, and then answers in logarithmic time which cut near a position
//! is valid. Engines use [`Groups::cut_before`] and [`Groups::cut_after`] to move a boundary, and
//! [`Groups::whole`] to extend a single message to everything that belongs to it.
//!
//! [`tail_within`] and [`is_answer`] find what engines keep in the window: its end, and the last
//! answer before it.

use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, whole_groups};

/// The messages that no cut may separate, such as a tool call and its results. See
/// [`whole_groups`]. Positions are indices into the messages, and a cut at `at` stands before
/// message `at`.
#[derive(Debug, Clone, Default)]
pub struct Groups(Vec<Range<usize>>);

impl Groups {
    /// Finds the groups of these messages. They are disjoint and sorted.
    pub fn of(messages: &[MessageView<'_>]) -> Self {
        Self(whole_groups(messages))
    }

    /// The last valid cut at or before this position. It is `at` itself unless that falls inside a
    /// group.
    pub fn cut_before(&self, at: usize) -> usize {
        self.around(at).map_or(at, |group| group.start)
    }

    /// The first valid cut at or after this position. It is `at` itself unless that falls inside a
    /// group.
    pub fn cut_after(&self, at: usize) -> usize {
        self.around(at).map_or(at, |group| group.end)
    }

    /// The range of the message at this position together with everything that must not be
    /// separated from it.
    pub fn whole(&self, at: usize) -> Range<usize> {
        self.cut_before(at).min(at)..self.cut_after(at + 1)
    }

    /// The group that a cut at this position would separate, if any. The groups are disjoint and
    /// sorted, which permits a binary search.
    fn around(&self, at: usize) -> Option<&Range<usize>> {
        let after = self.0.partition_point(|group| group.start < at);
        let group = self.0.get(after.checked_sub(1)?)?;
        (at < group.end).then_some(group)
    }
}

/// The position from which on all messages have at most `most` tokens together. `tokens` has those
/// of each message.
pub fn tail_within(tokens: &[u64], most: u64) -> usize {
    let mut left = most;
    let fits = |tokens: &&u64| match left.checked_sub(**tokens) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    tokens.len() - tokens.iter().rev().take_while(fits).count()
}

/// Whether this is text that the assistant said, which no summary is.
pub fn is_answer(message: &MessageView<'_>) -> bool {
    message.role() == "assistant"
        && message.kind() != MessageKind::Summary
        && !message.text().trim().is_empty()
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::{MessageId, ToolCallView};

    use super::*;

    #[test]
    fn no_cut_is_inside_of_a_group() {
        let calls = [ToolCallView::new("c", "ls", "{}")];
        let said = |id| MessageView::new(MessageId(id), "assistant").with_text("said");
        let result = MessageView::new(MessageId(3), "tool").with_result_of("c", "ls");
        let groups = Groups::of(&[said(1), said(2).with_tool_calls(&calls), result, said(4)]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|at| groups.cut_before(at)),
            [0, 1, 1, 3, 4]
        );
        assert_eq!(
            [0, 1, 2, 3, 4].map(|at| groups.cut_after(at)),
            [0, 1, 3, 3, 4]
        );
        assert_eq!(
            [0, 1, 2, 3].map(|at| groups.whole(at)),
            [0..1, 1..3, 1..3, 3..4]
        );
    }
}
