//! Which messages of a window stay raw: the fresh tail, and before it the user's last message and the last
//! answer. No cut separates a tool call from its results, or thinking from what follows it.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, whole_groups};

/// The number of messages that stay raw at any cost.
const MIN_TAIL: usize = 3;

/// The properties of the window that decide where it may be cut.
pub(crate) struct Outline {
    tokens: Vec<u64>,
    groups: Vec<Range<usize>>,
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
        let groups = whole_groups(messages);
        let last_assistant = messages.iter().rposition(|message| {
            message.role() == "assistant" && message.kind() != MessageKind::Summary
        });
        let in_flight = last_assistant
            .filter(|at| has_unanswered(messages, *at))
            .map(|at| at..messages.len());
        let mut outline = Self {
            tokens: messages.iter().map(MessageView::tokens).collect(),
            groups,
            in_flight,
            last_user: messages.iter().rposition(MessageView::is_real_user),
            last_answer: messages.iter().rposition(|message| {
                message.role() == "assistant"
                    && message.kind() != MessageKind::Summary
                    && !message.text().trim().is_empty()
            }),
            last_turn: messages.len(),
        };
        if let Some(at) = last_assistant {
            outline.last_turn = outline.cut_before(at);
        }
        outline
    }

    /// The last valid cut at or before `index`.
    pub(crate) fn cut_before(&self, index: usize) -> usize {
        self.group_around(index).map_or(index, |group| group.start)
    }

    /// The first valid cut at or after `index`.
    pub(crate) fn cut_after(&self, index: usize) -> usize {
        self.group_around(index).map_or(index, |group| group.end)
    }

    /// The group that a cut at `index` would split.
    fn group_around(&self, index: usize) -> Option<&Range<usize>> {
        let after = self.groups.partition_point(|group| group.start < index);
        after
            .checked_sub(1)
            .and_then(|at| self.groups.get(at))
            .filter(|group| index < group.end)
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
        let tail = self.cut_before(tail);
        let mut islands: Vec<Range<usize>> = [self.last_user, self.last_answer]
            .into_iter()
            .flatten()
            .filter(|at| *at < tail)
            .map(|at| self.cut_before(at)..self.cut_after(at + 1))
            .collect();
        islands.sort_unstable_by_key(|island| island.start);
        islands.dedup();
        Split { tail, islands }
    }
}

/// Whether a call of the message `at` has no result after it.
fn has_unanswered(messages: &[MessageView<'_>], at: usize) -> bool {
    let mut open: HashMap<&str, usize> = HashMap::new();
    for call in messages[at].tool_calls() {
        *open.entry(call.id()).or_default() += 1;
    }
    for message in &messages[at + 1..] {
        if let Some(left) = message.tool_call_id().and_then(|id| open.get_mut(id)) {
            *left = left.saturating_sub(1);
        }
    }
    open.values().any(|left| *left > 0)
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
