//! Finding positions at which a conversation may be cut.
//!
//! Providers refuse a request in which a tool call has no result, or a result has no call. An
//! engine that removes or summarises messages must therefore cut only between such groups.
//! [`safe_cut`] and [`safe_cut_after`] move an index to the nearest allowed position, and are what
//! most engines need.
//!
//! [`tool_groups`] lists the spans that must stay together. [`whole_groups`] adds the messages that
//! hold only thinking, which some providers accept only together with the next message.
//! [`in_flight`] finds the call whose results have not arrived yet, and [`ToolPairs`] says which
//! result answers which call. All functions take the messages of the whole window, in order.

use std::collections::{HashMap, VecDeque};

use crate::message::MessageView;

/// Returns the largest index at or below `index` at which the messages can be cut in two without
/// separating a tool call from its results. An index above the number of messages is treated as
/// that number. Cutting at 0 and at `messages.len()` is always allowed.
///
/// A result belongs to the nearest call before it that has its id. If a model uses an id again,
/// calls and results are therefore paired by position.
///
/// ```
/// use contexture_engine_api::{MessageId, MessageView, ToolCallView, safe_cut};
///
/// let calls = [ToolCallView::new("c1", "ls", "{}")];
/// let messages = [
///     MessageView::new(MessageId(1), "user").with_text("list"),
///     MessageView::new(MessageId(2), "assistant").with_tool_calls(&calls),
///     MessageView::new(MessageId(3), "tool").with_result_of("c1", "ls"),
///     MessageView::new(MessageId(4), "assistant").with_text("done"),
/// ];
/// assert_eq!(safe_cut(&messages, 2), 1);
/// assert_eq!(safe_cut(&messages, 3), 3);
/// ```
pub fn safe_cut(messages: &[MessageView<'_>], index: usize) -> usize {
    let index = index.min(messages.len());
    tool_groups(messages)
        .into_iter()
        .filter(|group| group.start < index && index < group.end)
        .map(|group| group.start)
        .min()
        .unwrap_or(index)
}

/// Returns the smallest index at or above `index` at which the messages can be cut without
/// separating a tool call from its results. Use it for the end of a span that is removed.
pub fn safe_cut_after(messages: &[MessageView<'_>], index: usize) -> usize {
    let index = index.min(messages.len());
    tool_groups(messages)
        .into_iter()
        .filter(|group| group.start < index && index < group.end)
        .map(|group| group.end)
        .max()
        .unwrap_or(index)
}

/// Returns the spans that must not be cut. Each span reaches from a message with tool calls to the
/// last result of these calls, or from a message to the one that [`continues_last`] it. Spans that
/// would overlap are joined. The spans are disjoint and in order.
pub fn tool_groups(messages: &[MessageView<'_>]) -> Vec<std::ops::Range<usize>> {
    let pairs = ToolPairs::of(messages);
    let mut groups: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match groups.last_mut() {
            _ if !continues_last(messages, at) => {
                // A call without a result yet is a span of its own, so that a later result can
                // extend it.
                groups.extend((!message.tool_calls().is_empty()).then_some(at..at + 1));
            }
            Some(last) if last.end == at => last.end = at + 1,
            _ => groups.push(at - 1..at + 1),
        }
        if let Some(start) = pairs.call_of(at) {
            // Everything since the call belongs to the span, later groups included.
            while groups.last().is_some_and(|group| group.start > start) {
                groups.pop();
            }
            if let Some(group) = groups.last_mut() {
                group.end = at + 1;
            }
        }
    }
    groups
}

/// Returns the spans of [`tool_groups`], extended by messages that contain only thinking: such a
/// message stays together with the message after it, because some providers treat the two as one.
/// The spans are disjoint and in order.
pub fn whole_groups(messages: &[MessageView<'_>]) -> Vec<std::ops::Range<usize>> {
    let mut groups = tool_groups(messages);
    let led_to = (1..messages.len()).filter(|at| thinking_leads_to(messages, *at));
    groups.extend(led_to.map(|at| at - 1..at + 1));
    groups.sort_unstable_by_key(|group| group.start);
    let mut joined: Vec<std::ops::Range<usize>> = Vec::with_capacity(groups.len());
    for group in groups {
        match joined.last_mut() {
            Some(last) if group.start < last.end => last.end = last.end.max(group.end),
            _ => joined.push(group),
        }
    }
    joined
}

/// Returns true if the message at index `at` is the assistant's and the message before it contains
/// only thinking. Returns false if `at` is 0 or out of range.
pub fn thinking_leads_to(messages: &[MessageView<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| messages.get(before));
    let follows = before.is_some_and(|before| {
        before.has_thinking() && before.text().trim().is_empty() && before.tool_calls().is_empty()
    });
    follows
        && messages
            .get(at)
            .is_some_and(|message| message.role() == "assistant")
}

/// Returns true if the message at index `at` [`continues`](MessageView::continues) the one before
/// it, and that one is the assistant's or a tool's. Returns false if `at` is 0 or out of range.
pub fn continues_last(messages: &[MessageView<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).and_then(|before| messages.get(before));
    before.is_some_and(|before| matches!(before.role(), "assistant" | "tool"))
        && messages.get(at).is_some_and(MessageView::continues)
}

/// Returns the index of the message whose tool calls are still waiting for results, or `None` if no
/// call is waiting. Only the last message that is the assistant's or contains calls can be waiting.
/// An engine must leave that message and the results that have arrived unchanged.
pub fn in_flight(messages: &[MessageView<'_>]) -> Option<usize> {
    let last = messages
        .iter()
        .rposition(|message| message.role() == "assistant" || !message.tool_calls().is_empty())?;
    let mut answers: Vec<&str> = messages[last + 1..]
        .iter()
        .filter_map(MessageView::tool_call_id)
        .collect();
    // Each result answers one call. If a model gives two calls the same id, both need a result.
    let mut is_answered = |id: &str| {
        let answer = answers.iter().position(|answer| *answer == id);
        answer.map(|at| answers.swap_remove(at)).is_some()
    };
    let calls = messages[last].tool_calls();
    let waits = calls.iter().any(|call| !is_answered(call.id()));
    waits.then_some(last)
}

/// The tool calls and results of a window, paired by position, because models use the ids of calls
/// again. A result belongs to the nearest message before it that calls with its id, and within that
/// message to the first such call without a result. Calls and results may be alone.
#[derive(Debug)]
pub struct ToolPairs {
    call_of: Vec<Option<usize>>,
    /// For each call of the window, the index of the message that answers it.
    answers: Vec<Option<usize>>,
    /// For each message, the index of its first call in `answers`. If it has no calls, it is the
    /// index of the next call. One more entry marks the end.
    calls_from: Vec<usize>,
}

impl ToolPairs {
    /// Pairs the calls and results of these messages.
    pub fn of(messages: &[MessageView<'_>]) -> Self {
        // The latest message that calls with an id, and its calls that still wait for a result.
        let mut open: HashMap<&str, (usize, VecDeque<usize>)> = HashMap::new();
        let mut call_of = vec![None; messages.len()];
        let mut answers: Vec<Option<usize>> = Vec::new();
        let mut calls_from = Vec::with_capacity(messages.len() + 1);
        for (at, message) in messages.iter().enumerate() {
            calls_from.push(answers.len());
            for call in message.tool_calls() {
                let (caller, waiting) = open.entry(call.id()).or_default();
                // If the message uses the id again, the calls of the earlier one can no longer get
                // a result.
                if *caller != at {
                    *caller = at;
                    waiting.clear();
                }
                waiting.push_back(answers.len());
                answers.push(None);
            }
            let called = message.tool_call_id().and_then(|id| open.get_mut(id));
            if let Some((caller, waiting)) = called {
                call_of[at] = Some(*caller);
                if let Some(call) = waiting.pop_front() {
                    answers[call] = Some(at);
                }
            }
        }
        calls_from.push(answers.len());
        Self {
            call_of,
            answers,
            calls_from,
        }
    }

    /// Returns the index of the message with the call that the message at `at` answers. `None` if
    /// that message is no result, if its call is missing, or if `at` is out of range.
    pub fn call_of(&self, at: usize) -> Option<usize> {
        self.call_of.get(at).copied().flatten()
    }

    /// Returns the index of the message that answers each call of the message at `at`, in the order
    /// of the calls. `None` for a call without a result. Empty if `at` is out of range.
    pub fn answers(&self, at: usize) -> &[Option<usize>] {
        match self.calls_from.get(at..) {
            Some([from, to, ..]) => &self.answers[*from..*to],
            _ => &[],
        }
    }
}
