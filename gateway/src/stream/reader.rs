//! The state machine of an answer, which is the same for all APIs.
//!
//! An [`AnswerReader`] follows one answer through its rounds. It writes what the client may see of
//! each event, decides whether another round follows, and adds up the usage of the rounds. Each API
//! has an [`ApiAnswer`], which decides what an event means. Both work on the [`AnswerState`].
//!
//! `items` has the part that only the APIs with numbered output share.

use contexture::formats::known_usage;
use serde_json::{Value, json};

use super::chat::Chat;
use super::gemini::Gemini;
use super::messages::Messages;
use super::responses::Responses;
use super::sse::{Event, Events};
use super::surrogates;
use super::{Call, Progress, Round, ToolNames, number, set, write_event};
use crate::api::Api;

/// The members by which a client knows an answer.
const IDENTITY: [&str; 4] = ["id", "created", "created_at", "responseId"];

/// Follows one answer through all of its rounds.
///
/// Call [`event`](Self::event) for each event of a stream, or [`json`](Self::json) for a JSON body,
/// and [`take_round`](Self::take_round) once the round has ended. If the round goes on, continue
/// with the next response.
pub(crate) struct AnswerReader {
    state: AnswerState,
    api: Box<dyn ApiAnswer>,
    /// Whether texts of the answer contain stand-ins of [`surrogates`].
    has_stand_ins: bool,
}

/// The part of an answer's state that is the same in every API. The readers of the APIs change it
/// through its methods.
#[derive(Debug, Default)]
pub(super) struct AnswerState {
    tools: ToolNames,
    /// How the answer began: the part of its first event that later rounds copy, such as the id. Of
    /// an answer that is no stream, the body of its last round under the [`IDENTITY`] of the first.
    pub(super) first: Value,
    /// The usage that the provider reported for the current round. Not an object if it reported
    /// none.
    pub(super) usage: Value,
    /// The usage of the round that was taken last. It is still needed if the answer ends at the
    /// limit of rounds.
    pub(super) last_usage: Value,
    pub(super) progress: Progress,
}

impl AnswerState {
    /// Whether an earlier round has begun the client's answer. The events that begin an answer are
    /// then left out.
    pub(super) fn is_continued(&self) -> bool {
        self.progress.rounds > 0
    }

    pub(super) fn tools(&self) -> &ToolNames {
        &self.tools
    }

    /// Whether this is the name of one of the engine's tools. A value that is not a string never
    /// is.
    pub(super) fn is_own(&self, name: &Value) -> bool {
        name.as_str().is_some_and(|name| self.tools.contains(name))
    }

    /// Notes that the model stopped. Another round follows if the model waits for nobody but the
    /// engine.
    pub(super) fn stopped(&mut self, waits_for: WaitsFor) {
        self.progress.continues = waits_for.engine && !waits_for.client;
    }

    /// The usage that the client is told: the prompt of the last round, and the output of all
    /// rounds. Anything but an object is returned unchanged.
    pub(super) fn client_usage(&self, usage: &Value, names: &UsageNames) -> Value {
        let mut shown = usage.clone();
        if self.progress.output_before > 0 && usage.is_object() {
            let before = self.progress.output_before;
            let output = before + names.output(usage);
            set(&mut shown, names.output, json!(output));
            if let Some(total) = names.total {
                // It may count more than input and output.
                let sum = match usage[total].is_u64() {
                    true => number(usage, total) + before,
                    false => names.input(usage) + output,
                };
                set(&mut shown, total, json!(sum));
            }
        }
        shown
    }
}

/// The names of the members of an API's usage object, since each API has its own.
#[derive(Debug)]
pub(super) struct UsageNames {
    pub(super) input: &'static str,
    pub(super) output: &'static str,
    /// The member with the sum of input and output. None if the API does not report a sum.
    pub(super) total: Option<&'static str>,
}

impl UsageNames {
    pub(super) fn input(&self, usage: &Value) -> u64 {
        number(usage, self.input)
    }

    pub(super) fn output(&self, usage: &Value) -> u64 {
        number(usage, self.output)
    }
}

/// Whom the model waits for at the end of a round. It waits for nobody if it is done, or if its
/// answer was cut off, because the calls in it are then incomplete.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct WaitsFor {
    pub(super) engine: bool,
    pub(super) client: bool,
}

