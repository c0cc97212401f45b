#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn ids_that_somebody_could_count_are_not_random() {
    for id in [
        "toolu_01A09q90qw90lq917835lq9",
        "call_8f14e45fceea167a5a36dedd",
        "call_x8k2j1lm",
        "call_tOPqWmAbCdEfGhIjKlMnOpQr",
        "chatcmpl-tool-1f0c6e2b9d",
        "0f2c9c3e-7a51-4d0e-9f53-2f6a2f3f9b11",
        "D681PevKs",
    ] {
        assert!(random_words(id).count() > 0, "{id}");
    }
    for id in [
        "", "call_1", "call_0001", "functions.bash:12", "tool_call", "call", "run_command_3", "1",
        "12345678", "Functions.ReadFile", "toolu_1", "get_weather",
    ] {
        assert_eq!(random_words(id).count(), 0, "{id}");
    }
}

fn shown_by(format: Format, raw: &str) -> Shown {
    shown(&parse_messages(format, &[raw]).unwrap())
}

#[test]
fn an_answer_in_another_form_says_the_same() {
    let (chat, anthropic) = (Format::OpenAiChat, Format::Anthropic);
    let said = |format, raw: &str| shown_by(format, raw).said;
    let plain = said(
        chat,
        r#"{"role":"assistant","content":"The test,\n- it passes. "}"#,
    );
    for (format, raw) in [
        (
            chat,
            r#"{"role":"assistant","content":[{"type":"text","text":"The test - it passes"}]}"#,
        ),
        (
            anthropic,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"Hm","signature":"s"},
                {"type":"text","text":"The test, it passes.","cache_control":{"type":"ephemeral"}}]}"#,
        ),
    ] {
        assert_eq!(said(format, raw), plain, "{raw}");
    }
    assert_ne!(
        said(chat, r#"{"role":"assistant","content":"The test fails."}"#),
        plain
    );
    assert_eq!(
        shown_by(chat, r#"{"role":"user","content":"At 8f14e45fceea167a"}"#),
        Shown::default()
    );
}

#[test]
fn a_call_says_its_arguments_whatever_its_id_and_form() {
    let call = |id: &str, arguments: &str| {
        let call = serde_json::json!({"id": id, "type": "function", "function": {"name": "run", "arguments": arguments}});
        serde_json::json!({"role": "assistant", "content": null, "tool_calls": [call]}).to_string()
    };
    let chat = Format::OpenAiChat;
    let first = shown_by(
        chat,
        &call("call_8f14e45fceea167a", r#"{"command":"ls Mü\nd"}"#),
    );
    let id = first.ids[0];
    assert!(id.is_unguessable());
    let spaced = shown_by(
        chat,
        &call(
            "fc_call_8f14e45fceea167a",
            "{\"command\": \"ls M\\u00fc\\nd\"}",
        ),
    );
    assert_eq!(spaced, first);
    let use_of_tool = r#"{"role":"assistant","content":[
        {"type":"tool_use","id":"t1","name":"run","input":{"command":"ls Mü\nd"}}]}"#;
    let other = shown_by(Format::Anthropic, use_of_tool);
    assert_eq!((other.said, other.ids.len()), (first.said, 0));
    let text = |text: &str| serde_json::json!({"role": "assistant", "content": text}).to_string();
    let dumped = shown_by(chat, &text(r#"{"command":"ls Mü\nd"}"#));
    assert_eq!(dumped.said, first.said);
    // The text shows the id. It would not make it a secret.
    let listed = shown_by(
        chat,
        &text("Calling tools:\n[{'id': 'call_8f14e45fceea167a'}]"),
    );
    assert_eq!(listed.ids, [Fingerprint(id.0, 0)]);
    assert_ne!(
        shown_by(chat, &call("call_1", r#"{"command":"ls"}"#)).said,
        first.said
    );
    // Text and call may come as two messages, in any order.
    let both = r#"{"role":"assistant","content":"I look.","tool_calls":[
        {"id":"1","type":"function","function":{"name":"run","arguments":"{\"a\":1}"}}]}"#;
    let apart =
        [text("I look."), call("2", r#"{"a":1}"#)].map(|raw| shown_by(chat, &raw).said.unwrap());
    assert_eq!(shown_by(chat, both).said, Some(apart[1].and(apart[0])));
}

#[test]
fn a_summary_is_known_in_the_agents_words_and_by_the_providers_block() {
    let format = Format::OpenAiResponses;
    let said = |text: &str| {
        serde_json::json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
                .to_string()
    };
    let line = |number: u64| {
        format!(
            "- step {number} found {} faults in the parser and mended them",
            number * 37
        )
    };
    let lines: Vec<String> = (1..12).map(line).collect();
    let answer = said(&format!(
        "1. Primary Request and Intent:\n{}",
        lines.join("\n")
    ));
    let block = serde_json::json!({"type": "compaction", "encrypted_content": "gAAAA".repeat(40)})
        .to_string();
    let known = summary_fingerprints(format, &[answer, block.clone()]);
    let shows =
        |compacted: &[&str], text: &str| shows_summary(format, compacted, &[&said(text)], &known);
    assert!(shows(
        &[],
        &format!("Another model wrote:\n\n  {}\nGo on.", lines.join("\n  "))
    ));
    assert!(shows(&[&block], "Go on."));
    assert!(!shows(
        &[],
        "1. Primary Request and Intent:\n2. Pending Tasks:\nGo on."
    ));
    assert!(!shows(&[], &lines[..3].join("\n")));
    assert!(!shows(&[], &lines[0].repeat(20)));
    assert!(!shows(&[&block.replace("gAAAA", "gAAAB")], "Go on."));
    assert!(!shows_summary(format, &[&block], &[&said("Go on.")], &[]));
}
