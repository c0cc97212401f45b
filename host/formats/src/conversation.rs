//! A conversation that was read: its messages, and the document that holds them.
//!
//! A [`Conversation`] owns the text of its document, and everything else in it is a byte range
//! of that text. This is why a message that no engine touched can be written back unchanged.
//! [`ItemSpan`] says what one wire item occupies.
//!
//! The reader builds conversations, and the `plan` and `render` modules write them. For a log
//! that its agent compacted, the complete history is kept beside the shorter one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use contexture_engine_api::Usage;

use super::body::Preamble;
use super::calls::KnownCalls;
use super::item_span::ItemSpan;
use super::message::{Media, MediaKind, Message};
use super::parsed_log::ParsedLog;
use super::{Format, FormatError};

/// A conversation and the document that holds it. The document is stored once and never
/// changed.
///
/// For a session log, this is the conversation with which the agent would continue. If the
/// agent compacted it, this is the summary and everything after it, and [`whole`](Self::whole)
/// returns everything that was said.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The document, followed by those messages of a log that had to be rewritten into another
    /// form.
    pub(super) document: Arc<str>,
    /// The length of the document alone, in bytes.
    pub(super) source_len: usize,
    pub(super) format: Format,
    pub(super) container: Container,
    /// The items at the head of the list that form the system prompt.
    pub(super) system_items: Vec<Range<usize>>,
    /// The items between the system prompt and the end of the provider's newest own compaction.
    /// They are sent unchanged and are not messages.
    pub(super) compacted_items: Vec<Range<usize>>,
    pub(super) items: Vec<ItemSpan>,
    pub(super) messages: Vec<Message>,
    /// The JSON of each message whose lines are not adjacent in the document, by message index.
    pub(super) scattered: HashMap<usize, String>,
    pub(super) system: Option<String>,
    /// The lists of tools: the request's own list, and the lists in items at its head.
    pub(super) tools: Vec<Range<usize>>,
    pub(super) model: Option<String>,
    pub(super) usage: Vec<RecordedUsage>,
    pub(super) warnings: Vec<String>,
    pub(super) damage: Option<FormatError>,
    /// The complete history, if this is a log that its agent compacted.
    pub(super) history: Option<Arc<ParsedLog>>,
}

/// How the document holds the messages. A writer uses it to decide what to keep around them.
#[derive(Debug, Clone)]
pub(super) enum Container {
    /// In the list of a request body, or in a bare list. The range is that of the whole body.
    List(Range<usize>),
    /// One message per line. The range spans all these lines.
    Lines(Range<usize>),
    /// Among the other events of a session log.
    Log,
}

/// The token usage that a provider reported for one assistant message of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedUsage {
    /// The index of the message in [`Conversation::messages`].
    pub index: usize,
    /// The model that answered, if recorded.
    pub model: Option<String>,
    /// The tokens of the prompt and the answer, as the provider counted them.
    pub usage: Usage,
    /// The time in milliseconds since the Unix epoch, if recorded.
    pub time_ms: Option<i64>,
}

impl Conversation {
    /// The format of the document. If the caller named none, the reader detected it.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The document this was read from, unchanged. If another form of it was appended
    /// internally, that part is left out.
    pub fn document(&self) -> &str {
        self.document.get(..self.source_len).unwrap_or("")
    }

    /// The model's name, if the document states it. A log can name several, and the last one
    /// counts.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The text of the system prompt, its parts separated by an empty line. `None` if the
    /// document has no system prompt.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// The JSON of each list of tools: the request's own list, and the lists in items at its
    /// head.
    pub fn tool_lists(&self) -> impl Iterator<Item = &str> {
        let lists = self.tools.iter();
        lists.filter_map(|span| self.document.get(span.clone()))
    }

    /// What stands outside the messages.
    pub fn preamble(&self) -> Preamble<'_> {
        Preamble {
            format: self.format,
            system: self.system().map(Cow::Borrowed),
            tools: self.tool_lists().collect(),
            compacted: self.compacted().collect(),
        }
    }

    /// The messages in order. The system prompt and the items that the provider compacted are
    /// not among them.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The JSON of each item between the system prompt and the messages, up to the newest
    /// compaction that the provider made itself. Empty if the provider compacted nothing.
    pub fn compacted(&self) -> impl DoubleEndedIterator<Item = &str> {
        let items = self.compacted_items.iter();
        items.filter_map(|span| self.document.get(span.clone()))
    }

    /// Whether the provider itself compacted the conversation. If so, it can only be written as
    /// a request for the same provider, because nobody else can read the compacted items.
    pub fn is_compacted_by_provider(&self) -> bool {
        !self.compacted_items.is_empty()
    }

    /// What a reader of this conversation should know, such as a line that is cut off or a
    /// message whose parent is missing. Each entry is one sentence for people.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The first defect of a log or of JSON lines: two values on one line, or a line that is
    /// unreadable or cut off. Everything that could be read is in the conversation
    /// nevertheless.
    pub fn damage(&self) -> Option<&FormatError> {
        self.damage.as_ref()
    }

    /// The token usage that the providers reported, for each assistant message that has it.
    /// Empty for request bodies, which carry no usage.
    pub fn recorded_usage(&self) -> Vec<RecordedUsage> {
        self.usage.clone()
    }

    /// The calls that the results among these messages answer.
    pub(super) fn calls_of(&self, messages: &[usize]) -> KnownCalls {
        let results = messages.iter().filter_map(|index| {
            let message = self.messages.get(*index)?;
            Some((message.tool_call_id.clone()?, message.tool_name.clone()?))
        });
        results.collect()
    }

    /// The JSON of the wire item `index`: the message itself, without what a log puts around
    /// it. Empty if there is no such item.
    pub fn item(&self, index: usize) -> &str {
        self.items
            .get(index)
            .and_then(|item| self.document.get(item.body.clone()))
            .unwrap_or("")
    }

    /// The base64 data, URL or file id of an image, document or recording in this conversation.
    /// Escapes in it are not resolved. Empty if the wire has the data in an unknown form.
    pub fn media_data(&self, media: &Media) -> &str {
        self.item(media.item).get(media.data.clone()).unwrap_or("")
    }

    /// The JSON of the wire message that holds the message `index`. It is several lines if a
    /// log splits the message. Empty if there is no such message.
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

    /// Collects the JSON of every message whose items are not adjacent. They are adjacent if
    /// there is nothing but white space and a comma between them.
    pub(super) fn gather_scattered(&self) -> HashMap<usize, String> {
        // Between adjacent items there is only white space or the comma of a list.
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

/// Returns the text of a document whose base64 decodes to text, as its MIME type says. `None`
/// for any other media. Bytes that are not UTF-8 become U+FFFD.
pub fn text_in(conversation: &Conversation, media: &Media) -> Option<String> {
    let mime = media.mime.as_deref().filter(|_| media.is_base64)?;
    let is_text = mime.starts_with("text/")
        || ["application/json", "application/xml", "application/x-yaml"].contains(&mime);
    if media.kind != MediaKind::Document || !is_text {
        return None;
    }
    let data = conversation.media_data(media).bytes();
    // Escapes, line breaks and padding are not part of the data.
    let data: Vec<u8> = data.filter(|byte| !b"\\\r\n =".contains(byte)).collect();
    let bytes = STANDARD_NO_PAD.decode(data).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}
