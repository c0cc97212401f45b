//! Replaces the list of messages in a document. Everything around the list keeps its bytes.
//!
//! [`Rewrite`] holds the document and the places of its list and system prompt.
//! [`Rewrite::document_with`] returns a new document and suits a single body. [`Rewrite::edit`]
//! adds the change to other edits, for documents with several conversations.
//!
//! A note for the model goes into the system prompt, which each format stores differently: in a
//! member of the body or in a message at the head of the list. The white space between
//! unchanged neighbours is kept too, so that the unchanged start of a body stays the same to
//! the last byte. Which messages to write is decided by the caller.

use std::borrow::Cow;
use std::ops::Range;

use super::Format;
use super::body::{BodySpans, WireBody, is_setup, tools_of};
use super::gemini;
use super::json::{Edits, Raw, escape, insert_member, quote, skip_space};
use super::parts::{new_message, part_type, text_part};

/// An upper bound for the JSON around a new message or the note, in bytes. It is used to
/// reserve memory.
const ROOM: usize = 128;

/// A body and the parts of its list that stay while the messages are replaced.
pub(super) struct Rewrite<'a> {
    pub(super) document: &'a str,
    pub(super) format: Format,
    pub(super) body: &'a BodySpans,
    /// The items at the head of the list that form the system prompt.
    pub(super) system_items: &'a [Range<usize>],
    /// The items after these that the provider compacted itself.
    pub(super) compacted_items: &'a [Range<usize>],
}

impl WireBody<'_> {
    /// Returns the body with other messages, and with `note` appended to the system prompt. If
    /// a message is one of [`messages`](Self::messages) and unchanged, give its index there.
    /// The text between such neighbours is then kept too.
    pub fn with_messages(&self, note: Option<&str>, messages: &[(Option<usize>, &str)]) -> String {
        let (system, leading) = (self.system_messages.len(), self.leading());
        let messages: Vec<_> = (messages.iter())
            .map(|(index, text)| (index.map(|index| index + leading), *text))
            .collect();
        let rewrite = Rewrite {
            document: self.text,
            format: self.format,
            body: &self.body,
            system_items: self.body.items.get(..system).unwrap_or(&[]),
            compacted_items: self.body.items.get(system..leading).unwrap_or(&[]),
        };
        rewrite.document_with(note, &messages)
    }
}

impl Rewrite<'_> {
    /// Adds edits that replace the list with `messages` and append `note` to the system prompt.
    /// If a message is an unchanged item of the list, its index there comes with it.
    pub(super) fn edit(
        &self,
        note: Option<&str>,
        messages: &[(Option<usize>, &str)],
        edits: &mut Edits,
    ) {
        let in_list = self.edit_around_list(note, edits);
        if let Some(list) = &self.body.list {
            let mut text = String::with_capacity(list.len());
            self.list(list, in_list, messages, &mut text);
            edits.replace(list.clone(), text);
        }
    }

    /// Returns the document with these changes. Each message is copied once.
    pub(super) fn document_with(
        &self,
        note: Option<&str>,
        messages: &[(Option<usize>, &str)],
    ) -> String {
        let mut edits = Edits::default();
        let in_list = self.edit_around_list(note, &mut edits);
        let end = self.document.len();
        let Some(list) = &self.body.list else {
            return edits.apply(self.document, 0..end);
        };
        // If the estimate is too small, the string grows and its text is copied once more.
        let new = messages.iter().filter(|(origin, _)| origin.is_none());
        let new: usize = new.map(|(_, text)| text.len() + ROOM).sum();
        let note = note.map_or(0, |note| 2 * note.len() + ROOM);
        let mut out = String::with_capacity(end + new + note);
        edits.apply_to(&mut out, self.document, 0..list.start);
        self.list(list, in_list, messages, &mut out);
        edits.apply_to(&mut out, self.document, list.end..end);
        out
    }

    /// Adds `note` to a system prompt outside of the list. If the note has to go into the list,
    /// it is returned instead.
    fn edit_around_list<'n>(&self, note: Option<&'n str>, edits: &mut Edits) -> Option<&'n str> {
        if !self.note_in_member() {
            return note;
        }
        if let Some(note) = note {
            self.edit_system_member(note, edits);
        }
        None
    }

    /// Writes the list of messages with its brackets. If two messages followed each other
    /// before, the text between them is kept.
    fn list(
        &self,
        list: &Range<usize>,
        note: Option<&str>,
        messages: &[(Option<usize>, &str)],
        out: &mut String,
    ) {
        let system = system_items_with(self.document, self.format, self.system_items, note);
        let items = &self.body.items;
        let leading = self.system_items.len();
        let system = system
            .iter()
            .enumerate()
            .map(|(at, text)| ((at < leading).then_some(at), Cow::Borrowed(text.as_ref())));
        let compacted = self.compacted_items.iter().enumerate().map(|(at, span)| {
            let text = self.document.get(span.clone()).unwrap_or("");
            (Some(leading + at), Cow::Borrowed(text))
        });
        let messages = messages.iter().map(|(origin, text)| {
            // A bare string is a valid message only if it is the whole value of `input`.
            let text = match text.starts_with('{') {
                true => Cow::Borrowed(*text),
                false => Cow::Owned(format!(
                    "{{\"type\":\"message\",\"role\":\"user\",\"content\":{text}}}"
                )),
            };
            (*origin, text)
        });
        let between = |at: usize| {
            let start = match at.checked_sub(1).and_then(|before| items.get(before)) {
                Some(before) => before.end,
                None => list.start + 1,
            };
            let end = items.get(at).map_or(start, |item| item.start);
            self.document.get(start..end).unwrap_or("")
        };
        // New messages are separated the way the document separates its own.
        let usual_gap = if items.len() > 1 { between(1) } else { "," };
        let usual_gap = usual_gap
            .get(usual_gap.find(',').map_or(0, |comma| comma + 1)..)
            .unwrap_or("");
        // The list may have been a single string, which has no text after an opening bracket.
        let is_list = self
            .document
            .get(list.clone())
            .is_some_and(|text| text.starts_with('['));
        out.push('[');
        out.push_str(if is_list { between(0) } else { "" });
        let mut previous = None;
        for (at, (origin, text)) in system.chain(compacted).chain(messages).enumerate() {
            if at > 0 {
                match origin {
                    Some(index) if index > 0 && previous == Some(index - 1) => {
                        out.push_str(between(index));
                    }
                    _ => {
                        out.push(',');
                        out.push_str(usual_gap);
                    }
                }
            }
            out.push_str(&text);
            previous = origin;
        }
        let tail = items
            .last()
            .and_then(|last| self.document.get(last.end..list.end - 1));
        out.push_str(tail.filter(|tail| tail.trim().is_empty()).unwrap_or(""));
        out.push(']');
    }

    /// Whether the system prompt, and with it a note, is stored in a member of the body.
    fn note_in_member(&self) -> bool {
        let body = self.body;
        match self.format {
            Format::Anthropic => !body.is_bare && self.system_items.is_empty(),
            Format::Gemini => !body.is_bare,
            Format::OpenAiResponses => {
                body.system.is_some() || (self.system_items.is_empty() && !body.is_bare)
            }
            _ => false,
        }
    }

    /// Appends the note to the member with the system prompt. If the body has no such member,
    /// it is inserted at the start of the body.
    fn edit_system_member(&self, note: &str, edits: &mut Edits) {
        if let Some(span) = &self.body.system {
            let text = Raw::trusted(self.document, span.clone());
            append_text(text, note, part_type(self.format, "system"), edits);
            return;
        }
        let member = match self.format {
            Format::Anthropic => format!("\"system\":{}", quote(note)),
            Format::Gemini => format!("\"systemInstruction\":{}", gemini::instruction(note)),
            _ => format!("\"instructions\":{}", quote(note)),
        };
        let start = skip_space(self.document, self.body.span.start + 1);
        edits.replace(start..start, format!("{member},"));
    }
}

