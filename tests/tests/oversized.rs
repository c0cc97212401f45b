//! Messages that no window can hold: the conversation goes on with a preview, and the report says so.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::formats;
use contexture::session::{Compact, OutcomeKind};
use contexture_engine_api::SHORTENED_MARK;
use contexture_tests::{Home, compact, conversation, engines, session};
use serde_json::json;

#[test]
fn what_the_window_cannot_hold_is_kept_as_a_preview() {
    let giant = "word ".repeat(200_000);
    let user = |text: &str| json!({"role": "user", "content": text});
    let assistant = |text: &str| json!({"role": "assistant", "content": text});
    let call = json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}]});
    let result = json!({"role": "tool", "tool_call_id": "c", "content": giant});
    let conversations = [
        (
            "an answer",
            vec![user("hello"), assistant(&giant), user("go on")],
        ),
        ("the only message", vec![user(&giant)]),
        (
            "the last message",
            vec![user("hello"), assistant("yes?"), user(&giant)],
        ),
        ("a result", vec![user("hello"), call, result]),
    ];
    for (what, messages) in conversations {
        let document = json!({"model": "gpt-5", "messages": messages}).to_string();
        let conversation = conversation(&document);
        let home = Home::new();
        let (mut session, decision) = session(&engines(&home), &conversation, 50_000).unwrap();
        assert!(decision.is_yes(), "{what}: {decision:?}");
        let report = compact(&mut session, &conversation, Compact::Auto).unwrap();
        let report = report.expect("a compaction");
        assert_eq!(
            report.outcome,
            OutcomeKind::Compacted,
            "{what}: {}",
            report.reason
        );
        assert!(report.tokens_after < 45_000, "{what}: {}", report.reason);
        assert!(
            report.notes.iter().any(|note| note.contains("shortened")),
            "{what}"
        );
        let window = session.render_plan(&conversation);
        let rendered = conversation.render(&window).unwrap();
        let back = formats::read(rendered, None).unwrap().remove(0);
        let shortened = back
            .messages()
            .iter()
            .filter(|message| message.text.starts_with(SHORTENED_MARK));
        assert_eq!(shortened.count(), 1, "{what}");
    }
}
