//! Finds the call of a tool result.
//!
//! A result names its call by an id, and only the call has the name of the tool. In Gemini's
//! format both may lack an id, and the result names the tool instead. [`KnownCalls`] holds what is
//! known of the calls before a message, so that its results can be read on their own.

use std::collections::{HashMap, VecDeque};

use super::message::Call;

/// The tool calls that were read so far.
#[derive(Debug, Clone, Default)]
pub struct KnownCalls {
    /// The tool of each call, by the id of the call.
    tools: HashMap<String, String>,
    /// The id and the tool of each call of the last message with calls, as long as no result of
    /// Gemini's answers it.
    open: VecDeque<(String, String)>,
}

impl KnownCalls {
    /// The tool that the nearest call with this id calls.
    pub fn tool(&self, id: &str) -> Option<&str> {
        self.tools.get(id).map(String::as_str)
    }

    /// Adds the calls of a message that was read before.
    pub fn learn(&mut self, calls: &[Call]) {
        // A later call with the same id replaces an earlier one, so a result gets the tool of the
        // nearest call.
        let tools = calls
            .iter()
            .map(|call| (call.id.clone(), call.name.clone()));
        self.tools.extend(tools);
    }

    /// Forgets which calls the next results answer.
    pub(super) fn close(&mut self) {
        self.open.clear();
    }

    /// Notes that the results that follow answer these calls, unless there are none.
    pub(super) fn open<'c>(&mut self, calls: impl Iterator<Item = &'c Call>) {
        let mut calls = calls
            .map(|call| (call.id.clone(), call.name.clone()))
            .peekable();
        if calls.peek().is_some() {
            self.open = calls.collect();
        }
    }

    /// Returns the id of the call that the next result answers, and closes the call. It is the
    /// result's own id if there is such a call, and otherwise that of the first open call of the
    /// tool. Without such a call, it is the own id, or else the name of the tool.
    pub(super) fn answered(&mut self, own: String, tool: &str) -> String {
        let is_known = self.tools.contains_key(&own);
        let is_its = |(id, name): &(String, String)| match is_known {
            true => *id == own,
            false => name == tool,
        };
        let found = self.open.iter().position(is_its);
        match found.and_then(|at| self.open.remove(at)) {
            Some((id, _)) => id,
            None if own.is_empty() => tool.to_owned(),
            None => own,
        }
    }
}

/// Builds the calls that a wire message with results needs, from the id and the tool of each
/// result in it, in order.
impl FromIterator<(String, String)> for KnownCalls {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(results: T) -> Self {
        let open: VecDeque<_> = results.into_iter().collect();
        Self {
            tools: open.iter().cloned().collect(),
            open,
        }
    }
}
