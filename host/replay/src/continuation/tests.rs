#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use contexture_formats::SplitBody;
use serde_json::json;

fn conversation(messages: Value) -> Conversation {
    let document = json!({"model": "gpt-5", "messages": messages}).to_string();
    formats::read(document, None).unwrap().remove(0)
}

fn call(command: &str) -> Value {
    json!({"role": "assistant", "content": null, "tool_calls": [{"id": command, "type": "function",
            "function": {"name": "bash", "arguments": json!({"command": command}).to_string()}}]})
}

fn result(command: &str, text: &str) -> Value {
    json!({"role": "tool", "tool_call_id": command, "content": text})
}

#[test]
fn what_the_agent_goes_on_to_use_is_looked_for_in_the_window() {
    let all = conversation(json!([
        {"role": "user", "content": "Fix src/login.rs. Never edit vendor/auth.rs by hand."},
        call("cargo test -p login"),
        result("cargo test -p login", "fail_one in check_token, see src/token.rs"),
        {"role": "assistant", "content": "check_token is wrong."},
        {"role": "user", "content": "Go on."},
        call("cargo test -p login"),
        result("cargo test -p login", "fail_one"),
        {"role": "assistant", "content": "fail_one is in src/token.rs, made by check_token; see new_name."},
    ]));
    let mentions = Mentions::of(&all);
    // `fail_one` is shown again first, and nobody had met `new_name`.
    let needed: Vec<&str> = mentions.needed(5).collect();
    assert_eq!(needed, ["check_token", "src/token.rs"]);

    let window = "Rules:\n- Never edit vendor/auth.rs by hand.\ncargo test -p login\nsrc/token.rs";
    let counted = mentions.counted(5, window);
    let expected = Continuation {
        needed: 2,
        needed_in_window: 1,
        commands: 1,
        commands_in_window: 1,
        rules: 1,
        rules_in_window: 1,
    };
    assert_eq!(counted, expected);
    let nothing = Continuation {
        needed_in_window: 0,
        commands_in_window: 0,
        rules_in_window: 0,
        ..expected
    };
    assert_eq!(mentions.counted(5, "cargo build"), nothing);
    // Nothing was met, run or stated before the first message.
    assert_eq!(mentions.counted(0, window), Continuation::default());
}

#[test]
fn only_a_step_with_a_compaction_counts() {
    let said = conversation(json!([
        {"role": "user", "content": "Always use spaces_only here."},
        {"role": "assistant", "content": "Yes."},
    ]));
    let mentions = Mentions::of(&said);
    let body = json!({"messages": [{"role": "user", "content": "nothing"}]}).to_string();
    let body = SplitBody::split(body, None).unwrap();
    let mut counted = Continuation::default();
    for is_compacted in [false, true] {
        let step = Step {
            answer: 1,
            is_compacted,
            body: &body,
        };
        counted.note(&mentions, &step).unwrap();
        assert_eq!(counted.rules, u64::from(is_compacted));
    }
    assert_eq!(counted.rules_in_window, 0);
}
