//! Reads answers of Anthropic's Messages API.
//!
//! An answer is a list of content blocks. [`Messages`] hides the blocks that call the engine's
//! tools. The client must see block indexes without gaps, so the blocks after a hidden one get a
//! lower index, and the blocks of later rounds follow those of earlier ones. Events that need no
//! change pass byte for byte.
//!
//! The message begins with the first round's `message_start`, and ends with the `message_delta` and
//! `message_stop` of the last round. Those of hidden rounds are dropped.

use serde::Serialize;
use serde_json::{Value, json};

use super::items::{OutputItem, OutputItems};
use super::reader::{AnswerState, ApiAnswer, Passed, UsageNames, WaitsFor};
use super::{Call, number, set, string, write_event};

const USAGE: UsageNames = UsageNames {
    input: "input_tokens",
    output: "output_tokens",
    total: None,
};

/// The members that say why the model stopped.
const STOP: [&str; 2] = ["stop_reason", "stop_sequence"];

/// A content block of the current round, assembled from its deltas. The arguments of a call arrive
/// as pieces of JSON text.
#[derive(Debug)]
struct ContentBlock {
    value: Value,
    arguments: String,
}

impl ContentBlock {
    /// Completes the block. Arguments that are not valid JSON become an empty object, because the
    /// API accepts only objects.
    fn finish(&mut self) {
        if !self.arguments.is_empty() {
            let input = serde_json::from_str(&std::mem::take(&mut self.arguments));
            let input = input.unwrap_or_else(|_| json!({}));
            set(&mut self.value, "input", input);
        }
    }

    /// Whether the block is a text without content. Anthropic's API rejects such blocks in a
    /// request.
    fn is_empty_text(&self) -> bool {
        self.value["type"] == "text" && self.value["text"].as_str().unwrap_or_default().is_empty()
    }
}

/// Follows a message of Anthropic's API. It holds the blocks of the current round and why the model
/// stopped.
#[derive(Debug, Default)]
pub(super) struct Messages {
    blocks: OutputItems<ContentBlock>,
    stop: Value,
}

impl Messages {
    /// Begins a block. A call of one of the engine's tools is hidden from the client.
    fn begin_block(&mut self, state: &mut AnswerState, index: u64, value: Value) {
        let is_hidden = value["type"] == "tool_use" && state.is_own(&value["name"]);
        let block = ContentBlock {
            value,
            arguments: String::new(),
        };
        state.progress.is_touched |= is_hidden;
        self.blocks.insert(index, block, is_hidden);
    }

    /// Notes why the model stopped. The output is complete as soon as a reason is given.
    fn stopped(&mut self, state: &mut AnswerState, stop: &Value) {
        let [reason, sequence] = STOP.map(|key| &stop[key]);
        self.stop = json!({"stop_reason": reason, "stop_sequence": sequence});
        state.progress.is_whole |= !reason.is_null();
        state.stopped(self.waits_for());
    }

    /// Removes what the provider says of hidden calls from lists beside the content, such as
    /// `safeguard_results`. Returns whether there was anything.
    fn hide_results(&self, members: &mut Value) -> bool {
        let hidden = self.blocks.current().filter(|block| block.is_hidden);
        let ids = hidden.map(|block| &block.value.value["id"]);
        let hidden: Vec<&Value> = ids.filter(|id| id.is_string()).collect();
        let members = members.as_object_mut().into_iter().flatten();
        let mut found = false;
        for list in members.filter_map(|(_, value)| value.as_array_mut()) {
            let all = list.len();
            list.retain(|result| !hidden.contains(&&result["tool_use_id"]));
            found |= list.len() < all;
        }
        found
    }

    /// Changes the index of a block's event to the one that the client knows. An event of an
    /// unknown block is left as it is.
    fn show(&mut self, state: &AnswerState, index: u64, data: &mut Value) -> Passed {
        if state.progress.is_untouched() || self.blocks.get_mut(index).is_none() {
            return Passed::Unchanged;
        }
        match self.blocks.shown_as(index) {
            None => Passed::Nothing,
            Some(shown_as) if shown_as == index => Passed::Unchanged,
            Some(shown_as) => {
                set(data, "index", json!(shown_as));
                Passed::Changed
            }
        }
    }
}

/// Merges reported usage into that of the round. It arrives in two events, and either may lack
/// members.
fn merge_usage(state: &mut AnswerState, usage: &Value) {
    for (key, value) in usage.as_object().into_iter().flatten() {
        if !value.is_null() {
            set(&mut state.usage, key, value.clone());
        }
    }
}

