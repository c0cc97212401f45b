//! The parts of messages that formats share.
//!
//! Most logs hold messages in the format of a provider, or in one close to it. [`Speech::content`]
//! takes the content of a message of any of them: a string, a part or a list of parts. It tells
//! text, thinking, calls, results and attachments apart. [`readable`] turns arguments and other
//! values into text that can be searched and read.

use contexture_formats::{parse_json, parse_time, time_of_number};
use serde_json::Value;

use super::{list, text, text_of};
use crate::entry::{Entry, Kind};
use crate::output::Output;

/// A string of at least this many bytes without white space is data, such as a picture. It is left
/// out, because it would fill the database and nobody searches for it.
const DATA_BYTES: usize = 4_096;

/// What one message says. Its parts become entries.
#[derive(Clone, Copy)]
pub(super) struct Speech<'a> {
    /// What its texts are.
    pub(super) kind: Kind,
    pub(super) time_ms: Option<i64>,
    /// The id of the message, if the agent may write it again with another text. The key of a part
    /// is this id and the part's number, so parts must not be added in another order the next time.
    pub(super) id: Option<&'a str>,
    /// The number of its parts so far, of all kinds.
    parts: usize,
}

impl<'a> Speech<'a> {
    pub(super) fn new(kind: Kind, time_ms: Option<i64>, id: Option<&'a str>) -> Self {
        Self {
            kind,
            time_ms,
            id,
            parts: 0,
        }
    }

    fn entry(
        &mut self,
        kind: Kind,
        text: String,
        name: Option<&str>,
        call: Option<&str>,
        out: &mut Output<'_>,
    ) {
        let key = self.id.map(|id| format!("{id}/{}", self.parts));
        self.parts += 1;
        out.entry(Entry {
            kind,
            text,
            time_ms: self.time_ms,
            name: name.filter(|name| !name.is_empty()).map(ToOwned::to_owned),
            call: call.filter(|call| !call.is_empty()).map(ToOwned::to_owned),
            key,
        });
    }

    /// Adds a text of this kind.
    pub(super) fn text(&mut self, kind: Kind, text: &str, out: &mut Output<'_>) {
        if !text.trim().is_empty() {
            self.entry(kind, text.to_owned(), None, None, out);
        }
    }

    /// Adds a tool call. Arguments that are JSON in a string are read.
    pub(super) fn call(
        &mut self,
        name: &str,
        arguments: &Value,
        id: Option<&str>,
        out: &mut Output<'_>,
    ) {
        let parsed = arguments.as_str().and_then(|json| parse_json(json).ok());
        self.entry(
            Kind::ToolCall,
            readable(parsed.as_ref().unwrap_or(arguments)),
            Some(name),
            id,
            out,
        );
    }

    /// Adds the result of a tool call. Pictures in it become attachments.
    pub(super) fn result(
        &mut self,
        name: Option<&str>,
        value: &Value,
        id: Option<&str>,
        out: &mut Output<'_>,
    ) {
        let (files, rest): (Vec<&Value>, Vec<&Value>) =
            list(value).partition(|part| is_attachment(part));
        // A result with pictures is a list. Without them, the rest is still one text.
        let said = match files.is_empty() {
            true => readable(value),
            false => readable(&rest.into_iter().cloned().collect()),
        };
        self.entry(Kind::ToolResult, said, name, id, out);
        for file in files {
            self.content(file, out);
        }
    }

    /// Adds attached files by their name.
    pub(super) fn attachment(&mut self, name: &str, out: &mut Output<'_>) {
        if !name.is_empty() {
            self.entry(Kind::Attachment, name.to_owned(), None, None, out);
        }
    }

    /// Adds the content of a message: a string, a part, or a list of parts.
    pub(super) fn content(&mut self, content: &Value, out: &mut Output<'_>) {
        match content {
            Value::String(text) => self.text(self.kind, text, out),
            Value::Array(parts) => parts.iter().for_each(|part| self.content(part, out)),
            Value::Object(_) => self.part(content, out),
            _ => {}
        }
    }

