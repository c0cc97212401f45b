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
        // Without the call, nothing says that a tool asked the user.
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