impl ApiAnswer for Messages {
    fn usage_names(&self) -> &'static UsageNames {
        &USAGE
    }

    fn event(&mut self, state: &mut AnswerState, data: &mut Value) -> Passed {
        let kind = string(data, "type");
        let index = number(data, "index");
        match kind.as_str() {
            "message_start" => {
                state.usage = json!({});
                let message = data.get_mut("message").map(Value::take);
                let message = message.unwrap_or_default();
                merge_usage(state, &message["usage"]);
                // To the client, all rounds are one message, which has begun already.
                if state.is_continued() {
                    return Passed::Nothing;
                }
                state.first = message;
            }
            "content_block_start" => {
                self.begin_block(state, index, data["content_block"].clone());
            }
            "content_block_delta" => {
                if let Some(block) = self.blocks.get_mut(index) {
                    add_delta(&mut block.value, &data["delta"]);
                }
            }
            "message_delta" => {
                let usage = data["usage"].clone();
                merge_usage(state, &usage);
                self.stopped(state, &data["delta"]);
                if state.progress.continues {
                    return Passed::Nothing;
                }
                let is_hiding = self.hide_results(&mut data["delta"]);
                if state.is_continued() {
                    set(data, "usage", state.client_usage(&usage, &USAGE));
                }
                if state.is_continued() || is_hiding {
                    return Passed::Changed;
                }
            }
            "message_stop" => {
                state.progress.finished = true;
                if state.progress.continues {
                    return Passed::Nothing;
                }
            }
            "error" => state.progress.failed = true,
            _ => {}
        }
        match kind.starts_with("content_block") {
            true => self.show(state, index, data),
            false => Passed::Unchanged,
        }
    }

    fn json(&mut self, state: &mut AnswerState, body: &mut Value) {
        if let Some(Value::Array(content)) = body.get_mut("content").map(Value::take) {
            for (index, block) in (0..).zip(content) {
                self.begin_block(state, index, block);
            }
        }
        state.usage = json!({});
        merge_usage(state, &body["usage"]);
        self.stopped(state, body);
        self.hide_results(body);
    }

    fn waits_for(&self) -> WaitsFor {
        let is_waiting = self.stop["stop_reason"] == "tool_use";
        let is_call = |block: &&OutputItem<ContentBlock>| {
            is_waiting && block.value.value["type"] == "tool_use"
        };
        let calls = self.blocks.current().filter(is_call);
        WaitsFor::of(calls.map(|call| call.is_hidden))
    }

    fn take_round(&mut self, with_calls: bool) -> (Vec<String>, Vec<Call>) {
        self.blocks.current_mut().for_each(ContentBlock::finish);
        // The API refuses messages with empty text blocks when they are sent back.
        let said: Vec<&OutputItem<ContentBlock>> = (self.blocks.current())
            .filter(|block| !block.value.is_empty_text() && (with_calls || !block.is_hidden))
            .collect();
        let items = message(said.iter().map(|block| &block.value.value).collect());
        let calls = said.iter().filter(|block| block.is_hidden).map(|block| {
            let value = &block.value.value;
            Call {
                id: string(value, "id"),
                name: string(value, "name"),
                arguments: value["input"].to_string(),
            }
        });
        let calls = calls.collect();
        self.blocks.end_round(|block| block.value);
        (items, calls)
    }

    fn composed(&self, state: &AnswerState) -> Value {
        let mut message = state.first.clone();
        set(&mut message, "content", json!(self.blocks.shown()));
        for key in STOP {
            set(&mut message, key, self.stop[key].clone());
        }
        let usage = state.client_usage(&state.last_usage, &USAGE);
        set(&mut message, "usage", usage);
        message
    }

    fn visible(&self) -> Vec<String> {
        message(self.blocks.shown().iter().collect())
    }

    fn end(&mut self, state: &AnswerState, out: &mut Vec<u8>) {
        self.stop = json!({"stop_reason": "end_turn", "stop_sequence": null});
        let mut usage = state.client_usage(&state.last_usage, &USAGE);
        // Clients expect this member even if the provider reported no usage.
        let output = json!(USAGE.output(&usage));
        set(&mut usage, USAGE.output, output);
        let delta = json!({"type": "message_delta", "delta": self.stop, "usage": usage});
        write_event(Some("message_delta"), &delta, out);
        write_event(Some("message_stop"), &json!({"type": "message_stop"}), out);
    }

    fn write_error(&self, _state: &AnswerState, error: &Value, out: &mut Vec<u8>) {
        // Servers that are almost compatible leave the type out of their errors.
        let mut error = error.clone();
        set(&mut error, "type", json!("error"));
        write_event(Some("error"), &error, out);
    }
}

/// The message with this content, as it is sent back. Empty without content, because the API refuses
/// such a message.
fn message(content: Vec<&Value>) -> Vec<String> {
    #[derive(Serialize)]
    struct Message<'v> {
        role: &'static str,
        content: Vec<&'v Value>,
    }
    let message = (!content.is_empty()).then_some(Message {
        role: "assistant",
        content,
    });
    // JSON values always have a JSON form.
    let text = |message| serde_json::to_string(&message).unwrap_or_default();
    message.map(text).into_iter().collect()
}

/// Adds a delta to its block. Unknown kinds are ignored here, but still pass to the client.
fn add_delta(block: &mut ContentBlock, delta: &Value) {
    let mut append = |key: &str| {
        let more = delta[key].as_str().unwrap_or_default();
        match block.value.get_mut(key) {
            Some(Value::String(text)) => text.push_str(more),
            _ => set(&mut block.value, key, json!(more)),
        }
    };
    match delta["type"].as_str() {
        Some("text_delta") => append("text"),
        Some("thinking_delta") => append("thinking"),
        Some("signature_delta") => append("signature"),
        Some("input_json_delta") => {
            let more = delta["partial_json"].as_str().unwrap_or_default();
            block.arguments.push_str(more);
        }
        Some("citations_delta") => match block.value.get_mut("citations") {
            Some(Value::Array(citations)) => citations.push(delta["citation"].clone()),
            _ => set(&mut block.value, "citations", json!([delta["citation"]])),
        },
        _ => {}
    }
}
