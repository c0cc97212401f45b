//! Answers of OpenAI Responses: items, whose places and numbers the client sees without gaps.

use std::collections::BTreeMap;

use contexture::Usage;
use serde_json::{Value, json};

use super::sse::Event;
use super::{Call, Progress, Reader, Round, Tools, number, string, write_event};

/// Follows an answer.
#[derive(Debug, Default)]
pub(super) struct Responses {
    tools: Tools,
    /// The response as it began in the first round.
    first: Value,
    /// The items of this round, and whether they are hidden.
    items: BTreeMap<u64, (Value, bool)>,
    shown: Vec<Value>,
    /// Whether an answer that came as a whole names the engine's tools.
    echoes: bool,
    /// The number of the next event, where the provider's are not the client's.
    sequence: u64,
    last: Value,
    progress: Progress,
}

impl Responses {
    pub(super) fn new(tools: Tools) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    fn is_own(&self, item: &Value) -> bool {
        item["type"] == "function_call"
            && item["name"]
                .as_str()
                .is_some_and(|name| self.tools.contains(name))
    }

    /// Takes the engine's tools out of what the provider says it was sent. Answers whether there were any.
    fn take_tools_out(&self, response: &mut Value) -> bool {
        let Some(tools) = response["tools"].as_array_mut() else {
            return false;
        };
        let before = tools.len();
        let is_own = |tool: &Value| {
            tool["name"]
                .as_str()
                .is_some_and(|name| self.tools.contains(name))
        };
        tools.retain(|tool| !is_own(tool));
        tools.len() < before
    }

    fn take_item(&mut self, index: u64, item: &Value) {
        let is_hidden = self.is_own(item);
        self.progress.is_touched |= is_hidden;
        self.items.insert(index, (item.clone(), is_hidden));
    }

    /// Which item it is to the client; none for a hidden one.
    fn shown_as(&self, index: u64) -> Option<u64> {
        if self.items.get(&index).is_some_and(|(_, hidden)| *hidden) {
            return None;
        }
        let before = self.items.range(..index).filter(|(_, (_, hidden))| !hidden);
        Some((self.shown.len() + before.count()) as u64)
    }

    /// An item as the provider takes it back. Of what it does not store it knows no ids, and reasoning comes back
    /// encrypted or not at all.
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

    /// Whether the model waits for the engine, and for the client.
    fn waits_for(&self) -> (bool, bool) {
        let is_whole = self.last["status"] != "incomplete" && self.last["status"] != "failed";
        let is_call = |item: &Value| {
            matches!(
                item["type"].as_str(),
                Some(
                    "function_call"
                        | "custom_tool_call"
                        | "local_shell_call"
                        | "shell_call"
                        | "apply_patch_call"
                        | "computer_call"
                )
            )
        };
        let any = |wanted: bool| {
            let mut items = self.items.values();
            is_whole && items.any(|(item, hidden)| *hidden == wanted && is_call(item))
        };
        (any(true), any(false))
    }

    fn stopped(&mut self, response: &Value) {
        for (index, item) in (0..).zip(response["output"].as_array().into_iter().flatten()) {
            self.take_item(index, item);
        }
        self.last = response.clone();
        self.progress.goes_on = self.waits_for() == (true, false);
        self.progress.finished = true;
    }

    /// The response as the client is to have it, with what is shown of this round.
    fn told(&self) -> Value {
        let mut told = self.last.clone();
        for key in ["id", "created_at"] {
            if !self.first[key].is_null() {
                told[key] = self.first[key].clone();
            }
        }
        let now = self.items.values().filter(|(_, hidden)| !hidden);
        let output = self.shown.iter().chain(now.map(|(item, _)| item)).cloned();
        told["output"] = output.collect();
        if self.progress.output_before > 0 && told["usage"].is_object() {
            let output = self.progress.output_before + number(&told, "/usage/output_tokens");
            told["usage"]["output_tokens"] = json!(output);
            told["usage"]["total_tokens"] = json!(number(&told, "/usage/input_tokens") + output);
        }
        told
    }
}

