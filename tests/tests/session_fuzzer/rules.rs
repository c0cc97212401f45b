//! The rules that the providers hold a request to, as far as a host can break them. Written from what the
//! providers document, and from nothing of the host's.

use std::collections::HashSet;

use serde_json::Value;

use crate::wire::{Request, Wire};

/// What is wrong with a request, each thing in a line that names no place: what a client sent wrongly itself
/// is nobody else's fault.
pub(crate) fn broken(wire: Wire, request: &Request) -> Vec<String> {
    let parse = |raw: &String| serde_json::from_str::<Value>(raw).unwrap_or_default();
    let messages: Vec<Value> = request.messages.iter().map(parse).collect();
    let mut broken = match wire {
        Wire::Chat => chat(&messages),
        Wire::Anthropic => anthropic(&messages),
        Wire::Responses => responses(&messages),
        Wire::Gemini => gemini(&messages),
    };
    if !messages.iter().any(|message| message["role"] == "user") {
        broken.push("there is no message of the user's".to_owned());
    }
    broken
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

/// Each assistant message with calls is followed by the results of all of them, and by nothing else before.
fn chat(messages: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    for message in messages {
        let role = text(message, "role");
        if role == "tool" {
            let id = text(message, "tool_call_id");
            match waiting.iter().position(|call| *call == id) {
                Some(at) => drop(waiting.remove(at)),
                None => broken.push(format!("a result of {id} follows no such call")),
            }
            continue;
        }
        broken.extend(
            waiting
                .drain(..)
                .map(|id| format!("the call {id} is not answered")),
        );
        if !["user", "assistant", "system", "developer"].contains(&role) {
            broken.push(format!("the role {role}"));
        }
        for call in list(message, "tool_calls") {
            waiting.push(text(call, "id"));
            if serde_json::from_str::<Value>(text(&call["function"], "arguments")).is_err() {
                broken.push("arguments that are no JSON".to_owned());
            }
        }
        if role == "assistant" && message["content"].is_null() && waiting.is_empty() {
            broken.push("an answer of nothing".to_owned());
        }
    }
    broken.extend(
        waiting
            .drain(..)
            .map(|id| format!("the call {id} is not answered")),
    );
    broken
}

/// The first message is the user's; all results of an answer stand in the next message, before its text; no
/// text is empty; in the round that is under way thinking leads its message.
fn anthropic(messages: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut waiting: HashSet<&str> = HashSet::new();
    if messages
        .first()
        .is_some_and(|first| text(first, "role") != "user")
    {
        broken.push("the first message is not the user's".to_owned());
    }
    for message in messages {
        let role = text(message, "role");
        let mut answered: HashSet<&str> = HashSet::new();
        let mut calls: HashSet<&str> = HashSet::new();
        let mut other = false;
        let mut thought = false;
        if message["content"].as_str() == Some("")
            || message["content"].as_array().is_some_and(Vec::is_empty)
        {
            broken.push("a message without content".to_owned());
        }
        for block in list(message, "content") {
            match (role, text(block, "type")) {
                ("user", "tool_result") => {
                    let id = text(block, "tool_use_id");
                    if !waiting.contains(id) || !answered.insert(id) {
                        broken.push(format!("a result of {id} follows no such call"));
                    }
                    if other {
                        broken.push("a result after a text".to_owned());
                    }
                }
                ("assistant", "tool_use") => {
                    calls.insert(text(block, "id"));
                }
                ("assistant", "thinking") => {
                    if other || thought {
                        broken.push("thinking does not lead its message".to_owned());
                    }
                    thought = true;
                    continue;
                }
                (_, "text") if text(block, "text").is_empty() => {
                    broken.push("an empty text".to_owned())
                }
                (_, "text") | ("user", "image") => {}
                (role, kind) => broken.push(format!("a {kind} of the role {role}")),
            }
            other |= text(block, "type") != "tool_result";
        }
        let open = waiting.difference(&answered);
        broken.extend(open.map(|id| format!("the call {id} is not answered")));
        waiting = calls;
    }
    broken.extend(
        waiting
            .iter()
            .map(|id| format!("the call {id} is not answered")),
    );
    broken
}

/// The user begins, and the model never speaks twice; as many results as calls follow in the next content,
/// before anything else; no text is empty.
fn gemini(contents: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut waiting: Vec<&Value> = Vec::new();
    let mut before = "model";
    for content in contents {
        let role = text(content, "role");
        let mut calls: Vec<&Value> = Vec::new();
        let mut other = false;
        if role == "model" && before == "model" {
            broken.push("the model speaks first, or twice".to_owned());
        }
        if list(content, "parts").next().is_none() {
            broken.push("a content without parts".to_owned());
        }
        for part in list(content, "parts") {
            let (call, result) = (&part["functionCall"], &part["functionResponse"]);
            match (role, call.is_object(), result.is_object()) {
                ("user", false, true) => {
                    let is_its = |call: &&Value| {
                        call["name"] == result["name"]
                            && (result["id"].is_null() || result["id"] == call["id"])
                    };
                    match waiting.iter().position(is_its) {
                        Some(at) => drop(waiting.remove(at)),
                        None => broken.push("a result follows no such call".to_owned()),
                    }
                    if other {
                        broken.push("a result after a text".to_owned());
                    }
                    continue;
                }
                ("model", true, false) => calls.push(call),
                ("user" | "model", false, false) => {}
                _ => broken.push(format!("a call or result of the role {role}")),
            }
            if part["text"] == "" {
                broken.push("an empty text".to_owned());
            }
            other = true;
        }
        let open = waiting.drain(..);
        broken.extend(open.map(|call| format!("the call {call} is not answered")));
        waiting = calls;
        before = role;
    }
    let open = waiting.drain(..);
    broken.extend(open.map(|call| format!("the call {call} is not answered")));
    broken
}

/// Each call has its output and each output its call; reasoning is followed by an item of the answer.
fn responses(items: &[Value]) -> Vec<String> {
    let mut broken = Vec::new();
    let mut waiting: Vec<&str> = Vec::new();
    let mut reasons = false;
    for item in items {
        let kind = if item["type"].is_null() {
            "message"
        } else {
            text(item, "type")
        };
        let answers =
            kind == "function_call" || (kind == "message" && text(item, "role") == "assistant");
        if std::mem::take(&mut reasons) && !answers {
            broken.push("reasoning without the item after it".to_owned());
        }
        match kind {
            "reasoning" => reasons = true,
            "function_call" => waiting.push(text(item, "call_id")),
            "function_call_output" => {
                let id = text(item, "call_id");
                match waiting.iter().position(|call| *call == id) {
                    Some(at) => drop(waiting.remove(at)),
                    None => broken.push(format!("an output of {id} follows no such call")),
                }
            }
            "message" => {}
            kind => broken.push(format!("an item of the type {kind}")),
        }
    }
    if reasons {
        broken.push("reasoning without the item after it".to_owned());
    }
    broken.extend(
        waiting
            .iter()
            .map(|id| format!("the call {id} has no output")),
    );
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(wire: Wire, messages: &[&str]) -> Vec<String> {
        let messages = messages
            .iter()
            .map(|message| (*message).to_owned())
            .collect();
        broken(
            wire,
            &Request {
                messages,
                ..Request::default()
            },
        )
    }

    #[test]
    fn what_the_providers_refuse_is_found() {
        let user = r#"{"role":"user","content":"x"}"#;
        let chat = r#"{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}"#;
        let result = r#"{"role":"tool","tool_call_id":"a","content":"y"}"#;
        assert!(of(Wire::Chat, &[user, chat, result]).is_empty());
        for wrong in [
            &[user, chat][..],
            &[user, result],
            &[user, chat, user, result],
            &[chat, result],
        ] {
            assert!(!of(Wire::Chat, wrong).is_empty(), "{wrong:?}");
        }
        let calls = r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"tool_use","id":"a","name":"f","input":{}}]}"#;
        let answers = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"y"},{"type":"text","text":"z"}]}"#;
        let late = r#"{"role":"user","content":[{"type":"text","text":"z"},{"type":"tool_result","tool_use_id":"a","content":"y"}]}"#;
        let empty = r#"{"role":"user","content":[{"type":"text","text":""}]}"#;
        assert!(of(Wire::Anthropic, &[user, calls, answers]).is_empty());
        for wrong in [
            &[calls, answers][..],
            &[user, calls, late],
            &[user, calls, user],
            &[user, empty],
        ] {
            assert!(!of(Wire::Anthropic, wrong).is_empty(), "{wrong:?}");
        }
        let reasons = r#"{"type":"reasoning","id":"r","summary":[]}"#;
        let call = r#"{"type":"function_call","call_id":"a","name":"f","arguments":"{}"}"#;
        let output = r#"{"type":"function_call_output","call_id":"a","output":"y"}"#;
        assert!(of(Wire::Responses, &[user, reasons, call, output]).is_empty());
        for wrong in [&[user, call][..], &[user, output], &[user, reasons, user]] {
            assert!(!of(Wire::Responses, wrong).is_empty(), "{wrong:?}");
        }
        let user = r#"{"role":"user","parts":[{"text":"x"}]}"#;
        let model = r#"{"role":"model","parts":[{"text":"x"}]}"#;
        let calls = r#"{"role":"model","parts":[{"functionCall":{"name":"f"}},{"functionCall":{"id":"a","name":"f"}}]}"#;
        let result = r#"{"functionResponse":{"name":"f","response":{}}}"#;
        let results = format!(r#"{{"role":"user","parts":[{result},{result},{{"text":"z"}}]}}"#);
        let late = format!(r#"{{"role":"user","parts":[{result},{{"text":"z"}},{result}]}}"#);
        let few = format!(r#"{{"role":"user","parts":[{result}]}}"#);
        let empty = r#"{"role":"user","parts":[{"text":""}]}"#;
        assert!(of(Wire::Gemini, &[user, calls, &results, model]).is_empty());
        for wrong in [
            &[calls, &results][..],
            &[user, calls, &late],
            &[user, calls, &few],
            &[user, calls, user, &results],
            &[user, model, calls, &results],
            &[user, &few],
            &[user, empty],
        ] {
            assert!(!of(Wire::Gemini, wrong).is_empty(), "{wrong:?}");
        }
    }
}
