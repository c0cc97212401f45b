//! Which result answers which call.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use contexture_engine_api::MessageView;

/// Tool calls and results of a window, paired by position: a result belongs to the nearest message before
/// it that calls with its id, and there to the first such call that is not answered yet.
#[derive(Debug)]
pub(super) struct Pairs {
    /// For each message the message whose call it answers.
    pub(super) call_of: Vec<Option<usize>>,
    /// For each call of the window the message that answers it.
    answers: Vec<Option<usize>>,
    /// For each message where its calls begin in `answers`, and one more for the end.
    calls_from: Vec<usize>,
    /// The message whose calls are still waited for.
    pub(super) in_flight: Option<usize>,
}

/// The latest message that calls with some id, and which of those calls still wait.
struct Open {
    message: usize,
    waiting: VecDeque<usize>,
}

impl Pairs {
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
        // Whatever role calls is waited for: user messages with calls occur in the wild.
        pairs.in_flight = messages
            .iter()
            .rposition(|message| message.role() == "assistant" || !message.tool_calls().is_empty())
            .filter(|last| pairs.answers(*last).contains(&None));
        pairs
    }

    /// For each call of the message at this position, in order, the message that answers it.
    pub(super) fn answers(&self, at: usize) -> &[Option<usize>] {
        &self.answers[self.range(at)]
    }

    fn range(&self, at: usize) -> Range<usize> {
        self.calls_from[at]..self.calls_from[at + 1]
    }
}
