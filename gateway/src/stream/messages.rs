//! Answers of Anthropic messages: blocks, whose indexes the client sees without gaps.

use std::collections::BTreeMap;

use contexture::Usage;
use serde_json::{Map, Value, json};

use super::sse::Event;
use super::{Call, Progress, Reader, Round, Tools, number, string, write_event};

/// A block of this round.
#[derive(Debug, Default)]
struct Block {
    value: Value,
    /// The arguments of a call, as far as they are there.
    arguments: String,
    is_hidden: bool,
    /// Which block it is to the client.
    shown_as: u64,
}

impl Block {
    fn finished(&self) -> Value {
        let mut value = self.value.clone();
        if !self.arguments.is_empty() {
            let input = serde_json::from_str(&self.arguments);
            value["input"] = input.unwrap_or_else(|_| json!({}));
        }
        value
    }

    fn is_empty_text(&self) -> bool {
        self.value["type"] == "text" && self.value["text"].as_str().unwrap_or_default().is_empty()
    }
}

/// Follows an answer.
#[derive(Debug, Default)]
pub(super) struct Messages {
    tools: Tools,
    /// The message as it began in the first round.
    message: Value,
    blocks: BTreeMap<u64, Block>,
    /// What the client has of this and earlier rounds.
    shown: Vec<Value>,
    next_shown: u64,
    stop: Value,
    usage: Map<String, Value>,
    progress: Progress,
}

impl Messages {
    pub(super) fn new(tools: Tools) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    fn is_own(&self, block: &Value) -> bool {
        block["type"] == "tool_use"
            && block["name"]
                .as_str()
                .is_some_and(|name| self.tools.contains(name))
    }

    fn begin_block(&mut self, index: u64, value: Value) {
        let is_hidden = self.is_own(&value);
        let block = Block {
            is_hidden,
            shown_as: self.next_shown,
            value,
            arguments: String::new(),
        };
        self.progress.is_touched |= is_hidden;
        self.next_shown += u64::from(!is_hidden);
        self.blocks.insert(index, block);
    }

    fn take_usage(&mut self, usage: &Value) {
        for (key, value) in usage.as_object().into_iter().flatten() {
            if !value.is_null() {
                self.usage.insert(key.clone(), value.clone());
            }
        }
    }

    /// Whether the model waits for the engine, and for the client.
    fn waits_for(&self) -> (bool, bool) {
        let is_waiting = self.stop["stop_reason"] == "tool_use";
        let any = |is_it: &dyn Fn(&Block) -> bool| is_waiting && self.blocks.values().any(is_it);
        (
            any(&|block| block.is_hidden),
            any(&|block| !block.is_hidden && block.value["type"] == "tool_use"),
        )
    }

    fn stopped(&mut self, stop: &Value) {
        self.stop = stop.clone();
        self.progress.is_whole |= !stop["stop_reason"].is_null();
        self.progress.goes_on = self.waits_for() == (true, false);
    }

    /// The usage that the client is told: the prompt of the last round, and all that was written.
    fn told_usage(&self, usage: &Value) -> Value {
        let mut told = usage.clone();
        if self.progress.output_before > 0 && told.get("output_tokens").is_some() {
            told["output_tokens"] =
                json!(self.progress.output_before + number(usage, "/output_tokens"));
        }
        told
    }

    fn show(&mut self) {
        let shown = self.blocks.values().filter(|block| !block.is_hidden);
        self.shown.extend(shown.map(Block::finished));
    }
}