    fn part(&mut self, part: &Value, out: &mut Output<'_>) {
        let any = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| part.get(*name))
                .unwrap_or(&Value::Null)
        };
        let kind = text_of(part, "type");
        let id = any(&[
            "tool_use_id", "tool_call_id", "call_id", "toolCallId", "callID", "id",
        ])
        .as_str();
        let name = || {
            any(&["name", "toolName", "tool_name", "tool"])
                .as_str()
                .unwrap_or("tool")
        };
        match kind {
            "thinking" | "reasoning" | "thought" => {
                for value in [
                    "thinking", "text", "reasoning", "thought", "summary", "content",
                ] {
                    if let Some(value) = part.get(value) {
                        let said = readable(value);
                        self.text(Kind::Thinking, &said, out);
                    }
                }
            }
            // Only the provider can read these.
            "redacted_thinking" | "reasoning.encrypted" => {}
            "tool_use" | "server_tool_use" | "mcp_tool_use" | "toolCall" | "tool-call"
            | "tool_call" | "function_call" | "custom_tool_call" | "mcp_call" => {
                let arguments = any(&["input", "arguments", "args"]);
                self.call(name(), arguments, id, out);
                // A call that the provider made itself has its result beside it.
                if let Some(output) = part.get("output").filter(|output| !output.is_null()) {
                    self.result(None, output, id, out);
                }
            }
            // Calls whose arguments are members of their own, such as a shell command.
            "local_shell_call"
            | "web_search_call"
            | "file_search_call"
            | "code_interpreter_call"
            | "image_generation_call"
            | "computer_call"
            | "tool_search_call" => {
                let action = part.get("action").or_else(|| part.get("arguments"));
                let rest = without(
                    part,
                    &["type", "id", "call_id", "status", "result", "outputs"],
                );
                self.call(
                    kind.trim_end_matches("_call"),
                    action.unwrap_or(&rest),
                    id,
                    out,
                );
            }
            "function_call_output"
            | "custom_tool_call_output"
            | "local_shell_call_output"
            | "computer_call_output"
            | "tool_search_output"
            | "tool-result"
            | "tool_result"
            | "toolResult" => {
                let value = any(&["content", "output", "result"]);
                self.result(any(&["name", "toolName"]).as_str(), value, id, out);
            }
            kind if kind.ends_with("_tool_result") => self.result(None, any(&["content"]), id, out),
            "compaction" | "summary" | "context_compaction" => {
                let said = any(&["summary", "content", "text"]);
                let said = readable(said);
                self.text(Kind::Summary, &said, out);
            }
            _ if is_attachment(part) => {
                let name = name_of_attachment(part);
                self.attachment(&name, out);
                // A document of text is more than its name.
                if part["source"]["type"] == "text" {
                    let said = readable(&part["source"]["data"]);
                    self.text(self.kind, &said, out);
                }
            }
            _ => self.untyped(part, out),
        }
    }

    /// A part of Gemini's format, which has no type, or one of a type that is not known.
    fn untyped(&mut self, part: &Value, out: &mut Output<'_>) {
        if let Some(call) = part.get("functionCall") {
            let name = text(call, "name").unwrap_or("tool");
            self.call(name, &call["args"], text(call, "id"), out);
        } else if let Some(answer) = part.get("functionResponse") {
            let response = &answer["response"];
            // A response is an object with the output or the error as its only member.
            let value = response
                .get("output")
                .or_else(|| response.get("error"))
                .unwrap_or(response);
            self.result(text(answer, "name"), value, text(answer, "id"), out);
        } else if let Some(said) = text(part, "text").or_else(|| text(part, "refusal")) {
            let kind = match part.get("thought").is_some_and(|thought| thought == true) {
                true => Kind::Thinking,
                false => self.kind,
            };
            self.text(kind, said, out);
        } else if let Some(content) = part.get("content") {
            self.content(content, out);
        } else {
            let said = readable(&without(
                part,
                &["type", "id", "signature", "encrypted_content"],
            ));
            self.text(self.kind, &said, out);
        }
    }
}

/// Whether a part is a file or a picture.
fn is_attachment(part: &Value) -> bool {
    let kind = text_of(part, "type");
    matches!(
        kind,
        "image"
            | "image_url"
            | "input_image"
            | "document"
            | "file"
            | "input_file"
            | "audio"
            | "input_audio"
            | "media"
            | "image_asset_pointer"
            | "container_upload"
    ) || kind.is_empty() && (part.get("inlineData").is_some() || part.get("fileData").is_some())
}

/// The name of a file or picture, or its kind if it has none.
fn name_of_attachment(part: &Value) -> String {
    let names = [
        "filename", "file_name", "title", "name", "displayName", "path", "fileUri", "file_id",
        "url", "asset_pointer",
    ];
    let inside = ["source", "file", "image_url", "inlineData", "fileData"];
    let own = std::iter::once(part);
    let parts = own.chain(inside.iter().filter_map(|member| part.get(*member)));
    let mut parts = parts.flat_map(|part| names.iter().filter_map(|name| text(part, name)));
    // A picture may be its own address.
    match parts.find(|name| !name.starts_with("data:") && name.len() < DATA_BYTES) {
        Some(name) => name.to_owned(),
        None => {
            let mime = [
                "/source/media_type",
                "/inlineData/mimeType",
                "/mimeType",
                "/mediaType",
                "/mime",
                "/type",
            ];
            let mime = mime
                .iter()
                .find_map(|member| part.pointer(member)?.as_str());
            mime.unwrap_or("file").to_owned()
        }
    }
}

