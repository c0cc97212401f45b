//! Fixes items for OpenAI's Responses API.
//!
//! [`mended`] fixes each item by its type and lets `pairs` bring calls and outputs together. An
//! output may come anywhere after its call. A missing output is replaced by one of the type
//! that the call requires.
//!
//! OpenAI accepts an item's id only if it assigned the id itself, and rejects reasoning that is
//! not followed by the item that it led to. Such ids and such reasoning are left out. Types of
//! items that this module does not know stay as they are, because OpenAI adds new ones often.

use std::collections::HashSet;

use contexture_engine_api::MISSING_RESULT;
use serde_json::{Value, json};

use super::super::anatomy::NO_PICTURE;
use super::pairs::{Entry, Forms, paired};
use super::{Notes, as_string, drop_private, mend_name, moved, orphan, string_of, text_of};

const FORMS: Forms = Forms {
    adjacent: false,
    set_calls: |item, ids| item["call_id"] = json!(ids.first()),
    set_result: |item, id| item["call_id"] = json!(id),
    stub: |call, _, id| stub(call, id),
    orphan: |item| {
        let said = orphan(&item["output"]);
        json!({"type": "message", "role": "user", "content": said})
    },
};

/// Returns the placeholder for a missing output. The API checks the type of the output against
/// that of the call.
fn stub(call: &Value, id: &str) -> Value {
    let kind = format!(
        "{}_output",
        call["type"].as_str().unwrap_or("function_call")
    );
    match kind.as_str() {
        "shell_call_output" => json!({"type": kind, "call_id": id, "output": [
            {"stdout": MISSING_RESULT, "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]}),
        "apply_patch_call_output" => {
            json!({"type": kind, "call_id": id, "status": "failed", "output": MISSING_RESULT})
        }
        "computer_call_output" => {
            let picture = json!({"type": "computer_screenshot", "image_url": NO_PICTURE});
            json!({"type": kind, "call_id": id, "output": picture})
        }
        "tool_search_call_output" => {
            json!({"type": "tool_search_output", "call_id": id, "tools": []})
        }
        _ => json!({"type": kind, "call_id": id, "output": MISSING_RESULT}),
    }
}

/// Fixes the items of a body. Items that only another provider can read are left out.
pub(super) fn mended(items: Vec<Value>, notes: &mut Notes) -> Vec<Value> {
    let mut entries = Vec::new();
    for mut item in items {
        drop_private(&mut item, notes);
        let kind = kind(&item).to_owned();
        match kind.as_str() {
            "" => {
                notes.one("an item that only its provider can read was left out");
            }
            "message" => {
                let Some(pictures) = mend_message(&mut item, notes) else {
                    continue;
                };
                entries.push(Entry::Other(item));
                if !pictures.is_empty() {
                    let parts = moved("input_text", pictures, notes);
                    entries.push(Entry::Other(
                        json!({"type": "message", "role": "user", "content": parts}),
                    ));
                }
            }
            kind if kind.ends_with("_call") && item["call_id"].is_string() => {
                let own = match kind {
                    "function_call" => Some(("fc", "arguments")),
                    "custom_tool_call" => Some(("ctc", "input")),
                    _ => None,
                };
                if let Some((begins, key)) = own {
                    mend_id(&mut item, begins, notes);
                    mend_name(&mut item, notes);
                    as_string(&mut item[key]);
                }
                let id = string_of(&item["call_id"]);
                entries.push(Entry::Calls(item, vec![id]));
            }
            "function_call" => {
                mend_name(&mut item, notes);
                as_string(&mut item["arguments"]);
                entries.push(Entry::Calls(item, vec![String::new()]));
            }
            // Only their own provider understands programs, so their calls and outputs stay as
            // they are.
            kind if kind.ends_with("_output")
                && kind != "program_output"
                && item["call_id"].is_string() =>
            {
                if kind == "function_call_output" || kind == "custom_tool_call_output" {
                    mend_output(&mut item, notes);
                }
                let id = string_of(&item["call_id"]);
                entries.push(Entry::Result(item, id));
            }
            _ => entries.push(Entry::Other(item)),
        }
    }
    let paired = paired(entries, &FORMS, notes).into_iter();
    let mut items: Vec<Value> = paired.map(|(_, entry)| entry.into_value()).collect();
    drop_repeated_ids(&mut items, notes);
    drop_lone_reasoning(items, notes)
}

/// The type of an item. An item with a role and without a type is a message.
fn kind(item: &Value) -> &str {
    let of_role = if item["role"].is_string() {
        "message"
    } else {
        ""
    };
    item["type"].as_str().unwrap_or(of_role)
}

/// Removes the id of an item if OpenAI cannot have assigned it. OpenAI then assigns a new one.
fn mend_id(item: &mut Value, begins: &str, notes: &mut Notes) {
    let is_right = item["id"]
        .as_str()
        .is_none_or(|id| id.starts_with(begins) && id.len() <= 64);
    if !is_right {
        item.as_object_mut().map(|item| item.shift_remove("id"));
        notes.one("an id of an item that is not from the provider was left out");
    }
}

/// Removes the id of an item if an earlier item has the same one. References to items are
/// exempt.
fn drop_repeated_ids(items: &mut [Value], notes: &mut Notes) {
    let mut seen = HashSet::new();
    for item in items
        .iter_mut()
        .filter(|item| kind(item) != "item_reference")
    {
        let is_again = item["id"]
            .as_str()
            .is_some_and(|id| !seen.insert(id.to_owned()));
        if is_again {
            item.as_object_mut().map(|item| item.shift_remove("id"));
            notes.one("a repeated id of an item was left out");
        }
    }
}

/// Removes reasoning that is not followed by the item it led to, because OpenAI rejects it.
fn drop_lone_reasoning(items: Vec<Value>, notes: &mut Notes) -> Vec<Value> {
    let mut kept: Vec<Value> = Vec::with_capacity(items.len());
    // The items are visited from the end, because removing one can leave the reasoning before
    // it alone.
    for item in items.into_iter().rev() {
        let follows = kept.last().is_some_and(|next| match kind(next) {
            "message" => next["role"] == "assistant",
            kind => !kind.ends_with("_output"),
        });
        match kind(&item) == "reasoning" && !follows {
            true => notes.one("reasoning without the item that follows it was left out"),
            false => kept.push(item),
        }
    }
    kept.reverse();
    kept
}

/// Fixes a message. Returns the parts that have to move to a user message, or `None` if only
/// its own provider could read the message.
fn mend_message(item: &mut Value, notes: &mut Notes) -> Option<Vec<Value>> {
    let role = item["role"].as_str().unwrap_or_default();
    if !["user", "assistant", "system", "developer"].contains(&role) {
        if text_of(&item["content"]).trim().is_empty() {
            notes.one("an item that only its provider can read was left out");
            return None;
        }
        notes.one("an unknown role was changed to `user`");
        item["role"] = json!("user");
    }
    let is_assistant = item["role"] == "assistant";
    if is_assistant {
        mend_id(item, "msg", notes);
    }
    let text_type = if is_assistant {
        "output_text"
    } else {
        "input_text"
    };
    let Some(parts) = item["content"].as_array_mut() else {
        if !item["content"].is_string() {
            item["content"] = json!(text_of(&item["content"]));
        }
        return Some(Vec::new());
    };
    let (mut kept, mut aside) = (Vec::new(), Vec::new());
    for mut part in std::mem::take(parts) {
        drop_private(&mut part, notes);
        let kind = part["type"].as_str().unwrap_or_default();
        match kind {
            _ if kind == text_type && part["text"].is_string() => kept.push(part),
            "refusal" if is_assistant => kept.push(part),
            "input_image" | "input_file" | "input_audio" if !is_assistant => kept.push(part),
            "input_image" | "input_file" | "input_audio" => aside.push(part),
            _ => match as_input(&part, text_type) {
                Some(part) if is_assistant && part["type"] != text_type => aside.push(part),
                Some(part) => kept.push(part),
                None => notes.one("a part that the format cannot express was left out"),
            },
        }
    }
    item["content"] = match kept.is_empty() {
        true => json!(""),
        false => Value::Array(kept),
    };
    Some(aside)
}

/// Converts a part to the form of Responses. `None` if Responses has no form for it.
fn as_input(part: &Value, text_type: &str) -> Option<Value> {
    if let Some(text) = part
        .as_str()
        .or(part["text"].as_str())
        .or(part["refusal"].as_str())
    {
        return Some(json!({"type": text_type, "text": text}));
    }
    match part["type"].as_str()? {
        "image_url" => {
            let url = part["image_url"]["url"]
                .as_str()
                .or(part["image_url"].as_str())?;
            Some(json!({"type": "input_image", "image_url": url}))
        }
        "file" => {
            let mut file = part["file"].clone();
            file["type"] = json!("input_file");
            Some(file)
        }
        _ => None,
    }
}

/// Fixes an output, which is text or a list of parts like those of a user message. Unknown
/// parts become text with their JSON.
fn mend_output(item: &mut Value, notes: &mut Notes) {
    let output = &mut item["output"];
    match output {
        Value::String(_) => {}
        Value::Array(parts) => {
            for part in parts.iter_mut() {
                let kind = part["type"].as_str().unwrap_or_default();
                if ["input_text", "input_image", "input_file"].contains(&kind) {
                    continue;
                }
                *part = as_input(part, "input_text").unwrap_or_else(|| {
                    notes.one("a part that the format cannot express was replaced by its JSON");
                    json!({"type": "input_text", "text": part.to_string()})
                });
            }
        }
        other => *other = json!(text_of(other)),
    }
}
