//! ChatGPT: `conversations.json` of an export of the user's data. It has no place of its own, so
//! the user names the file or the folder.
//!
//! A conversation is a tree of messages in `mapping`. All branches are read, in order of time. Code
//! that ChatGPT ran is a tool call, and its output the result. Pictures and files are kept by name.
//! The system's messages, which are hidden in ChatGPT, are not read.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, readable, time};
use super::{Format, Read, no_project, nowhere, text};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "chatgpt",
    find: nowhere,
    recognise: |sample| sample.begins('[') && sample.names(&["mapping", "children"]),
    read: Read::Elements(conversation),
    project_of_path: no_project,
};

fn conversation(_: &Path, conversation: &Value, out: &mut Output<'_>) {
    let id = text(conversation, "conversation_id").or_else(|| text(conversation, "id"));
    let title = text(conversation, "title");
    out.conversation(id.unwrap_or("conversation"), None, title);
    let created = time(conversation.get("create_time"));
    if let Some(title) = title {
        Speech::new(Kind::Summary, created, Some("title")).text(Kind::Summary, title, out);
    }
    let nodes = conversation.get("mapping").and_then(Value::as_object);
    let messages = nodes.into_iter().flat_map(|nodes| nodes.values());
    let mut messages: Vec<&Value> = messages.filter_map(|node| node.get("message")).collect();
    // The sort is stable, so messages without a time stay where they are.
    messages.sort_by_key(|message| time(message.get("create_time")));
    for message in messages {
        self::message(message, out);
    }
}

fn message(message: &Value, out: &mut Output<'_>) {
    let role = message
        .pointer("/author/role")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let content = message.get("content").unwrap_or(&Value::Null);
    let kind_of_content = text(content, "content_type").unwrap_or_default();
    if role == "system" && kind_of_content != "user_editable_context" {
        return;
    }
    let kind = kind_of(role);
    let mut speech = Speech::new(kind, time(message.get("create_time")), text(message, "id"));
    let recipient = text(message, "recipient").filter(|to| *to != "all");
    let author = message.pointer("/author/name").and_then(Value::as_str);
    match kind_of_content {
        "thoughts" => {
            let thoughts = content.get("thoughts").map(readable);
            speech.text(Kind::Thinking, &thoughts.unwrap_or_default(), out);
        }
        "reasoning_recap" => speech.text(
            Kind::Thinking,
            text(content, "content").unwrap_or_default(),
            out,
        ),
        _ if kind == Kind::Assistant && recipient.is_some() => {
            let said = readable(
                content
                    .get("text")
                    .or_else(|| content.get("parts"))
                    .unwrap_or(&Value::Null),
            );
            speech.call(
                recipient.unwrap_or_default(),
                &Value::String(said),
                None,
                out,
            );
        }
        _ if kind == Kind::ToolResult => {
            let said = ["text", "result", "parts"]
                .iter()
                .find_map(|name| content.get(*name));
            speech.result(author, said.unwrap_or(content), None, out);
        }
        _ => match content.get("parts") {
            Some(parts) => speech.content(&parts_of(parts), out),
            None => speech.content(content, out),
        },
    }
    for file in message
        .pointer("/metadata/attachments")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        speech.attachment(text(file, "name").unwrap_or_default(), out);
    }
}

/// The parts of a message as other formats have them: with a `type`.
fn parts_of(parts: &Value) -> Value {
    let mut parts = parts.clone();
    for part in parts.as_array_mut().into_iter().flatten() {
        let kind = text(part, "content_type").map(ToOwned::to_owned);
        if let (Some(kind), Some(part)) = (kind, part.as_object_mut()) {
            part.insert("type".to_owned(), Value::String(kind));
        }
    }
    parts
}
