//! Conversations in the formats of providers and of benchmarks, which `contexture_formats` reads:
//! request bodies, lines with one message each, trajectories of SWE-agent, results of tau2-bench.
//! They have no place of their own, so the user names the file.
//!
//! The system prompt is not read. Thinking, calls and results are.

use std::path::Path;

use contexture_formats::{self as formats, Message};
use serde_json::Value;

use super::content::{Speech, kind_of};
use super::{Format, Read, no_project, nowhere};
use crate::entry::Kind;
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "messages",
    find: nowhere,
    // If it is of none of these formats, the reader says what it lacks.
    recognise: |sample| (sample.begins('{') || sample.begins('[')) && sample.names(&["role"]),
    read: Read::Text(read),
    project_of_path: no_project,
};

fn read(path: &Path, document: &str, out: &mut Output<'_>) {
    let conversations = match formats::read(document, None) {
        Ok(conversations) => conversations,
        Err(error) => return out.damaged(|| error.to_string()),
    };
    // Each conversation of a document has the same damage.
    if let Some(damage) = conversations
        .first()
        .and_then(formats::Conversation::damage)
    {
        out.damaged(|| damage.to_string());
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    for (at, conversation) in conversations.iter().enumerate() {
        let session = match conversations.len() {
            1 => name.clone().into_owned(),
            _ => format!("{name}-{}", at + 1),
        };
        out.conversation(&session, None, None);
        for message in conversation.messages() {
            self::message(message, out);
        }
    }
}

fn message(message: &Message, out: &mut Output<'_>) {
    let kind = match message.is_summary() {
        true => Kind::Summary,
        false => kind_of(&message.role),
    };
    let mut speech = Speech::new(kind, message.time_ms, None);
    speech.text(Kind::Thinking, &message.thinking, out);
    match &message.tool_call_id {
        Some(call) => {
            let said = Value::from(message.text.as_str());
            speech.result(message.tool_name.as_deref(), &said, Some(call), out);
        }
        None => speech.text(kind, &message.text, out),
    }
    for call in &message.calls {
        let arguments = Value::from(call.arguments.as_str());
        speech.call(&call.name, &arguments, Some(&call.id), out);
    }
    for file in &message.media {
        speech.attachment(file.mime.as_deref().unwrap_or("file"), out);
    }
}
