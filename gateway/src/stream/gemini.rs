//! Reads answers of the Gemini API.
//!
//! An answer is a list of parts. In a stream, each event is a response with more parts: texts arrive
//! in pieces, and calls arrive whole. [`Gemini`] removes the parts that call the engine's tools. To
//! the client, the parts of all rounds are one answer, so later rounds get the id of the first one,
//! and a blank line separates two texts that would run into each other.
//!
//! A stream ends with the response that says why the model stopped. Gemini gives the same reason
//! whether the model calls tools or is done, so the calls decide whether it waits. Parts may have a
//! signature, which has to come back with the part, so such parts are never joined with others. The
//! texts of thoughts are for people only, and the model does not need them back.

use serde_json::{Value, json};

use super::reader::{AnswerState, ApiAnswer, Passed, UsageNames, WaitsFor};
use super::{Call, TEXT_SEPARATOR, number, run_together, set, string, write_event};
use crate::gemini::{field, field_mut, is_thought, join};

const USAGE: UsageNames = UsageNames {
    input: "promptTokenCount",
    output: "candidatesTokenCount",
    total: Some("totalTokenCount"),
};

/// The reason to stop of a model that is done or waits for the results of its calls. With any other
/// one, the answer was cut off.
const DONE: &str = "STOP";

/// Follows an answer of the Gemini API. It holds the parts of the current round, and those that the
/// client has received in all rounds.
#[derive(Debug, Default)]
pub(super) struct Gemini {
    parts: Vec<RoundPart>,
    shown: Vec<Value>,
    /// The last candidate, which says why the model stopped.
    last: Value,
}

/// A part of the current round.
#[derive(Debug)]
struct RoundPart {
    value: Value,
    /// Whether it is a call of one of the engine's tools, which the client does not see.
    is_hidden: bool,
}

/// The call in a part. None if the part is something else.
fn call_of(part: &Value) -> Option<&Value> {
    Some(field(part, "functionCall")).filter(|call| call.is_object())
}

/// The text of the answer in a part. None if the part is something else.
fn text_of(part: &Value) -> Option<&str> {
    part["text"].as_str().filter(|_| part["thought"] != true)
}

impl Gemini {
    /// Takes the parts of a response. Removes those that the client must not see, and separates the
    /// texts of two rounds. Returns whether the list was changed.
    fn take_parts(&mut self, state: &mut AnswerState, parts: &mut Vec<Value>) -> bool {
        let count = parts.len();
        let mut is_changed = false;
        parts.retain_mut(|part| {
            let is_hidden = call_of(part).is_some_and(|call| state.is_own(&call["name"]));
            let has_begun = self.parts.iter().any(|part| text_of(&part.value).is_some());
            if !join(self.parts.last_mut().map(|last| &mut last.value), part) {
                let value = part.clone();
                self.parts.push(RoundPart { value, is_hidden });
            }
            if is_hidden {
                return false;
            }
            if state.is_continued() && !has_begun && self.runs_into(part) {
                let text = TEXT_SEPARATOR.to_owned() + &string(part, "text");
                set(part, "text", json!(text));
                is_changed = true;
            }
            if !join(self.shown.last_mut(), part) {
                self.shown.push(part.clone());
            }
            true
        });
        state.progress.is_touched |= parts.len() < count;
        is_changed || parts.len() < count
    }

    /// Whether the text of a part would run into the text of an earlier round.
    fn runs_into(&self, part: &Value) -> bool {
        let before = self.shown.iter().rev().find_map(text_of);
        run_together(
            before.unwrap_or_default(),
            text_of(part).unwrap_or_default(),
        )
    }

    /// Takes a response, and notes why the model stopped if it says so. Returns whether the parts
    /// were changed.
    fn take(&mut self, state: &mut AnswerState, response: &mut Value) -> bool {
        let usage = field(response, "usageMetadata");
        if usage.is_object() {
            state.usage = usage.clone();
        }
        // A prompt that was blocked has no answer.
        let is_blocked = !field(field(response, "promptFeedback"), "blockReason").is_null();
        let parts = response.pointer_mut(PARTS).and_then(Value::as_array_mut);
        let is_changed = parts.is_some_and(|parts| self.take_parts(state, parts));
        let candidate = response.pointer("/candidates/0").unwrap_or(&Value::Null);
        if is_blocked || !field(candidate, "finishReason").is_null() {
            self.last = candidate.clone();
            state.progress.is_whole = true;
            state.progress.finished = true;
            state.stopped(self.waits_for());
        }
        is_changed
    }

    /// The last candidate with what the client has received.
    fn candidate(&self, parts: &[Value]) -> Value {
        let mut candidate = self.last.clone();
        let content = json!({"parts": parts, "role": "model"});
        set(&mut candidate, "content", content);
        candidate
    }
}

/// The path of the parts in a response.
const PARTS: &str = "/candidates/0/content/parts";

