//! LangChain: a list of messages as `messages_to_dict` or `dumps` writes it, in a JSON document. It
//! has no place of its own, so the user names the file.
//!
//! A message has a type, and its content, calls and ids in `data`, or in `kwargs` as `dumps` writes
//! it. Metadata of responses is not read.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, message};
use super::{Format, Read, list, no_project, nowhere, text, text_of};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "langchain",
    find: nowhere,
    recognise: |sample| {
        let is_dumped = sample.names(&["lc", "kwargs"]) && sample.text.contains("Message");
        sample.begins('[') && (sample.names(&["type", "data", "content"]) || is_dumped)
    },
    read: Read::Document(read),
    project_of_path: no_project,
};

fn read(_: &Path, messages: &Value, out: &mut Output<'_>) {
    for one in list(messages) {
        let (kind, data) = match (one.get("data"), one.get("kwargs")) {
            (Some(data), _) => (text_of(one, "type").to_owned(), data),
            (None, Some(data)) => {
                // `["langchain", "schema", "messages", "HumanMessage"]`
                let class = one
                    .get("id")
                    .and_then(Value::as_array)
                    .and_then(|path| path.last()?.as_str());
                let class = class
                    .unwrap_or_default()
                    .trim_end_matches("Chunk")
                    .trim_end_matches("Message");
                (class.to_lowercase(), data)
            }
            (None, None) => {
                out.damaged(|| "an element of the list is not a message of LangChain".to_owned());
                continue;
            }
        };
        let mut data = data.clone();
        if kind == "remove" {
            continue;
        }
        let role = if kind == "chat" {
            text(&data, "role").unwrap_or("user").to_owned()
        } else {
            kind
        };
        if let Some(data) = data.as_object_mut() {
            data.insert("role".to_owned(), Value::String(role.clone()));
        }
        if let Some(thoughts) = data["additional_kwargs"]["reasoning_content"].as_str() {
            Speech::new(Kind::Thinking, None, None).text(Kind::Thinking, thoughts, out);
        }
        // Calls that are content parts are repeated in `tool_calls`.
        let has_calls = list(&data["tool_calls"]).next().is_some();
        if kind_of(&role) == Kind::Assistant && has_calls {
            let parts = data.get_mut("content").and_then(Value::as_array_mut);
            if let Some(parts) = parts {
                parts.retain(|part| {
                    !matches!(
                        text(part, "type"),
                        Some("tool_use" | "tool_call" | "function_call")
                    )
                });
            }
        }
        message(&data, None, None, out);
    }
}
