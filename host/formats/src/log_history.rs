//! The contents of a session log: everything that was said, and the part with which the agent would continue.

use std::collections::HashMap;
use std::sync::Arc;

use super::body::system_text;
use super::conversation::{Container, Conversation, ItemSpan};
use super::json::Raw;
use super::logs::{Log, LogBody, LoggedUsage};
use super::reader::Builder;
use super::views::Speaker;
use super::{Format, FormatError};

/// The parsed log, from which conversations are made: the window, the whole history, or the history without summaries.
#[derive(Debug)]
pub(super) struct LogHistory {
    document: Arc<str>,
    source_len: usize,
    format: Format,
    /// The items of the live branch, in order.
    items: Vec<ItemSpan>,
    /// Which items only repeat others, for use in the window.
    copies: Vec<bool>,
    /// The items with which the agent would continue, in its order.
    window: Vec<usize>,
    /// Usage that is recorded beside the items, each with the number of items before it.
    usage: Vec<(usize, LoggedUsage)>,
    model: Option<String>,
    system: Option<String>,
}

/// One entry of the window with which an agent would continue, as an index into the messages of the
/// [whole](Conversation::whole) history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resumed {
    /// The message, as it was said.
    Message(usize),
    /// The message is the agent's summary. In the window it replaces what was left out.
    Summary(usize),
}

impl LogHistory {
    /// Collects the contents of a log in this document.
    ///
    /// # Errors
    /// The log holds no message.
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

    /// The conversation with which the agent would continue.
    ///
    /// # Errors
    /// One of its messages does not have the log's format.
    pub(super) fn into_window(self, warnings: Vec<String>) -> Result<Conversation, FormatError> {
        let mut window = self.read(&self.window, |speaker| speaker)?;
        window.warnings = warnings;
        let is_whole = self.window.len() == self.items.len()
            && !self
                .items
                .iter()
                .any(|item| item.speaker == Speaker::Summary);
        window.history = (!is_whole).then(|| Arc::new(self));
        Ok(window)
    }

    /// Everything that was said, either with the agent's summaries as messages of the agent or without them.
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
        // For each item of the log, how many of the chosen items precede it.
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
        // Usage reported before the window began belongs to prompts that are not in it.
        let first_new = self.first_after_compaction(items);
        let usage = usage.zip(&self.usage);
        builder.logged = usage
            .filter(|(_, (at, _))| *at > first_new)
            .map(|(usage, _)| usage)
            .collect();
        builder.finish(Container::Log)
    }

    /// The position of the last summary among these items if the items before it are incomplete, else 0.
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

/// Whether a message's JSON is an item of the window that the agent's compaction made, and not a line of the rollout.
/// For messages of a Codex rollout as a session exports it.
pub fn is_compaction_item(raw: &str) -> bool {
    let Ok(raw) = Raw::parse(raw) else {
        return false;
    };
    let has = |key| raw.get(key).is_some();
    has("type") && has("content") && !has("payload") && !has("uuid")
}

impl Conversation {
    /// Everything that was said in a log that its agent compacted, before and after the compactions. The agent's
    /// summaries keep their places, as assistant messages with the name `compaction`. `None` if the conversation is
    /// already complete.
    ///
    /// # Errors
    /// A message that the agent compacted away does not have the log's format.
    pub fn whole(&self) -> Result<Option<Self>, FormatError> {
        let history = self.history.as_ref();
        history.map(|history| history.all(true)).transpose()
    }

    /// The same without the agent's summaries: the conversation as it would be if nothing had been compacted.
    ///
    /// # Errors
    /// The same as for [`whole`](Self::whole).
    pub fn uncompacted(&self) -> Result<Option<Self>, FormatError> {
        let history = self.history.as_ref();
        history.map(|history| history.all(false)).transpose()
    }

    /// Describes this conversation by the messages of `whole`, its complete history. Messages that only the window
    /// holds are left out.
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
