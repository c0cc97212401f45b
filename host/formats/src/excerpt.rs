//! Reads wire messages on their own, without a document around them.
//!
//! A session reads only the messages of a request that are new. [`parse_messages_after`]
//! returns the messages, and [`excerpt`] also keeps their JSON, as a [`Conversation`].
//! [`ExcerptBuilder`] makes the same of messages that were read before, and [`part_of_wire`] cuts
//! some messages out of a wire message that holds several.
//!
//! The name of a tool is only in the call, not in the result. Callers therefore pass along the
//! calls seen so far.

use std::borrow::Cow;
use std::collections::HashMap;

use super::calls::KnownCalls;
use super::conversation::{Container, Conversation};
use super::item_span::ItemSpan;
use super::json::{Raw, on_one_line, skip_space, value_end};
use super::message::Message;
use super::plan::KeptMessage;
use super::splice::splice;
use super::views::{Speaker, WireItem, read_items};
use super::{Format, FormatError};

/// Reads wire messages on their own, one after another. A session does this with the messages
/// that are new in a request. `earlier` holds the calls before them, so that results find their
/// calls and tools, and is extended.
///
/// # Errors
/// Fails if a message is not valid JSON or not of this format. The error names the message and
/// the reason.
pub fn parse_messages_after(
    format: Format,
    raw: &[&str],
    earlier: &mut KnownCalls,
) -> Result<Vec<Message>, FormatError> {
    let mut items = Vec::with_capacity(raw.len());
    for (index, text) in raw.iter().enumerate() {
        let raw = Raw::parse(text).map_err(|error| {
            FormatError::message(
                index,
                format!("it is not valid JSON at byte {}: {}", error.at, error.what),
            )
        })?;
        items.push(WireItem {
            raw,
            continues: false,
            speaker: Speaker::Wire,
            time_ms: None,
        });
    }
    read_items(format, items.into_iter(), earlier)
}

/// Prepares `calls` for messages that directly follow `before`. In Gemini's format the calls right
/// before a result decide which of them it answers, so these are read again.
pub fn continue_after(format: Format, before: &[&str], calls: &mut KnownCalls) {
    if format != Format::Gemini {
        return;
    }
    calls.close();
    let last = (before.iter()).rposition(|text| role_of(text).as_deref() == Some("model"));
    let after = last.and_then(|last| before.get(last..)).unwrap_or(&[]);
    // These messages were read when they were new. If one cannot be read, it has no calls that a
    // result could answer.
    let _ = parse_messages_after(format, after, calls);
}

/// Reads wire messages on their own, like [`parse_messages_after`], into a conversation that
/// holds nothing else. Its document has one message per line and no system prompt. Even if the
/// first message has the role `system`, it counts as a message.
///
/// # Errors
/// Fails if a message is not valid JSON or not of this format. The error names the message and
/// the reason.
pub fn excerpt(
    format: Format,
    raw: &[&str],
    earlier: &mut KnownCalls,
) -> Result<Conversation, FormatError> {
    let mut excerpt = ExcerptBuilder::new(format);
    excerpt.messages = parse_messages_after(format, raw, earlier)?;
    (excerpt.document).reserve(raw.iter().map(|raw| raw.len() + 1).sum());
    for raw in raw {
        excerpt.push_item(raw);
    }
    Ok(excerpt.finish())
}

/// Collects messages that were read before into a conversation that holds nothing else, without
/// reading them again. They may come from several conversations. The result is written like one of
/// [`excerpt`].
#[derive(Debug)]
pub struct ExcerptBuilder {
    format: Format,
    document: String,
    items: Vec<ItemSpan>,
    messages: Vec<Message>,
}

