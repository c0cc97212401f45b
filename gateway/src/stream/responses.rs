//! Reads answers of OpenAI's Responses API.
//!
//! An answer is a list of output items. [`Responses`] hides the items that call the engine's tools.
//! The client must see output indexes and sequence numbers without gaps, so they are renumbered
//! once an item was hidden. Before that, events pass byte for byte. The final event repeats all
//! items, so it is rebuilt from what the client may see.
//!
//! Responses also echo the tools that the provider was sent. The engine's tools are removed there,
//! too. Items that are sent back with the next round are adapted, if the provider does not store
//! them.

use serde_json::{Value, json};

use super::items::{OutputItem, OutputItems};
use super::reader::{AnswerState, ApiAnswer, Passed, UsageNames, WaitsFor};
use super::{Call, number, set, string, write_event};

const USAGE: UsageNames = UsageNames {
    input: "input_tokens",
    output: "output_tokens",
    total: Some("total_tokens"),
};

/// The types of items that the client has to answer. If one of them is in a round, the model waits
/// for the client.
const CALLS: [&str; 6] = [
    "function_call", "custom_tool_call", "local_shell_call", "shell_call", "apply_patch_call",
    "computer_call",
];

/// Follows a response of OpenAI's Responses API. It holds its items and how the last round ended.
#[derive(Debug, Default)]
pub(super) struct Responses {
    items: OutputItems<Value>,
    /// Whether a JSON answer lists the engine's tools, so that it has to be rewritten.
    echoes: bool,
    /// The sequence number of the next event for the client. Events are numbered again, because
    /// hidden ones leave gaps.
    sequence: u64,
    last: Value,
}

/// Removes the engine's tools from the list that the provider echoes. Returns whether there were
/// any.
fn remove_tools(state: &AnswerState, response: &mut Value) -> bool {
    let tools = response.get_mut("tools").and_then(Value::as_array_mut);
    let Some(tools) = tools else {
        return false;
    };
    let before = tools.len();
    tools.retain(|tool| !state.is_own(&tool["name"]));
    tools.len() < before
}

impl Responses {
    /// Notes an item of the current round. A later event with the complete item replaces it.
    fn take_item(&mut self, state: &mut AnswerState, index: u64, item: &Value) {
        let is_hidden = item["type"] == "function_call" && state.is_own(&item["name"]);
        state.progress.is_touched |= is_hidden;
        self.items.insert(index, item.clone(), is_hidden);
    }

    /// An item in the form that the provider accepts in the next request, or None if it has to be
    /// left out. If the provider does not store the response, it knows no ids of it, and accepts
    /// reasoning only if that is encrypted.
    fn to_send_back(&self, item: &Value) -> Option<String> {
        if self.last["store"] != json!(false) {
            return Some(item.to_string());
        }
        if item["type"] == "reasoning" {
            return item["encrypted_content"]
                .is_string()
                .then(|| item.to_string());
        }
        let mut item = item.clone();
        if let Some(item) = item.as_object_mut() {
            item.remove("id");
        }
        Some(item.to_string())
    }

    /// Notes the final response, its usage and all its items. The round ends with it.
    fn stopped(&mut self, state: &mut AnswerState, response: &Value) {
        // The final response repeats all items. For a JSON body it is the only source.
        for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            self.take_item(state, index, item);
        }
        self.last = response.clone();
        state.usage = response["usage"].clone();
        state.progress.finished = true;
        state.stopped(self.waits_for());
    }
}

