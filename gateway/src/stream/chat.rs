//! Answers of OpenAI chat completions: one message, in deltas.

use contexture::Usage;
use serde_json::{Map, Value, json};

use super::calls::{Calls, Shown};
use super::sse::Event;
use super::{Progress, Reader, Round, Tools, number, write_event};

/// Separates the texts of two rounds, which would otherwise run into each other.
const BETWEEN: &str = "\n\n";

/// Follows an answer.
#[derive(Debug, Default)]
pub(super) struct Chat {
    tools: Tools,
    /// The body or chunk that the answer began with.
    first: Value,
    /// The message of this round.
    message: Map<String, Value>,
    calls: Calls,
    /// What the client has of this and earlier rounds.
    shown: Map<String, Value>,
    shown_calls: Vec<Value>,
    next_shown: u64,
    finish: Value,
    usage: Value,
    /// The usage reported for the last hidden round.
    usage_before: Value,
    progress: Progress,
}

impl Chat {
    pub(super) fn new(tools: Tools) -> Self {
        Self {
            tools,
            ..Self::default()
        }
    }

    /// Whether the model waits for the engine, and for the client.
    fn waits_for(&self) -> (bool, bool) {
        let is_waiting = !matches!(self.finish.as_str(), Some("length" | "content_filter"));
        let (engine, client) = self.calls.owners();
        (is_waiting && engine, is_waiting && client)
    }

    /// Whether a text that comes now would run into the text of the previous round.
    fn needs_separator(&self) -> bool {
        let before = text_of(&self.shown);
        self.progress.rounds > 0
            && text_of(&self.message).is_empty()
            && before.ends_with(|last: char| !last.is_whitespace())
    }

    fn stopped(&mut self, finish: &Value) {
        self.finish = finish.clone();
        self.progress.is_whole = true;
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

fn text_of(message: &Map<String, Value>) -> &str {
    let text = message.get("content").and_then(Value::as_str);
    text.unwrap_or_default()
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
                let texts = (key == "content").then(|| before.as_str().zip(value.as_str()));
                let value = match texts.flatten() {
                    Some((before, more))
                        if before.ends_with(|last: char| !last.is_whitespace())
                            && more.starts_with(|first: char| !first.is_whitespace()) =>
                    {
                        json!(format!("{BETWEEN}{more}"))
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
            // Some servers send an empty one with each piece.
            .filter(|finish| *finish != "")
            .cloned()
            .unwrap_or_default();
        let mut is_empty = false;
        let needs_separator = self.needs_separator();
        if let Some(delta) = data
            .pointer_mut("/choices/0/delta")
            .and_then(Value::as_object_mut)
        {
            let text = delta.get("content").and_then(Value::as_str);
            let begins = text.is_some_and(|text| text.starts_with(|c: char| !c.is_whitespace()));
            let separated = (begins && needs_separator)
                .then(|| json!(format!("{BETWEEN}{}", text.unwrap_or_default())));
            add(&mut self.message, delta);
            if let Some(text) = separated {
                delta.insert("content".to_owned(), text);
            }
            if self.progress.rounds > 0 {
                delta.remove("role");
            }
            let pieces = delta.get("tool_calls").and_then(Value::as_array).cloned();
            let mut shown = Vec::new();
            for mut piece in pieces.iter().flatten().cloned() {
                match self.calls.add(&piece, &self.tools, self.next_shown) {
                    Shown::Piece(at) => {
                        if !self.tools.is_empty() {
                            is_changed |= piece["index"] != json!(at);
                            piece["index"] = json!(at);
                        }
                        shown.push(piece);
                    }
                    Shown::Instead(piece) => {
                        is_changed = true;
                        shown.push(piece);
                    }
                    Shown::Nothing => is_changed = true,
                }
            }
            self.progress.is_touched |= self.calls.owners().0;
            if !finish.is_null() {
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
        for call in choice["message"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            self.calls.add_whole(call, &self.tools);
        }
        self.progress.is_touched |= self.calls.owners().0;
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
        let (engine, _) = self.waits_for();
        let all = self.calls.values(engine);
        let has_text = self
            .message
            .get("content")
            .is_some_and(|text| !text.is_null());
        let items = match all.is_empty() && !has_text {
            true => Vec::new(),
            false => vec![with_calls(&self.message, all).to_string()],
        };
        let calls = match engine {
            true => self.calls.of_engine(),
            false => Vec::new(),
        };
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
        self.shown_calls.extend(shown.values(false));
        self.next_shown = self.shown_calls.len() as u64;
        let goes_on = self
            .progress
            .next_round(number(&usage, "/completion_tokens"));
        match goes_on {
            true => self.usage_before = usage,
            false => self.usage = usage,
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

    fn failed(&mut self, error: &Value, out: &mut Vec<u8>) {
        write_event(None, error, out);
    }

    fn give_up(&mut self, out: &mut Vec<u8>) {
        self.finish = json!("stop");
        // This round is now the last one, so it no longer counts as an earlier one.
        self.usage = self.usage_before.take();
        let output = number(&self.usage, "/completion_tokens");
        self.progress.output_before = self.progress.output_before.saturating_sub(output);
        let mut chunk = self.first.clone();
        chunk["object"] = json!("chat.completion.chunk");
        chunk["choices"] = json!([{"index": 0, "delta": {}, "finish_reason": "stop"}]);
        write_event(None, &chunk, out);
        if self.usage.is_object() {
            chunk["choices"] = json!([]);
            chunk["usage"] = self.told_usage(&self.usage);
            write_event(None, &chunk, out);
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }
}
