//! Answers on their way to the client: what the engine's tools have to do with is taken out, all else passes with the
//! bytes that it came in.
//!
//! A reader follows all rounds of one answer: rounds in which the model calls tools of the engine's alone are hidden,
//! and to the client all of them are one answer.

mod calls;
mod chat;
mod messages;
mod responses;
pub(crate) mod sse;

use std::collections::HashSet;
use std::sync::Arc;

use contexture::Usage;
use serde_json::{Value, json};

use crate::api::Api;
use sse::Event;

/// A call of one of the engine's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What one request to the provider brought.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The wire messages of the answer, as the model gave them.
    pub(crate) items: Vec<String>,
    /// Calls of the engine's tools, in order.
    pub(crate) calls: Vec<Call>,
    /// Whether the model waits for nobody but the engine, so that the answer goes on with another round.
    pub(crate) goes_on: bool,
    pub(crate) usage: Option<Usage>,
}

/// How far an answer is, whatever its API.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The rounds that are over.
    rounds: u32,
    /// Whether anything was taken out.
    is_touched: bool,
    /// The output tokens of earlier rounds.
    output_before: u64,
    /// Whether the answer goes on with another round.
    pub(crate) goes_on: bool,
    /// Whether the round has come to its end, as the provider means it.
    pub(crate) finished: bool,
    /// Whether the model's output is complete although the stream's final event is missing: the reason why the model
    /// stopped is known. Many servers never send that event.
    pub(crate) is_whole: bool,
    /// Whether the provider ended the round with an error, of which the client knows.
    pub(crate) failed: bool,
}

impl Progress {
    /// Whether the client has exactly what the provider sent so far.
    pub(crate) fn is_untouched(&self) -> bool {
        self.rounds == 0 && !self.is_touched
    }

    /// Begins the next round after one that wrote this many tokens. Answers whether the answer goes on with it.
    fn next_round(&mut self, output_tokens: u64) -> bool {
        let goes_on = std::mem::take(&mut self.goes_on);
        self.finished = false;
        self.is_whole = false;
        self.rounds += 1;
        if goes_on {
            self.output_before += output_tokens;
        }
        goes_on
    }
}

/// Follows one answer.
pub(crate) trait Reader: Send {
    /// Takes an event of a stream in; what the client is to see of it is added to `out`.
    fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>);

    /// Takes in an answer that came as a whole.
    fn whole(&mut self, body: &Value);

    /// How far it is.
    fn progress(&self) -> &Progress;

    /// The round that has come to its end; the next one begins.
    fn take_round(&mut self) -> Round;

    /// The answer as a whole, for the client; none where that is what came.
    fn composed(&self) -> Option<Value>;

    /// The wire messages that the client has of the answer, where they are not those that came.
    fn visible(&self) -> Option<Vec<String>>;

    /// Ends an answer that the client is still told to wait for: the engine's tools were called too often.
    fn give_up(&mut self, out: &mut Vec<u8>);

    /// The last event of a stream that failed. `error` is in the words of the API.
    fn failed(&mut self, error: &Value, out: &mut Vec<u8>);

    /// Whether a stream that broke off ends with such an event, too: those of the API always have a last event. Where
    /// they do not, the client can tell by the connection.
    fn always_ends(&self) -> bool {
        false
    }
}

/// The names of the engine's tools.
pub(crate) type Tools = Arc<HashSet<String>>;

/// What follows an answer of this API.
pub(crate) fn reader(api: Api, tools: Tools) -> Box<dyn Reader> {
    match api {
        Api::Chat => Box::new(chat::Chat::new(tools)),
        Api::Responses => Box::new(responses::Responses::new(tools)),
        Api::Messages => Box::new(messages::Messages::new(tools)),
    }
}

/// The wire messages that answer calls.
pub(crate) fn results(api: Api, answers: &[(Call, Result<String, String>)]) -> Vec<String> {
    match api {
        Api::Messages => {
            let blocks = result_blocks(answers);
            vec![json!({"role": "user", "content": blocks}).to_string()]
        }
        Api::Chat => {
            let message = |(call, answer): &(Call, Result<String, String>)| json!({"role": "tool", "tool_call_id": call.id, "content": text_of(answer)});
            answers.iter().map(|one| message(one).to_string()).collect()
        }
        Api::Responses => {
            let item = |(call, answer): &(Call, Result<String, String>)| json!({"type": "function_call_output", "call_id": call.id, "output": text_of(answer)});
            answers.iter().map(|one| item(one).to_string()).collect()
        }
    }
}

/// The same as blocks of an Anthropic message.
pub(crate) fn result_blocks(answers: &[(Call, Result<String, String>)]) -> Vec<Value> {
    let block = |(call, answer): &(Call, Result<String, String>)| {
        let mut block =
            json!({"type": "tool_result", "tool_use_id": call.id, "content": text_of(answer)});
        if answer.is_err() {
            block["is_error"] = json!(true);
        }
        block
    };
    answers.iter().map(block).collect()
}

/// No provider takes an empty text.
fn text_of(answer: &Result<String, String>) -> String {
    match answer {
        Ok(text) if text.is_empty() => "(nothing)".to_owned(),
        Ok(text) => text.clone(),
        Err(error) => format!("Error: {error}"),
    }
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn string(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// An event as it is written where it is not the provider's bytes.
fn write_event(name: Option<&str>, data: &Value, out: &mut Vec<u8>) {
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}
