//! Pairs tool calls with their results by position.
//!
//! Models reuse the ids of calls, so an id alone does not identify a call. [`Pairs::of`] walks
//! through the messages once and assigns each result to the nearest message before it that
//! calls with the id. [`Pairs::answers`] returns the results of a message's calls.
//!
//! If calls of the last assistant message have no result yet, they are in flight: the agent is
//! still running these tools. The checks in `grouping` protect such calls.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use contexture_engine_api::MessageView;

/// The tool calls and results of a window, paired by position. A result belongs to the nearest
/// message before it that calls with its id, and within that message to the first such call
/// without a result.
#[derive(Debug)]
pub(super) struct Pairs {
    /// For each message, the position of the message whose call it answers. `None` if it is not
    /// a result, or if its call is missing.
    pub(super) call_of: Vec<Option<usize>>,
    /// For each call of the window, the position of the message that answers it. `None` while
    /// the call has no result.
    answers: Vec<Option<usize>>,
    /// For each message, the index of its first call in `answers`. If it has no calls, it is
    /// the index of the next call. One more entry marks the end.
    calls_from: Vec<usize>,
    /// The message whose calls still lack results because the agent is running them.
    pub(super) in_flight: Option<usize>,
}

/// The latest message that calls with a certain id, and the indices of those of its calls that
/// still wait for a result.
struct Open {
    message: usize,
    waiting: VecDeque<usize>,
}

impl Pairs {
    /// Pairs the calls and results of these messages. A result without a call and a call
    /// without a result are allowed.
    pub(super) fn of(messages: &[MessageView<'_>]) -> Self {
        let mut open: HashMap<&str, Open> = HashMap::new();
        let mut call_of = vec![None; messages.len()];
        let mut answers: Vec<Option<usize>> = Vec::new();
        let mut calls_from = Vec::with_capacity(messages.len() + 1);
        for (at, message) in messages.iter().enumerate() {
            calls_from.push(answers.len());
            for call in message.tool_calls() {
                let calls = open.entry(call.id()).or_insert_with(|| Open {
                    message: at,
                    waiting: VecDeque::new(),
                });
                // A later message reuses the id, so the calls of the earlier one can no longer
                // get a result.
                if calls.message != at {
                    calls.message = at;
                    calls.waiting.clear();
                }
                calls.waiting.push_back(answers.len());
                answers.push(None);
            }
            if let Some(calls) = message.tool_call_id().and_then(|id| open.get_mut(id)) {
                call_of[at] = Some(calls.message);
                if let Some(call) = calls.waiting.pop_front() {
                    answers[call] = Some(at);
                }
            }
        }
        calls_from.push(answers.len());
        let mut pairs = Self {
            call_of,
            answers,
            calls_from,
            in_flight: None,
        };
        // The role does not matter here, because user messages with calls occur in practice.
        pairs.in_flight = messages
            .iter()
            .rposition(|message| message.role() == "assistant" || !message.tool_calls().is_empty())
            .filter(|last| pairs.answers(*last).contains(&None));
        pairs
    }

    /// The message that answers each call of the message at this position, in the order of the
    /// calls. `None` for a call without a result.
    pub(super) fn answers(&self, at: usize) -> &[Option<usize>] {
        &self.answers[self.range(at)]
    }

    fn range(&self, at: usize) -> Range<usize> {
        self.calls_from[at]..self.calls_from[at + 1]
    }
}
