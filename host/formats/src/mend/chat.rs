//! Fixes messages for OpenAI's chat completions.
//!
//! [`mended`] fixes the role, the content and the calls of each message, and then lets `pairs`
//! bring calls and results together. A result must directly follow the message with its call.
//!
//! Only user messages can hold pictures, recordings and files. If a tool result or an assistant
//! message has some, they move to a user message after it. Claude models are offered in this
//! format too, for example by OpenRouter, so cache markers stay if the model is one of them.

use contexture_engine_api::MISSING_RESULT;
use serde_json::{Value, json};

use super::pairs::{Entry, Forms, paired};
use super::{Notes, as_string, drop_private, mend_name, moved, orphan, string_of, text_of};

const FORMS: Forms = Forms {
    adjacent: true,
    set_calls: |message, ids| {
        for (call, id) in message["tool_calls"]
            .as_array_mut()
            .into_iter()
            .flatten()
            .zip(ids)
        {
            call["id"] = json!(id);
        }
    },
    set_result: |message, id| message["tool_call_id"] = json!(id),
    stub: |_, _, id| json!({"role": "tool", "tool_call_id": id, "content": MISSING_RESULT}),
    orphan: |message| json!({"role": "user", "content": orphan(&message["content"])}),
};

/// The roles that a message can have.
const ROLES: [&str; 6] = [
    "system", "developer", "user", "assistant", "tool", "function",
];

/// Fixes the messages of a body. If `claude` is set, the model is a Claude model and cache
/// markers stay.
pub(super) fn mended(messages: Vec<Value>, claude: bool, notes: &mut Notes) -> Vec<Value> {
    let mut entries = Vec::new();
    for mut message in messages {
        drop_private(&mut message, notes);
        let pictures = mend_message(&mut message, claude, notes);
        let Some(mut message) = message_or_none(message, notes) else {
            continue;
        };
        let calls = mend_calls(&mut message, notes);
        entries.push(match message["role"].as_str() {
            Some("tool") => {
                let id = string_of(&message["tool_call_id"]);
                Entry::Result(message, id)
            }
            _ if !calls.is_empty() => Entry::Calls(message, calls),
            _ => Entry::Other(message),
        });
        if !pictures.is_empty() {
            let parts = moved("text", pictures, notes);
            entries.push(Entry::Other(json!({"role": "user", "content": parts})));
        }
    }
    // Pairing moves results together, so the pictures of a group of results follow all of them.
    let paired = paired(entries, &FORMS, notes).into_iter();
    paired.map(|(_, entry)| entry.into_value()).collect()
}

/// Fixes role and content. Returns the parts that have to move to a user message.
fn mend_message(message: &mut Value, claude: bool, notes: &mut Notes) -> Vec<Value> {
    let is_known = ROLES.contains(&message["role"].as_str().unwrap_or_default());
    if !is_known && !text_of(&message["content"]).trim().is_empty() {
        notes.one("an unknown role was changed to `user`");
        message["role"] = json!("user");
    }
    let role = string_of(&message["role"]);
    let has_calls = message["tool_calls"]
        .as_array()
        .is_some_and(|calls| !calls.is_empty())
        || message["function_call"].is_object();
    let may_be_null = role == "assistant"
        && (has_calls || message["refusal"].is_string() || message["audio"].is_object());
    let Some(parts) = message["content"].as_array_mut() else {
        let content = &message["content"];
        let may_stay = content.is_string() || (content.is_null() && may_be_null);
        if !may_stay {
            message["content"] = json!(text_of(content));
        }
        return Vec::new();
    };
    let mut aside = Vec::new();
    let mut kept = Vec::new();
    for mut part in std::mem::take(parts) {
        drop_private(&mut part, notes);
        // Only Claude models know the marker, and other APIs may reject an unknown member.
        if !claude && part.get("cache_control").is_some() {
            part.as_object_mut()
                .map(|part| part.shift_remove("cache_control"));
            notes.one("a cache marker was left out");
        }
        let kind = string_of(&part["type"]);
        match (kind.as_str(), role.as_str()) {
            ("text", _) if part["text"].is_string() => kept.push(part),
            ("refusal", "assistant") => kept.push(part),
            ("image_url" | "input_audio" | "file", "user") => kept.push(part),
            ("image_url" | "input_audio" | "file", _) => aside.push(part),
            _ => match part.as_str().or(part["text"].as_str()) {
                Some(text) => kept.push(json!({"type": "text", "text": text})),
                None => notes.one("a part that the format cannot express was left out"),
            },
        }
    }
    message["content"] = match kept.is_empty() {
        true if may_be_null => Value::Null,
        true => json!(""),
        false => Value::Array(kept),
    };
    aside
}

/// Returns the message, or `None` if it is empty and only its own provider knows its role.
fn message_or_none(message: Value, notes: &mut Notes) -> Option<Value> {
    if ROLES.contains(&message["role"].as_str().unwrap_or_default()) {
        return Some(message);
    }
    notes.one("an item that only its provider can read was left out");
    None
}

/// Fixes the calls of a message and returns their ids. An empty list of calls is removed,
/// because OpenAI rejects it.
fn mend_calls(message: &mut Value, notes: &mut Notes) -> Vec<String> {
    if let Some(call) = message
        .get_mut("function_call")
        .filter(|call| call.is_object())
    {
        mend_name(call, notes);
        as_string(&mut call["arguments"]);
    }
    let is_assistant = message["role"] == "assistant";
    let Some(calls) = message.get_mut("tool_calls") else {
        return Vec::new();
    };
    let is_there = calls.as_array().is_some_and(|calls| !calls.is_empty()) && is_assistant;
    if !is_there {
        if !calls.is_null() {
            notes.one("an empty list of calls was left out");
        }
        message
            .as_object_mut()
            .map(|message| message.shift_remove("tool_calls"));
        return Vec::new();
    }
    let mut ids = Vec::new();
    for call in calls.as_array_mut().into_iter().flatten() {
        ids.push(string_of(&call["id"]));
        if call["type"] == "custom" {
            mend_name(&mut call["custom"], notes);
            as_string(&mut call["custom"]["input"]);
            continue;
        }
        if !call["function"].is_object() {
            let function = json!({"name": call["name"], "arguments": call["arguments"]});
            *call = json!({"id": call["id"], "type": "function", "function": function});
        }
        if call["type"] != "function" {
            call["type"] = json!("function");
        }
        mend_name(&mut call["function"], notes);
        as_string(&mut call["function"]["arguments"]);
    }
    ids
}
