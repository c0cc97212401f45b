//! Repairs histories in which a client answered a call of the engine's tools itself.
//!
//! The client does not know such a tool, so it answers with an error, and sends that error back
//! with every later request. The model would then believe that the tool does not exist. [`repair`]
//! replaces these results with a fixed text that tells the model to try again.
//!
//! The text is the same each time, so that the provider's prompt cache still matches. Hidden rounds
//! that the client never received are restored by [`hidden`](crate::hidden).

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::api::Api;
use crate::body::HistoryMessage;
use crate::gemini::{field, field_mut};

const ANSWER: &str =
    "This call was not answered. The tool is there: call it again if you still need it.";

/// Replaces the client's results of calls of these tools. Returns the repaired history, or None if
/// there are no such results.
pub(crate) fn repair(api: Api, messages: &[&str], tools: &[String]) -> Option<Vec<HistoryMessage>> {
    let names: Vec<String> = tools.iter().map(|name| format!("\"{name}\"")).collect();
    let mut ids = HashSet::new();
    let mut is_repaired = false;
    let mut repaired = Vec::with_capacity(messages.len());
    for (at, raw) in messages.iter().enumerate() {
        repaired.push(HistoryMessage::Client(at));
        // Only messages that contain a name or an id are parsed. Few do, and searching text is much
        // cheaper.
        let may_call = names.iter().any(|name| raw.contains(name.as_str()));
        let may_answer = ids.iter().any(|id: &String| raw.contains(id.as_str()));
        if !may_call && !may_answer {
            continue;
        }
        let Ok(mut message) = serde_json::from_str::<Value>(raw) else {
            continue;
        };
        ids.extend(calls(api, &message, tools));
        if answer(api, &mut message, &ids) {
            is_repaired = true;
            repaired.pop();
            repaired.push(HistoryMessage::other(message.to_string()));
        }
    }
    is_repaired.then_some(repaired)
}

/// The elements of a list member. Empty if the member is missing or not a list.
fn each<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

/// The ids of all calls of these tools in a message. For Gemini the names, because few of its calls
/// have ids, and results repeat the name.
fn calls(api: Api, message: &Value, tools: &[String]) -> Vec<String> {
    let is_own = |name: &Value| {
        name.as_str()
            .is_some_and(|name| tools.iter().any(|own| own == name))
    };
    let id = |id: &Value| id.as_str().map(str::to_owned);
    match api {
        Api::Messages => each(message, "content")
            .filter(|block| block["type"] == "tool_use" && is_own(&block["name"]))
            .filter_map(|block| id(&block["id"]))
            .collect(),
        Api::Chat => each(message, "tool_calls")
            .filter(|call| is_own(&call["function"]["name"]))
            .filter_map(|call| id(&call["id"]))
            .collect(),
        Api::Responses => match message["type"] == "function_call" && is_own(&message["name"]) {
            true => id(&message["call_id"]).into_iter().collect(),
            false => Vec::new(),
        },
        Api::Gemini => each(message, "parts")
            .map(|part| &field(part, "functionCall")["name"])
            .filter(|name| is_own(name))
            .filter_map(id)
            .collect(),
    }
}

/// Replaces the results of these calls in a message. Returns whether there were any.
fn answer(api: Api, message: &mut Value, ids: &HashSet<String>) -> bool {
    let is_one = |id: &Value| id.as_str().is_some_and(|id| ids.contains(id));
    match api {
        Api::Messages => {
            let mut any = false;
            let blocks = message.get_mut("content").and_then(Value::as_array_mut);
            for block in blocks.into_iter().flatten() {
                if block["type"] == "tool_result" && is_one(&block["tool_use_id"]) {
                    block["content"] = json!(ANSWER);
                    // The client marked its own result as an error, and the new text is none.
                    if let Some(block) = block.as_object_mut() {
                        block.remove("is_error");
                    }
                    any = true;
                }
            }
            any
        }
        Api::Gemini => {
            let mut any = false;
            let parts = message.get_mut("parts").and_then(Value::as_array_mut);
            for part in parts.into_iter().flatten() {
                if let Some(result) = field_mut(part, "functionResponse")
                    && is_one(&result["name"])
                {
                    result["response"] = json!({"output": ANSWER});
                    any = true;
                }
            }
            any
        }
        Api::Chat if message["role"] == "tool" && is_one(&message["tool_call_id"]) => {
            message["content"] = json!(ANSWER);
            true
        }
        Api::Responses
            if message["type"] == "function_call_output" && is_one(&message["call_id"]) =>
        {
            message["output"] = json!(ANSWER);
            true
        }
        _ => false,
    }
}
