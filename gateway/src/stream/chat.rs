//! Answers of OpenAI chat completions: one message, in deltas.

use contexture::Usage;
use serde_json::{Map, Value, json};

use super::sse::Event;
use super::{Call, Progress, Reader, Round, Tools, number, string, write_event};

/// Follows an answer.
#[derive(Debug, Default)]
pub(super) struct Chat {
    tools: Tools,
    /// The body or chunk that the answer began with.
    first: Value,
    /// The message of this round.
    message: Map<String, Value>,
    /// Its calls, by their index, and whether they are hidden.
    calls: Vec<(u64, Value, bool)>,
    /// What the client has of this and earlier rounds.
    shown: Map<String, Value>,
    shown_calls: Vec<Value>,
    next_shown: u64,
    finish: Value,
    usage: Value,
    progress: Progress,
}

impl Chat {
    pub(super) fn new(tools: Tools) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    /// Takes a piece of a call in. Answers which call it is to the client; none where it is hidden.
    fn add_call(&mut self, index: u64, piece: &Value) -> Option<u64> {
        let known = self.calls.iter().position(|(at, ..)| *at == index);
        let place = known.unwrap_or(self.calls.len());
        if let Some((_, call, _)) = self.calls.get_mut(place) {
            let before = string(&call["function"], "arguments");
            let more = string(&piece["function"], "arguments");
            call["function"]["arguments"] = json!(before + &more);
        } else {
            let name = piece["function"]["name"].as_str().unwrap_or_default();
            let is_hidden = self.tools.contains(name);
            self.progress.is_touched |= is_hidden;
            let mut call = piece.clone();
            if let Some(call) = call.as_object_mut() {
                call.remove("index");
            }
            self.calls.push((index, call, is_hidden));
        }
        let before = self.calls.iter().take(place);
        let shown = before.filter(|(_, _, hidden)| !hidden).count() as u64;
        let is_hidden = self.calls.get(place).is_some_and(|(_, _, hidden)| *hidden);
        (!is_hidden).then_some(self.next_shown + shown)
    }

    /// Whether the model waits for the engine, and for the client.
    fn waits_for(&self) -> (bool, bool) {
        let is_waiting = !matches!(self.finish.as_str(), Some("length" | "content_filter"));
        let any =
            |wanted: bool| is_waiting && self.calls.iter().any(|(_, _, hidden)| *hidden == wanted);
        (any(true), any(false))
    }

    fn stopped(&mut self, finish: &Value) {
        self.finish = finish.clone();
        self.progress.goes_on = self.waits_for() == (true, false);
    }

    fn told_usage(&self, usage: &Value) -> Value {
        let mut told = usage.clone();
        if self.progress.output_before > 0 && usage.is_object() {
            let output = self.progress.output_before + number(usage, "/completion_tokens");
            told["completion_tokens"] = json!(output);
            told["total_tokens"] = json!(number(usage, "/prompt_tokens") + output);
        }
        told
    }
}

/// Adds the members of a delta to a message: texts grow, lists get longer.
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

/// Adds a message to one that the client has as the same.
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
                let delta = Map::from_iter([(key.clone(), value.clone())]);
                add(shown, &delta);
            }
            _ => {
                shown.insert(key.clone(), value.clone());
            }
        }
    }
}

