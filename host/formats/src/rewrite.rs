//! Replaces the list of messages in a document. Everything around the list keeps its bytes.
//!
//! [`Rewrite`] holds the document and the places of its list and system prompt. [`Rewrite::list`]
//! lays the new list out, and `draft` writes it with what else is changed.
//!
//! A note for the model goes into the system prompt, which each format stores differently: in a
//! member of the body or in a message at the head of the list. The white space between
//! unchanged neighbours is kept too, so that the unchanged start of a body stays the same to
//! the last byte. Which messages to write is decided by the caller.

use std::borrow::Cow;
use std::ops::Range;

use super::Format;
use super::body::{BodySpans, is_setup, tools_of};
use super::gemini;
use super::json::{Edits, Raw, escape, insert_member, quote, skip_space};
use super::parts::{new_message, part_type, text_part};

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

/// What a piece of a list that is laid out is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListPiece {
    Item,
    /// A bracket, a comma or white space.
    Between,
}

impl<'a> Rewrite<'a> {
    /// Passes on the pieces of a list with its brackets: the `system` items, what the provider
    /// compacted, and the messages. If two items followed each other before, the text between them
    /// is kept.
    pub(super) fn list<'p>(
        &self,
        list: &Range<usize>,
        system: Vec<Cow<'p, str>>,
        messages: &[(Option<usize>, &'p str)],
        mut put: impl FnMut(ListPiece, Cow<'p, str>),
    ) where
        'a: 'p,
    {
        let items = &self.body.items;
        let leading = self.system_items.len();
        let system = system
            .into_iter()
            .enumerate()
            .map(|(at, text)| ((at < leading).then_some(at), text));
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
        let between = |at: usize| -> &'a str {
            let start = match at.checked_sub(1).and_then(|before| items.get(before)) {
                Some(before) => before.end,
                None => list.start + 1,
            };
            let end = items.get(at).map_or(start, |item| item.start);
            self.document.get(start..end).unwrap_or("")
        };
        // New messages are separated the way the document separates its own.
        let usual_gap = if items.len() > 1 { between(1) } else { "" };
        let comma = usual_gap.find(',').and_then(|at| usual_gap.get(at..));
        let usual_gap = comma.unwrap_or(",");
        // The list may have been a single string, which has no text after an opening bracket.
        let is_list = self
            .document
            .get(list.clone())
            .is_some_and(|text| text.starts_with('['));
        put(ListPiece::Between, Cow::Borrowed("["));
        let mut gap = if is_list { between(0) } else { "" };
        let mut previous = None;
        for (at, (origin, text)) in system.chain(compacted).chain(messages).enumerate() {
            if at > 0 {
                gap = match origin {
                    Some(index) if index > 0 && previous == Some(index - 1) => between(index),
                    _ => usual_gap,
                };
            }
            put(ListPiece::Between, Cow::Borrowed(gap));
            put(ListPiece::Item, text);
            (previous, gap) = (origin, "");
        }
        put(ListPiece::Between, Cow::Borrowed(gap));
        let tail = items
            .last()
            .and_then(|last| self.document.get(last.end..list.end - 1));
        let tail = tail.filter(|tail| tail.trim().is_empty()).unwrap_or("");
        put(ListPiece::Between, Cow::Borrowed(tail));
        put(ListPiece::Between, Cow::Borrowed("]"));
    }

    /// Returns the leading system messages, with the note if it belongs in the list.
    pub(super) fn system_items_with(&self, note: Option<&str>) -> Vec<Cow<'a, str>> {
        let in_list = note.filter(|_| !self.note_in_member());
        system_items_with(self.document, self.format, self.system_items, in_list)
    }

    /// Whether the system prompt, and with it a note, is stored in a member of the body.
    pub(super) fn note_in_member(&self) -> bool {
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

    /// The value of the member with the system prompt, with the note after it.
    pub(super) fn system_with(&self, span: &Range<usize>, note: &str) -> String {
        let mut edits = Edits::default();
        let text = Raw::trusted(self.document, span.clone());
        append_text(text, note, part_type(self.format, "system"), &mut edits);
        edits.apply(self.document, span.clone())
    }

    /// Where the first member of the body begins.
    pub(super) fn first_member(&self) -> usize {
        skip_space(self.document, self.body.span.start + 1)
    }
}

/// The name and the value of a member with `note` as the system prompt.
pub(super) fn new_system(format: Format, note: &str) -> (&'static str, String) {
    match format {
        Format::Anthropic => ("system", quote(note)),
        Format::Gemini => ("systemInstruction", gemini::instruction(note)),
        _ => ("instructions", quote(note)),
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
        let raw = Raw::whole(text);
        tools_of(raw).is_none() && !is_setup(raw)
    };
    match items.iter_mut().find(takes_note) {
        Some(first) => {
            let raw = Raw::whole(first);
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
            let comma = text.comma();
            let part = text_part(part, &quote(note));
            let end = text.elements().last().map_or(end, |last| last.span().end);
            edits.replace(end..end, format!("{comma}{part}"));
        }
        None => edits.replace(text.span(), quote(note)),
    }
}
