//! A real coding session, where it is at hand.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value;

use crate::chat::*;

fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter_map(|part| part["text"].as_str())
            .collect::<Vec<_>>()
            .join("\n"),
        _ => String::new(),
    }
}

/// Claude Code's log, as far as this test needs it.
fn session() -> Chat {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/claude-code/main.jsonl");
    let log = std::fs::read_to_string(file).unwrap();
    let mut chat = Chat::default();
    let mut tools: HashMap<String, String> = HashMap::new();
    let mut last_message = String::new();
    for line in log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
    {
        let content = &line["message"]["content"];
        match line["type"].as_str() {
            Some("assistant") => {
                let id = line["message"]["id"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                if id != last_message {
                    chat.assistant("");
                    last_message = id;
                }
                let message = chat.messages.last_mut().unwrap();
                message.text.push_str(&text_of(content));
                for part in content
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|part| part["type"] == "tool_use")
                {
                    let (id, name) = (part["id"].as_str().unwrap(), part["name"].as_str().unwrap());
                    tools.insert(id.into(), name.into());
                    message.calls.push(Call {
                        id: id.into(),
                        name: name.into(),
                        arguments: part["input"].to_string(),
                    });
                }
            }
            Some("user") => {
                last_message.clear();
                for part in content
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter(|part| part["type"] == "tool_result")
                {
                    let id = part["tool_use_id"].as_str().unwrap();
                    chat.result(
                        id,
                        tools.get(id).map_or("", String::as_str),
                        text_of(&part["content"]),
                    );
                }
                let text = text_of(content);
                if !text.is_empty() {
                    chat.user(text);
                }
            }
            _ => {}
        }
    }
    chat
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn a_real_session_is_compacted_within_its_budget() {
    let chat = session();
    let window = chat.window(100_000, 10_000);
    let mut session = alone("{}", &window);
    let (after, compaction) = session.compacted(&chat, &order(window));
    let summary = summary_of(&compaction);
    println!(
        "{} messages, {} tokens -> {} messages, {} tokens; summary of {} characters",
        chat.messages.len(),
        chat.tokens(),
        after.messages.len(),
        after.tokens(),
        summary.chars().count()
    );
    assert!(after.tokens() + 10_000 < 50_000, "{}", after.tokens());
    assert!(
        summary.chars().count() <= 12_200,
        "{}",
        summary.chars().count()
    );
}
