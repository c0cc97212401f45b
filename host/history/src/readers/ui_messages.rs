//! Vercel's AI SDK: a list of `UIMessage`s in a JSON document, or an object with such a list in
//! `messages`. It has no place of its own, so the user names the file.
//!
//! A message has parts: text, reasoning, tools with their input and output, files and sources. The
//! form of version 4 of the SDK, with `toolInvocations` beside the text, is read too. Parts with
//! data for the display are read as text.

use std::path::Path;

use serde_json::Value;

use super::content::{Speech, kind_of, time};
use super::{Format, Read, list, no_project, nowhere, text, text_of};
use crate::output::Output;

pub(super) static FORMAT: Format = Format {
    agent: "ui-messages",
    find: nowhere,
    recognise: |sample| {
        let has_messages = sample.names(&["role"])
            && (sample.names(&["parts"]) || sample.names(&["toolInvocations"]));
        // A list of Gemini's contents has parts, and no ids.
        (sample.begins('[') || sample.begins('{') && sample.names(&["messages"]))
            && has_messages
            && sample.names(&["id"])
    },
    read: Read::Document(read),
    project_of_path: no_project,
};

fn read(path: &Path, document: &Value, out: &mut Output<'_>) {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    out.conversation(
        text(document, "id").unwrap_or(&name),
        None,
        text(document, "title"),
    );
    let messages = document.get("messages").unwrap_or(document);
    for message in list(messages) {
        let kind = kind_of(text_of(message, "role"));
        let created = message.get("createdAt");
        let created = time(created.unwrap_or(&message["metadata"]["createdAt"]));
        let mut speech = Speech::new(kind, created, text(message, "id"));
        match message.get("parts").and_then(Value::as_array) {
            Some(parts) => parts
                .iter()
                .for_each(|part| self::part(part, &mut speech, out)),
            None => {
                speech.content(&message["content"], out);
                for invocation in list(&message["toolInvocations"]) {
                    tool(
                        text(invocation, "toolName").unwrap_or("tool"),
                        invocation,
                        &mut speech,
                        out,
                    );
                }
            }
        }
        for file in list(&message["experimental_attachments"]) {
            speech.attachment(text(file, "name").unwrap_or("file"), out);
        }
    }
}

fn part(part: &Value, speech: &mut Speech<'_>, out: &mut Output<'_>) {
    let kind = text_of(part, "type");
    match kind {
        "step-start" => {}
        "tool-invocation" => {
            let invocation = part.get("toolInvocation").unwrap_or(part);
            tool(
                text(invocation, "toolName").unwrap_or("tool"),
                invocation,
                speech,
                out,
            );
        }
        "dynamic-tool" => tool(text(part, "toolName").unwrap_or("tool"), part, speech, out),
        "source-url" | "source-document" | "source" => {
            let source = part.get("source").unwrap_or(part);
            let named = ["title", "filename", "url"]
                .iter()
                .filter_map(|name| text(source, name));
            speech.attachment(&named.collect::<Vec<_>>().join(" "), out);
        }
        _ => match kind.strip_prefix("tool-") {
            Some(name) => tool(name, part, speech, out),
            None => speech.content(part, out),
        },
    }
}

fn tool(name: &str, call: &Value, speech: &mut Speech<'_>, out: &mut Output<'_>) {
    let id = text(call, "toolCallId");
    let any = |names: [&str; 2]| {
        names
            .iter()
            .find_map(|name| call.get(*name))
            .filter(|value| !value.is_null())
    };
    speech.call(
        name,
        any(["input", "args"]).unwrap_or(&Value::Null),
        id,
        out,
    );
    if let Some(output) = any(["output", "result"]).or_else(|| call.get("errorText")) {
        speech.result(Some(name), output, id, out);
    }
}
