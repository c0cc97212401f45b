//! Reads a provider's answer on its way to the client, and removes what belongs to the engine's
//! tools. Everything else passes with the bytes that it arrived in.
//!
//! An [`AnswerReader`] follows one answer of any API. It takes events or a whole JSON body, writes
//! what the client may see, and collects each [`Round`] for the session. If the model calls only
//! tools of the engine, the round is hidden, and the next round continues the same answer for the
//! client. Ids, indexes and usage are adapted, so that all rounds look like one.
//!
//! `reader` has the state machine, and `chat`, `messages`, `responses` and `gemini` what is
//! particular to each API. `sse` splits a stream into events. Executing the calls and sending the next round is
//! up to [`answer`](crate::answer) and [`exchange`](crate::exchange).

mod calls;
mod chat;
mod gemini;
mod items;
mod messages;
mod reader;
mod responses;
pub(crate) mod sse;
pub(crate) mod surrogates;

use std::collections::HashSet;
use std::sync::Arc;

use contexture::Usage;
use serde_json::{Value, json};

use crate::api::Api;
pub(crate) use reader::AnswerReader;

/// The byte order mark of UTF-8, with which JSON and streams of events may begin.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A call of one of the engine's tools by the model. The arguments are the JSON text that the model
/// wrote, which may be invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// What one request to the provider returned, in the form that the session needs.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// The wire messages of the answer as the model wrote them, with the engine's calls.
    pub(crate) items: Vec<String>,
    /// Calls of the engine's tools, in the order in which the model made them.
    pub(crate) calls: Vec<Call>,
    /// Whether the model waits for the engine only, so that the answer continues with another
    /// round.
    pub(crate) continues: bool,
    pub(crate) usage: Option<Usage>,
}

/// The state of an answer that all APIs have in common. The readers update it, and the relay
/// decides by it what to do when a round or the stream ends.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    rounds: u32,
    /// Whether the client's answer differs from the provider's because something was removed.
    is_touched: bool,
    /// The output tokens of earlier rounds, which the client is told as part of the answer.
    output_before: u64,
    /// Whether the model waits for the engine only, so that another round follows.
    pub(crate) continues: bool,
    /// Whether the event arrived that ends the round in this API, such as `[DONE]` or
    /// `message_stop`.
    pub(crate) finished: bool,
    /// Whether the model's output is complete although the stream's final event is missing, because
    /// the reason why the model stopped is known. Many servers never send the final event.
    pub(crate) is_whole: bool,
    /// Whether the provider ended the round with an error event, which the client has received.
    pub(crate) failed: bool,
}

impl Progress {
    /// Whether the client has received exactly what the provider sent so far.
    pub(crate) fn is_untouched(&self) -> bool {
        self.rounds == 0 && !self.is_touched
    }

    /// Begins the next round after one that wrote this many tokens. Returns whether the answer
    /// continues with it. If not, the tokens are not added, because they are those of the last
    /// round.
    fn next_round(&mut self, output_tokens: u64) -> bool {
        let continues = std::mem::take(&mut self.continues);
        self.finished = false;
        self.is_whole = false;
        self.rounds += 1;
        // The last round reports its own tokens, so only those of hidden rounds are added up.
        if continues {
            self.output_before += output_tokens;
        }
        continues
    }
}

/// Separates the texts of two rounds, which would run into each other without it.
const TEXT_SEPARATOR: &str = "\n\n";

/// Whether two texts would run into each other.
fn run_together(before: &str, more: &str) -> bool {
    before.ends_with(|last: char| !last.is_whitespace())
        && more.starts_with(|first: char| !first.is_whitespace())
}

/// The names of the engine's tools that a request offers. Shared between the rounds.
pub(crate) type ToolNames = Arc<HashSet<String>>;

/// The wire messages with the results of calls, in the format of an API. Messages and Gemini have one
/// message for all of them, the other APIs have one for each.
pub(crate) fn results(api: Api, answers: &[(Call, Result<String, String>)]) -> Vec<String> {
    match api {
        Api::Messages => {
            let blocks = result_parts(api, answers);
            vec![json!({"role": "user", "content": blocks}).to_string()]
        }
        Api::Gemini => {
            let parts = result_parts(api, answers);
            vec![json!({"role": "user", "parts": parts}).to_string()]
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

/// The results of calls as parts of one message, if the API wants them in one: content blocks of an
/// Anthropic message or parts of a content of Gemini. Failed calls are marked as errors.
pub(crate) fn result_parts(api: Api, answers: &[(Call, Result<String, String>)]) -> Vec<Value> {
    if api == Api::Gemini {
        return answers.iter().map(function_response).collect();
    }
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

/// The result of a call for Gemini. Few calls have an id, so the name says which one it answers.
fn function_response((call, answer): &(Call, Result<String, String>)) -> Value {
    let key = if answer.is_ok() { "output" } else { "error" };
    let mut response = json!({"name": call.name, "response": {key: text_of(answer)}});
    if !call.id.is_empty() {
        response["id"] = json!(call.id);
    }
    json!({"functionResponse": response})
}

/// The text of a result. An empty result gets a placeholder, because providers refuse empty texts.
fn text_of(answer: &Result<String, String>) -> String {
    match answer {
        Ok(text) if text.is_empty() => "(nothing)".to_owned(),
        Ok(text) => text.clone(),
        Err(error) => format!("Error: {error}"),
    }
}

/// The number in a member. 0 if it is missing or not a number. Larger ones than JSON's numbers can
/// count are cut, so that sums of them do not overflow.
fn number(value: &Value, key: &str) -> u64 {
    let number = value.get(key).and_then(Value::as_u64);
    number.unwrap_or(0).min(1 << 53)
}

/// Sets a member of an object. Null becomes an object first. Anything else stays as it is, because a
/// provider may send any JSON where an object belongs.
fn set(value: &mut Value, key: &str, member: Value) {
    if value.is_null() {
        *value = json!({});
    }
    if let Some(members) = value.as_object_mut() {
        members.insert(key.to_owned(), member);
    }
}

/// The text of a member. Empty if it is missing or not a text.
fn string(value: &Value, key: &str) -> String {
    let text = value.get(key).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// Writes an event whose data differs from the provider's. `name` is None for APIs without event
/// names.
fn write_event(name: Option<&str>, data: &Value, out: &mut Vec<u8>) {
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    // Compact JSON contains no line break, so it is one line of data.
    out.extend_from_slice(data.to_string().as_bytes());
    out.extend_from_slice(b"\n\n");
}
