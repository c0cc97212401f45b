//! Requests as clients write them, in four formats, and what they carry whatever way they are written.

use std::collections::HashMap;

use contexture::formats::Format;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// A format of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wire {
    Chat,
    Anthropic,
    Responses,
    Gemini,
}

/// A call of a tool: its id and a number that tells its arguments apart.
pub(crate) type Call = (String, u32);

/// What a client writes otherwise than the bytes that it got: the meaning is the same.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Dialect {
    /// The very bytes.
    #[default]
    AsIs,
    /// Keys the other way round.
    Reordered,
    /// Spaces and line ends.
    Spaced,
    /// A text that is a string becomes one part.
    Parts,
    /// A text that is one part becomes a string.
    Strings,
}

/// A request, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Request {
    /// What stands beside the messages: the system prompt above all.
    pub(crate) system: String,
    pub(crate) messages: Vec<String>,
    /// The tools that it offers, as JSON; empty for none.
    pub(crate) tools: String,
}

const MODEL: &str = "gpt-5";

impl Wire {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Anthropic, Self::Responses, Self::Gemini];

    pub(crate) fn format(self) -> Format {
        match self {
            Self::Chat => Format::OpenAiChat,
            Self::Anthropic => Format::Anthropic,
            Self::Responses => Format::OpenAiResponses,
            Self::Gemini => Format::Gemini,
        }
    }

    pub(crate) fn first_request(self) -> Request {
        let prompt = json!("You are a patient engineer.");
        let system = match self {
            Self::Chat => json!({"role": "system", "content": prompt}),
            Self::Gemini => json!({"parts": [{"text": prompt}]}),
            _ => prompt,
        };
        Request {
            system: system.to_string(),
            ..Request::default()
        }
    }

    pub(crate) fn write(self, request: &Request) -> String {
        let Request {
            system, messages, ..
        } = request;
        let list = messages.join(",");
        match self {
            Self::Chat => {
                let comma = if messages.is_empty() { "" } else { "," };
                format!(r#"{{"model":"{MODEL}","messages":[{system}{comma}{list}]}}"#)
            }
            Self::Anthropic => format!(
                r#"{{"model":"{MODEL}","max_tokens":64,"system":{system},"messages":[{list}]}}"#
            ),
            Self::Responses => {
                format!(r#"{{"model":"{MODEL}","instructions":{system},"input":[{list}]}}"#)
            }
            Self::Gemini => format!(r#"{{"systemInstruction":{system},"contents":[{list}]}}"#),
        }
    }

    pub(crate) fn read(self, body: &str) -> Result<Request, String> {
        let fail = |error| format!("{error}: {body}");
        let members: HashMap<&str, &RawValue> = serde_json::from_str(body).map_err(fail)?;
        let member = |names: [&str; 3]| {
            names
                .iter()
                .find_map(|name| members.get(name))
                .map(|raw| raw.get())
        };
        let list = member(["messages", "input", "contents"]).unwrap_or("[]");
        let list: Vec<&RawValue> = serde_json::from_str(list).map_err(fail)?;
        let mut messages: Vec<String> = list.iter().map(|raw| raw.get().to_owned()).collect();
        let system = match self {
            Self::Chat if !messages.is_empty() => messages.remove(0),
            _ => member(["system", "instructions", "systemInstruction"])
                .unwrap_or_default()
                .to_owned(),
        };
        let tools = members.get("tools").map(|raw| raw.get().to_owned());
        Ok(Request {
            system,
            messages,
            tools: tools.unwrap_or_default(),
        })
    }

    pub(crate) fn user(self, text: &str, image: bool) -> Value {
        let parts = match self {
            _ if !image => return self.message("user", json!(text)),
            Self::Chat => json!([
                {"type": "text", "text": text},
                {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{PIXEL}")}},
            ]),
            Self::Anthropic => json!([
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                {"type": "text", "text": text},
            ]),
            Self::Responses => json!([
                {"type": "input_text", "text": text},
                {"type": "input_image", "image_url": format!("data:image/png;base64,{PIXEL}")},
            ]),
            Self::Gemini => json!([
                {"text": text},
                {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
            ]),
        };
        self.message("user", parts)
    }

    fn message(self, role: &str, content: Value) -> Value {
        match self {
            Self::Responses => json!({"type": "message", "role": role, "content": content}),
            Self::Gemini => {
                let parts = match content {
                    Value::String(text) => json!([{"text": text}]),
                    parts => parts,
                };
                json!({"role": role, "parts": parts})
            }
            _ => json!({"role": role, "content": content}),
        }
    }

    /// An answer of the model, in wire messages.
    pub(crate) fn answer(self, text: &str, thinks: bool, calls: &[Call]) -> Vec<Value> {
        let arguments =
            |number: &u32| json!({"path": format!("src/{number}.rs"), "deep": {"b": 1, "a": [2]}});
        match self {
            Self::Chat => {
                let mut message = json!({"role": "assistant", "content": text});
                if !calls.is_empty() {
                    message["tool_calls"] = calls
                        .iter()
                        .map(|(id, number)| {
                            json!({"id": id, "type": "function", "function":
                            {"name": "read", "arguments": arguments(number).to_string()}})
                        })
                        .collect();
                }
                vec![message]
            }
            Self::Anthropic => {
                let mut blocks = Vec::new();
                if thinks {
                    blocks.push(json!({"type": "thinking", "thinking": format!("About {text}"), "signature": "c2ln"}));
                }
                if !text.is_empty() {
                    blocks.push(json!({"type": "text", "text": text}));
                }
                let uses = calls.iter().map(|(id, number)| {
                    json!({"type": "tool_use", "id": id, "name": "read", "input": arguments(number)})
                });
                blocks.extend(uses);
                vec![self.message("assistant", json!(blocks))]
            }
            Self::Responses => {
                let mut items = Vec::new();
                if thinks {
                    items.push(json!({"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": text}));
                }
                if !text.is_empty() || calls.is_empty() {
                    let parts = json!([{"type": "output_text", "text": text, "annotations": []}]);
                    items.push(self.message("assistant", parts));
                }
                let calls = calls.iter().map(|(id, number)| {
                    json!({"type": "function_call", "call_id": id, "name": "read",
                        "arguments": arguments(number).to_string()})
                });
                items.extend(calls);
                items
            }
            Self::Gemini => {
                let mut parts = Vec::new();
                if thinks {
                    parts.push(json!({"text": format!("About {text}"), "thought": true}));
                }
                if !text.is_empty() || calls.is_empty() {
                    parts.push(json!({"text": text}));
                }
                parts.extend(calls.iter().map(|(id, number)| {
                    let mut call = json!({"name": "read", "args": arguments(number)});
                    // Only newer models name their calls.
                    if number.is_multiple_of(3) {
                        call["id"] = json!(id);
                    }
                    json!({"functionCall": call})
                }));
                vec![self.message("model", json!(parts))]
            }
        }
    }

    /// The results of calls, in wire messages; with Anthropic and Gemini the user may add a word.
    pub(crate) fn results(self, results: &[(&str, String)], word: Option<&str>) -> Vec<Value> {
        let mut messages: Vec<Value> = match self {
            Self::Chat => results
                .iter()
                .map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text}))
                .collect(),
            Self::Anthropic => {
                let mut blocks: Vec<Value> = results
                    .iter()
                    .map(|(id, text)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
                    .collect();
                blocks.extend(word.map(|word| json!({"type": "text", "text": word})));
                return vec![self.message("user", json!(blocks))];
            }
            Self::Gemini => {
                let mut parts: Vec<Value> = results
                    .iter()
                    .map(|(_, text)| json!({"functionResponse": {"name": "read", "response": {"output": text}}}))
                    .collect();
                parts.extend(word.map(|word| json!({"text": word})));
                return vec![self.message("user", json!(parts))];
            }
            Self::Responses => results
                .iter()
                .map(|(id, text)| json!({"type": "function_call_output", "call_id": id, "output": text}))
                .collect(),
        };
        messages.extend(word.map(|word| self.user(word, false)));
        messages
    }
}

/// An image of one pixel.
pub(crate) const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// What a wire message carries: the same for all the ways to write it.
pub(crate) fn carried(raw: &str) -> Result<Value, String> {
    let mut message: Value =
        serde_json::from_str(raw).map_err(|error| format!("{error}: {raw}"))?;
    to_parts(&mut message);
    // Gemini's parts are looked at like those of the others.
    if let Some(mut parts) = message
        .as_object_mut()
        .and_then(|members| members.shift_remove("parts"))
    {
        for part in parts.as_array_mut().into_iter().flatten() {
            if part["functionResponse"].is_object() {
                part["type"] = json!("tool_result");
            }
        }
        message["content"] = parts;
    }
    for part in message["content"].as_array_mut().into_iter().flatten() {
        if let Some(part) = part.as_object_mut() {
            part.remove("cache_control");
            if part.get("type") == Some(&json!("tool_result")) {
                to_parts_of(part, "text");
            }
        }
    }
    Ok(message)
}

fn to_parts(message: &mut Value) {
    let part = match (message["type"].as_str(), message["role"].as_str()) {
        (Some(_), Some("assistant")) => "output_text",
        (Some(_), _) => "input_text",
        _ => "text",
    };
    if let Some(message) = message.as_object_mut() {
        to_parts_of(message, part);
        // What an API answers with and need not get back.
        for part in message
            .get_mut("content")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(part) = part.as_object_mut() {
                part.remove("annotations");
            }
        }
    }
}

fn to_parts_of(message: &mut Map<String, Value>, part: &str) {
    if let Some(content) = message.get_mut("content")
        && content.is_string()
    {
        *content = json!([{"type": part, "text": content}]);
    }
}

/// Writes a wire message in another way.
pub(crate) fn respell(raw: &str, dialect: Dialect) -> String {
    let read = || serde_json::from_str::<Value>(raw).unwrap();
    match dialect {
        Dialect::AsIs => raw.to_owned(),
        Dialect::Reordered => reordered(read()).to_string(),
        Dialect::Spaced => serde_json::to_string_pretty(&read()).unwrap(),
        Dialect::Parts => {
            let mut message = read();
            to_parts(&mut message);
            message.to_string()
        }
        Dialect::Strings => {
            let mut message = read();
            if let Some([Value::Object(part)]) = message["content"].as_array().map(Vec::as_slice)
                && part.len() == 2
                && let Some(text) = part.get("text").cloned()
            {
                message["content"] = text;
            }
            message.to_string()
        }
    }
}

fn reordered(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .rev()
            .map(|(key, value)| (key, reordered(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(list) => list.into_iter().map(reordered).collect(),
        other => other,
    }
}

/// All that a model reads in a body, for counting.
pub(crate) fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) if !text.contains(PIXEL) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, into)),
        Value::Object(map) => {
            let read = [
                "content", "text", "arguments", "input", "output", "tool_calls", "function",
                "thinking", "parts", "functionCall", "functionResponse", "response",
            ];
            let read = map.iter().filter(|(key, _)| read.contains(&key.as_str()));
            read.for_each(|(_, value)| texts(value, into));
        }
        _ => {}
    }
}
