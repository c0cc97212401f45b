//! Builds conversations from a parsed session log.
//!
//! An agent that compacts its own conversation leaves the old messages in the log.
//! [`ParsedLog`] keeps all items of the live branch together with the list of those from which
//! the agent would continue. From these come the window, the whole history, and the history
//! without the agent's summaries.
//!
//! The window is what the reader returns. The others are built on demand, by
//! [`Conversation::whole`] and [`Conversation::uncompacted`], because most logs are read only
//! for their window. The lines themselves are interpreted in `logs`.

use std::collections::HashMap;
use std::sync::Arc;

use super::FormatError;
use super::builder::Builder;
use super::conversation::{Container, Conversation};
use super::item_span::ItemSpan;
use super::json::Raw;
use super::parsed_log::ParsedLog;
use super::views::Speaker;

/// One entry of the window from which an agent would continue, as an index into the messages of
/// the [whole](Conversation::whole) history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// The message with this index, unchanged.
    Message(usize),
    /// The message with this index is the agent's summary. In the window it replaces the
    /// messages that were left out.
    Summary(usize),
}

impl ParsedLog {
    /// Builds the conversation from which the agent would continue. If the window is not the
    /// whole log, the conversation keeps the log as its history.
    ///
    /// # Errors
    /// Fails if one of its messages does not follow the log's format.
    pub(super) fn into_window(self, warnings: Vec<String>) -> Result<Conversation, FormatError> {
        let mut window = self.read(&self.window, |speaker| speaker)?;
        window.warnings = warnings;
        let is_whole = self.window.len() == self.items.len()
            && !self
                .items
                .iter()
                .any(|item| item.speaker == Speaker::Summary);
        // Most logs were never compacted and need no second copy of their items.
        window.history = (!is_whole).then(|| Arc::new(self));
        Ok(window)
    }

    /// Builds the conversation of everything that was said. The agent's summaries become
    /// messages of the assistant, or are left out.
    fn all(&self, with_summaries: bool) -> Result<Conversation, FormatError> {
        let items = self.items.iter().zip(&self.copies).enumerate();
        let wanted = items.filter(|(_, (item, is_copy))| {
            !**is_copy && (with_summaries || item.speaker != Speaker::Summary)
        });
        let wanted: Vec<usize> = wanted.map(|(at, _)| at).collect();
        self.read(&wanted, |speaker| match speaker {
            Speaker::Summary => Speaker::Agent,
            other => other,
        })
    }

    /// Builds a conversation from the items with these indices. `speaker` may change who said
    /// an item.
    fn read(
        &self,
        items: &[usize],
        speaker: impl Fn(Speaker) -> Speaker,
    ) -> Result<Conversation, FormatError> {
        let mut builder = Builder::new(&self.document, self.format);
        builder.source_len = self.source_len;
        builder.model.clone_from(&self.model);
        builder.system = self.system.iter().cloned().collect();
        let spans = items.iter().filter_map(|at| self.items.get(*at));
        builder.items = spans
            .map(|item| ItemSpan {
                speaker: speaker(item.speaker),
                ..item.clone()
            })
            .collect();
        // For each item of the log, the number of chosen items before it.
        let mut before = vec![0; self.items.len() + 1];
        for at in items {
            if let Some(count) = before.get_mut(at + 1) {
                *count = 1;
            }
        }
        let mut sum = 0;
        for count in &mut before {
            sum += *count;
            *count = sum;
        }
        let usage = self.usage.iter().filter_map(|(items, usage)| {
            let before = before.get(*items).copied()?;
            Some((before, usage.clone()))
        });
        // Usage that was reported before the window began belongs to prompts that are not part
        // of it.
        let first_new = self.first_after_compaction(items);
        let usage = usage.zip(&self.usage);
        builder.logged = usage
            .filter(|(_, (at, _))| *at > first_new)
            .map(|(usage, _)| usage)
            .collect();
        builder.finish(Container::Log)
    }

    /// Returns the position of the last summary among these items if items before it were left
    /// out, and 0 otherwise.
    fn first_after_compaction(&self, items: &[usize]) -> usize {
        let summary = items.iter().copied().filter(|at| {
            let item = self.items.get(*at);
            item.is_some_and(|item| item.speaker == Speaker::Summary)
        });
        let summary = summary.max().unwrap_or(0);
        let before = items.iter().filter(|at| **at < summary).count();
        match before == summary {
            true => 0,
            false => summary,
        }
    }
}

/// Whether a message's JSON is an item of the window that the agent's compaction produced,
/// rather than a line of the rollout. It is meant for messages of a Codex rollout in the form
/// in which a session exports them.
pub fn is_compaction_item(raw: &str) -> bool {
    let Ok(raw) = Raw::parse(raw) else {
        return false;
    };
    let has = |key| raw.get(key).is_some();
    has("type") && has("content") && !has("payload") && !has("uuid")
}

impl Conversation {
    /// Returns everything that was said in a log that its agent compacted, before and after the
    /// compactions. The agent's summaries keep their places, as assistant messages with the
    /// name `compaction`. `None` if the conversation is already complete.
    ///
    /// # Errors
    /// Fails if a message that the agent compacted away does not follow the log's format.
    pub fn whole(&self) -> Result<Option<Self>, FormatError> {
        let history = self.history.as_ref();
        history.map(|history| history.all(true)).transpose()
    }

    /// Returns the same without the agent's summaries: the conversation as it would be if
    /// nothing had been compacted.
    ///
    /// # Errors
    /// Fails for the same reason as [`whole`](Self::whole).
    pub fn uncompacted(&self) -> Result<Option<Self>, FormatError> {
        let history = self.history.as_ref();
        history.map(|history| history.all(false)).transpose()
    }

    /// Describes this conversation by the messages of `whole`, which is its complete history.
    /// Messages that only the window holds are left out. If nothing was compacted, the result
    /// lists all messages of `whole`.
    pub fn resumed(&self, whole: &Self) -> Vec<Resumed> {
        let Some(history) = &self.history else {
            return (0..whole.messages().len()).map(Resumed::Message).collect();
        };
        let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, message) in whole.messages().iter().enumerate() {
            if let Some(item) = whole.items.get(message.items.start) {
                places.entry(item.body.start).or_default().push(at);
            }
        }
        let items = history
            .window
            .iter()
            .filter_map(|at| history.items.get(*at));
        let messages = items.filter_map(|item| {
            let places = places.get(&item.body.start)?;
            Some((item.speaker, places))
        });
        messages
            .flat_map(|(speaker, places)| {
                places.iter().map(move |at| {
                    let message = whole.messages().get(*at);
                    let has_text = message.is_some_and(|message| !message.text.is_empty());
                    match speaker == Speaker::Summary && has_text {
                        true => Resumed::Summary(*at),
                        false => Resumed::Message(*at),
                    }
                })
            })
            .collect()
    }
}