/// The message with these parts, as it is sent back: without thoughts. Empty without other parts,
/// because Google refuses such a message.
fn message(parts: &[Value]) -> Vec<String> {
    let parts: Vec<&Value> = parts.iter().filter(|part| !is_thought(part)).collect();
    match parts.is_empty() {
        true => Vec::new(),
        false => vec![json!({"role": "model", "parts": parts}).to_string()],
    }
}

impl ApiAnswer for Gemini {
    fn usage_names(&self) -> &'static UsageNames {
        &USAGE
    }

    /// The tokens of thoughts are not among those of the answer.
    fn output(&self, reported: &Value) -> u64 {
        USAGE.output(reported) + number(reported, "thoughtsTokenCount")
    }

    fn event(&mut self, state: &mut AnswerState, data: &mut Value) -> Passed {
        if data.get("error").is_some_and(|error| !error.is_null()) {
            state.progress.failed = true;
            return Passed::Unchanged;
        }
        if state.first.is_null() {
            state.first = data.clone();
            set(&mut state.first, "candidates", json!([]));
        }
        let mut is_changed = self.take(state, data);
        let is_last = state.progress.finished;
        if is_changed
            && let Some(parts) = data.pointer_mut(PARTS).and_then(Value::as_array_mut)
            && parts.is_empty()
        {
            // The event had nothing but calls that were removed.
            if !is_last || state.progress.continues {
                return Passed::Nothing;
            }
            parts.push(json!({"text": ""}));
        }
        if state.progress.continues {
            // The last event of a hidden round may carry text of the model as well, which belongs
            // to the client.
            let parts = data.pointer(PARTS).and_then(Value::as_array);
            let has_more = parts.is_some_and(|parts| parts.iter().any(|part| part["text"] != ""));
            let candidate = data
                .pointer_mut("/candidates/0")
                .and_then(Value::as_object_mut);
            let Some(candidate) = candidate.filter(|_| has_more) else {
                return Passed::Nothing;
            };
            candidate.remove("finishReason");
            is_changed = true;
        }
        if state.is_continued() {
            // Clients expect all events of an answer to have the same id.
            if let Some(id) = data.get_mut("responseId") {
                *id = state.first["responseId"].clone();
            }
            if let Some(usage) = field_mut(data, "usageMetadata") {
                *usage = state.client_usage(usage, &USAGE);
            }
            is_changed = true;
        }
        match is_changed {
            true => Passed::Changed,
            false => Passed::Unchanged,
        }
    }

    /// Without events, a stream is a list of responses.
    fn json(&mut self, state: &mut AnswerState, body: &mut Value) {
        match body {
            Value::Array(responses) => {
                for response in responses {
                    self.take(state, response);
                }
            }
            response => {
                self.take(state, response);
            }
        }
    }

    fn waits_for(&self) -> WaitsFor {
        let is_waiting = field(&self.last, "finishReason") == DONE;
        let is_call = |part: &&RoundPart| is_waiting && call_of(&part.value).is_some();
        let calls = self.parts.iter().filter(is_call);
        WaitsFor::of(calls.map(|call| call.is_hidden))
    }

    fn take_round(&mut self, with_calls: bool) -> (Vec<String>, Vec<Call>) {
        let mut said = std::mem::take(&mut self.parts);
        said.retain(|part| with_calls || !part.is_hidden);
        let hidden = said.iter().filter(|part| part.is_hidden);
        let calls = hidden.filter_map(|part| {
            let call = call_of(&part.value)?;
            Some(Call {
                id: string(call, "id"),
                name: string(call, "name"),
                arguments: call
                    .get("args")
                    .map_or_else(|| "{}".to_owned(), Value::to_string),
            })
        });
        let calls = calls.collect();
        let parts: Vec<Value> = said.into_iter().map(|part| part.value).collect();
        (message(&parts), calls)
    }

    fn composed(&self, state: &AnswerState) -> Value {
        // A list of responses stays a list, with all of the answer in one.
        let list = state.first.as_array();
        let first = list.map_or(Some(&state.first), |list| list.first());
        let mut body = first.cloned().unwrap_or_default();
        let candidates = json!([self.candidate(&self.shown)]);
        set(&mut body, "candidates", candidates);
        let usage = state.client_usage(&state.last_usage, &USAGE);
        set(&mut body, "usageMetadata", usage);
        match list {
            Some(_) => json!([body]),
            None => body,
        }
    }

    fn visible(&self) -> Vec<String> {
        message(&self.shown)
    }

    fn end(&mut self, state: &AnswerState, out: &mut Vec<u8>) {
        set(&mut self.last, "finishReason", json!(DONE));
        let mut response = state.first.clone();
        let candidates = json!([self.candidate(&[json!({"text": ""})])]);
        set(&mut response, "candidates", candidates);
        let usage = state.client_usage(&state.last_usage, &USAGE);
        set(&mut response, "usageMetadata", usage);
        write_event(None, &response, out);
    }

    fn has_event_names(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
