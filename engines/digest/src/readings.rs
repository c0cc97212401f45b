//! What was found in messages when they arrived, so that a digest need not scan them again.
//!
//! Scanning for facts and secrets is most of the work of a digest, and a compaction has to wait for
//! it. [`Readings`] moves this work to the time at which a message arrives. A reading holds only
//! positions, not text, and a hash of the message, so a message that changed since is simply
//! scanned again. Messages with secrets have no reading, because their texts change when they are
//! masked.

use std::ops::Range;

use contexture_engine_api::{MessageId, MessageKind, MessageView};
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::scan::{Find, Kind, Signal, scan};
use crate::span::Span;

/// What was found in messages that wait to be digested. It takes about a tenth of their size.
///
/// An engine that sees each message as it arrives calls [`read`](Self::read) then, and passes the
/// readings to [`Digest::with`](crate::Digest::with) at a compaction, which is faster by that much.
#[derive(Debug, Default)]
pub struct Readings {
    by_id: HashMap<MessageId, Reading>,
}

impl Readings {
    /// Reads a message and keeps what it finds. A message with a secret is not kept, so each digest
    /// scans it again, and neither is a summary.
    pub fn read(&mut self, message: &MessageView<'_>) {
        if message.kind() == MessageKind::Summary {
            return;
        }
        let span = Span::of(std::slice::from_ref(message), |_| false);
        // If something was masked, the positions would be those of the masked text.
        if span.is_masked {
            return;
        }
        let mut found = Vec::new();
        let mut ends = Vec::new();
        for source in &span.sources {
            // Positions are stored in 32 bits, and no real text is longer.
            if u32::try_from(source.text.len()).is_err() {
                return;
            }
            scan(&source.text, |find| found.push(Found::of(&find)));
            ends.push(found.len() as u32);
        }
        let reading = Reading {
            print: print_of(message),
            found: found.into(),
            ends: ends.into(),
        };
        self.by_id.insert(message.id(), reading);
    }

    /// Forgets these messages, for instance because they left the window. Unknown ids are ignored.
    pub fn forget(&mut self, ids: &[MessageId]) {
        for id in ids {
            self.by_id.remove(id);
        }
    }

    /// Forgets all messages but those for which `is_kept` returns true, for instance those before a
    /// cut of the conversation.
    pub fn retain(&mut self, is_kept: impl Fn(MessageId) -> bool) {
        self.by_id.retain(|id, _| is_kept(*id));
    }

    /// Returns what was found in a message, or `None` if it was not read or its text has changed
    /// since.
    pub(crate) fn of(&self, message: &MessageView<'_>) -> Option<&Reading> {
        let reading = self.by_id.get(&message.id())?;
        (reading.print == print_of(message)).then_some(reading)
    }
}

/// What was found in one message that has no secrets. `ends` holds, for each of its texts, the end
/// of its finds.
#[derive(Debug)]
pub(crate) struct Reading {
    print: u64,
    found: Box<[Found]>,
    ends: Box<[u32]>,
}

impl Reading {
    /// Returns what was found in one of its texts, by the index of the text among those of the
    /// message.
    pub(crate) fn finds(&self, text: usize) -> impl Iterator<Item = Find> {
        let end = |text: usize| self.ends.get(text).map_or(0, |end| *end as usize);
        let start = text.checked_sub(1).map_or(0, end);
        self.found[start..end(text).max(start)]
            .iter()
            .map(Found::find)
    }
}

/// A find with 32-bit positions, which takes half the memory of a [`Find`].
#[derive(Debug)]
struct Found {
    what: What,
    start: u32,
    end: u32,
}

#[derive(Debug)]
enum What {
    Fact(Kind),
    Signal(Signal),
}

impl Found {
    fn of(find: &Find) -> Self {
        let (what, Range { start, end }) = match find {
            Find::Fact(kind, place) => (What::Fact(*kind), place.clone()),
            Find::Signal(signal, at) => (What::Signal(*signal), *at..*at),
        };
        Self {
            what,
            start: start as u32,
            end: end as u32,
        }
    }

    fn find(&self) -> Find {
        match self.what {
            What::Fact(kind) => Find::Fact(kind, self.start as usize..self.end as usize),
            What::Signal(signal) => Find::Signal(signal, self.start as usize),
        }
    }
}

/// Returns a hash of everything in a message that a digest reads. Its ids are not included.
fn print_of(message: &MessageView<'_>) -> u64 {
    let calls = message.tool_calls().iter();
    let of_calls = calls.flat_map(|call| [call.name(), call.arguments()]);
    [message.text(), message.tool_name().unwrap_or_default()]
        .into_iter()
        .chain(of_calls)
        .fold(0, |print, text| xxh3_64_with_seed(text.as_bytes(), print))
}
