//! Computes what a compaction changed in the messages that the model sees, for the status page.
//!
//! [`SentMessages`] remembers which messages the model saw in the last request of a session.
//! [`SentMessages::changes`] compares them with those of the current request. The result is a list
//! of entries in the order of the conversation: a message that was removed, added or replaced, or a
//! number of unchanged messages.
//!
//! To save memory, the messages of the last request are stored only up to the point from which they
//! equal the client's own. To keep the result small, long messages are shortened, see
//! [`MAX_MESSAGE_BYTES`] and [`MAX_DIFF_BYTES`].

use std::collections::HashSet;

use contexture::session::BodyMessage;
use serde::Serialize;
use serde_json::Value;

/// The most bytes that are kept of one message, and of all messages of a diff.
const MAX_MESSAGE_BYTES: usize = 4_000;
const MAX_DIFF_BYTES: usize = 256_000;

/// What a compaction changed, in the order of the conversation.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Diff {
    entries: Vec<DiffEntry>,
    /// Whether the rest was too long to be kept.
    is_cut: bool,
}

#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
enum DiffEntry {
    /// So many messages did not change.
    Kept { kept: u64 },
    /// A message before and after, each as JSON. One of them is None if the message was added or
    /// removed.
    Changed {
        #[serde(skip_serializing_if = "Option::is_none")]
        before: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        after: Option<String>,
    },
}

/// A diff that is being written. It counts unchanged messages until the next change, and tracks how
/// many bytes may still be added.
struct DiffWriter {
    entries: Vec<DiffEntry>,
    kept: u64,
    remaining: usize,
    is_cut: bool,
}

impl DiffWriter {
    /// Returns a message, or as much of it as fits, and subtracts it from the remaining room.
    fn part(&mut self, message: &str) -> String {
        let mut part = match message.len() <= MAX_MESSAGE_BYTES {
            true => message.to_owned(),
            false => shortened(message),
        };
        part.truncate(part.floor_char_boundary(MAX_MESSAGE_BYTES.min(self.remaining)));
        self.remaining -= part.len();
        self.is_cut |= part.len() < message.len();
        part
    }

    /// Adds an entry with the message before and after. One of them is None if the message was
    /// added or removed. If no room is left, the diff is marked as cut.
    fn put(&mut self, before: Option<&str>, after: Option<&str>) {
        self.flush();
        if self.remaining == 0 {
            self.is_cut = true;
            return;
        }
        let before = before.map(|message| self.part(message));
        let after = after.map(|message| self.part(message));
        self.entries.push(DiffEntry::Changed { before, after });
    }

    /// Writes the number of unchanged messages since the last entry.
    fn flush(&mut self) {
        if self.kept > 0 {
            self.entries.push(DiffEntry::Kept { kept: self.kept });
            self.kept = 0;
        }
    }
}

/// Shortens the texts in a message until it fits, so that it is still a readable JSON message. A
/// message that is not JSON is returned unchanged.
fn shortened(message: &str) -> String {
    let Ok(whole) = serde_json::from_str::<Value>(message) else {
        return message.to_owned();
    };
    let with_texts_of = |most: usize| {
        let mut short = whole.clone();
        cut(&mut short, most);
        short.to_string()
    };
    // Each attempt halves the length of the texts, until the message fits.
    let lengths = std::iter::successors(Some(MAX_MESSAGE_BYTES / 2), |most| Some(most / 2));
    let mut shorter = lengths.take_while(|most| *most > 0).map(with_texts_of);
    shorter
        .find(|short| short.len() <= MAX_MESSAGE_BYTES)
        .unwrap_or_else(|| message.to_owned())
}

/// Shortens each text in a JSON value to `most` bytes, and marks it with an ellipsis.
fn cut(value: &mut Value, most: usize) {
    match value {
        Value::String(text) if text.len() > most => {
            text.truncate(text.floor_char_boundary(most));
            text.push('…');
        }
        Value::Array(items) => items.iter_mut().for_each(|item| cut(item, most)),
        Value::Object(fields) => fields.values_mut().for_each(|field| cut(field, most)),
        _ => {}
    }
}

