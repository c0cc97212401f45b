//! Reads answers of OpenAI chat completions.
//!
//! An answer is one message. In a stream it arrives as deltas, whose tool calls are assembled by
//! [`calls`](super::calls). [`Chat`] passes deltas on and drops the engine's calls from them. To
//! the client, the texts of all rounds are one message, so later rounds get the id of the first
//! one, and a blank line separates two texts that would run into each other.
//!
//! The message for the session and the one for the client are collected separately: `message` has
//! everything that the model wrote in this round, and `shown` what the client received so far.

use serde_json::{Map, Value, json};

use super::calls::{Calls, ShownDelta};
use super::reader::{AnswerState, ApiAnswer, Passed, UsageNames, WaitsFor};
use super::{Call, TEXT_SEPARATOR, run_together, set, write_event};

/// The path of the answer in a body or chunk.
const CHOICE: &str = "/choices/0";

const USAGE: UsageNames = UsageNames {
    input: "prompt_tokens",
    output: "completion_tokens",
    total: Some("total_tokens"),
};

/// Follows a chat completion. It holds the message of the current round, and what the client has
/// received in all rounds.
#[derive(Debug, Default)]
pub(super) struct Chat {
    message: Map<String, Value>,
    calls: Calls,
    /// The message that the client has received, over all rounds. Its calls are in `shown_calls`.
    shown: Map<String, Value>,
    shown_calls: Vec<Value>,
    next_shown: u64,
    finish: Value,
}

impl Chat {
    /// Whether text that arrives now would run into the text of the previous round.
    fn runs_into(&self, state: &AnswerState, text: &str) -> bool {
        state.is_continued()
            && text_of(&self.message).is_empty()
            && run_together(text_of(&self.shown), text)
    }

    /// Notes why the model stopped. The output of the round is complete then, even if the final
    /// event is missing.
    fn stopped(&mut self, state: &mut AnswerState, finish: &Value) {
        self.finish = finish.clone();
        state.progress.is_whole = true;
        state.stopped(self.waits_for());
    }

    /// The message that the client has received, with its calls, as it will send the message back.
    fn shown_message(&self) -> Value {
        message_with_calls(&self.shown, self.shown_calls.clone())
    }
}

/// The text of a message. Empty if its content is missing or is a list of parts.
fn text_of(message: &Map<String, Value>) -> &str {
    let text = message.get("content").and_then(Value::as_str);
    text.unwrap_or_default()
}

