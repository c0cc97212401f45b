//! ChatGPT: `conversations.json` of an export of the user's data. It has no place of its own, so
//! the user names the file or the folder.
//!
//! A conversation is a tree of messages in `mapping`. All branches are read, in order of time. Code
//! that ChatGPT ran is a tool call, and its output the result. Pictures and files are kept by name.
//! The system's messages, which are hidden in ChatGPT, are not read.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, readable, summary, time};
use super::{Format, Read, list, no_project, nowhere, text, text_of};
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
    let created = time(&conversation["create_time"]);
    if let Some(title) = title {
        summary(title, created, Some("title"), out);
    }
    let nodes = conversation.get("mapping").and_then(Value::as_object);
    let messages = nodes.into_iter().flat_map(|nodes| nodes.values());
    let mut messages: Vec<&Value> = messages.filter_map(|node| node.get("message")).collect();
    // The sort is stable, so messages without a time stay where they are.
    messages.sort_by_key(|message| time(&message["create_time"]));
    for message in messages {
        self::message(message, out);
    }
}

fn message(message: &Value, out: &mut Output<'_>) {
    let role = text_of(&message["author"], "role");
    let content = &message["content"];
    let kind_of_content = text_of(content, "content_type");
    if role == "system" && kind_of_content != "user_editable_context" {
        return;
    }
    let kind = kind_of(role);
    let mut speech = Speech::new(kind, time(&message["create_time"]), text(message, "id"));
    let recipient = text(message, "recipient").filter(|to| *to != "all");
    let author = message["author"]["name"].as_str();
    match kind_of_content {
        "thoughts" => {
            speech.text(Kind::Thinking, &readable(&content["thoughts"]), out);
        }
        "reasoning_recap" => speech.text(Kind::Thinking, text_of(content, "content"), out),
        _ if kind == Kind::Assistant && recipient.is_some() => {
            let code = content.get("text").unwrap_or(&content["parts"]);
            let code = Value::String(readable(code));
            speech.call(recipient.unwrap_or_default(), &code, None, out);
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
    for file in list(&message["metadata"]["attachments"]) {
        speech.attachment(text_of(file, "name"), out);
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
