//! Reading wire messages on their own, without a document around them.

use std::borrow::Cow;
use std::collections::HashMap;

use super::conversation::{Container, Conversation, ItemSpan};
use super::json::{Raw, on_one_line, skip_space, value_end};
use super::message::Message;
use super::plan::Kept;
use super::splice::splice;
use super::views::{Speaker, WireItem, read_items};
use super::{Format, FormatError};

/// Reads wire messages on their own, one after another: what a session does with those that are new. The
/// tools of results whose calls came earlier are found through `earlier`, which maps a call's id to its
/// tool's name and is brought up to date.
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub fn parse_messages_after(
    format: Format,
    raw: &[&str],
    earlier: &mut HashMap<String, String>,
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

/// Reads wire messages on their own, as [`parse_messages_after`] does, into a conversation that holds
/// nothing else: their bytes, one a line, and no system prompt (a message of the role `system` is one of
/// its messages, even the first).
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub fn excerpt(
    format: Format,
    raw: &[&str],
    earlier: &mut HashMap<String, String>,
) -> Result<Conversation, FormatError> {
    let messages = parse_messages_after(format, raw, earlier)?;
    let mut document = String::with_capacity(raw.iter().map(|raw| raw.len() + 1).sum());
    let mut items = Vec::with_capacity(raw.len());
    for raw in raw {
        let start = document.len();
        document.push_str(raw);
        items.push(ItemSpan::bare(start..document.len()));
        document.push('\n');
    }
    let end = document.len();
    Ok(Conversation {
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
    })
}

/// Some messages of one wire message of a conversation, without the others in it.
pub fn part_of_wire(conversation: &Conversation, messages: &[usize]) -> Option<Conversation> {
    let items = splice(conversation, &Kept::of(messages)).ok()?;
    let texts: Vec<&str> = items
        .iter()
        .map(|item| conversation.text_of(item))
        .collect();
    let mut names = conversation.tool_names();
    excerpt(conversation.format, &texts, &mut names).ok()
}

/// The role that a wire message names; `None` if it names none, as with the item of a call.
pub fn role_of(raw: &str) -> Option<String> {
    Raw::parse(raw).ok()?.get_string("role")
}

/// Reads wire messages on their own, as where nothing came earlier.
///
/// # Errors
/// Which of the messages is not one of this format, and why.
pub fn parse_messages(format: Format, raw: &[&str]) -> Result<Vec<Message>, FormatError> {
    parse_messages_after(format, raw, &mut HashMap::new())
}

/// A message as [`Conversation::raw`] gives it, its wire items one a line: what [`read`] takes as a document.
/// Whitespace between them, and the commas of a list, are left out; a line break within one becomes a space.
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
    let rest = raw[at..].trim();
    if !rest.is_empty() {
        lines.push(on_one_line(rest));
    }
    lines
}
