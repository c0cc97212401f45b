//! Claude.ai: `conversations.json` of an export of the user's data. It has no place of its own, so
//! the user names the file or the folder.
//!
//! A conversation has a name, in newer exports a summary, and messages with content parts. Files
//! are kept by name, and the text that Claude.ai took out of an attachment is kept as well.
//! Projects and memories of the export are not read.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, summary, time};
use super::{Format, Read, list, no_project, nowhere, text, text_of};
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "claude-ai",
    find: nowhere,
    recognise: |sample| sample.begins('[') && sample.names(&["chat_messages", "uuid"]),
    read: Read::Elements(conversation),
    project_of_path: no_project,
};

fn conversation(_: &Path, conversation: &Value, out: &mut Output<'_>) {
    let title = text(conversation, "name");
    out.conversation(
        text(conversation, "uuid").unwrap_or("conversation"),
        None,
        title,
    );
    let created = time(&conversation["created_at"]);
    for member in ["name", "summary"] {
        let said = text_of(conversation, member);
        summary(said, created, Some(member), out);
    }
    for message in list(&conversation["chat_messages"]) {
        self::message(message, out);
    }
}

fn message(message: &Value, out: &mut Output<'_>) {
    let kind = kind_of(text_of(message, "sender"));
    let mut speech = Speech::new(kind, time(&message["created_at"]), text(message, "uuid"));
    let content = message
        .get("content")
        .filter(|content| content.as_array().is_some_and(|parts| !parts.is_empty()));
    // Older exports have the text alone.
    speech.content(content.unwrap_or(&message["text"]), out);
    for member in ["attachments", "files", "files_v2"] {
        for file in list(&message[member]) {
            speech.attachment(text_of(file, "file_name"), out);
            speech.text(kind, text_of(file, "extracted_content"), out);
        }
    }
}
