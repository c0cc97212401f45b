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
    /// The beginning of a text, as far as there is room.
    fn part<'t>(&mut self, text: &'t str) -> &'t str {
        let end = text.floor_char_boundary(LONGEST.min(self.room));
        self.room -= end;
        self.is_cut |= end < text.len();
        text.get(..end).unwrap_or_default()
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
