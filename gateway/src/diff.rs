//! What a compaction changed of what the model sees: what went, what stands in its place, and how much is as it was.

use std::collections::HashSet;

use contexture::session::BodyMessage;
use serde_json::{Value, json};

/// The most that is kept of a message, and of all of them, in bytes.
const LONGEST: usize = 4_000;
const MOST: usize = 256_000;

struct Writing {
    entries: Vec<Value>,
    kept: u64,
    room: usize,
    is_cut: bool,
}

impl Writing {
    /// A message, or as much of it as there is room for.
    fn part(&mut self, message: &str) -> String {
        let mut part = match message.len() <= LONGEST {
            true => message.to_owned(),
            false => shortened(message),
        };
        part.truncate(part.floor_char_boundary(LONGEST.min(self.room)));
        self.room -= part.len();
        self.is_cut |= part.len() < message.len();
        part
    }

    fn put(&mut self, before: Option<&str>, after: Option<&str>) {
        self.flush();
        if self.room == 0 {
            self.is_cut = true;
            return;
        }
        let mut entry = json!({});
        if let Some(before) = before {
            entry["before"] = json!(self.part(before));
        }
        if let Some(after) = after {
            entry["after"] = json!(self.part(after));
        }
        self.entries.push(entry);
    }

    fn flush(&mut self) {
        if self.kept > 0 {
            self.entries.push(json!({"kept": self.kept}));
            self.kept = 0;
        }
    }
}

/// A long message with each of its texts cut short, so that it can still be read as a message.
fn shortened(message: &str) -> String {
    let Ok(whole) = serde_json::from_str::<Value>(message) else {
        return message.to_owned();
    };
    let with_texts_of = |most: usize| {
        let mut short = whole.clone();
        cut(&mut short, most);
        short.to_string()
    };
    let lengths = std::iter::successors(Some(LONGEST / 2), |most| Some(most / 2));
    let mut shorter = lengths.take_while(|most| *most > 0).map(with_texts_of);
    shorter
        .find(|short| short.len() <= LONGEST)
        .unwrap_or_else(|| message.to_owned())
}

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

/// What the model saw of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// What stood there in place of the first of its wire messages.
    instead: Vec<BodyMessage>,
    /// The wire message from which on all were there as they came.
    rest: usize,
}

/// What is the same in two bodies: a wire message, or what the host put in.
#[derive(PartialEq, Eq, Hash)]
enum Key<'m> {
    Wire(usize),
    Text(&'m str),
}

fn key(message: &BodyMessage) -> Key<'_> {
    match message {
        BodyMessage::Kept(at) | BodyMessage::Changed(at, _) => Key::Wire(*at),
        BodyMessage::Added(text) => Key::Text(text),
    }
}

impl Sent {
    /// What it sees now.
    pub(crate) fn now(mut body: Vec<BodyMessage>) -> Self {
        let wire = |message: &BodyMessage| match message {
            BodyMessage::Kept(at) | BodyMessage::Changed(at, _) => Some(*at + 1),
            BodyMessage::Added(_) => None,
        };
        // The newest message is always there.
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

    /// The changes to this `body`, in the order of the conversation; `request` is the wire messages of both.
    pub(crate) fn changes(&self, request: &[&str], body: &[BodyMessage]) -> Value {
        let rest = (self.rest..request.len()).map(BodyMessage::Kept);
        let before: Vec<BodyMessage> = self.instead.iter().cloned().chain(rest).collect();
        let (had, has): (HashSet<Key<'_>>, HashSet<Key<'_>>) = (
            before.iter().map(key).collect(),
            body.iter().map(key).collect(),
        );
        let words = |message: &'_ BodyMessage| match message {
            BodyMessage::Kept(at) => request.get(*at).map(|raw| (*raw).to_owned()),
            BodyMessage::Changed(_, text) | BodyMessage::Added(text) => Some(text.clone()),
        };
        let mut writing = Writing {
            entries: Vec::new(),
            kept: 0,
            room: MOST,
            is_cut: false,
        };
        let (mut before, mut after) = (before.iter().peekable(), body.iter().peekable());
        loop {
            match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(old), Some(new)) if old == new => {
                    writing.kept += 1;
                    before.next();
                    after.next();
                }
                (Some(old), Some(new)) if key(old) == key(new) => {
                    writing.put(words(old).as_deref(), words(new).as_deref());
                    before.next();
                    after.next();
                }
                (Some(old), new) if new.is_none() || !has.contains(&key(old)) => {
                    writing.put(words(old).as_deref(), None);
                    before.next();
                }
                (old, Some(new)) if old.is_none() || !had.contains(&key(new)) => {
                    writing.put(None, words(new).as_deref());
                    after.next();
                }
                // What stands elsewhere now.
                _ => {
                    before.next();
                }
            }
        }
        writing.flush();
        json!({"entries": writing.entries, "is_cut": writing.is_cut})
    }
}
