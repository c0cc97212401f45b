//! Turns the messages of agents that have a format of their own into those of OpenAI chat.
//!
//! [`of_pi`] takes the entries of a session of pi, [`of_openclaw`] the messages of OpenClaw,
//! [`of_opencode`] those of OpenCode with their parts, and [`of_qwen`] the log of a session of Qwen
//! Code. What a model cannot read, such as
//! a change of the model, is left out, and so are the agents' own summaries, because the messages
//! that they stand for are there.

use std::collections::HashMap;

use contexture::formats::parse_json;
use serde_json::{Value, json};

/// Returns the text of a content that is a string or a list of parts. Images are named.
pub(super) fn text_of(content: &Value) -> String {
    if let Some(text) = content.as_str() {
        return text.to_owned();
    }
    let parts = content.as_array().into_iter().flatten();
    let texts: Vec<String> = parts
        .filter_map(|part| match part["type"].as_str()? {
            "text" => Some(part["text"].as_str()?.to_owned()),
            "image" => Some("[image]".to_owned()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

fn call(id: &Value, name: &Value, arguments: &Value) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()}})
}

/// Returns a message of an assistant. `None` if it neither says nor calls anything.
fn assistant(text: &str, calls: Vec<Value>) -> Option<Value> {
    if text.is_empty() && calls.is_empty() {
        return None;
    }
    let mut message = json!({"role": "assistant", "content": text});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    Some(message)
}

fn user(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"role": "user", "content": text}))
}

/// Converts the entries of a session of pi, from its beginning.
pub(super) fn of_pi(entries: &[Value]) -> Vec<Value> {
    entries.iter().filter_map(pi_entry).collect()
}

fn pi_entry(entry: &Value) -> Option<Value> {
    match entry["type"].as_str()? {
        "message" => pi_message(&entry["message"]),
        "custom_message" => user(&text_of(&entry["content"])),
        "branch_summary" => user(entry["summary"].as_str()?),
        _ => None,
    }
}

fn pi_message(message: &Value) -> Option<Value> {
    let content = &message["content"];
    match message["role"].as_str()? {
        "user" | "custom" => user(&text_of(content)),
        "assistant" => {
            let parts = content.as_array().into_iter().flatten();
            let calls = parts.filter(|part| part["type"] == "toolCall");
            let calls = calls.map(|part| call(&part["id"], &part["name"], &part["arguments"]));
            assistant(&text_of(content), calls.collect())
        }
        "toolResult" => Some(json!({
            "role": "tool", "tool_call_id": message["toolCallId"], "content": text_of(content),
        })),
        "bashExecution" => {
            let (command, output) = (message["command"].as_str()?, &message["output"]);
            user(&format!(
                "$ {command}\n{}",
                output.as_str().unwrap_or_default()
            ))
        }
        _ => None,
    }
}

/// Converts the messages of OpenClaw, which are pi's, each with its index. What OpenClaw adds to a
/// turn for the model alone is left out.
pub(super) fn of_openclaw(messages: &[Value]) -> Vec<(usize, Value)> {
    let shown = messages.iter().enumerate();
    let shown = shown.filter_map(|(at, message)| {
        let shown = match message["role"].as_str()? {
            "custom" => None,
            "compactionSummary" | "branchSummary" => user(message["summary"].as_str()?),
            _ => pi_message(message),
        };
        Some((at, shown?))
    });
    shown.collect()
}

/// Converts the messages of OpenCode. One of its messages has the calls of a step together with
/// their results.
pub(super) fn of_opencode(messages: &[Value]) -> Vec<Value> {
    messages.iter().flat_map(opencode_message).collect()
}