/// Returns the leading system messages, with the note in the first one that can hold it. If
/// none can, a system message with the note is added after them.
pub(super) fn system_items_with<'a>(
    document: &'a str,
    format: Format,
    system_items: &[Range<usize>],
    note: Option<&str>,
) -> Vec<Cow<'a, str>> {
    let mut items: Vec<Cow<'_, str>> = system_items
        .iter()
        .map(|span| Cow::Borrowed(document.get(span.clone()).unwrap_or("")))
        .collect();
    let Some(note) = note else { return items };
    let takes_note = |text: &&mut Cow<'_, str>| {
        let raw = Raw::trusted(text, 0..text.len());
        tools_of(raw).is_none() && !is_setup(raw)
    };
    match items.iter_mut().find(takes_note) {
        Some(first) => {
            let raw = Raw::trusted(first, 0..first.len());
            let part = part_type(format, "system");
            let mut edits = Edits::default();
            match raw.get("content") {
                Some(content) => append_text(content, note, part, &mut edits),
                None => insert_member(raw, "content", &quote(note), &mut edits),
            }
            *first = Cow::Owned(edits.apply(first, 0..first.len()));
        }
        // A bare list of Anthropic or Gemini messages has no place for a system prompt, so the note
        // is dropped.
        None if matches!(format, Format::Anthropic | Format::Gemini) => {}
        None => items.push(Cow::Owned(new_message(format, "system", note))),
    }
    items
}

/// Appends a paragraph to a text. A string gets the paragraph before its closing quote, and a
/// list gets one more part. Gemini's system prompt has its list in `parts`.
fn append_text(text: Raw<'_>, note: &str, part: &str, edits: &mut Edits) {
    let text = text.get("parts").unwrap_or(text);
    if part.is_empty() && text.is_object() {
        return edits.replace(text.span(), gemini::instruction(note));
    }
    let end = text.span().end - 1;
    match text.inner() {
        Some("") => edits.replace(text.span(), quote(note)),
        Some(_) => edits.replace(end..end, escape(&format!("\n\n{note}"))),
        None if text.is_array() => {
            let comma = match text.elements().next().is_some() {
                true => ",",
                false => "",
            };
            let part = text_part(part, &quote(note));
            let end = text.elements().last().map_or(end, |last| last.span().end);
            edits.replace(end..end, format!("{comma}{part}"));
        }
        None => edits.replace(text.span(), quote(note)),
    }
}
