#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::json;

#[test]
fn keys_are_found_by_name_and_by_looks_and_never_shown() {
    let value = json!({
        "auxiliary": {"compression": {"api_key": "letmein", "base_url": "http://localhost"}},
        "context": {"engines": {"lcm": {"list": [format!("sk-ant-{}", "a1".repeat(20)), format!("glpat-{}", "a1".repeat(10))]}}},
        "OPENAI-API-KEY": 5, "token": "letmein", "password": 5,
        "user": "https://me:letmein@example.com", "query": "https://example.com/?api_key=letmein",
    });
    let found = find(&value, &Schema::default());
    let keys: Vec<_> = found.iter().map(|(path, _)| path.to_string()).collect();
    assert_eq!(
        keys,
        [
            "auxiliary.compression.api_key",
            "context.engines.lcm.list[0]",
            "context.engines.lcm.list[1]",
            "OPENAI-API-KEY",
            "token",
            "password",
            "user",
            "query",
        ]
    );
    for (_, problem) in &found {
        let message = problem.to_string();
        assert!(
            !message.contains("letmein") && !message.contains("a1a1"),
            "{message}"
        );
    }
    assert!(found[1].1.to_string().contains("ANTHROPIC_API_KEY"));
}

#[test]
fn ordinary_settings_are_no_keys() {
    let value = json!({
        "api_key": null, "token_budget": 5, "max_threshold_tokens": 100_000, "secret": "",
        "model": "sk-model", "name": "sk-a-long-name-of-a-model-without-digits", "api_key_set": true,
        "base_url": "https://example.com/v1?version=2", "session": "bad", "key": "a",
        "max_output_token": 16384, "max_threshold_token": "120k", "summaryToken": 0.2,
    });
    assert_eq!(find(&value, &Schema::default()), []);
}

#[test]
fn a_word_for_true_or_false_is_no_key_where_one_is_expected() {
    let properties = json!({"open_key": {"type": "boolean"}, "api_key": {"type": "string"}});
    let schema = Schema::of_properties(properties.as_object().unwrap()).unwrap();
    let key = format!("sk-ant-{}", "a1".repeat(20));
    for (value, count) in [
        (json!({"open_key": "yes"}), 0),
        (json!({"api_key": "yes"}), 1),
        (json!({"other_key": {"api_key": "yes"}}), 1),
        (json!({"open_key": key}), 1),
    ] {
        assert_eq!(find(&value, &schema).len(), count, "{value}");
    }
}
