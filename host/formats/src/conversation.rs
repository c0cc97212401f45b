//! A conversation that was read: its messages, and the document they stand in.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::body::Body;
use super::log_history::LogHistory;
use super::message::{Media, Message};
use super::recorded_usage::RecordedUsage;
use super::views::Speaker;
use super::{Format, FormatError};

/// A conversation and the document that holds it. The document is stored once and never changed.
///
/// For a session log, this is the conversation with which the agent would continue: after a compaction that the agent
/// made itself, the summary and what came after it. [`whole`](Self::whole) is everything that was said.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The document, followed by those messages of a log that needed another form than the one in the document.
    pub(super) document: Arc<str>,
    /// The length of the document alone.
    pub(super) source_len: usize,
    pub(super) format: Format,
    pub(super) container: Container,
    /// The messages at the head that are the system prompt.
    pub(super) system_items: Vec<Range<usize>>,
    /// What stands behind them up to the newest compaction of the provider's own.
    pub(super) compacted_items: Vec<Range<usize>>,
    pub(super) items: Vec<ItemSpan>,
    pub(super) messages: Vec<Message>,
    /// The JSON of messages whose lines do not follow one another, by message.
    pub(super) scattered: HashMap<usize, String>,
    pub(super) system: Option<String>,
    /// The lists of tools: the request's own list, and those of items at its head.
    pub(super) tools: Vec<Range<usize>>,
    pub(super) model: Option<String>,
    pub(super) usage: Vec<RecordedUsage>,
    pub(super) warnings: Vec<String>,
    pub(super) damage: Option<FormatError>,
    /// The complete history, if this is a log that its agent compacted.
    pub(super) history: Option<Arc<LogHistory>>,
}

/// How the messages stand in the document.
#[derive(Debug, Clone)]
pub(super) enum Container {
    /// In a list.
    List(Body),
    /// One a line; the span of the lines.
    Lines(Range<usize>),
    /// Among the events of a log.
    Log,
}

/// Where a wire item stands in the document, in bytes.
#[derive(Debug, Clone)]
pub(super) struct ItemSpan {
    /// With all that the document puts around it: the line of a log.
    pub(super) outer: Range<usize>,
    /// The message itself.
    pub(super) body: Range<usize>,
    pub(super) speaker: Speaker,
    pub(super) continues: bool,
    pub(super) time_ms: Option<i64>,
    /// The state kept with the message: the `state` of an event.
    pub(super) state: Option<Range<usize>>,
}

impl ItemSpan {
    pub(super) fn bare(span: Range<usize>) -> Self {
        Self {
            outer: span.clone(),
            body: span,
            speaker: Speaker::Wire,
            continues: false,
            time_ms: None,
            state: None,
        }
    }
}

impl Conversation {
    /// The format it was read from.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The document it was read from.
    pub fn document(&self) -> &str {
        self.document.get(..self.source_len).unwrap_or("")
    }

    /// The model's name, where the document says; of a log the last.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The text of the system prompt.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// The JSON of each list of tools: the request's own list, and those of items at its head.
    pub fn tool_lists(&self) -> impl Iterator<Item = &str> {
        let lists = self.tools.iter();
        lists.filter_map(|span| self.document.get(span.clone()))
    }

    /// The messages, in order; the system prompt is not among them.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The JSON of what stands before the messages up to the newest compaction of the provider's own.
    pub fn compacted(&self) -> impl DoubleEndedIterator<Item = &str> {
        let items = self.compacted_items.iter();
        items.filter_map(|span| self.document.get(span.clone()))
    }

    /// Whether the provider itself compacted it. It can then only be written as a request for the same provider.
    pub fn is_compacted_by_provider(&self) -> bool {
        !self.compacted_items.is_empty()
    }

    /// What a reader of this conversation should know: a cut line, a lost parent.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The first place of a log or of lines that is not as it should be: two values in a line, a line that cannot be read
    /// or is cut off. What could be read is in the conversation.
    pub fn damage(&self) -> Option<&FormatError> {
        self.damage.as_ref()
    }

    /// What the providers reported, for each assistant message that has it.
    pub fn recorded_usage(&self) -> Vec<RecordedUsage> {
        self.usage.clone()
    }

    /// The tools of the results in it, by their calls' ids.
    pub(super) fn tool_names(&self) -> HashMap<String, String> {
        let results = self.messages.iter().filter_map(|message| {
            Some((message.tool_call_id.clone()?, message.tool_name.clone()?))
        });
        results.collect()
    }

    /// The JSON of the wire item `index`: the message itself, without what a log puts around it.
    pub fn item(&self, index: usize) -> &str {
        self.items
            .get(index)
            .and_then(|item| self.document.get(item.body.clone()))
            .unwrap_or("")
    }

    /// The base64 data, URL or file id of an image or document of this conversation.
    pub fn media_data(&self, media: &Media) -> &str {
        self.item(media.item).get(media.data.clone()).unwrap_or("")
    }

    /// The JSON of the wire message that the message `index` stands in; several lines where a log
    /// splits it.
    pub fn raw(&self, index: usize) -> &str {
        if let Some(lines) = self.scattered.get(&index) {
            return lines;
        }
        let span = self.messages.get(index).and_then(|message| {
            let items = self.items.get(message.items.clone())?;
            Some(items.first()?.outer.start..items.last()?.outer.end)
        });
        span.and_then(|span| self.document.get(span)).unwrap_or("")
    }

    pub(super) fn gather_scattered(&self) -> HashMap<usize, String> {
        let contiguous = |pair: &[ItemSpan]| match pair {
            [a, b] => self
                .document
                .get(a.outer.end..b.outer.start)
                .is_some_and(|between| between.trim().trim_start_matches(',').trim().is_empty()),
            _ => true,
        };
        let mut scattered = HashMap::new();
        for (at, message) in self.messages.iter().enumerate() {
            let items = self.items.get(message.items.clone()).unwrap_or(&[]);
            if !items.windows(2).all(contiguous) {
                let lines: Vec<_> = items
                    .iter()
                    .filter_map(|item| self.document.get(item.outer.clone()))
                    .collect();
                scattered.insert(at, lines.join("\n"));
            }
        }
        scattered
    }
}
