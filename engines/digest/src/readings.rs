//! What was found in messages when they came: a digest of them need not look again.

use std::ops::Range;

use contexture_engine_api::{Cut, MessageId, MessageKind, MessageView};
use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::scan::{Find, Kind, Signal, scan};
use crate::span::Span;

/// What was found in messages that wait to be digested: about a tenth of their size.
///
/// Looking for facts and secrets is most of the work of a digest. An engine that is shown each message as it comes
/// has it done then, and its compaction waits for that much less.
#[derive(Debug, Default)]
pub struct Readings {
    by_id: HashMap<MessageId, Reading>,
}

impl Readings {
    /// Reads a message. One in which something is secret is read again by each digest, as is what no digest quotes.
    pub fn read(&mut self, message: &MessageView<'_>) {
        if message.kind() == MessageKind::Summary {
            return;
        }
        let span = Span::of(std::slice::from_ref(message), &[]);
        if span.is_masked {
            return;
        }
        let mut found = Vec::new();
        let mut ends = Vec::new();
        for source in &span.sources {
            // Longer than anybody writes; the places would not fit.
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

    /// Forgets these messages.
    pub fn forget(&mut self, ids: &[MessageId]) {
        for id in ids {
            self.by_id.remove(id);
        }
    }

    /// Forgets what was said behind a cut.
    pub fn cut(&mut self, cut: Cut) {
        self.by_id.retain(|id, _| cut.keeps(*id));
    }

    /// What was found in a message, where it still reads as it did.
    pub(crate) fn of(&self, message: &MessageView<'_>) -> Option<&Reading> {
        let reading = self.by_id.get(&message.id())?;
        (reading.print == print_of(message)).then_some(reading)
    }
}

/// What was found in one message, none of which is secret.
#[derive(Debug)]
pub(crate) struct Reading {
    print: u64,
    found: Box<[Found]>,
    /// Where what was found in each of its texts ends.
    ends: Box<[u32]>,
}

impl Reading {
    /// What was found in one of its texts, by the text's place among them.
    pub(crate) fn finds(&self, text: usize) -> impl Iterator<Item = Find> {
        let end = |text: usize| self.ends.get(text).map_or(0, |end| *end as usize);
        let start = text.checked_sub(1).map_or(0, end);
        self.found[start..end(text).max(start)]
            .iter()
            .map(Found::find)
    }
}

/// A find in half the bytes.
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

/// A hash of everything in a message that a digest reads.
fn print_of(message: &MessageView<'_>) -> u64 {
    let calls = message.tool_calls().iter();
    let of_calls = calls.flat_map(|call| [call.name(), call.arguments()]);
    [message.text(), message.tool_name().unwrap_or_default()]
        .into_iter()
        .chain(of_calls)
        .fold(0, |print, text| xxh3_64_with_seed(text.as_bytes(), print))
}