impl WaitsFor {
    /// Whom a model waits for that made these calls. Each says whether it is the engine's.
    pub(super) fn of(calls: impl Iterator<Item = bool>) -> Self {
        calls.fold(Self::default(), |all, is_engines| Self {
            engine: all.engine || is_engines,
            client: all.client || !is_engines,
        })
    }
}

/// What the client receives of an event. Unchanged events are passed on byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    Unchanged,
    /// The event is written again with its changed data.
    Changed,
    Nothing,
}

/// What is particular to the answers of one API. [`AnswerReader`] calls the methods in the order of
/// the events, and keeps the state that all APIs share.
pub(super) trait ApiAnswer: Send {
    fn usage_names(&self) -> &'static UsageNames;

    /// The output tokens in the usage that the provider reported.
    fn output(&self, reported: &Value) -> u64 {
        self.usage_names().output(reported)
    }

    /// Reads an event of a stream, and changes its data to what the client may see.
    fn event(&mut self, state: &mut AnswerState, data: &mut Value) -> Passed;

    /// Reads an event whose data is not JSON, such as `[DONE]`. By default it is passed on.
    fn text_event(&mut self, _state: &mut AnswerState, _data: Option<&str>) -> Passed {
        Passed::Unchanged
    }

    /// Reads an answer that is one JSON body, and removes what the client must not see.
    fn json(&mut self, state: &mut AnswerState, body: &mut Value);

    fn waits_for(&self) -> WaitsFor;

    /// Returns the wire messages and the engine's calls of the round, and begins the next one. Both
    /// are without the engine's calls unless `with_calls`.
    fn take_round(&mut self, with_calls: bool) -> (Vec<String>, Vec<Call>);

    /// Whether the client gets another JSON body than the provider sent. If so,
    /// [`composed`](Self::composed) returns it.
    fn is_composed(&self, state: &AnswerState) -> bool {
        state.progress.is_touched
    }

    /// The JSON body for the client. It is composed from all rounds, as if the model had answered
    /// in a single one.
    fn composed(&self, state: &AnswerState) -> Value;

    /// The wire messages as the client has received them, without the calls that were hidden.
    fn visible(&self) -> Vec<String>;

    /// Gives the answer a normal end, and writes the events that the client still waits for.
    fn end(&mut self, state: &AnswerState, out: &mut Vec<u8>);

    /// Writes the last event of a stream that failed. `error` is in the API's format.
    fn write_error(&self, _state: &AnswerState, error: &Value, out: &mut Vec<u8>) {
        write_event(None, error, out);
    }

    /// Whether events of a stream have names. If so, a changed event repeats the type in its data
    /// as its name.
    fn has_event_names(&self) -> bool {
        true
    }
}

impl AnswerReader {
    /// Creates the reader for an answer of this API. If `tools` is empty, it removes nothing.
    pub(crate) fn new(api: Api, tools: ToolNames) -> Self {
        let state = AnswerState {
            tools,
            ..AnswerState::default()
        };
        let api: Box<dyn ApiAnswer> = match api {
            Api::Chat => Box::new(Chat::default()),
            Api::Responses => Box::new(Responses::default()),
            Api::Messages => Box::new(Messages::default()),
            Api::Gemini => Box::new(Gemini::default()),
        };
        Self {
            state,
            api,
            has_stand_ins: false,
        }
    }