/// The messages that the model saw in the last request of a session.
#[derive(Debug, Default)]
pub(crate) struct SentMessages {
    /// The messages that stood in place of the client's first ones, such as a summary. Empty if all
    /// were sent unchanged.
    instead: Vec<BodyMessage>,
    /// The index of the client's message from which on all were sent unchanged.
    rest: usize,
}

/// Identifies a message in two bodies: by its position in the client's request, or by its text if
/// the host added it.
#[derive(PartialEq, Eq, Hash)]
enum MessageKey<'m> {
    Wire(usize),
    Text(&'m str),
}

fn key(message: &BodyMessage) -> MessageKey<'_> {
    match message {
        BodyMessage::Kept(at) | BodyMessage::Changed(at, _) => MessageKey::Wire(*at),
        BodyMessage::Added(text) => MessageKey::Text(text),
    }
}

impl SentMessages {
    /// Remembers the messages of a body that is sent. The unchanged messages at its end are not
    /// stored, but only counted.
    pub(crate) fn now(mut body: Vec<BodyMessage>) -> Self {
        let wire = |message: &BodyMessage| match message {
            BodyMessage::Kept(at) | BodyMessage::Changed(at, _) => Some(*at + 1),
            BodyMessage::Added(_) => None,
        };
        // The newest message is always part of the body, so the largest position is the number of
        // messages.
        let wires = body.iter().filter_map(wire).max().unwrap_or_default();
        let as_came = body.iter().rev().zip((0..wires).rev());
        let kept = as_came
            .take_while(|(message, at)| matches!(message, BodyMessage::Kept(kept) if kept == at));
        let kept = kept.count();
        body.truncate(body.len() - kept);
        body.shrink_to_fit();
        Self {
            instead: body,
            rest: wires - kept,
        }
    }

    /// The changes from the remembered body to this one, in the order of the conversation.
    /// `request` has the wire messages that both refer to.
    pub(crate) fn changes(&self, request: &[&str], body: &[BodyMessage]) -> Diff {
        let rest = (self.rest..request.len()).map(BodyMessage::Kept);
        let before: Vec<BodyMessage> = self.instead.iter().cloned().chain(rest).collect();
        let (had, has): (HashSet<MessageKey<'_>>, HashSet<MessageKey<'_>>) = (
            before.iter().map(key).collect(),
            body.iter().map(key).collect(),
        );
        let words = |message: &'_ BodyMessage| match message {
            BodyMessage::Kept(at) => request.get(*at).map(|raw| (*raw).to_owned()),
            BodyMessage::Changed(_, text) | BodyMessage::Added(text) => Some(text.clone()),
        };
        let mut writer = DiffWriter {
            entries: Vec::new(),
            kept: 0,
            remaining: MAX_DIFF_BYTES,
            is_cut: false,
        };
        let (mut before, mut after) = (before.iter().peekable(), body.iter().peekable());
        loop {
            match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(old), Some(new)) if old == new => {
                    writer.kept += 1;
                    before.next();
                    after.next();
                }
                (Some(old), Some(new)) if key(old) == key(new) => {
                    writer.put(words(old).as_deref(), words(new).as_deref());
                    before.next();
                    after.next();
                }
                (Some(old), new) if new.is_none() || !has.contains(&key(old)) => {
                    writer.put(words(old).as_deref(), None);
                    before.next();
                }
                (old, Some(new)) if old.is_none() || !had.contains(&key(new)) => {
                    writer.put(None, words(new).as_deref());
                    after.next();
                }
                // The old message still exists at another position, so it was not removed.
                _ => {
                    before.next();
                }
            }
        }
        writer.flush();
        Diff {
            entries: writer.entries,
            is_cut: writer.is_cut,
        }
    }
}
