//! The searchable body of a message: its text, its calls, its thinking, and what hosted tools did in it.

use std::borrow::Cow;

use contexture_engine_api::{MessageId, MessageView};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

use crate::tools::is_own;
use crate::wire_items::wire_items;

mod others;

/// The keys under which the wire formats carry readable thinking.
const THINKING_KEYS: [&str; 5] = [
    "thinking",
    "reasoning",
    "reasoning_content",
    "reasoning_details",
    "summary",
];

/// The parts of a message (or the one text of a summary), each on separate lines. A match is within one of
/// them.
#[derive(Debug, Clone)]
pub(crate) struct Body<'a> {
    all: Cow<'a, str>,
    text_len: usize,
    beside: &'a [usize],
}

impl<'a> Body<'a> {
    /// `all` is a text of `text_len` bytes, followed by parts of the lengths `beside`, separated by line
    /// breaks. An empty text is not a part.
    pub(super) fn new(all: Cow<'a, str>, text_len: usize, beside: &'a [usize]) -> Self {
        Self {
            all,
            text_len,
            beside,
        }
    }

    /// A body that is one text.
    pub(crate) fn of_text(text: &'a str) -> Self {
        Self::new(Cow::Borrowed(text), text.len(), &[])
    }

    /// All of it.
    pub(crate) fn as_str(&self) -> &str {
        &self.all
    }

    /// The parts, each with its start.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (usize, &str)> {
        let has_text = self.text_len > 0 || self.beside.is_empty();
        let lengths = has_text.then_some(self.text_len).into_iter();
        let mut start = 0;
        lengths
            .chain(self.beside.iter().copied())
            .map_while(move |length| {
                let part = (start, self.all.get(start..start + length)?);
                start += length + 1;
                Some(part)
            })
    }
}

/// Appends parts to the body that begins at `start` of `out`, in the layout of [`Body::new`].
pub(super) fn push_beside<'p>(
    parts: impl IntoIterator<Item = &'p str>,
    start: usize,
    out: &mut String,
) {
    for part in parts {
        if out.len() > start {
            out.push('\n');
        }
        out.push_str(part);
    }
}

/// The columns of a message's row besides its content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) id: MessageId,
    pub(super) role: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) tool: Option<&'a str>,
    pub(super) call_id: Option<&'a str>,
    pub(super) at: Option<i64>,
    /// Thinking, media, error, whether there is text, then the kind.
    pub(super) flags: i64,
}

impl<'a> Facts<'a> {
    pub(super) fn of(view: &MessageView<'a>) -> Self {
        Self {
            id: view.id(),
            role: view.role(),
            name: view.name(),
            tool: view.tool_name(),
            call_id: view.tool_call_id(),
            at: view.time(),
            flags: i64::from(view.has_thinking())
                | i64::from(view.has_media()) << 1
                | i64::from(view.is_error()) << 2
                | i64::from(!view.text().trim().is_empty()) << 3
                | i64::from(view.kind() as u32) << 8,
        }
    }

    /// The hash of a message with its content: wire JSON, text and other parts. Everything read back is
    /// compared with it.
    pub(super) fn hash(&self, raw: &str, text: &str, beside: &[String]) -> [u8; 16] {
        let mut hasher = Xxh3::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for number in [self.id.0 as i64, self.flags] {
            part(&number.to_le_bytes());
        }
        part(&self.at.map_or([0; 8], i64::to_le_bytes));
        for text in [self.role, raw, text] {
            part(text.as_bytes());
        }
        part(&(beside.len() as u64).to_le_bytes());
        for beside in beside {
            part(beside.as_bytes());
        }
        for (which, name) in [self.tool, self.call_id, self.name].iter().enumerate() {
            if let Some(name) = name {
                part(&[which as u8]);
                part(name.as_bytes());
            }
        }
        hasher.digest128().to_le_bytes()
    }
}

/// The calls: the tool's name and its arguments with the escapes of their strings resolved, so that a path or a line of
/// code is found as written. Then the thinking, and what else the message holds. None of these is empty. A call of this
/// engine's own tools has only its name, so a search does not find the words that were searched for.
pub(super) fn beside_text(view: &MessageView<'_>) -> Vec<String> {
    let calls = view.tool_calls().iter().map(|call| {
        if is_own(call.name()) {
            return call.name().to_owned();
        }
        let mut out = format!("{} ", call.name());
        unescape_strings(call.arguments(), &mut out);
        out
    });
    let mut parts: Vec<String> = calls.collect();
    parts.extend(others::in_raw(view.raw()));
    if view.has_thinking() {
        let mut thinking = Vec::new();
        for item in wire_items(view.raw()) {
            collect_thinking(item, false, &mut thinking);
        }
        parts.extend(thinking);
    }
    parts
}

/// Appends JSON text with the escapes in its strings resolved; other text is appended unchanged.
fn unescape_strings(json: &str, out: &mut String) {
    if !json.contains('\\') {
        out.push_str(json);
        return;
    }
    let mut rest = json;
    while let Some(quote) = rest.find('"') {
        out.push_str(&rest[..=quote]);
        rest = &rest[quote + 1..];
        let Some(end) = string_end(rest) else {
            break;
        };
        // Quoted again, so that the parser resolves every kind of escape.
        match serde_json::from_str::<String>(&format!("\"{}\"", &rest[..end])) {
            Ok(text) => out.push_str(&text),
            Err(_) => out.push_str(&rest[..end]),
        }
        out.push('"');
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
}

/// The end of a string that was opened.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

fn collect_thinking(value: Value, inside: bool, out: &mut Vec<String>) {
    match value {
        // Some providers send the same thinking under two keys.
        Value::String(text) if inside && !text.is_empty() && !out.contains(&text) => out.push(text),
        Value::Array(items) => {
            for item in items {
                collect_thinking(item, inside, out);
            }
        }
        Value::Object(fields) => {
            let inside = inside || fields.get("type").and_then(Value::as_str) == Some("reasoning");
            for (key, field) in fields {
                let inside = match key.as_str() {
                    // A call's arguments, which may have any shape.
                    "input" => continue,
                    "text" | "content" => inside,
                    key => THINKING_KEYS.contains(&key),
                };
                collect_thinking(field, inside, out);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::ToolCallView;

    use super::*;

    #[test]
    fn arguments_read_as_they_were_meant() {
        let calls = [
            ToolCallView::new(
                "1",
                "write",
                r#"{"path":"a\\b","text":"line 1\nsay \"\u7d22\""}"#,
            ),
            ToolCallView::new("2", "odd", r#"{"cut off\"#),
        ];
        let view = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
        assert_eq!(
            beside_text(&view),
            [
                "write {\"path\":\"a\\b\",\"text\":\"line 1\nsay \"索\"\"}",
                "odd {\"cut off\\"
            ]
        );
    }

    #[test]
    fn thinking_is_seen_and_signatures_are_not() {
        let raw = r#"{"content":[{"type":"thinking","thinking":"deep thought","signature":"c2ln"},
                      {"type":"text","text":"said"}]}"#;
        let view = MessageView::new(MessageId(1), "assistant")
            .with_text("said")
            .with_raw(raw)
            .with_thinking(true);
        assert_eq!(beside_text(&view), ["deep thought"]);
    }
}
