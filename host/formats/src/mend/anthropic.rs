//! Fixes messages for Anthropic's Messages API.
//!
//! [`mended`] fixes each message by itself first: its role, its members and its blocks. Blocks
//! that an assistant or system message cannot hold, such as pictures, move to a user message
//! after it. It then splits the messages into entries, lets `pairs` bring calls and results
//! together, and joins the entries again.
//!
//! Anthropic requires the results of a message's calls in the very next message, before any
//! other block, and no text after a call. It also rejects blank texts and a conversation that
//! starts with an assistant message.

use contexture_engine_api::MISSING_RESULT;
use serde_json::{Value, json};

use super::pairs::{Entry, Forms, joined, paired};
use super::{Notes, OPENING, PICTURES, drop_private, mend_name, moved, orphan, string_of};

const FORMS: Forms = Forms {
    adjacent: true,
    set_calls: |message, ids| {
        let blocks = message["content"].as_array_mut().into_iter().flatten();
        let calls = blocks.filter(|block| block["type"] == "tool_use");
        for (call, id) in calls.zip(ids) {
            call["id"] = json!(id);
        }
    },
    set_result: |block, id| block["tool_use_id"] = json!(id),
    stub: |_, _, id| json!({"type": "tool_result", "tool_use_id": id, "content": MISSING_RESULT}),
    orphan: |block| {
        let text = json!({"type": "text", "text": orphan(&block["content"])});
        json!({"role": "user", "content": [text]})
    },
};

/// Fixes the messages of a body. Messages that say nothing are left out, and a user message is
/// added at the start if the first one is the assistant's.
pub(super) fn mended(messages: Vec<Value>, notes: &mut Notes) -> Vec<Value> {
    let mut entries = Vec::new();
    // For each entry, the index of the message that it came from.
    let mut of = Vec::new();
    let last = messages.len().saturating_sub(1);
    for (at, message) in messages.into_iter().enumerate() {
        let (message, aside) = match mend_message(message, at == last, notes) {
            Some(mended) => mended,
            None => continue,
        };
        let before = entries.len();
        split(message, &mut entries);
        if !aside.is_empty() {
            let blocks = moved("text", aside, notes);
            entries.push(Entry::Other(json!({"role": "user", "content": blocks})));
        }
        of.resize(of.len() + (entries.len() - before), at);
    }
    let mut messages = joined(paired(entries, &FORMS, notes), &of, "content");
    if messages
        .first()
        .is_some_and(|first| first["role"] == "assistant")
    {
        notes.one(
            "a user message was added at the beginning, since the first message must be the user's",
        );
        messages.insert(0, json!({"role": "user", "content": OPENING}));
    }
    messages
}

/// Splits a message into entries: one for each tool result, and one for the rest. An assistant
/// message stays whole.
fn split(mut message: Value, entries: &mut Vec<Entry>) {
    let Some(blocks) = message["content"].as_array() else {
        return entries.push(Entry::Other(message));
    };
    let of_type = |kind: &str| {
        blocks
            .iter()
            .filter(|block| block["type"] == kind)
            .cloned()
            .collect()
    };
    if message["role"] == "assistant" {
        let calls: Vec<Value> = of_type("tool_use");
        let ids: Vec<String> = calls.iter().map(|call| string_of(&call["id"])).collect();
        return entries.push(match ids.is_empty() {
            true => Entry::Other(message),
            false => Entry::Calls(message, ids),
        });
    }
    let results: Vec<Value> = of_type("tool_result");
    if results.is_empty() {
        return entries.push(Entry::Other(message));
    }
    let mut rest: Vec<Value> = blocks.clone();
    rest.retain(|block| block["type"] != "tool_result");
    entries.extend(results.into_iter().map(|result| {
        let id = string_of(&result["tool_use_id"]);
        Entry::Result(result, id)
    }));
    if !rest.is_empty() {
        message["content"] = Value::Array(rest);
        entries.push(Entry::Other(message));
    }
}

