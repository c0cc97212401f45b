use contexture_engine_api::{MessageId, ToolCallView};

use super::*;

#[test]
fn arguments_read_as_they_were_meant() {
    let calls = [
        ToolCallView::new(
            "1",
            "write",
            r#"{"path":"a\\b","text":"line 1\nsay \"\u7d22\""}"#,
        ),
        ToolCallView::new("2", "odd", r#"{"cut off\"#),
    ];
    let view = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
    assert_eq!(
        beside_text(&view),
        [
            "write {\"path\":\"a\\b\",\"text\":\"line 1\nsay \"索\"\"}",
            "odd {\"cut off\\"
        ]
    );
}

#[test]
fn thinking_is_seen_and_signatures_are_not() {
    let raw = r#"{"content":[{"type":"thinking","thinking":"deep thought","signature":"c2ln"},
                      {"type":"text","text":"said"}]}"#;
    let view = MessageView::new(MessageId(1), "assistant")
        .with_text("said")
        .with_raw(raw)
        .with_thinking(true);
    assert_eq!(beside_text(&view), ["deep thought"]);
    let raw = r#"{"role":"model","parts":[{"text":"deep thought","thought":true,"thoughtSignature":"c2ln"},
                      {"text":"said"}]}"#;
    let view = MessageView::new(MessageId(1), "assistant")
        .with_text("said")
        .with_raw(raw)
        .with_thinking(true);
    assert_eq!(beside_text(&view), ["deep thought"]);
}
