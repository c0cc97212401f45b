//! The facts of a span, without duplicates, and the value of each.

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

use crate::readings::Reading;
use crate::scan::{Find, Kind, Signal, scan};
use crate::span::{Origin, Span};
use crate::text::chars;
use crate::tool::Action;

/// A fact, at its first occurrence.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) kind: Kind,
    /// The source, and the bytes in its text.
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The number of messages that contain it.
    pub(crate) messages: u32,
    last_message: usize,
    /// The messages in which the assistant or a user says it.
    used: u32,
    last_used: usize,
    /// The characters it takes to write, with the comma after it.
    pub(crate) cost: usize,
    pub(crate) worth: f32,
}

impl Fact {
    pub(crate) fn text<'s>(&self, span: &'s Span<'_>) -> &'s str {
        &span.sources[self.source].text[self.start..self.end]
    }
}

/// The facts of every source, in order of first occurrence.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) all: Vec<Fact>,
    /// The hash of a fact's text, and its index. Two facts of one hash would count as one, which harms nothing.
    by_text: HashTable<(u64, usize)>,
}

impl Facts {
    /// Collects the facts of every source, and notes in each source where it reports an outcome. What was read of
    /// a message before is not looked for again.
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

    /// The fact with this text.
    pub(crate) fn find(&self, text: &str) -> Option<usize> {
        let hash = xxh3_64(text.as_bytes());
        let found = self.by_text.find(hash, |(known, _)| *known == hash);
        found.map(|(_, at)| *at)
    }
}

/// The value of a fact. What users said comes first, then what was written over what was read. What stands in one
/// message counts little less for being old; what is said again counts by how often somebody used it, rather than
/// being shown it, and by how lately. A directory's name alone is for where there is room.
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

/// Whether a path is the name of a directory and nothing more, as `src/` is.
fn is_bare_directory(path: &str) -> bool {
    path.strip_suffix('/')
        .is_some_and(|name| !name.contains(['/', '.', '_']))
}
