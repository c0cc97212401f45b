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
        assert!(has_random_part(id), "{id}");
    }
    for id in [
        "", "call_1", "call_0001", "functions.bash:12", "tool_call", "call", "run_command_3", "1",
        "12345678", "Functions.ReadFile", "toolu_1", "get_weather",
    ] {
        assert!(!has_random_part(id), "{id}");
    }
}

#[test]
fn an_answer_in_another_form_has_the_same_mark() {
    let mark_of =
        |format, raw: &str| fingerprint(&parse_messages(format, &[raw]).unwrap()).unwrap();
    let (chat, anthropic) = (Format::OpenAiChat, Format::Anthropic);
    let plain = mark_of(
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
        assert_eq!(mark_of(format, raw), plain, "{raw}");
    }
    assert_ne!(
        mark_of(chat, r#"{"role":"assistant","content":"The test fails."}"#),
        plain
    );
    assert!(
        fingerprint(&parse_messages(chat, &[r#"{"role":"user","content":"Hi"}"#]).unwrap())
            .is_none()
    );
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
