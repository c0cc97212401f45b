//! Stored messages as the views that engines work with; calls are parsed from the wire JSON.

use contexture_engine_api::{MessageView, ToolCallView};
use serde_json::Value;

use crate::store::StoredMessage;
use crate::wire_items::wire_items;

/// A tool call, as it was on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
struct StoredCall {
    id: String,
    name: String,
    arguments: String,
}

impl StoredCall {
    fn view(&self) -> ToolCallView<'_> {
        ToolCallView::new(&self.id, &self.name, &self.arguments)
    }
}

/// Messages from the store.
#[derive(Debug, Default)]
pub(crate) struct StoredViews {
    messages: Vec<(StoredMessage, Vec<StoredCall>)>,
}

impl StoredViews {
    pub(crate) fn of(messages: Vec<StoredMessage>) -> Self {
        let with_calls = |message: StoredMessage| {
            let calls = match message.row.role.as_str() {
                "tool" => Vec::new(),
                _ if message.calls.is_empty() => Vec::new(),
                _ => calls(&message.raw),
            };
            (message, calls)
        };
        Self {
            messages: messages.into_iter().map(with_calls).collect(),
        }
    }

    /// The calls of each message, for [`views`](Self::views).
    pub(crate) fn call_views(&self) -> Vec<Vec<ToolCallView<'_>>> {
        self.messages
            .iter()
            .map(|(_, calls)| calls.iter().map(StoredCall::view).collect())
            .collect()
    }

    /// The messages; `calls` is what [`call_views`](Self::call_views) gave.
    pub(crate) fn views<'a>(&'a self, calls: &'a [Vec<ToolCallView<'a>>]) -> Vec<MessageView<'a>> {
        self.messages
            .iter()
            .zip(calls)
            .map(|((message, _), calls)| view(message, calls))
            .collect()
    }
}

fn view<'a>(message: &'a StoredMessage, calls: &'a [ToolCallView<'a>]) -> MessageView<'a> {
    let row = &message.row;
    let mut view = MessageView::new(row.id, &row.role)
        .with_name(row.name.as_deref().unwrap_or_default())
        .with_text(&message.text)
        .with_tool_calls(calls)
        .with_raw(&message.raw)
        .with_kind(row.kind)
        .with_thinking(row.has_thinking)
        .with_media(row.has_media)
        .with_error(row.is_error)
        .with_tokens(row.tokens);
    if row.role == "tool" {
        let call = row.call_id.as_deref().unwrap_or_default();
        view = view.with_result_of(call, row.tool.as_deref().unwrap_or_default());
    }
    match row.at {
        Some(at) => view.with_time(at),
        None => view,
    }
}

/// The calls in the wire JSON of an assistant message, in any of the formats of the host.
fn calls(raw: &str) -> Vec<StoredCall> {
    let mut calls = Vec::new();
    for value in wire_items(raw) {
        let message = value
            .get("message")
            .or_else(|| value.get("payload"))
            .unwrap_or(&value);
        collect(message, &mut calls);
    }
    calls
}

fn collect(message: &Value, calls: &mut Vec<StoredCall>) {
    let text = |value: Option<&Value>| match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    };
    let elements = |key: &str| {
        message
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    for call in elements("tool_calls") {
        let function = call.get("function").unwrap_or(call);
        calls.push(StoredCall {
            id: text(call.get("id")),
            name: text(function.get("name")),
            arguments: text(function.get("arguments")),
        });
    }
    for block in elements("content") {
        if block.get("type").and_then(Value::as_str) == Some("tool_use") {
            calls.push(StoredCall {
                id: text(block.get("id")),
                name: text(block.get("name")),
                arguments: text(block.get("input")),
            });
        }
    }
    if message.get("call_id").is_some() && message.get("name").is_some() {
        calls.push(StoredCall {
            id: text(message.get("call_id")),
            name: text(message.get("name")),
            arguments: text(message.get("arguments").or_else(|| message.get("input"))),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(raw: &str) -> Vec<(String, String, String)> {
        calls(raw)
            .into_iter()
            .map(|call| (call.id, call.name, call.arguments))
            .collect()
    }

    #[test]
    fn calls_are_read_in_every_format() {
        let ls = |arguments: &str| vec![("c1".into(), "ls".into(), arguments.to_owned())];
        let openai = r#"{"role":"assistant","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"a\":1}"}}]}"#;
        assert_eq!(names(openai), ls(r#"{"a":1}"#));
        let anthropic = r#"{"role":"assistant","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"c1","name":"ls","input":{"a":1}}]}"#;
        assert_eq!(names(anthropic), ls(r#"{"a":1}"#));
        let line = format!(r#"{{"type":"assistant","message":{anthropic}}}"#);
        assert_eq!(
            names(&format!("{line}\n{{\"message\":{{\"content\":\"y\"}}}}")),
            ls(r#"{"a":1}"#)
        );
        let item = r#"{"type":"function_call","call_id":"c1","name":"ls","arguments":"{}"}"#;
        assert_eq!(names(item), ls("{}"));
        let list = format!("{{\"type\":\"reasoning\"}},\n  {item}");
        assert_eq!(names(&list), ls("{}"));
        assert_eq!(names("not json"), []);
    }
}