fn with_calls(message: &Map<String, Value>, calls: Vec<Value>) -> Value {
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

impl Reader for Chat {
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        if event.data == Some("[DONE]") {
            self.progress.finished = true;
            if !self.progress.goes_on {
                out.extend_from_slice(event.raw);
            }
            return;
        }
        let Some(mut data) = event.json() else {
            out.extend_from_slice(event.raw);
            return;
        };
        if data.get("error").is_some_and(|error| !error.is_null()) {
            self.progress.failed = true;
            out.extend_from_slice(event.raw);
            return;
        }
        let mut is_changed = false;
        if self.first.is_null() {
            self.first =
                json!({"id": data["id"], "created": data["created"], "model": data["model"]});
        } else if self.progress.rounds > 0 {
            is_changed = true;
            for key in ["id", "created"] {
                data[key] = self.first[key].clone();
            }
        }
        let usage = data["usage"].clone();
        if usage.is_object() {
            self.usage = usage.clone();
        }
        let finish = data
            .pointer("/choices/0/finish_reason")
            .cloned()
            .unwrap_or_default();
        let mut is_empty = false;
        if let Some(delta) = data
            .pointer_mut("/choices/0/delta")
            .and_then(Value::as_object_mut)
        {
            add(&mut self.message, delta);
            if self.progress.rounds > 0 {
                delta.remove("role");
            }
            let pieces = delta.get("tool_calls").and_then(Value::as_array).cloned();
            let mut shown = Vec::new();
            for mut piece in pieces.iter().flatten().cloned() {
                let index = number(&piece, "/index");
                match self.add_call(index, &piece) {
                    Some(at) => {
                        is_changed |= at != index;
                        piece["index"] = json!(at);
                        shown.push(piece);
                    }
                    None => is_changed = true,
                }
            }
            if pieces.is_some() && is_changed {
                match shown.is_empty() {
                    true => delta.remove("tool_calls"),
                    false => delta.insert("tool_calls".to_owned(), Value::Array(shown)),
                };
            }
            let says =
                |(key, value): (&String, &Value)| key != "role" && !value.is_null() && value != "";
            is_empty = is_changed && !delta.iter().any(says);
        }
        if !finish.is_null() {
            self.stopped(&finish);
        }
        if self.progress.goes_on {
            // What stands beside the end of a hidden round is the model's word all the same.
            if !is_empty
                && !finish.is_null()
                && data
                    .pointer("/choices/0/delta/content")
                    .is_some_and(|text| text.as_str().is_some_and(|text| !text.is_empty()))
            {
                data["choices"][0]["finish_reason"] = Value::Null;
                write_event(None, &data, out);
            }
            return;
        }
        if is_empty && finish.is_null() && !usage.is_object() {
            return;
        }
        if self.progress.rounds > 0 && usage.is_object() {
            data["usage"] = self.told_usage(&usage);
        }
        match is_changed {
            true => write_event(None, &data, out),
            false => out.extend_from_slice(event.raw),
        }
    }

    fn whole(&mut self, body: &Value) {
        let choice = &body["choices"][0];
        let message = choice["message"].as_object().cloned().unwrap_or_default();
        for (index, call) in (0..).zip(
            choice["message"]["tool_calls"]
                .as_array()
                .into_iter()
                .flatten(),
        ) {
            self.add_call(index, call);
        }
        self.message = message;
        self.message.remove("tool_calls");
        self.usage = body["usage"].clone();
        self.stopped(&choice["finish_reason"]);
        if self.progress.rounds == 0 {
            self.first = body.clone();
        }
        self.progress.finished = true;
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn take_round(&mut self) -> Round {
        // A server may end its stream without the word that it is done.
        let (engine, _) = self.waits_for();
        let said = self.calls.iter().filter(|(_, _, hidden)| engine || !hidden);
        let said: Vec<&(u64, Value, bool)> = said.collect();
        let all: Vec<Value> = said.iter().map(|(_, call, _)| call.clone()).collect();
        let has_text = self
            .message
            .get("content")
            .is_some_and(|text| !text.is_null());
        let items = match all.is_empty() && !has_text {
            true => Vec::new(),
            false => vec![with_calls(&self.message, all).to_string()],
        };
        let calls = said
            .iter()
            .filter(|(_, _, hidden)| *hidden)
            .map(|(_, call, _)| Call {
                id: string(call, "id"),
                name: string(&call["function"], "name"),
                arguments: string(&call["function"], "arguments"),
            });
        let calls = calls.collect();
        let usage = self.usage.take();
        let reported = usage.is_object().then(|| {
            Usage::default()
                .input_tokens(number(&usage, "/prompt_tokens"))
                .output_tokens(number(&usage, "/completion_tokens"))
                .cache_read_tokens(number(&usage, "/prompt_tokens_details/cached_tokens"))
                .reasoning_tokens(number(
                    &usage,
                    "/completion_tokens_details/reasoning_tokens",
                ))
        });
        join(&mut self.shown, &std::mem::take(&mut self.message));
        let shown = std::mem::take(&mut self.calls);
        let shown = shown.into_iter().filter(|(_, _, hidden)| !hidden);
        self.shown_calls.extend(shown.map(|(_, call, _)| call));
        self.next_shown = self.shown_calls.len() as u64;
        let goes_on = self
            .progress
            .next_round(number(&usage, "/completion_tokens"));
        if !goes_on {
            self.usage = usage;
        }
        Round {
            items,
            calls,
            goes_on,
            usage: reported,
        }
    }

    fn composed(&self) -> Option<Value> {
        self.progress.is_touched.then(|| {
            let mut body = self.first.clone();
            body["choices"][0]["message"] = with_calls(&self.shown, self.shown_calls.clone());
            body["choices"][0]["finish_reason"] = self.finish.clone();
            body["usage"] = self.told_usage(&self.usage);
            body
        })
    }

    fn visible(&self) -> Option<Vec<String>> {
        self.progress
            .is_touched
            .then(|| vec![with_calls(&self.shown, self.shown_calls.clone()).to_string()])
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.finish = json!("stop");
        let mut chunk = self.first.clone();
        chunk["object"] = json!("chat.completion.chunk");
        chunk["choices"] = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
        write_event(None, &chunk, out);
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