/// Fixes one message. Returns it with the blocks that have to move to a user message, or `None`
/// if nothing is left of it.
fn mend_message(
    mut message: Value,
    is_last: bool,
    notes: &mut Notes,
) -> Option<(Value, Vec<Value>)> {
    let role = match message["role"].as_str().unwrap_or_default() {
        role @ ("user" | "assistant" | "system") => role.to_owned(),
        _ => {
            notes.one("an unknown role was changed to `user`");
            "user".to_owned()
        }
    };
    let keeps_control = role == "system" && message["output_config"].is_object();
    if let Some(members) = message.as_object_mut() {
        let before = members.len();
        let known = |key: &str| {
            key == "role" || key == "content" || (keeps_control && key == "output_config")
        };
        members.retain(|key, _| known(key));
        notes.add(
            "a field that the format does not know was left out",
            before - members.len(),
        );
        if members.get("role").and_then(Value::as_str) != Some(&role) {
            members.insert("role".to_owned(), json!(role));
        }
    }
    let mut aside = Vec::new();
    let is_blank = |text: &str| text.trim().is_empty();
    match &mut message["content"] {
        // Anthropic continues a final assistant message and rejects one that ends in white
        // space.
        Value::String(text) if is_last && role == "assistant" && text.trim_end() != text => {
            *text = text.trim_end().to_owned();
            notes.one("white space at the end of the last answer was left out");
        }
        Value::Array(blocks) => {
            let mut kept = Vec::new();
            for mut block in std::mem::take(blocks) {
                drop_private(&mut block, notes);
                match mended_block(block, &role, notes) {
                    MendedBlock::Here(block) => kept.push(block),
                    MendedBlock::Aside(block) => aside.push(block),
                    MendedBlock::Not => {}
                }
            }
            // Anthropic allows no other block after a call.
            let is_call = |block: &Value| block["type"] == "tool_use";
            if let Some(first) = kept.iter().position(is_call)
                && !kept[first..].iter().all(is_call)
            {
                notes.one("content after a call was moved before it");
                kept.sort_by_key(is_call);
            }
            if role == "user" {
                // Results have to come before anything else in the message that answers calls.
                let is_other = |block: &Value| block["type"] != "tool_result";
                if !kept.is_sorted_by_key(is_other) {
                    notes.one("content before a result was moved after it");
                    kept.sort_by_key(is_other);
                }
            }
            *blocks = kept;
        }
        Value::String(_) => {}
        other => *other = json!(super::text_of(other)),
    }
    let says_nothing = match &message["content"] {
        Value::String(text) => is_blank(text),
        Value::Array(blocks) => blocks.is_empty(),
        _ => true,
    };
    // The model continues an assistant message at the end, so that one may be empty.
    let may_be_empty = keeps_control || (is_last && role == "assistant");
    if says_nothing && !may_be_empty {
        if aside.is_empty() {
            notes.one("an empty message was left out");
            return None;
        }
        let mut blocks = vec![json!({"type": "text", "text": PICTURES})];
        blocks.append(&mut aside);
        return Some((json!({"role": "user", "content": blocks}), Vec::new()));
    }
    Some((message, aside))
}

/// What becomes of a block.
enum MendedBlock {
    Here(Value),
    /// The block moves to a user message after this one.
    Aside(Value),
    Not,
}

/// Fixes one block. A block of another format is converted if Anthropic has a form for it, and
/// dropped otherwise.
fn mended_block(mut block: Value, role: &str, notes: &mut Notes) -> MendedBlock {
    if let Some(text) = block.as_str() {
        block = json!({"type": "text", "text": text});
    }
    let kind = string_of(&block["type"]);
    match kind.as_str() {
        "text" | "input_text" | "output_text" | "" => {
            let Some(text) = block["text"].as_str() else {
                notes.one("a part that the format cannot express was left out");
                return MendedBlock::Not;
            };
            if text.trim().is_empty() {
                notes.one("a blank text was left out");
                return MendedBlock::Not;
            }
            MendedBlock::Here(match kind == "text" {
                true => block,
                false => json!({"type": "text", "text": text}),
            })
        }
        "tool_use" if role == "assistant" => {
            mend_name(&mut block, notes);
            if !block["input"].is_object() {
                block["input"] = match block["input"].take() {
                    Value::Null => json!({}),
                    Value::String(text) => match serde_json::from_str(&text) {
                        Ok(Value::Object(input)) => Value::Object(input),
                        _ => json!({"arguments": text}),
                    },
                    other => json!({"arguments": other}),
                };
            }
            MendedBlock::Here(block)
        }
        "tool_result" if role == "user" => {
            if let Some(parts) = block["content"].as_array_mut() {
                let is_blank = |part: &Value| {
                    part["type"] == "text"
                        && part["text"]
                            .as_str()
                            .is_none_or(|text| text.trim().is_empty())
                };
                let before = parts.len();
                parts.retain(|part| !is_blank(part));
                notes.add("a blank text was left out", before - parts.len());
            } else if !block["content"].is_string() && !block["content"].is_null() {
                block["content"] = json!(block["content"].to_string());
            }
            MendedBlock::Here(block)
        }
        "thinking" if role == "assistant" => {
            // Anthropic verifies thinking by its signature and rejects thinking without one.
            let is_whole = block["thinking"].is_string() && block["signature"].is_string();
            match is_whole {
                true => MendedBlock::Here(block),
                false => {
                    notes.one("thinking without its signature was left out");
                    MendedBlock::Not
                }
            }
        }
        "image_url" | "input_image" => match image(&block) {
            Some(image) if role == "user" => MendedBlock::Here(image),
            Some(image) => MendedBlock::Aside(image),
            None => {
                notes.one("a part that the format cannot express was left out");
                MendedBlock::Not
            }
        },
        "image" | "document" | "search_result" if role == "user" => MendedBlock::Here(block),
        "image" | "document" | "search_result" => MendedBlock::Aside(block),
        "redacted_thinking" if role == "assistant" => MendedBlock::Here(block),
        "server_tool_use" | "mcp_tool_use" | "container_upload" | "compaction" | "fallback" => {
            MendedBlock::Here(block)
        }
        kind if kind.ends_with("_tool_result")
            || (kind.starts_with("tool_") && kind != "tool_use" && kind != "tool_result") =>
        {
            MendedBlock::Here(block)
        }
        _ => {
            notes.one("a part that the format cannot express was left out");
            MendedBlock::Not
        }
    }
}

/// Converts a picture from OpenAI's format to Anthropic's. `None` if the part has no URL.
fn image(part: &Value) -> Option<Value> {
    let url = part["image_url"]["url"]
        .as_str()
        .or(part["image_url"].as_str())?;
    let source = match url
        .strip_prefix("data:")
        .and_then(|rest| rest.split_once(";base64,"))
    {
        Some((mime, data)) => json!({"type": "base64", "media_type": mime, "data": data}),
        None => json!({"type": "url", "url": url}),
    };
    Some(json!({"type": "image", "source": source}))
}