    /// Reads an event of a stream. Whatever the client may see of it is appended to `out`,
    /// unchanged if possible.
    pub(crate) fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let mut data = (event.data.as_deref()).and_then(|data| self.parse(data));
        let passed = match &mut data {
            Some(data) if data.is_object() => self.api.event(&mut self.state, data),
            Some(_) => Passed::Unchanged,
            None => (self.api).text_event(&mut self.state, event.data.as_deref()),
        };
        let before = out.len();
        match (passed, data) {
            (Passed::Unchanged, _) => out.extend_from_slice(event.raw),
            (Passed::Changed, Some(data)) => {
                let kind = data["type"].as_str();
                let name = kind.filter(|_| self.api.has_event_names());
                write_event(name, &data, out);
                self.restore_from(before, out);
            }
            (Passed::Changed, None) | (Passed::Nothing, _) => {}
        }
    }

    /// Parses JSON of the provider, with stand-ins for what a string cannot hold.
    pub(crate) fn parse(&mut self, text: &str) -> Option<Value> {
        let (value, has_stand_ins) = surrogates::parse(text)?;
        self.has_stand_ins |= has_stand_ins;
        Some(value)
    }

    /// JSON text without stand-ins.
    fn restored(&self, json: String) -> String {
        match self.has_stand_ins {
            true => surrogates::restore(&json),
            false => json,
        }
    }

    /// Replaces the stand-ins in what was written from a position on.
    fn restore_from(&self, position: usize, out: &mut Vec<u8>) {
        if self.has_stand_ins {
            let written = String::from_utf8_lossy(&out.split_off(position)).into_owned();
            out.extend(self.restored(written).into_bytes());
        }
    }

    /// Reads a round that was received whole as a stream of events. Nothing of it is passed on.
    pub(crate) fn events(&mut self, body: &[u8]) {
        let mut events = Events::default();
        events.push(body);
        let mut out = Vec::new();
        while let Some(event) = events.next() {
            self.event(&event, &mut out);
        }
        if let Some(rest) = events.rest() {
            self.event(&rest, &mut out);
        }
    }

    /// Reads an answer that is one JSON body, and ends the round. What the client gets is returned
    /// by [`composed`](Self::composed).
    pub(crate) fn json(&mut self, mut body: Value) {
        self.api.json(&mut self.state, &mut body);
        // What the provider says beside the message is about its last round, but to the client the
        // answer is the one that began first.
        let first = &self.state.first;
        for key in IDENTITY {
            if let (Some(began), Some(_)) = (first.get(key), body.get(key)) {
                set(&mut body, key, began.clone());
            }
        }
        self.state.first = body;
        self.state.progress.finished = true;
    }

    /// The state of the answer after the last event. The relay decides by it whether the round is
    /// over.
    pub(crate) fn progress(&self) -> &Progress {
        &self.state.progress
    }

    /// Returns the finished round and begins the next one. Call it once after each round, even if
    /// the answer ends with it.
    pub(crate) fn take_round(&mut self) -> Round {
        let waits_for = self.api.waits_for();
        let (items, mut calls) = self.api.take_round(waits_for.engine);
        let items = items.into_iter().map(|item| self.restored(item)).collect();
        for call in &mut calls {
            call.arguments = self.restored(std::mem::take(&mut call.arguments));
        }
        let usage = std::mem::take(&mut self.state.usage);
        let output = self.api.output(&usage);
        let round = Round {
            items,
            calls,
            continues: self.state.progress.next_round(output),
            // A usage without the prompt's tokens would look like an empty prompt.
            usage: known_usage(&usage).filter(|_| !usage[self.api.usage_names().input].is_null()),
        };
        self.state.last_usage = usage;
        round
    }

    /// The JSON body for the client, composed from all rounds that were taken. None if the client
    /// gets the provider's body unchanged.
    pub(crate) fn composed(&self) -> Option<String> {
        let is_composed = self.api.is_composed(&self.state);
        is_composed.then(|| self.restored(self.api.composed(&self.state).to_string()))
    }

    /// The wire messages that the client has received. None if they are those that the model wrote.
    pub(crate) fn visible(&self) -> Option<Vec<String>> {
        let is_touched = self.state.progress.is_touched;
        let visible = is_touched.then(|| self.api.visible());
        visible.map(|all| all.into_iter().map(|one| self.restored(one)).collect())
    }

    /// Ends an answer in the normal way although the model still calls the engine, because the
    /// limit of rounds is reached. Writes the events that the client still waits for.
    pub(crate) fn end_at_limit(&mut self, out: &mut Vec<u8>) {
        // The round that was taken last is the last one, so it no longer counts as an earlier one.
        let output = self.api.output(&self.state.last_usage);
        let before = &mut self.state.progress.output_before;
        *before = before.saturating_sub(output);
        let position = out.len();
        self.api.end(&self.state, out);
        self.restore_from(position, out);
    }

    /// Writes the last event of a stream that failed. `error` is in the API's format.
    pub(crate) fn write_error(&mut self, error: &Value, out: &mut Vec<u8>) {
        let position = out.len();
        self.api.write_error(&self.state, error, out);
        self.restore_from(position, out);
    }
}

#[cfg(test)]
mod tests;
