//! What search sees of a message beside its text: its calls, and its thinking.

use contexture_engine_api::{MessageId, MessageView};
use serde_json::Value;
use xxhash_rust::xxh3::Xxh3;

/// The keys under which the wire formats carry thinking that can be read.
const THINKING_KEYS: [&str; 4] = ["thinking", "reasoning", "reasoning_content", "summary"];

/// What a message's row says of it beside its content.
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

    /// The hash of the message with this content: its wire JSON, its text and what stands beside it.
    /// Whatever is read back is compared with it.
    pub(super) fn hash(&self, raw: &str, text: &str, beside: &str) -> [u8; 16] {
        let mut hasher = Xxh3::new();
        let mut part = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        for number in [self.id.0 as i64, self.flags] {
            part(&number.to_le_bytes());
        }
        part(&self.at.map_or([0; 8], i64::to_le_bytes));
        for text in [self.role, raw, text, beside] {
            part(text.as_bytes());
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

/// The calls, a line each: the tool's name and its arguments with the escapes of their strings resolved,
/// so that a path or a line of code is found as it was meant; then the thinking.
pub(super) fn beside_text(view: &MessageView<'_>) -> String {
    let mut out = String::new();
    for call in view.tool_calls() {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(call.name());
        out.push(' ');
        unescape_strings(call.arguments(), &mut out);
    }
    if view.has_thinking()
        && let Ok(wire) = serde_json::from_str::<Value>(view.raw())
    {
        collect_thinking(&wire, false, &mut out);
    }
    out
}

/// Appends JSON text with the escapes in its strings resolved; what is no JSON stays as it is.
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
        // Quoted again for the parser, which resolves every kind of escape.
        match serde_json::from_str::<String>(&format!("\"{}\"", &rest[..end])) {
            Ok(text) => out.push_str(&text),
            Err(_) => out.push_str(&rest[..end]),
        }
        out.push('"');
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
}

/// Where a string that has been opened is closed.
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

fn collect_thinking(value: &Value, inside: bool, out: &mut String) {
    match value {
        Value::String(text) if inside => {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(text);
        }
        Value::Array(items) => {
            for item in items {
                collect_thinking(item, inside, out);
            }
        }
        Value::Object(fields) => {
            for (key, field) in fields {
                let inside = THINKING_KEYS.contains(&key.as_str()) || inside && key == "text";
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
            "write {\"path\":\"a\\b\",\"text\":\"line 1\nsay \"索\"\"}\nodd {\"cut off\\"
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
        assert_eq!(beside_text(&view), "deep thought");
    }
}