/// The object without these members.
fn without(value: &Value, members: &[&str]) -> Value {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        object.retain(|key, _| !members.contains(&key.as_str()));
    }
    value
}

/// Writes a value as text for people: the members of an object are lines, strings stand as they
/// are, and data such as pictures is left out. A list of content parts is the text of the parts.
pub(super) fn readable(value: &Value) -> String {
    let mut out = String::new();
    write(value, None, &mut out);
    out
}

/// Adds a value with everything in it. The depth is bounded by the parser of JSON.
fn write(value: &Value, name: Option<&str>, out: &mut String) {
    let mut line = |said: &str| {
        if !out.is_empty() {
            out.push('\n');
        }
        if let Some(name) = name {
            out.push_str(name);
            out.push_str(": ");
        }
        out.push_str(said);
    };
    match value {
        Value::Null => {}
        Value::String(said) if is_data(said) => {}
        Value::String(said) => line(said),
        Value::Bool(_) | Value::Number(_) => line(&value.to_string()),
        Value::Array(list) => {
            // A list of short strings is mostly a command.
            let words: Option<Vec<&str>> = list.iter().map(Value::as_str).collect();
            match words {
                Some(words) if !words.is_empty() && !words.iter().any(|word| is_data(word)) => {
                    line(&words.join(" "))
                }
                _ => list.iter().for_each(|value| write(value, name, out)),
            }
        }
        Value::Object(members) => {
            // This is a part of content. What it says is its text, and its other members are about
            // the text.
            let said = members.get("text").filter(|text| text.is_string());
            if let Some(said) = said {
                return write(said, name, out);
            }
            for (key, value) in members {
                // A `type` that is a string names the form of a value.
                if key != "type" || !value.is_string() {
                    write(value, Some(key), out);
                }
            }
        }
    }
}

/// Whether a string is data that nobody reads: a data URL in base64, or a long string without white
/// space. Scripts that have no spaces could be taken for data only if a text has no line break in
/// more than a thousand characters.
fn is_data(text: &str) -> bool {
    text.starts_with("data:") && text.contains(";base64,")
        || text.len() >= DATA_BYTES && !text.bytes().any(|byte| byte.is_ascii_whitespace())
}

/// Adds a summary of a conversation, or its title, which says what it is about too.
pub(super) fn summary(text: &str, time_ms: Option<i64>, id: Option<&str>, out: &mut Output<'_>) {
    Speech::new(Kind::Summary, time_ms, id).text(Kind::Summary, text, out);
}

/// Reads a time in any form that a log has: text in ISO 8601, or a number, whose size tells its
/// unit. `None` if it is neither.
pub(super) fn time(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => parse_time(text),
        value => time_of_number(value.as_f64()?),
    }
}

/// The kind of the texts of a role. A role that is not known is a note, for example `system` and
/// `developer`.
pub(super) fn kind_of(role: &str) -> Kind {
    match role {
        "user" | "human" | "USER" => Kind::User,
        "assistant" | "ai" | "model" | "gemini" | "agent" => Kind::Assistant,
        "tool" | "function" | "toolResult" | "tool_result" => Kind::ToolResult,
        _ => Kind::Note,
    }
}

/// Adds a message in the format of OpenAI, Anthropic or one close to it: an object with a role, its
/// content, and calls beside the content.
pub(super) fn message(
    message: &Value,
    time_ms: Option<i64>,
    id: Option<&str>,
    out: &mut Output<'_>,
) {
    let role = text_of(message, "role");
    let kind = kind_of(role);
    let mut speech = Speech::new(kind, time_ms, id);
    for member in ["reasoning_content", "reasoning"] {
        if let Some(said) = text(message, member) {
            speech.text(Kind::Thinking, said, out);
        }
    }
    let content = &message["content"];
    match kind {
        Kind::ToolResult => {
            let call = ["tool_call_id", "toolCallId", "call_id"]
                .iter()
                .find_map(|id| text(message, id));
            let name = text(message, "name").or_else(|| text(message, "toolName"));
            speech.result(name, content, call, out);
        }
        _ => speech.content(content, out),
    }
    for call in list(&message["tool_calls"]) {
        let function = call.get("function").unwrap_or(call);
        let arguments = function.get("arguments").or_else(|| function.get("args"));
        let name = text(function, "name").unwrap_or("tool");
        speech.call(
            name,
            arguments.unwrap_or(&Value::Null),
            text(call, "id"),
            out,
        );
    }
}
