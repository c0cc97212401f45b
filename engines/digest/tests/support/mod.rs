//! Reads the real sessions beside the project, as an engine would be shown them.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use contexture_engine_api::{MessageId, MessageView, ToolCallView};
use serde_json::Value;

/// A message, owned.
#[derive(Debug, Default, Clone)]
pub(crate) struct Message {
    pub(crate) role: String,
    pub(crate) text: String,
    /// Id, name, arguments.
    pub(crate) calls: Vec<(String, String, String)>,
    pub(crate) result_of: String,
    pub(crate) is_error: bool,
}

impl Message {
    /// Everything that an engine sees of it.
    pub(crate) fn all_text(&self) -> String {
        let mut all = self.text.clone();
        for (_, _, arguments) in &self.calls {
            all.push('\n');
            match serde_json::from_str(arguments) {
                Ok(value) => push_strings(&value, &mut all),
                Err(_) => all.push_str(arguments),
            }
        }
        all
    }
}

fn push_strings(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| push_strings(item, into)),
        Value::Object(fields) => fields.values().for_each(|field| push_strings(field, into)),
        _ => {}
    }
}

/// A file of the data beside the repository.
pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../shared/data")
        .join(name)
}

/// The conversation of a Claude Code session file.
pub(crate) fn claude_code(path: &Path) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut last_id = String::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let role = row["type"].as_str().unwrap_or_default();
        if role != "user" && role != "assistant" {
            continue;
        }
        let content = &row["message"]["content"];
        let blocks = match content {
            Value::String(text) => vec![serde_json::json!({"type": "text", "text": text})],
            other => other.as_array().cloned().unwrap_or_default(),
        };
        let id = row["message"]["id"].as_str().unwrap_or_default();
        if role == "assistant" && id != last_id {
            messages.push(Message {
                role: role.into(),
                ..Message::default()
            });
        }
        last_id = id.to_owned();
        for block in blocks {
            let text = |value: &Value| match value {
                Value::String(text) => text.clone(),
                Value::Array(parts) => parts
                    .iter()
                    .filter_map(|part| part["text"].as_str())
                    .collect::<Vec<_>>()
                    .join("\n"),
                _ => String::new(),
            };
            match block["type"].as_str().unwrap_or_default() {
                "text" if role == "user" => messages.push(Message {
                    role: "user".into(),
                    text: text(&block["text"]),
                    ..Message::default()
                }),
                "text" => messages
                    .last_mut()
                    .unwrap()
                    .text
                    .push_str(&text(&block["text"])),
                "tool_use" => messages.last_mut().unwrap().calls.push((
                    text(&block["id"]),
                    text(&block["name"]),
                    block["input"].to_string(),
                )),
                "tool_result" => messages.push(Message {
                    role: "tool".into(),
                    text: text(&block["content"]),
                    result_of: text(&block["tool_use_id"]),
                    is_error: block["is_error"] == true,
                    ..Message::default()
                }),
                _ => {}
            }
        }
    }
    messages
}

/// Messages in the format of OpenAI.
pub(crate) fn openai(messages: &Value) -> Vec<Message> {
    let as_text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let read = |message: &Value| Message {
        role: as_text(&message["role"]),
        text: as_text(&message["content"]),
        calls: message["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|call| {
                let function = if call["function"].is_object() {
                    &call["function"]
                } else {
                    call
                };
                (
                    as_text(&call["id"]),
                    as_text(&function["name"]),
                    as_text(&function["arguments"]),
                )
            })
            .collect(),
        // SWE-agent lists the ids that a result answers.
        result_of: as_text(
            message
                .get("tool_call_id")
                .unwrap_or(&message["tool_call_ids"][0]),
        ),
        is_error: false,
    };
    messages
        .as_array()
        .into_iter()
        .flatten()
        .filter(|message| message["role"] != "system")
        .map(read)
        .collect()
}

/// Calls `test` with the views of `messages`.
pub(crate) fn with_views<T>(messages: &[Message], test: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
    let mut names: HashMap<&str, &str> = HashMap::new();
    for (id, name, _) in messages.iter().flat_map(|message| &message.calls) {
        names.insert(id, name);
    }
    let calls: Vec<Vec<ToolCallView<'_>>> = messages
        .iter()
        .map(|message| {
            message
                .calls
                .iter()
                .map(|(id, name, json)| ToolCallView::new(id, name, json))
                .collect()
        })
        .collect();
    let views: Vec<MessageView<'_>> = messages
        .iter()
        .zip(&calls)
        .enumerate()
        .map(|(at, (message, calls))| {
            let view = MessageView::new(MessageId(at as u64), &message.role)
                .with_text(&message.text)
                .with_tool_calls(calls)
                .with_error(message.is_error);
            if message.role == "tool" {
                view.with_result_of(
                    &message.result_of,
                    names.get(message.result_of.as_str()).unwrap_or(&""),
                )
            } else {
                view
            }
        })
        .collect();
    test(&views)
}
