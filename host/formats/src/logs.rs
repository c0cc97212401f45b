//! Reads session logs. A log has one event per line, and some of these events form the
//! conversation.
//!
//! A log is read completely: everything on the live branch, before and after the compactions
//! that the agent made itself. The items from which the agent would continue, its *window*, are
//! recorded as well. [`claude_code`] and [`codex`] fill in a [`Log`], of which `parsed_log` keeps what
//! conversations are built from.

mod claude_code;
mod codex;

use contexture_engine_api::Usage;

use super::anatomy::anatomy;
use super::json::Raw;
use super::views::Speaker;

pub(super) use claude_code::claude_code;
pub(super) use codex::{codex, is_bare_line};

/// What a log holds: the items of the live branch, the window, and facts about the session.
#[derive(Default)]
pub(super) struct Log<'a> {
    /// The wire items of the live branch in order.
    pub(super) items: Vec<LogItem<'a>>,
    /// The indices of the items from which the agent would continue, in the order in which it
    /// would send them.
    pub(super) window: Vec<usize>,
    pub(super) model: Option<String>,
    /// The system prompt as a JSON string, if the log records it.
    pub(super) system: Option<Raw<'a>>,
    /// Usage that is recorded between the messages, each with the number of items before it.
    pub(super) usage: Vec<(usize, LoggedUsage)>,
    pub(super) warnings: Vec<String>,
}

impl Log<'_> {
    /// Removes the items that cannot be read as a message, so that a damaged line costs only
    /// that line. Returns the start of each in bytes of the document, and what was expected
    /// there.
    pub(super) fn take_unreadable(&mut self) -> Vec<(usize, String)> {
        let mut taken = Vec::new();
        // For each position, the number of items before it that stay.
        let mut before = Vec::with_capacity(self.items.len() + 1);
        before.push(0);
        let is_sound: Vec<bool> = (self.items.iter())
            .map(|item| {
                let LogBody::Found(raw) = item.body else {
                    return true;
                };
                let fault = anatomy(raw).err();
                taken.extend(fault.clone().map(|what| (raw.span().start, what)));
                fault.is_none()
            })
            .collect();
        if taken.is_empty() {
            return taken;
        }
        let mut begins = false;
        for (item, is_sound) in self.items.iter_mut().zip(&is_sound) {
            // If the start of a message is removed, its next item becomes the start.
            item.continues &= !begins;
            begins = !is_sound && !item.continues;
            before.push(before.last().copied().unwrap_or(0) + usize::from(*is_sound));
        }
        let place = |at: usize| before.get(at).copied().unwrap_or(0);
        self.window.retain(|at| is_sound.get(*at) == Some(&true));
        self.window.iter_mut().for_each(|at| *at = place(*at));
        for (items, _) in &mut self.usage {
            *items = place(*items);
        }
        let mut is_sound = is_sound.into_iter();
        self.items.retain(|_| is_sound.next() == Some(true));
        taken
    }
}

/// A wire item and the log line that contains it, with what the line says about the item.
pub(super) struct LogItem<'a> {
    /// The part of the log that the item came from, which is usually its line. `None` if the
    /// item was made from a part of a line.
    pub(super) line: Option<Raw<'a>>,
    pub(super) body: LogBody<'a>,
    pub(super) continues: bool,
    pub(super) speaker: Speaker,
    /// Whether the item repeats an earlier part of the history, so that only the window holds
    /// it.
    pub(super) is_copy: bool,
    pub(super) time_ms: Option<i64>,
}

/// The JSON of a wire item, either found in the log or generated.
pub(super) enum LogBody<'a> {
    /// A part of the log, unchanged.
    Found(Raw<'a>),
    /// JSON that was generated because the log stores the message in a form of its own.
    Made(String),
}

/// Token usage that a log records outside of the messages, with the model and the time if the
/// line states them.
#[derive(Debug, Clone)]
pub(super) struct LoggedUsage {
    pub(super) model: Option<String>,
    pub(super) usage: Usage,
    pub(super) time_ms: Option<i64>,
}
