//! A log is handed out as conversations that can be played.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_formats::{Format, read};
use contexture_history::{is_log, read_conversations};
use serde_json::{Value, json};

fn lines(values: &[Value]) -> String {
    values.iter().map(|value| format!("{value}\n")).collect()
}

#[test]
fn calls_and_results_are_paired_and_an_answer_is_one_message() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("s.jsonl");
    let entry = |second: u64, message: Value| json!({"type": "message", "timestamp": format!("2026-01-31T09:00:{second:02}Z"), "message": message});
    let text = lines(&[
        json!({"type": "session", "id": "s", "cwd": "/work/shop"}),
        entry(0, json!({"role": "user", "content": "Fix the login."})),
        entry(
            1,
            json!({"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "I look."},
                {"type": "toolCall", "id": "c1", "name": "bash", "arguments": {"command": "cargo test"}},
                {"type": "toolCall", "id": "c2", "name": "read", "arguments": {"path": "a.rs", "limit": 9}},
            ]}),
        ),
        entry(
            2,
            json!({"role": "toolResult", "toolCallId": "c2", "toolName": "read", "content": [{"type": "text", "text": "fn a()"}]}),
        ),
        entry(
            3,
            json!({"role": "toolResult", "toolCallId": "c1", "toolName": "bash", "content": [{"type": "text", "text": "ok"}]}),
        ),
        entry(
            4,
            json!({"role": "assistant", "content": [{"type": "text", "text": "Done."}]}),
        ),
    ]);
    std::fs::write(&log, text).unwrap();
    assert!(is_log(&log));
    let mut all = Vec::new();
    let skipped = read_conversations(&log, &mut |lines| {
        all.push(lines);
        true
    });
    assert!(skipped.unwrap().expect("it is a log").is_empty());
    assert_eq!(all.len(), 1);
    let conversation = read(all.remove(0), Some(Format::MessageLines))
        .unwrap()
        .remove(0);
    let said: Vec<_> = conversation
        .messages()
        .iter()
        .map(|message| (message.role.as_str(), message.text.as_str()))
        .collect();
    assert_eq!(
        said,
        [
            ("user", "Fix the login."),
            ("assistant", "I look."),
            ("tool", "fn a()"),
            ("tool", "ok"),
            ("assistant", "Done."),
        ]
    );
    let messages = conversation.messages();
    let calls: Vec<_> = messages[1]
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.name.as_str()))
        .collect();
    assert_eq!(calls, [("c1", "bash"), ("c2", "read")]);
    assert_eq!(
        messages[1].calls[0].arguments,
        r#"{"command":"cargo test"}"#
    );
    assert_eq!(messages[2].tool_call_id.as_deref(), Some("c2"));
    assert_eq!(messages[4].time_ms, Some(1_769_850_004_000));
}

#[test]
fn one_conversation_comes_after_the_other_until_no_more_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes.txt");
    std::fs::write(&notes, "Buy milk.").unwrap();
    assert!(!is_log(&notes));
    assert!(read_conversations(&notes, &mut |_| true).unwrap().is_none());
    let one = |id: &str| {
        let message = |role: &str| {
            json!({"id": "m", "author": {"role": role}, "create_time": 1_769_850_000,
            "content": {"content_type": "text", "parts": [format!("{role} of {id}")]}, "recipient": "all", "metadata": {}})
        };
        json!({"title": id, "conversation_id": id, "mapping": {
            "a": {"id": "a", "message": message("user"), "parent": null, "children": ["b"]},
            "b": {"id": "b", "message": message("assistant"), "parent": "a", "children": []},
        }})
    };
    let export = folder.path().join("conversations.json");
    let all = json!([one("first"), one("second"), one("third")]);
    std::fs::write(&export, all.to_string()).unwrap();
    let mut seen = Vec::new();
    read_conversations(&export, &mut |lines| {
        seen.push(lines);
        seen.len() < 2
    })
    .unwrap()
    .expect("it is a log");
    assert_eq!(seen.len(), 2);
    assert!(seen[0].contains("user of first") && !seen[0].contains("second"));
    assert!(seen[1].contains("assistant of second"), "{}", seen[1]);
}