/// Adds the members of a delta to a message: texts and lists grow, other values are replaced. Tool
/// calls are skipped, because they are assembled elsewhere.
fn add(message: &mut Map<String, Value>, delta: &Map<String, Value>) {
    for (key, value) in delta {
        if key == "tool_calls" {
            continue;
        }
        match (message.get_mut(key), value) {
            (Some(Value::String(before)), Value::String(more)) if key != "role" => {
                before.push_str(more)
            }
            (Some(Value::Array(before)), Value::Array(more)) => before.extend(more.iter().cloned()),
            (Some(_), Value::Null) => {}
            _ => {
                message.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Adds the message of a round to the one that the client has. Texts are appended, other members
/// are replaced.
fn join(shown: &mut Map<String, Value>, message: &Map<String, Value>) {
    let grows = |key: &str| {
        matches!(
            key,
            "content" | "reasoning_content" | "reasoning" | "reasoning_details" | "refusal"
        )
    };
    for (key, value) in message {
        match shown.get(key) {
            Some(before) if !before.is_null() && grows(key) => {
                let texts = (key == "content").then(|| before.as_str().zip(value.as_str()));
                let value = match texts.flatten() {
                    Some((before, more)) if run_together(before, more) => {
                        json!(format!("{TEXT_SEPARATOR}{more}"))
                    }
                    _ => value.clone(),
                };
                add(shown, &Map::from_iter([(key.clone(), value)]));
            }
            _ => {
                shown.insert(key.clone(), value.clone());
            }
        }
    }
}

/// An assistant message with these calls. The members that providers require are added if they are
/// missing.
fn message_with_calls(message: &Map<String, Value>, calls: Vec<Value>) -> Value {
    let mut message = message.clone();
    message.remove("tool_calls");
    message.insert("role".to_owned(), json!("assistant"));
    if !message.contains_key("content") {
        message.insert("content".to_owned(), Value::Null);
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), Value::Array(calls));
    }
    Value::Object(message)
}

impl ApiAnswer for Chat {
    fn usage_names(&self) -> &'static UsageNames {
        &USAGE
    }

    fn event(&mut self, state: &mut AnswerState, data: &mut Value) -> Passed {
        if data.get("error").is_some_and(|error| !error.is_null()) {
            state.progress.failed = true;
            return Passed::Unchanged;
        }
        let mut is_changed = false;
        if state.first.is_null() {
            state.first =
                json!({"id": data["id"], "created": data["created"], "model": data["model"]});
        } else if state.is_continued() {
            is_changed = true;
            // Clients expect all chunks of an answer to have the same id.
            for key in ["id", "created"] {
                set(data, key, state.first[key].clone());
            }
        }
        let usage = data["usage"].clone();
        if usage.is_object() {
            state.usage = usage.clone();
        }
        let finish = data
            .pointer("/choices/0/finish_reason")
            // Some servers send an empty reason with each chunk.
            .filter(|finish| *finish != "")
            .cloned()
            .unwrap_or_default();
        let mut is_empty = false;
        if let Some(delta) = data
            .pointer_mut("/choices/0/delta")
            .and_then(Value::as_object_mut)
        {
            let text = delta.get("content").and_then(Value::as_str);
            let separated = text.filter(|text| self.runs_into(state, text));
            let separated = separated.map(|text| json!(format!("{TEXT_SEPARATOR}{text}")));
            add(&mut self.message, delta);
            if let Some(text) = separated {
                delta.insert("content".to_owned(), text);
            }
            if state.is_continued() {
                // The client has received the role already.
                delta.remove("role");
            }
            let pieces = delta.get("tool_calls").and_then(Value::as_array).cloned();
            let mut shown = Vec::new();
            for mut piece in pieces.iter().flatten().cloned() {
                if !piece.is_object() {
                    shown.push(piece);
                    continue;
                }
                match self.calls.add(&piece, state.tools(), self.next_shown) {
                    ShownDelta::Delta(at) => {
                        if !state.tools().is_empty() {
                            is_changed |= piece["index"] != json!(at);
                            set(&mut piece, "index", json!(at));
                        }
                        shown.push(piece);
                    }
                    ShownDelta::Instead(piece) => {
                        is_changed = true;
                        shown.push(piece);
                    }
                    ShownDelta::Nothing => is_changed = true,
                }
            }
            state.progress.is_touched |= self.calls.owners().0;
            if !finish.is_null() {
                // No name can arrive after the reason to stop.
                let late = self.calls.give_up_waiting(self.next_shown);
                is_changed |= !late.is_empty();
                shown.extend(late);
            }
            if (pieces.is_some() || !shown.is_empty()) && is_changed {
                match shown.is_empty() {
                    true => delta.remove("tool_calls"),
                    false => delta.insert("tool_calls".to_owned(), Value::Array(shown)),
                };
            }
            let says =
                |(key, value): (&String, &Value)| key != "role" && !value.is_null() && value != "";
            // A chunk is dropped only if nothing is left of it after calls were removed.
            is_empty = is_changed && !delta.iter().any(says);
        }
        if !finish.is_null() {
            self.stopped(state, &finish);
        }
        if state.progress.continues {
            // The last chunk of a hidden round may carry text of the model as well, which belongs
            // to the client.
            let text = data.pointer("/choices/0/delta/content");
            let has_text = text.is_some_and(|text| text.as_str().is_some_and(|it| !it.is_empty()));
            if is_empty || finish.is_null() || !has_text {
                return Passed::Nothing;
            }
            if let Some(choice) = data.pointer_mut(CHOICE) {
                set(choice, "finish_reason", Value::Null);
            }
            return Passed::Changed;
        }
        if is_empty && finish.is_null() && !usage.is_object() {
            return Passed::Nothing;
        }
        if state.is_continued() && usage.is_object() {
            set(data, "usage", state.client_usage(&usage, &USAGE));
        }
        match is_changed {
            true => Passed::Changed,
            false => Passed::Unchanged,
        }
    }

    fn text_event(&mut self, state: &mut AnswerState, data: Option<&str>) -> Passed {
        let is_end = data == Some("[DONE]");
        state.progress.finished |= is_end;
        match is_end && state.progress.continues {
            true => Passed::Nothing,
            false => Passed::Unchanged,
        }
    }

    fn json(&mut self, state: &mut AnswerState, body: &mut Value) {
        let choice = &body["choices"][0];
        let calls = choice["message"]["tool_calls"].as_array();
        for call in calls.into_iter().flatten().filter(|call| call.is_object()) {
            self.calls.add_whole(call, state.tools());
        }
        state.progress.is_touched |= self.calls.owners().0;
        self.message = choice["message"].as_object().cloned().unwrap_or_default();
        self.message.remove("tool_calls");
        state.usage = body["usage"].clone();
        self.stopped(state, &choice["finish_reason"]);
    }

    fn waits_for(&self) -> WaitsFor {
        let is_cut_off = matches!(self.finish.as_str(), Some("length" | "content_filter"));
        let (engine, client) = self.calls.owners();
        WaitsFor {
            engine: engine && !is_cut_off,
            client: client && !is_cut_off,
        }
    }

    fn take_round(&mut self, with_calls: bool) -> (Vec<String>, Vec<Call>) {
        let all = self.calls.values(with_calls);
        // An answer with neither text nor calls is not a message.
        let has_text = self
            .message
            .get("content")
            .is_some_and(|text| !text.is_null());
        let items = match all.is_empty() && !has_text {
            true => Vec::new(),
            false => vec![message_with_calls(&self.message, all).to_string()],
        };
        let calls = match with_calls {
            true => self.calls.of_engine(),
            false => Vec::new(),
        };
        join(&mut self.shown, &std::mem::take(&mut self.message));
        let taken = std::mem::take(&mut self.calls);
        self.shown_calls.extend(taken.values(false));
        self.next_shown = self.shown_calls.len() as u64;
        (items, calls)
    }

    fn composed(&self, state: &AnswerState) -> Value {
        let mut body = state.first.clone();
        if let Some(choice) = body.pointer_mut(CHOICE) {
            set(choice, "message", self.shown_message());
            set(choice, "finish_reason", self.finish.clone());
        }
        let usage = state.client_usage(&state.last_usage, &USAGE);
        set(&mut body, "usage", usage);
        body
    }

    fn visible(&self) -> Vec<String> {
        vec![self.shown_message().to_string()]
    }

    fn end(&mut self, state: &AnswerState, out: &mut Vec<u8>) {
        self.finish = json!("stop");
        let mut chunk = state.first.clone();
        set(&mut chunk, "object", json!("chat.completion.chunk"));
        let choice = json!({"index": 0, "delta": {}, "finish_reason": "stop"});
        set(&mut chunk, "choices", json!([choice]));
        write_event(None, &chunk, out);
        if state.last_usage.is_object() {
            set(&mut chunk, "choices", json!([]));
            let usage = state.client_usage(&state.last_usage, &USAGE);
            set(&mut chunk, "usage", usage);
            write_event(None, &chunk, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn has_event_names(&self) -> bool {
        false
    }
}