impl Reader for Messages {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let Some(mut data) = event.json() else {
            out.extend_from_slice(event.raw);
            return;
        };
        let kind = string(&data, "type");
        let index = number(&data, "/index");
        match kind.as_str() {
            "message_start" => {
                self.usage.clear();
                let usage = data["message"]["usage"].take();
                self.take_usage(&usage);
                if self.progress.rounds > 0 {
                    return;
                }
                self.message = data["message"].take();
            }
            "content_block_start" => self.begin_block(index, data["content_block"].clone()),
            "content_block_delta" => {
                if let Some(block) = self.blocks.get_mut(&index) {
                    add_delta(block, &data["delta"]);
                }
            }
            "message_delta" => {
                let usage = data["usage"].clone();
                self.take_usage(&usage);
                self.stopped(&data["delta"]);
                if self.progress.goes_on {
                    return;
                }
                if self.progress.rounds > 0 {
                    data["usage"] = self.told_usage(&usage);
                    write_event(Some(&kind), &data, out);
                    return;
                }
            }
            "message_stop" => {
                self.progress.finished = true;
                if self.progress.goes_on {
                    return;
                }
            }
            "error" => self.progress.failed = true,
            _ => {}
        }
        if kind.starts_with("content_block") {
            match self.blocks.get(&index) {
                Some(block) if block.is_hidden => return,
                Some(block) if block.shown_as != index => {
                    data["index"] = json!(block.shown_as);
                    write_event(Some(&kind), &data, out);
                    return;
                }
                _ => {}
            }
        }
        out.extend_from_slice(event.raw);
    }

    fn whole(&mut self, body: &Value) {
        for (index, block) in (0..).zip(body["content"].as_array().into_iter().flatten()) {
            self.begin_block(index, block.clone());
        }
        self.usage.clear();
        self.take_usage(&body["usage"]);
        self.stopped(body);
        if self.progress.rounds == 0 {
            self.message = body.clone();
        }
        self.progress.finished = true;
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn take_round(&mut self) -> Round {
        let (engine, _) = self.waits_for();
        let is_said = |block: &&Block| !block.is_empty_text() && (engine || !block.is_hidden);
        let said: Vec<&Block> = self.blocks.values().filter(is_said).collect();
        let content: Vec<Value> = said.iter().map(|block| block.finished()).collect();
        let items = match content.is_empty() {
            true => Vec::new(),
            false => vec![json!({"role": "assistant", "content": content}).to_string()],
        };
        let calls = said.iter().filter(|block| block.is_hidden).map(|block| {
            let value = block.finished();
            Call {
                id: string(&value, "id"),
                name: string(&value, "name"),
                arguments: value["input"].to_string(),
            }
        });
        let calls = calls.collect();
        let usage = Value::Object(std::mem::take(&mut self.usage));
        let reported = (!usage["input_tokens"].is_null()).then(|| usage_of(&usage));
        self.show();
        self.blocks.clear();
        let goes_on = self.progress.next_round(number(&usage, "/output_tokens"));
        // The last round's stands in the whole answer.
        self.usage = usage.as_object().cloned().unwrap_or_default();
        Round {
            items,
            calls,
            goes_on,
            usage: reported,
        }
    }

    fn composed(&self) -> Option<Value> {
        self.progress.is_touched.then(|| {
            let mut message = self.message.clone();
            message["content"] = Value::Array(self.shown.clone());
            for key in ["stop_reason", "stop_sequence"] {
                message[key] = self.stop[key].clone();
            }
            message["usage"] = self.told_usage(&Value::Object(self.usage.clone()));
            message
        })
    }

    fn visible(&self) -> Option<Vec<String>> {
        self.progress
            .is_touched
            .then(|| match self.shown.is_empty() {
                true => Vec::new(),
                false => vec![json!({"role": "assistant", "content": self.shown}).to_string()],
            })
    }

    fn failed(&mut self, error: &Value, out: &mut Vec<u8>) {
        write_event(Some("error"), error, out);
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.stop = json!({"stop_reason": "end_turn", "stop_sequence": null});
        // This round is now the last one, so it no longer counts as an earlier one.
        let output = json!(self.progress.output_before);
        self.usage.insert("output_tokens".to_owned(), output);
        self.progress.output_before = 0;
        let usage = Value::Object(self.usage.clone());
        let delta = json!({"type": "message_delta", "delta": self.stop, "usage": usage});
        write_event(Some("message_delta"), &delta, out);
        write_event(Some("message_stop"), &json!({"type": "message_stop"}), out);
    }
}

fn add_delta(block: &mut Block, delta: &Value) {
    let mut append = |key: &str| {
        let more = delta[key].as_str().unwrap_or_default();
        let before = block.value[key].as_str().unwrap_or_default();
        block.value[key] = json!(format!("{before}{more}"));
    };
    match delta["type"].as_str() {
        Some("text_delta") => append("text"),
        Some("thinking_delta") => append("thinking"),
        Some("signature_delta") => append("signature"),
        Some("input_json_delta") => {
            let more = delta["partial_json"].as_str().unwrap_or_default();
            block.arguments.push_str(more);
        }
        Some("citations_delta") => match block.value["citations"].as_array_mut() {
            Some(citations) => citations.push(delta["citation"].clone()),
            None => block.value["citations"] = json!([delta["citation"]]),
        },
        _ => {}
    }
}

fn usage_of(usage: &Value) -> Usage {
    let read = number(usage, "/cache_read_input_tokens");
    let write = number(usage, "/cache_creation_input_tokens");
    Usage::default()
        .input_tokens(number(usage, "/input_tokens") + read + write)
        .output_tokens(number(usage, "/output_tokens"))
        .cache_read_tokens(read)
        .cache_write_tokens(write)
}