impl Reader for Responses {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let Some(mut data) = event.json() else {
            out.extend_from_slice(event.raw);
            return;
        };
        let kind = string(&data, "type");
        let echoes = data.get("response").is_some() && self.take_tools_out(&mut data["response"]);
        match kind.as_str() {
            "response.created" if self.progress.rounds == 0 => {
                self.first = data["response"].clone()
            }
            "response.created" | "response.in_progress" | "response.queued"
                if self.progress.rounds > 0 =>
            {
                return;
            }
            "response.output_item.added" | "response.output_item.done" => {
                let index = number(&data, "/output_index");
                self.take_item(index, &data["item"]);
            }
            "response.completed" | "response.incomplete" => {
                self.stopped(&data["response"]);
                if self.progress.goes_on {
                    return;
                }
                if self.progress.is_touched {
                    data["response"] = self.told();
                }
            }
            "response.failed" | "error" => self.progress.failed = true,
            _ => {}
        }
        if let Some(index) = data["output_index"].as_u64() {
            match self.shown_as(index) {
                None => return,
                Some(at) => data["output_index"] = json!(at),
            }
        }
        let number = data["sequence_number"].as_u64();
        match (self.progress.is_touched, number) {
            (false, number) => {
                self.sequence = number.map_or(self.sequence, |number| number + 1);
                match echoes {
                    true => write_event(Some(&kind), &data, out),
                    false => out.extend_from_slice(event.raw),
                }
            }
            (true, number) => {
                if number.is_some() {
                    data["sequence_number"] = json!(self.sequence);
                    self.sequence += 1;
                }
                write_event(Some(&kind), &data, out);
            }
        }
    }

    fn whole(&mut self, body: &Value) {
        let mut body = body.clone();
        self.echoes |= self.take_tools_out(&mut body);
        if self.progress.rounds == 0 {
            self.first = body.clone();
        }
        self.stopped(&body);
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn take_round(&mut self) -> Round {
        let (engine, _) = self.waits_for();
        let said = self.items.values().filter(|(_, hidden)| engine || !hidden);
        let said: Vec<&(Value, bool)> = said.collect();
        let calls = said
            .iter()
            .filter(|(_, hidden)| *hidden)
            .map(|(item, _)| Call {
                id: string(item, "call_id"),
                name: string(item, "name"),
                arguments: string(item, "arguments"),
            });
        let calls = calls.collect();
        let items = said
            .iter()
            .filter_map(|(item, _)| self.to_send_back(item))
            .collect();
        let usage = &self.last["usage"];
        let reported = usage.is_object().then(|| {
            Usage::default()
                .input_tokens(number(usage, "/input_tokens"))
                .output_tokens(number(usage, "/output_tokens"))
                .cache_read_tokens(number(usage, "/input_tokens_details/cached_tokens"))
                .reasoning_tokens(number(usage, "/output_tokens_details/reasoning_tokens"))
        });
        let goes_on = self.progress.next_round(number(usage, "/output_tokens"));
        let shown = std::mem::take(&mut self.items);
        let shown = shown.into_values().filter(|(_, hidden)| !hidden);
        self.shown.extend(shown.map(|(item, _)| item));
        Round {
            items,
            calls,
            goes_on,
            usage: reported,
        }
    }

    fn composed(&self) -> Option<Value> {
        (self.progress.is_touched || self.echoes).then(|| self.told())
    }

    fn visible(&self) -> Option<Vec<String>> {
        self.progress
            .is_touched
            .then(|| self.shown.iter().map(Value::to_string).collect())
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.last["status"] = json!("completed");
        // This round is now the last one, so it no longer counts as an earlier one.
        let output = number(&self.last, "/usage/output_tokens");
        self.progress.output_before = self.progress.output_before.saturating_sub(output);
        let mut data = json!({"type": "response.completed", "response": self.told()});
        data["sequence_number"] = json!(self.sequence);
        write_event(Some("response.completed"), &data, out);
    }

    fn failed(&mut self, error: &Value, out: &mut Vec<u8>) {
        let mut response = self.first.clone();
        response["status"] = json!("failed");
        let error = &error["error"];
        response["error"] = json!({"code": error["code"], "message": error["message"]});
        let data = json!({
            "type": "response.failed", "sequence_number": self.sequence, "response": response
        });
        write_event(Some("response.failed"), &data, out);
    }

    fn always_ends(&self) -> bool {
        true
    }
}
