//! The searchable body of a message: its text, its calls, its thinking, and what hosted tools did.
//!
//! Search does not look at the JSON of a message, because escapes and keys would get in the way. It
//! looks at a body, which is all readable parts of the message on separate lines. [`MessageBody`] keeps
//! the borders of the parts, so that a match cannot span two of them.
//!
//! [`beside_text`] builds the parts that are not the text. It resolves the escapes in arguments and
//! collects thinking from every wire format. The submodule `others` reads the items of hosted tools
//! and documents. The `read` module fetches messages and caches their bodies.

use contexture_engine_api::MessageView;
use serde_json::Value;

use crate::tool_names::is_own;
use crate::wire_items::wire_items;

mod others;

/// The keys under which the wire formats store readable thinking. Signatures and encrypted thinking
/// are under other keys.
const THINKING_KEYS: [&str; 5] = [
    "thinking", "reasoning", "reasoning_content", "reasoning_details", "summary",
];

/// The parts of a message, each on separate lines. The body of a summary has one part. A match
/// always lies within one part.
#[derive(Debug, Clone)]
pub(crate) struct MessageBody<'a> {
    all: &'a str,
    text_len: usize,
    beside: &'a [usize],
}

impl<'a> MessageBody<'a> {
    /// Creates a body from `all`, which is a text of `text_len` bytes followed by parts of the
    /// lengths `beside`, separated by line breaks. An empty text is not a part if other parts
    /// follow.
    pub(super) fn new(all: &'a str, text_len: usize, beside: &'a [usize]) -> Self {
        Self {
            all,
            text_len,
            beside,
        }
    }

    /// Creates a body of one text, as a summary has it.
    pub(crate) fn of_text(text: &'a str) -> Self {
        Self::new(text, text.len(), &[])
    }

    /// Returns the whole body. Positions of matches refer to it.
    pub(crate) fn as_str(&self) -> &str {
        self.all
    }

    /// Returns the parts, each with the byte at which it starts in the body.
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

/// Appends parts to the body that starts at byte `start` of `out`, in the layout of [`MessageBody::new`].
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

/// Returns the searchable parts of a message besides its text, none of them empty. First come the
/// calls, each with the name of the tool and its arguments. Escapes in the arguments are resolved,
/// so that a path or a line of code is found as written. Then come hosted tools and documents, and
/// last the thinking. A call of this engine's own tools has only its name, because a search would
/// otherwise find the words of earlier searches.
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

/// Appends JSON text with the escapes in its strings resolved. Text that is not valid JSON is
/// appended as far as possible unchanged, because providers also send truncated arguments.
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

/// Returns the byte of the quote that closes a string, or None if the string is truncated. `text`
/// starts after the opening quote.
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
            let inside = inside
                || fields.get("type").and_then(Value::as_str) == Some("reasoning")
                || fields.get("thought") == Some(&Value::Bool(true));
            for (key, field) in fields {
                let inside = match key.as_str() {
                    // The arguments of a call can have any keys, so they would be mistaken for
                    // thinking.
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
mod tests;
