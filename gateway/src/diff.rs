//! What a compaction changed of a request: what went, what stands in its place, and how much is as it was.

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

/// The changes, in the order of the conversation; `request` is its wire messages, `body` what stands for them.
pub(crate) fn of(request: &[&str], body: &[BodyMessage]) -> Value {
    let mut writing = Writing {
        entries: Vec::new(),
        kept: 0,
        room: MOST,
        is_cut: false,
    };
    let mut next = 0;
    for message in body {
        let at = match message {
            BodyMessage::Kept(at) | BodyMessage::Changed(at, _) => Some(*at),
            BodyMessage::Added(_) => None,
        };
        for gone in request.get(next..at.unwrap_or(next)).unwrap_or_default() {
            writing.put(Some(gone), None);
        }
        next = next.max(at.map_or(0, |at| at + 1));
        match message {
            BodyMessage::Kept(_) => writing.kept += 1,
            BodyMessage::Changed(at, text) => writing.put(request.get(*at).copied(), Some(text)),
            BodyMessage::Added(text) => writing.put(None, Some(text)),
        }
    }
    for gone in request.get(next..).unwrap_or_default() {
        writing.put(Some(gone), None);
    }
    writing.flush();
    json!({"entries": writing.entries, "is_cut": writing.is_cut})
}
