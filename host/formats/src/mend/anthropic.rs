//! Anthropic's messages.

use contexture_engine_api::MISSING_RESULT;
use serde_json::{Value, json};

use super::pairs::{Entry, Forms, paired};
use super::{Notes, PICTURES, drop_private, mend_name, orphan};

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

const OPENING: &str = "[The conversation begins here.]";

pub(super) fn mended(messages: Vec<Value>, notes: &mut Notes) -> Vec<Value> {
    let mut entries = Vec::new();
    // For each entry, the index of its message.
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
            notes.one("a picture that only a user's message can hold was moved into one");
            let mut blocks = vec![json!({"type": "text", "text": PICTURES})];
            blocks.extend(aside);
            entries.push(Entry::Other(json!({"role": "user", "content": blocks})));
        }
        of.resize(of.len() + (entries.len() - before), at);
    }
    let mut messages = joined(paired(entries, &FORMS, notes), &of);
    if messages
        .first()
        .is_some_and(|first| first["role"] == "assistant")
    {
        notes.one("a message of the user's was put before the first, which has to be the user's");
        messages.insert(0, json!({"role": "user", "content": OPENING}));
    }
    messages
}

/// Splits a message into entries: one for each result, and the rest.
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
        let ids = calls
            .iter()
            .map(|call| call["id"].as_str().unwrap_or_default().to_owned());
        let ids: Vec<String> = ids.collect();
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
        let id = result["tool_use_id"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Entry::Result(result, id)
    }));
    if !rest.is_empty() {
        message["content"] = Value::Array(rest);
        entries.push(Entry::Other(message));
    }
}

/// Joins entries to messages. Neighbouring results form one message, together with what else the user said in their
/// messages.
fn joined(entries: Vec<(usize, Entry)>, of: &[usize]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    // The messages that the results in the last message came from.
    let mut results_of: Option<Vec<usize>> = None;
    for (at, entry) in entries {
        let origin = of.get(at).copied().unwrap_or(0);
        match entry {
            Entry::Result(result, _) => match (&mut results_of, messages.last_mut()) {
                (Some(origins), Some(last)) => {
                    origins.push(origin);
                    if let Some(blocks) = last["content"].as_array_mut() {
                        blocks.push(result);
                    }
                }
                _ => {
                    messages.push(json!({"role": "user", "content": [result]}));
                    results_of = Some(vec![origin]);
                }
            },
            Entry::Other(message)
                if message["role"] == "user"
                    && results_of
                        .as_ref()
                        .is_some_and(|origins| origins.contains(&origin)) =>
            {
                let last = messages
                    .last_mut()
                    .and_then(|last| last["content"].as_array_mut());
                let blocks = message["content"].as_array().cloned().unwrap_or_default();
                if let Some(last) = last {
                    last.extend(blocks);
                }
                results_of = None;
            }
            Entry::Other(message) | Entry::Calls(message, _) => {
                messages.push(message);
                results_of = None;
            }
        }
    }
    messages
}

/// Fixes one message. Returns the blocks that have to move to a user message, or `None` if the message is empty.
fn mend_message(
    mut message: Value,
    is_last: bool,
    notes: &mut Notes,
) -> Option<(Value, Vec<Value>)> {
    let role = match message["role"].as_str().unwrap_or_default() {
        role @ ("user" | "assistant" | "system") => role.to_owned(),
        _ => {
            notes.one("a role that is not known became the user's");
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
            "a member that the format does not know was left out",
            before - members.len(),
        );
        if members.get("role").and_then(Value::as_str) != Some(&role) {
            members.insert("role".to_owned(), json!(role));
        }
    }
    let mut aside = Vec::new();
    let is_blank = |text: &str| text.trim().is_empty();
    match &mut message["content"] {
        Value::String(text) if is_last && role == "assistant" && text.trim_end() != text => {
            *text = text.trim_end().to_owned();
            notes.one("white space at the end of the last answer was left out");
        }
        Value::Array(blocks) => {
            let mut kept = Vec::new();
            for mut block in std::mem::take(blocks) {
                drop_private(&mut block, notes);
                match mended_block(block, &role, notes) {
                    Kept::Here(block) => kept.push(block),
                    Kept::Aside(block) => aside.push(block),
                    Kept::Not => {}
                }
            }
            // Nothing may follow a call.
            let is_call = |block: &Value| block["type"] == "tool_use";
            if let Some(first) = kept.iter().position(is_call)
                && !kept[first..].iter().all(is_call)
            {
                notes.one("what stood behind a call was moved before it");
                kept.sort_by_key(is_call);
            }
            if role == "user" {
                let is_other = |block: &Value| block["type"] != "tool_result";
                if !kept.is_sorted_by_key(is_other) {
                    notes.one("what stood before a result was moved behind it");
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
    let may_be_empty = keeps_control || (is_last && role == "assistant");
    if says_nothing && !may_be_empty {
        if aside.is_empty() {
            notes.one("a message that says nothing was left out");
            return None;
        }
        let mut blocks = vec![json!({"type": "text", "text": PICTURES})];
        blocks.append(&mut aside);
        return Some((json!({"role": "user", "content": blocks}), Vec::new()));
    }
    Some((message, aside))
}

enum Kept {
    Here(Value),
    /// It moves to a user message after this one.
    Aside(Value),
    Not,
}

fn mended_block(mut block: Value, role: &str, notes: &mut Notes) -> Kept {
    if let Some(text) = block.as_str() {
        block = json!({"type": "text", "text": text});
    }
    let kind = block["type"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "text" | "input_text" | "output_text" | "" => {
            let Some(text) = block["text"].as_str() else {
                notes.one("a part that the format has no form for was left out");
                return Kept::Not;
            };
            if text.trim().is_empty() {
                notes.one("a blank text was left out");
                return Kept::Not;
            }
            Kept::Here(match kind == "text" {
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
            Kept::Here(block)
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
            Kept::Here(block)
        }
        "thinking" if role == "assistant" => {
            let is_whole = block["thinking"].is_string() && block["signature"].is_string();
            match is_whole {
                true => Kept::Here(block),
                false => {
                    notes.one("thinking without its signature was left out");
                    Kept::Not
                }
            }
        }
        "image_url" | "input_image" => match image(&block) {
            Some(image) if role == "user" => Kept::Here(image),
            Some(image) => Kept::Aside(image),
            None => {
                notes.one("a part that the format has no form for was left out");
                Kept::Not
            }
        },
        "image" | "document" | "search_result" if role == "user" => Kept::Here(block),
        "image" | "document" | "search_result" => Kept::Aside(block),
        "redacted_thinking" if role == "assistant" => Kept::Here(block),
        "server_tool_use" | "mcp_tool_use" | "container_upload" | "compaction" | "fallback" => {
            Kept::Here(block)
        }
        kind if kind.ends_with("_tool_result")
            || (kind.starts_with("tool_") && kind != "tool_use" && kind != "tool_result") =>
        {
            Kept::Here(block)
        }
        _ => {
            notes.one("a part that the format has no form for was left out");
            Kept::Not
        }
    }
}

/// Converts a picture from OpenAI's format to Anthropic's.
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
