//! The facts of a span, without duplicates, and the value of each.
//!
//! [`Facts::of`] scans every source of a span, or takes what was found in it earlier, and counts in
//! how many messages each fact occurs. `worth` turns these counts into a value. Which facts are
//! written is decided in `render`, which divides this value by the characters that a fact takes. A
//! fact is identified by its exact text.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::beside::TextsBeside;
use crate::readings::Reading;
use crate::scan::{Find, Kind, Signal, scan};
use crate::source::Origin;
use crate::span::Span;
use crate::text::chars;
use crate::tool::Action;

/// A fact, at the position of its first occurrence in the span. `cost` is the number of characters
/// it takes to write, with the comma after it.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) kind: Kind,
    /// The index of the source. The bytes of the fact in its text are `start..end`.
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) messages: u32,
    last_message: usize,
    /// The number of messages in which the assistant or a user says it. Tool results do not count.
    used: u32,
    last_used: usize,
    pub(crate) cost: usize,
    pub(crate) worth: f32,
}

impl Fact {
    pub(crate) fn text<'s>(&self, span: &'s Span<'_>) -> &'s str {
        &span.sources[self.source].text[self.start..self.end]
    }
}

/// The facts of every source, in order of first occurrence, and an index of them by text.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) all: Vec<Fact>,
    /// The hash of a fact's text, and its index. If two facts had the same hash, they would count
    /// as one, which does little harm.
    by_text: HashTable<(u64, usize)>,
}

impl Facts {
    /// Collects the facts of every source, and records in each source the positions that report an
    /// error or an outcome. A message with a reading in `known` is not scanned again.
    pub(crate) fn of(span: &mut Span<'_>, known: &[Option<&Reading>]) -> Self {
        let mut facts = Self::default();
        let mut first_of_message = 0;
        for at in 0..span.sources.len() {
            let source = &span.sources[at];
            if source.message != span.sources[first_of_message].message {
                first_of_message = at;
            }
            let mut error = None;
            let mut outcome = None;
            let take = |found| match found {
                Find::Signal(Signal::Error, place) => error = error.or(Some(place)),
                // The first error usually names the cause, and the last outcome is the total.
                Find::Signal(Signal::Outcome, place) => outcome = Some(place),
                Find::Fact(kind, range) => facts.add(span, at, kind, range),
            };
            match known.get(source.message) {
                Some(Some(reading)) => reading.finds(at - first_of_message).for_each(take),
                _ => scan(&source.text, take),
            }
            span.sources[at].error = error;
            span.sources[at].outcome = outcome;
        }
        for fact in &mut facts.all {
            fact.cost = chars(fact.text(span)) + ", ".len();
            fact.worth = worth(fact, span);
        }
        facts
    }

    fn add(&mut self, span: &Span<'_>, source: usize, kind: Kind, place: std::ops::Range<usize>) {
        let message = span.sources[source].message;
        // If a tool merely showed a name, nobody has used it yet.
        let is_use = !matches!(span.sources[source].origin, Origin::Result(_));
        let text = &span.sources[source].text[place.clone()];
        let hash = xxh3_64(text.as_bytes());
        let next = self.all.len();
        let is_it = |(known, _): &(u64, usize)| *known == hash;
        let entry = self.by_text.entry(hash, is_it, |(known, _)| *known);
        let (_, index) = *entry.or_insert((hash, next)).get();
        if index == next {
            self.all.push(Fact {
                kind,
                source,
                start: place.start,
                end: place.end,
                messages: 1,
                last_message: message,
                used: u32::from(is_use),
                last_used: if is_use { message } else { 0 },
                cost: 0,
                worth: 0.0,
            });
        } else {
            let fact = &mut self.all[index];
            // Count a message once, even if it contains the fact many times.
            if fact.last_message != message {
                fact.messages += 1;
                fact.last_message = message;
            }
            if is_use && (fact.used == 0 || fact.last_used != message) {
                fact.used += 1;
                fact.last_used = message;
            }
        }
    }

    /// Returns for each fact whether it is mentioned beside the summary.
    pub(crate) fn are_beside(&self, texts: &TextsBeside) -> Vec<bool> {
        let mut are_beside = vec![false; self.all.len()];
        for (hash, fact) in &self.by_text {
            are_beside[*fact] = texts.mentions(*hash);
        }
        are_beside
    }

    /// Returns the index of the fact with exactly this text.
    pub(crate) fn find(&self, text: &str) -> Option<usize> {
        let hash = xxh3_64(text.as_bytes());
        let found = self.by_text.find(hash, |(known, _)| *known == hash);
        found.map(|(_, at)| *at)
    }
}

/// Computes the value of a fact. What users said comes first, then what was written, then what was
/// read. The value of a fact in only one message decreases slightly with age. A fact in several
/// messages counts by how often a user or the assistant used it, and by how recently it occurred.
/// The name of a directory alone has no value, so it is written only if there is room left.
fn worth(fact: &Fact, span: &Span<'_>) -> f32 {
    if fact.kind == Kind::Path && is_bare_directory(fact.text(span)) {
        return 0.0;
    }
    let source = &span.sources[fact.source];
    let origin = match source.origin {
        Origin::User => 3.0,
        Origin::Argument(call)
            if matches!(span.calls[call].action, Action::Write | Action::Edit) =>
        {
            1.2
        }
        Origin::Assistant | Origin::Argument(_) | Origin::Result(_) => 1.0,
    };
    let age = |message: usize| 1.0 - message as f32 / span.messages.max(1) as f32;
    let said = match fact.messages {
        1 => 1.15 - 0.3 * age(source.message),
        _ => (1.0 + 0.3 * fact.used.min(8) as f32) * (1.15 - 0.7 * age(fact.last_message)),
    };
    origin * said
}

/// Whether a path is nothing but the name of a directory, like `src/`.
fn is_bare_directory(path: &str) -> bool {
    path.strip_suffix('/')
        .is_some_and(|name| !name.contains(['/', '.', '_']))
}
