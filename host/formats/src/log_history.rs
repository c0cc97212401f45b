//! Holds a parsed session log and builds conversations from it.
//!
//! An agent that compacts its own conversation leaves the old messages in the log.
//! [`LogHistory`] keeps all items of the live branch together with the list of those from which
//! the agent would continue. From these it builds the window, the whole history, or the history
//! without the agent's summaries.
//!
//! The window is what the reader returns. The others are built on demand, by
//! [`Conversation::whole`] and [`Conversation::uncompacted`], because most logs are read only
//! for their window. The lines themselves are interpreted in `logs`.

use std::collections::HashMap;
use std::sync::Arc;

use super::body::system_text;
use super::conversation::{Container, Conversation, ItemSpan};
use super::json::Raw;
use super::logs::{Log, LogBody, LoggedUsage};
use super::reader::Builder;
use super::views::Speaker;
use super::{Format, FormatError};

/// A parsed log, from which conversations are built: the window, the whole history, or the
/// history without summaries.
#[derive(Debug)]
pub(super) struct LogHistory {
    document: Arc<str>,
    source_len: usize,
    format: Format,
    /// The items of the live branch in order, including those that a compaction removed from
    /// the window.
    items: Vec<ItemSpan>,
    /// Whether each item merely repeats another one, so that only the window may use it.
    copies: Vec<bool>,
    /// The indices of the items from which the agent would continue, in the order in which it
    /// would send them.
    window: Vec<usize>,
    /// Usage that is recorded between the items, each with the number of items before it.
    usage: Vec<(usize, LoggedUsage)>,
    model: Option<String>,
    system: Option<String>,
}

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

impl LogHistory {
    /// Collects the contents of a log of this document. Messages that the log stores in another
    /// form are appended to a copy of the document.
    ///
    /// # Errors
    /// Fails if the log holds no message.
    pub(super) fn of(
        document: &Arc<str>,
        format: Format,
        log: Log<'_>,
    ) -> Result<Self, FormatError> {
        if log.items.is_empty() || log.window.is_empty() {
            let what = "none of its lines holds a message".to_owned();
            return Err(FormatError::NotThis { format, what });
        }
        let source_len = document.len();
        let mut made = String::new();
        let mut items = Vec::with_capacity(log.items.len());
        let mut copies = Vec::with_capacity(log.items.len());
        for item in log.items {
            let body = match item.body {
                LogBody::Found(raw) => raw.span(),
                LogBody::Made(text) => {
                    let start = source_len + made.len();
                    made.push_str(&text);
                    made.push('\n');
                    start..start + text.len()
                }
            };
            copies.push(item.is_copy);
            items.push(ItemSpan {
                outer: item.line.map_or_else(|| body.clone(), |line| line.span()),
                body,
                speaker: item.speaker,
                continues: item.continues,
                time_ms: item.time_ms,
                state: None,
            });
        }
        let document = match made.is_empty() {
            true => Arc::clone(document),
            false => [document.as_ref(), made.as_str()].concat().into(),
        };
        Ok(Self {
            document,
            source_len,
            format,
            items,
            copies,
            window: log.window,
            usage: log.usage,
            model: log.model,
            system: log.system.and_then(system_text),
        })
    }

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
