//! Reading a wire message back if its text is not the message itself.
//!
//! The text of most wire messages is a message, and [`excerpt`](crate::excerpt) reads it. A line of
//! a session log is different. The message is only a part of the line, or was made from it, and the
//! neighbouring lines decide who speaks and which lines form one message.
//!
//! A store that keeps the text of such a line therefore keeps a [`WireReading`] with it.
//! [`Conversation::wire_reading`] makes the reading while the whole log is known, and
//! [`excerpt_with`] uses it later to read the line on its own. If the stored text is masked,
//! [`WireReading::masked`] moves the positions accordingly.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::calls::KnownCalls;
use super::conversation::Conversation;
use super::excerpt::lone;
use super::item_span::ItemSpan;
use super::json::Raw;
use super::views::{Speaker, WireItem, read_items};
use super::{Format, FormatError};

/// Instructions for reading the messages of one wire message from its text. They can be stored as
/// JSON next to the text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireReading(Vec<WirePart>);

/// A wire item within the text: its JSON, and what the lines of the log say about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct WirePart {
    json: PartJson,
    #[serde(default, skip_serializing_if = "is_default")]
    speaker: Speaker,
    #[serde(default, skip_serializing_if = "is_default")]
    continues: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum PartJson {
    /// The item is the part of the text between these two byte offsets.
    Found(usize, usize),
    /// The item was made from the line, so its JSON is stored here.
    Made(String),
}

/// Serde leaves out fields with their default value, so that most readings are short.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl WireReading {
    /// Masks the text of a wire message. Returns the masked text with a reading that fits it.
    ///
    /// Each item is masked on its own and searched in the masked text, in order. If it is not found
    /// there, the new reading contains the JSON of the item itself.
    pub fn masked<'t>(
        &self,
        text: &'t str,
        mask: impl Fn(&str) -> Cow<'_, str>,
    ) -> (Cow<'t, str>, Self) {
        let masked: Cow<'t, str> = match mask(text) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(masked) => Cow::Owned(masked),
        };
        let mut from = 0;
        let parts = self.0.iter().map(|part| {
            let json = mask(part.json.of(text)).into_owned();
            // Masking changes lengths, so the old byte offsets do not fit the masked text.
            let place = masked.get(from..).and_then(|rest| rest.find(&json));
            let json = match (&part.json, place) {
                (PartJson::Found(..), Some(at)) => {
                    let start = from + at;
                    from = start + json.len();
                    PartJson::Found(start, from)
                }
                _ => PartJson::Made(json),
            };
            WirePart {
                json,
                ..part.clone()
            }
        });
        let parts = parts.collect();
        (masked, Self(parts))
    }
}

impl PartJson {
    /// The JSON of the item. Empty if the offsets lie outside of the text.
    fn of<'t>(&'t self, text: &'t str) -> &'t str {
        match self {
            Self::Found(start, end) => text.get(*start..*end).unwrap_or(""),
            Self::Made(json) => json,
        }
    }
}

impl Conversation {
    /// Returns how to read the text from [`raw`](Self::raw) of a message later. `None` if there is
    /// no such message, or if [`excerpt`](crate::excerpt) can read the text without help.
    pub fn wire_reading(&self, message: usize) -> Option<WireReading> {
        let items = self.messages.get(message)?.items.clone();
        let items = self.items.get(items)?;
        let is_bare = |item: &ItemSpan| {
            item.outer == item.body && item.speaker == Speaker::Wire && !item.continues
        };
        if items.iter().all(is_bare) {
            return None;
        }
        let first = items.first()?.outer.start;
        let is_scattered = self.scattered.contains_key(&message);
        let mut lines = 0;
        let parts = items.iter().map(|item| {
            let Range { start, end } = item.outer;
            // `raw` joins scattered lines with a line end each, so the positions are counted over
            // the joined lines.
            let line = match is_scattered {
                true => lines,
                false => start - first,
            };
            lines += end - start + 1;
            let is_within = start <= item.body.start && item.body.end <= end;
            let json = match is_within {
                true => {
                    let at = line + item.body.start - start;
                    PartJson::Found(at, at + item.body.len())
                }
                false => PartJson::Made(self.text_of_span(&item.body).to_owned()),
            };
            WirePart {
                json,
                speaker: item.speaker,
                continues: item.continues,
            }
        });
        Some(WireReading(parts.collect()))
    }

    /// The text of a byte range of the document. Empty if the range is not within it.
    fn text_of_span(&self, span: &Range<usize>) -> &str {
        self.document.get(span.clone()).unwrap_or("")
    }
}

/// Reads the text of a wire message into a conversation that holds nothing else. `earlier` holds
/// the calls before it, as in [`excerpt`](crate::excerpt), and is extended by the calls in this
/// text.
///
/// # Errors
/// The text does not fit the reading, for example because an item is not valid JSON.
pub fn excerpt_with(
    format: Format,
    text: &str,
    reading: &WireReading,
    earlier: &mut KnownCalls,
) -> Result<Conversation, FormatError> {
    let mut document = text.to_owned();
    let mut items = Vec::with_capacity(reading.0.len());
    for part in &reading.0 {
        let body = match &part.json {
            PartJson::Found(start, end) => *start..*end,
            PartJson::Made(json) => {
                // The JSON is appended after the text, so that every item is a part of one
                // document.
                document.push('\n');
                document.push_str(json);
                document.len() - json.len()..document.len()
            }
        };
        items.push(ItemSpan {
            outer: 0..text.len(),
            speaker: part.speaker,
            continues: part.continues,
            ..ItemSpan::bare(body)
        });
    }
    let mut wire = Vec::with_capacity(items.len());
    for (at, part) in reading.0.iter().enumerate() {
        let raw = Raw::parse(part.json.of(text)).map_err(|error| {
            let what = format!("it is not valid JSON at byte {}: {}", error.at, error.what);
            FormatError::message(at, what)
        })?;
        wire.push(WireItem {
            raw,
            continues: part.continues,
            speaker: part.speaker,
            time_ms: None,
        });
    }
    let messages = read_items(format, wire.into_iter(), earlier)?;
    Ok(lone(format, document, items, messages))
}
