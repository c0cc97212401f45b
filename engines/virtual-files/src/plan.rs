//! Decides what a compaction keeps: the user's last message, everything that the model has not
//! answered yet, and some messages before it.
//!
//! [`Plan::of`] only looks at roles, groups and token counts. The result is a tail and possibly one
//! message before it, so that the summary can stand in one place. Notices never count, because a
//! compaction removes them. How large the tail may be, and what happens if the plan leaves too
//! much, is decided in `compacting`.

use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView};
use contexture_summaries::Groups;

/// The messages that stay: everything from `tail` on, and the user's last message with its group if
/// it stands before the tail. Both are positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) tail: usize,
    pub(crate) user: Option<Range<usize>>,
}

impl Plan {
    /// Makes the plan. The tail begins with what the model has not answered, and is extended
    /// backward by whole groups as long as they fit into `tail_tokens` tokens.
    pub(crate) fn of(
        messages: &[MessageView<'_>],
        in_flight: Option<usize>,
        tail_tokens: u64,
    ) -> Self {
        let groups = Groups::of(messages);
        let whole = |at: usize| groups.cut_before(at);
        let last = messages
            .iter()
            .rposition(|message| message.kind() != MessageKind::Notice);
        let unanswered = match last.map(|last| (last, messages[last].role())) {
            // A result is unanswered together with its call and the other results of the group.
            Some((last, "tool")) => whole(last),
            Some((last, "user")) => last,
            _ => messages.len(),
        };
        let mut tail = whole(unanswered.min(in_flight.unwrap_or(unanswered)));
        // Whole groups only, and no gaps: the tail is one range.
        let mut room = tail_tokens;
        while let Some(before) = tail.checked_sub(1) {
            let start = whole(before);
            let tokens = messages[start..tail].iter().map(kept_tokens).sum();
            let Some(left) = room.checked_sub(tokens) else {
                break;
            };
            (room, tail) = (left, start);
        }
        let user = messages.iter().rposition(MessageView::is_real_user);
        Self {
            tail,
            user: user
                .filter(|user| *user < tail)
                .map(|user| groups.whole(user)),
        }
    }

    /// The plan of a compaction that only turns messages into files.
    pub(crate) fn everything() -> Self {
        Self {
            tail: 0,
            user: None,
        }
    }

    /// The tokens of the messages that stay. Notices never count, because a compaction removes them.
    pub(crate) fn kept_tokens(&self, messages: &[MessageView<'_>]) -> u64 {
        let stay = messages
            .iter()
            .enumerate()
            .filter(|(at, _)| self.keeps(*at));
        stay.map(|(_, message)| kept_tokens(message)).sum()
    }

    pub(crate) fn keeps(&self, at: usize) -> bool {
        at >= self.tail || self.user.as_ref().is_some_and(|user| user.contains(&at))
    }
}

/// The tokens that a message takes after a compaction. They are 0 for a notice, which is removed.
fn kept_tokens(message: &MessageView<'_>) -> u64 {
    match message.kind() {
        MessageKind::Notice => 0,
        _ => message.tokens(),
    }
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::{MessageId, ToolCallView, in_flight};

    use super::*;

    #[test]
    fn the_unanswered_turn_stays_whole_and_the_users_message_with_it() {
        let calls = [
            ToolCallView::new("a", "ls", "{}"),
            ToolCallView::new("b", "ls", "{}"),
        ];
        let said = |id, role, text| MessageView::new(MessageId(id), role).with_text(text);
        let result = |id, call| said(id, "tool", "r").with_result_of(call, "ls");
        let messages = [
            said(1, "user", "one"),
            said(2, "assistant", "two"),
            said(3, "user", "three"),
            said(4, "assistant", "").with_tool_calls(&calls),
            result(5, "a"),
            result(6, "b"),
            said(7, "system", "[virtual files]").with_kind(MessageKind::Notice),
        ];
        let plan = Plan::of(&messages, in_flight(&messages), 0);
        assert_eq!((plan.tail, plan.user), (3, Some(2..3)));
        assert_eq!(in_flight(&messages[..5]), Some(3));
        let plan = Plan::of(&messages[..5], Some(3), 0);
        assert_eq!((plan.tail, plan.user), (3, Some(2..3)));
        assert_eq!(Plan::of(&messages[..3], None, 0).tail, 2);
        assert_eq!(Plan::of(&messages, None, 1_000).tail, 0);
    }
}
