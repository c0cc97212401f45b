//! Phase 1: what old tool calls and their results are shortened to.

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageView, SHORTENED_MARK};
use contexture_summaries::{asks_the_user, excerpt, tool_of};

/// A tool result of more characters than this is worth clearing.
const CLEARED_FROM_CHARS: usize = 200;

/// Whether this tool result may be cleared: it is long (or holds media), and not a user's answer.
pub(crate) fn is_clearable<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> bool {
    result.role() == "tool"
        && (result.has_media() || is_long(result.text()))
        && result.text() != CLEARED_TOOL_OUTPUT
        && !asks_the_user(tool_of(result, caller))
}

fn is_long(text: &str) -> bool {
    // Bytes bound characters from both sides, so most texts need no counting.
    text.len() > 4 * CLEARED_FROM_CHARS
        || (text.len() > CLEARED_FROM_CHARS && text.chars().count() > CLEARED_FROM_CHARS)
}

/// What stands in for a tool result that the model has not seen yet and that fits in no window.
pub(crate) fn preview(text: &str, chars: usize) -> String {
    format!("{SHORTENED_MARK}\n{}", excerpt(text, chars))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use contexture_engine_api::{MessageId, ToolCallView};

    use super::*;

    #[test]
    fn answers_of_the_user_are_told_from_other_results() {
        for tool in [
            "AskUserQuestion",
            "ask_user",
            "clarify",
            "request_user_input",
            "ask_followup_question",
        ] {
            assert!(asks_the_user(tool), "{tool}");
        }
        for tool in ["read_file", "bash", "task", "get_user_details", ""] {
            assert!(!asks_the_user(tool), "{tool}");
        }
        let text = "yes ".repeat(100);
        let calls = [ToolCallView::new("c", "clarify", "{}")];
        let call = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
        let answer = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "")
            .with_text(&text);
        assert!(!is_clearable(&answer, Some(&call)));
        assert!(is_clearable(&answer, None));
    }

    #[test]
    fn two_hundred_characters_stay_and_one_more_goes() {
        let result = |text| {
            MessageView::new(MessageId(1), "tool")
                .with_result_of("c", "ls")
                .with_text(text)
        };
        let (at, over) = ("é".repeat(200), "é".repeat(201));
        assert!(!is_clearable(&result(&at), None));
        assert!(is_clearable(&result(&over), None));
        assert!(is_clearable(&result("").with_media(true), None));
        assert!(!is_clearable(&result(CLEARED_TOOL_OUTPUT), None));
    }
}
