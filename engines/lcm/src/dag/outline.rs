//! Which messages of a window stay raw: the fresh tail, and before it the user's last message and the last
//! answer. No cut separates a tool call from its results, or thinking from what follows it.

use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, in_flight};
use contexture_summaries::Groups;

/// The number of messages that stay raw at any cost.
const MIN_TAIL: usize = 3;

/// The properties of the window that decide where it may be cut.
pub(crate) struct Outline {
    tokens: Vec<u64>,
    pub(crate) groups: Groups,
    /// The last assistant message with unanswered calls, and everything after it.
    pub(crate) in_flight: Option<Range<usize>>,
    /// The last message written by the user.
    pub(crate) last_user: Option<usize>,
    /// The last assistant message with text.
    last_answer: Option<usize>,
    /// The start of the assistant's last turn: the model has seen everything before it.
    pub(crate) last_turn: usize,
}

/// How much of the end of the window stays raw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protection {
    /// The fewest messages.
    pub(crate) messages: usize,
    /// The token budget.
    pub(crate) tokens: u64,
}

impl Protection {
    /// The minimum protection.
    pub(crate) const LEAST: Self = Self {
        messages: MIN_TAIL,
        tokens: 0,
    };
}

/// What stays raw: everything from `tail` on, and the islands before it.
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
            last_answer: messages.iter().rposition(|message| {
                message.role() == "assistant"
                    && message.kind() != MessageKind::Summary
                    && !message.text().trim().is_empty()
            }),
            last_turn,
        }
    }

    pub(crate) fn split(&self, protection: Protection) -> Split {
        let len = self.tokens.len();
        let mut by_tokens = len;
        let mut used = 0;
        while by_tokens > 0 {
            used += self.tokens[by_tokens - 1];
            if used > protection.tokens {
                break;
            }
            by_tokens -= 1;
        }
        let mut tail = by_tokens.min(len.saturating_sub(protection.messages.max(1)));
        if let Some(in_flight) = &self.in_flight {
            tail = tail.min(in_flight.start);
        }
        // Results that the model has not seen are not history yet.
        if self.last_turn < len {
            tail = tail.min(self.last_turn);
        }
        let tail = self.groups.cut_before(tail);
        let mut islands: Vec<Range<usize>> = [self.last_user, self.last_answer]
            .into_iter()
            .flatten()
            .filter(|at| *at < tail)
            .map(|at| self.groups.whole(at))
            .collect();
        islands.sort_unstable_by_key(|island| island.start);
        islands.dedup();
        Split { tail, islands }
    }
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::{MessageId, ToolCallView};

    use super::*;

    fn message(id: u64, role: &'static str) -> MessageView<'static> {
        MessageView::new(MessageId(id), role)
            .with_text("text")
            .with_tokens(10)
    }

    #[test]
    fn the_users_last_words_survive_a_long_run_of_tools() {
        let calls: Vec<[ToolCallView<'_>; 1]> = ["a", "b", "c", "d"]
            .iter()
            .map(|id| [ToolCallView::new(id, "ls", "{}")])
            .collect();
        let mut messages = vec![
            message(1, "user"),
            message(2, "assistant"),
            message(3, "user"),
        ];
        for (at, call) in calls.iter().enumerate() {
            let id = 4 + 2 * at as u64;
            messages.push(
                MessageView::new(MessageId(id), "assistant")
                    .with_tool_calls(call)
                    .with_tokens(10),
            );
            messages.push(
                MessageView::new(MessageId(id + 1), "tool")
                    .with_result_of(call[0].id(), "ls")
                    .with_tokens(10),
            );
        }
        let split = Outline::of(&messages).split(Protection {
            messages: 3,
            tokens: 0,
        });
        assert_eq!(
            split.tail, 7,
            "the cut moves before the call of the third last"
        );
        assert_eq!(split.islands, [1..2, 2..3]);
    }

    #[test]
    fn calls_in_flight_and_results_not_yet_seen_are_tail() {
        let two = [
            ToolCallView::new("a", "ls", "{}"),
            ToolCallView::new("b", "ls", "{}"),
        ];
        let mut messages: Vec<_> = (1..10).map(|id| message(id, "user")).collect();
        messages.push(
            MessageView::new(MessageId(10), "assistant")
                .with_tool_calls(&two)
                .with_tokens(10),
        );
        for id in 11..20 {
            messages.push(
                MessageView::new(MessageId(id), "tool")
                    .with_result_of("a", "ls")
                    .with_tokens(10),
            );
        }
        let outline = Outline::of(&messages);
        assert_eq!(outline.in_flight, Some(9..19));
        assert_eq!(outline.split(Protection::LEAST).tail, 9);
    }
}