impl ApiAnswer for Responses {
    fn usage_names(&self) -> &'static UsageNames {
        &USAGE
    }

    fn event(&mut self, state: &mut AnswerState, data: &mut Value) -> Passed {
        let kind = string(data, "type");
        // Announcements and the final event repeat the tools of the request.
        let response = data.get_mut("response");
        let echoes = response.is_some_and(|response| remove_tools(state, response));
        match kind.as_str() {
            // The client has received these announcements with the first round.
            "response.created" | "response.in_progress" | "response.queued"
                if state.is_continued() =>
            {
                return Passed::Nothing;
            }
            "response.created" if data["response"].is_object() => {
                state.first = data["response"].clone();
            }
            "response.output_item.added" | "response.output_item.done" => {
                self.take_item(state, number(data, "output_index"), &data["item"]);
            }
            "response.completed" | "response.incomplete" => {
                self.stopped(state, &data["response"]);
                if state.progress.continues {
                    return Passed::Nothing;
                }
                if state.progress.is_touched {
                    set(data, "response", self.composed(state));
                }
            }
            "response.failed" | "error" => state.progress.failed = true,
            _ => {}
        }
        if let Some(index) = data["output_index"].as_u64() {
            match self.items.shown_as(index) {
                None => return Passed::Nothing,
                Some(shown_as) => set(data, "output_index", json!(shown_as)),
            }
        }
        let has_number = data["sequence_number"].is_u64();
        // Once an item was hidden, every later event has to be renumbered.
        if state.progress.is_touched {
            if has_number {
                set(data, "sequence_number", json!(self.sequence));
                self.sequence += 1;
            }
            return Passed::Changed;
        }
        if has_number {
            self.sequence = number(data, "sequence_number") + 1;
        }
        match echoes {
            true => Passed::Changed,
            false => Passed::Unchanged,
        }
    }

    fn json(&mut self, state: &mut AnswerState, body: &mut Value) {
        self.echoes |= remove_tools(state, body);
        self.stopped(state, body);
    }

    fn waits_for(&self) -> WaitsFor {
        let is_whole = self.last["status"] != "incomplete" && self.last["status"] != "failed";
        let is_call = |item: &&OutputItem<Value>| {
            let kind = item.value["type"].as_str();
            is_whole && kind.is_some_and(|kind| CALLS.contains(&kind))
        };
        let calls = self.items.current().filter(is_call);
        WaitsFor::of(calls.map(|call| call.is_hidden))
    }

    fn take_round(&mut self, with_calls: bool) -> (Vec<String>, Vec<Call>) {
        let items = self.items.current();
        let said: Vec<_> = items.filter(|item| with_calls || !item.is_hidden).collect();
        let hidden = said.iter().filter(|item| item.is_hidden);
        let calls = hidden.map(|item| Call {
            id: string(&item.value, "call_id"),
            name: string(&item.value, "name"),
            arguments: string(&item.value, "arguments"),
        });
        let calls = calls.collect();
        let items = said.iter();
        let items = items.filter_map(|item| self.to_send_back(&item.value));
        let items = items.collect();
        self.items.end_round(|item| item);
        (items, calls)
    }

    fn is_composed(&self, state: &AnswerState) -> bool {
        state.progress.is_touched || self.echoes
    }

    /// The final response: the items of all rounds without the hidden ones, the id of the first
    /// round, and the usage of all.
    fn composed(&self, state: &AnswerState) -> Value {
        let mut response = self.last.clone();
        for key in ["id", "created_at"] {
            if !state.first[key].is_null() {
                set(&mut response, key, state.first[key].clone());
            }
        }
        let now = self.items.current().filter(|item| !item.is_hidden);
        let now = now.map(|item| &item.value);
        let output = self.items.shown().iter().chain(now).cloned().collect();
        set(&mut response, "output", output);
        if response["usage"].is_object() {
            let usage = state.client_usage(&response["usage"], &USAGE);
            set(&mut response, "usage", usage);
        }
        response
    }

    fn visible(&self) -> Vec<String> {
        self.items.shown().iter().map(Value::to_string).collect()
    }

    fn end(&mut self, state: &AnswerState, out: &mut Vec<u8>) {
        set(&mut self.last, "status", json!("completed"));
        let response = self.composed(state);
        let data = json!({
            "type": "response.completed", "response": response, "sequence_number": self.sequence
        });
        write_event(Some("response.completed"), &data, out);
    }

    fn write_error(&self, state: &AnswerState, error: &Value, out: &mut Vec<u8>) {
        // The event has to contain a whole response, and the client knows it by its id.
        let mut response = state.first.clone();
        set(&mut response, "status", json!("failed"));
        let error = &error["error"];
        let error = json!({"code": error["code"], "message": error["message"]});
        set(&mut response, "error", error);
        let data = json!({
            "type": "response.failed", "sequence_number": self.sequence, "response": response
        });
        write_event(Some("response.failed"), &data, out);
    }
}