fn opencode_message(message: &Value) -> Vec<Value> {
    let (info, no_parts) = (&message["info"], Vec::new());
    let parts = message["parts"].as_array().unwrap_or(&no_parts);
    let texts: Vec<&str> = parts
        .iter()
        // OpenCode shows an ignored part to the user and does not send it to the model.
        .filter(|part| part["type"] == "text" && part["ignored"] != true)
        .filter_map(|part| part["text"].as_str())
        .collect();
    let text = texts.join("\n");
    if info["role"] == "user" {
        return user(&text).into_iter().collect();
    }
    if info["summary"] == true {
        return Vec::new();
    }
    let tools = || parts.iter().filter(|part| part["type"] == "tool");
    let calls = tools().map(|part| call(&part["callID"], &part["tool"], &part["state"]["input"]));
    let results = tools().filter_map(|part| {
        let state = &part["state"];
        let said = match state["status"].as_str()? {
            "completed" => state["output"].as_str()?,
            "error" => state["error"].as_str()?,
            // It is still running.
            _ => return None,
        };
        Some(json!({"role": "tool", "tool_call_id": part["callID"], "content": said}))
    });
    let results: Vec<Value> = results.collect();
    assistant(&text, calls.collect())
        .into_iter()
        .chain(results)
        .collect()
}

/// Converts the log of a session of Qwen Code, and returns how many of its lines were left out
/// because they are not JSON, such as one that is being written.
///
/// The lines are records that name the record before them, so that a rewound part of the
/// conversation is not on the way from the last record back to the first. If that record is
/// missing, the way goes on with the one before it in the file.
pub(super) fn of_qwen(log: &str) -> (Vec<Value>, u64) {
    let mut left_out = 0;
    let lines = log.lines().filter(|line| !line.trim().is_empty());
    let records = lines.filter_map(|line| {
        let read = parse_json(line).ok();
        left_out += u64::from(read.is_none());
        read
    });
    let records: Vec<Value> = records.collect();
    // A record may be written in pieces, with its id in each of them.
    let mut pieces: HashMap<&str, Vec<usize>> = HashMap::new();
    for (at, record) in records.iter().enumerate() {
        if let Some(id) = record["uuid"].as_str() {
            pieces.entry(id).or_default().push(at);
        }
    }
    let before = |at: usize, pieces: &HashMap<&str, _>| {
        let ids = records[..at].iter().rev();
        let mut ids = ids.filter_map(|record| record["uuid"].as_str());
        ids.find(|id| pieces.contains_key(id))
    };
    let mut way = Vec::new();
    let mut next = before(records.len(), &pieces);
    // Each record is taken once, so that a log which goes round in a circle ends, too.
    while let Some(record) = next.and_then(|id| pieces.remove(id)) {
        let first = record.first().copied().unwrap_or_default();
        let parent = records[first]["parentUuid"].as_str();
        next = parent.and_then(|id| match pieces.contains_key(id) {
            true => Some(id),
            false => before(first, &pieces),
        });
        way.push(record);
    }
    let way = way.into_iter().rev().flatten();
    let messages = way.flat_map(|at| qwen_record(&records[at])).collect();
    (messages, left_out)
}

fn qwen_record(record: &Value) -> Vec<Value> {
    let no_parts = Vec::new();
    let parts = record["message"]["parts"].as_array().unwrap_or(&no_parts);
    let texts = parts.iter().filter(|part| part["thought"] != true);
    let texts: Vec<&str> = texts.filter_map(|part| part["text"].as_str()).collect();
    let text = texts.join("\n");
    match record["type"].as_str() {
        Some("user") => user(&text).into_iter().collect(),
        Some("assistant") => {
            let calls = parts.iter().map(|part| &part["functionCall"]);
            let calls = calls.filter(|made| made.is_object());
            let calls = calls.map(|made| call(&made["id"], &made["name"], &made["args"]));
            assistant(&text, calls.collect()).into_iter().collect()
        }
        Some("tool_result") => {
            let results = parts.iter().map(|part| &part["functionResponse"]);
            let results = results.filter(|result| result.is_object());
            let results = results.map(|result| {
                let response = &result["response"];
                let said = ["output", "error"].map(|key| response[key].as_str());
                let said = said.into_iter().flatten().next();
                let said = said.map_or_else(|| response.to_string(), str::to_owned);
                json!({"role": "tool", "tool_call_id": result["id"], "content": said})
            });
            results.collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