impl ExcerptBuilder {
    /// Begins a conversation in this format, without messages.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            document: String::new(),
            items: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Copies the message `index` of a conversation, and all messages that share its wire message.
    /// Returns the index that the first of them gets. `None` if there is no such message.
    pub fn add(&mut self, from: &Conversation, index: usize) -> Option<usize> {
        let items = from.messages.get(index)?.items.clone();
        let (at, first) = (self.messages.len(), self.items.len());
        for item in items.clone() {
            self.push_item(from.item(item));
        }
        let start = from
            .messages
            .partition_point(|message| message.items.start < items.start);
        let messages = from.messages.iter().skip(start);
        let sharers = messages.take_while(|message| message.items == items);
        self.messages.extend(sharers.cloned().map(|mut message| {
            message.items = first..self.items.len();
            for media in &mut message.media {
                media.item = first + media.item - items.start;
            }
            message
        }));
        Some(at)
    }

    /// Returns the conversation. Its document has one wire item per line.
    pub fn finish(self) -> Conversation {
        lone(self.format, self.document, self.items, self.messages)
    }

    fn push_item(&mut self, json: &str) {
        let start = self.document.len();
        self.document.push_str(json);
        self.items.push(ItemSpan::bare(start..self.document.len()));
        self.document.push('\n');
    }
}

/// A conversation of messages that were read on their own.
pub(super) fn lone(
    format: Format,
    document: String,
    mut items: Vec<ItemSpan>,
    mut messages: Vec<Message>,
) -> Conversation {
    let end = document.len();
    // A session keeps one of these for each answer, and most of them hold one message.
    items.shrink_to_fit();
    messages.shrink_to_fit();
    Conversation {
        document: document.into(),
        source_len: end,
        format,
        container: Container::Lines(0..end),
        system_items: Vec::new(),
        compacted_items: Vec::new(),
        items,
        messages,
        scattered: HashMap::new(),
        system: None,
        tools: Vec::new(),
        model: None,
        usage: Vec::new(),
        warnings: Vec::new(),
        damage: None,
        history: None,
    }
}

/// Returns some messages of one wire message, without the others in it, as a conversation of
/// their own. `None` if the result cannot be read.
pub fn part_of_wire(conversation: &Conversation, messages: &[usize]) -> Option<Conversation> {
    let items = splice(conversation, &KeptMessage::of(messages)).ok()?;
    let texts: Vec<&str> = items
        .iter()
        .map(|item| conversation.text_of(item))
        .collect();
    let mut calls = conversation.calls_of(messages);
    excerpt(conversation.format, &texts, &mut calls).ok()
}

/// Returns the role that a wire message names. `None` if it names none, like an item that holds
/// a call, or if it is not JSON.
pub fn role_of(raw: &str) -> Option<String> {
    Raw::parse(raw).ok()?.get_string("role")
}

/// Reads wire messages on their own if nothing came before them.
///
/// # Errors
/// Fails if a message is not valid JSON or not of this format. The error names the message and
/// the reason.
pub fn parse_messages(format: Format, raw: &[&str]) -> Result<Vec<Message>, FormatError> {
    parse_messages_after(format, raw, &mut KnownCalls::default())
}

/// Splits a message as returned by [`Conversation::raw`] into its wire items, each on one line.
/// Joined by newlines, the result can be read as a document with [`read`](super::read). White
/// space and list commas between the items are left out, and a line break within an item
/// becomes a space.
///
/// ```
/// let raw = "{\"type\": \"reasoning\"},\n {\"type\":\n\"function_call\"}";
/// let lines = contexture_formats::item_lines(raw);
/// assert_eq!(lines, ["{\"type\": \"reasoning\"}", "{\"type\": \"function_call\"}"]);
/// ```
pub fn item_lines(raw: &str) -> Vec<Cow<'_, str>> {
    let mut lines = Vec::new();
    let mut at = skip_space(raw, 0);
    while let Ok(end) = value_end(raw, at) {
        lines.push(on_one_line(&raw[at..end]));
        at = skip_space(raw, end);
        if raw[at..].starts_with(',') {
            at = skip_space(raw, at + 1);
        }
    }
    // What cannot be parsed is kept as one line, so that no text is lost.
    let rest = raw[at..].trim();
    if !rest.is_empty() {
        lines.push(on_one_line(rest));
    }
    lines
}
