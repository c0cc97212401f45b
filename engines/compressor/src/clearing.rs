//! Phase 1: what old tool calls and their results are shortened to.

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageView, SHORTENED_MARK, ToolCallView};

/// A tool result of more characters than this is worth clearing.
const CLEARED_FROM_CHARS: usize = 200;
/// Ends a shortened string. Nothing in it needs escaping in JSON.
pub(crate) const ARGUMENT_MARK: &str = "… [shortened to save context space]";

/// The name of the tool that a result comes from, where it is known.
pub(crate) fn tool_of<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> &'a str {
    result.tool_name().unwrap_or_else(|| {
        caller
            .and_then(|caller| {
                let id = result.tool_call_id()?;
                caller.tool_calls().iter().find(|call| call.id() == id)
            })
            .map_or("", ToolCallView::name)
    })
}

/// Whether a tool asks the user something: its result is what the user said.
pub(crate) fn asks_the_user(tool: &str) -> bool {
    let name: String = tool
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    [
        "askuser",
        "askhuman",
        "askfollowup",
        "askquestion",
        "clarif",
        "userinput",
        "humaninput",
    ]
    .iter()
    .any(|asking| name.contains(asking))
        || name == "question"
}

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

/// The beginning and the end of a text, about `chars` characters in all, with a mark between them. The
/// text itself where it is no longer than that.
pub(crate) fn excerpt(text: &str, chars: usize) -> String {
    let (head, tail) = (chars.div_ceil(2), chars / 2);
    let Some((head_end, _)) = text.char_indices().nth(head) else {
        return text.to_owned();
    };
    let tail_start = match tail {
        0 => text.len(),
        _ => text
            .char_indices()
            .rev()
            .nth(tail - 1)
            .map_or(0, |(at, _)| at),
    };
    if tail_start <= head_end {
        return text.to_owned();
    }
    let omitted = text[head_end..tail_start].chars().count();
    format!(
        "{}\n[… {omitted} characters left out …]\n{}",
        &text[..head_end],
        &text[tail_start..]
    )
}

/// What stands in for a tool result that the model has not seen yet and that fits in no window.
pub(crate) fn preview(text: &str, chars: usize) -> String {
    format!("{SHORTENED_MARK}\n{}", excerpt(text, chars))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use contexture_engine_api::MessageId;
    use proptest::prelude::*;

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

    proptest! {
        #[test]
        fn an_excerpt_is_bounded_and_keeps_both_ends(text in "\\PC{0,600}", chars in 0usize..300) {
            let short = excerpt(&text, chars);
            if text.chars().count() <= chars {
                prop_assert_eq!(short, text);
            } else {
                prop_assert!(short.chars().count() <= chars + 60);
            }
        }
    }
}
