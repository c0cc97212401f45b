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
                cost: 0,
                worth: 0.0,
            });
        } else if self.all[index].last_message != message {
            self.all[index].messages += 1;
            self.all[index].last_message = message;
        }
    }

    /// The fact with this text.
    pub(crate) fn find(&self, text: &str) -> Option<usize> {
        let hash = xxh3_64(text.as_bytes());
        let found = self.by_text.find(hash, |(known, _)| *known == hash);
        found.map(|(_, at)| *at)
    }
}

/// The value of a fact. What users said comes first, then errors; then written over read, recent over old,
/// and unique over repeated.
fn worth(fact: &Fact, span: &Span<'_>) -> f32 {
    let source = &span.sources[fact.source];
    let kind = match fact.kind {
        Kind::Test => 1.2,
        // `src/` or `/config` alone carries little information.
        Kind::Path if bare_segment(fact.text(span)) => 0.3,
        Kind::Path | Kind::Hash | Kind::Name | Kind::Url => 1.0,
        Kind::Uuid => 0.9,
        Kind::Code => 0.8,
        Kind::Slashed => 0.4,
    };
    let origin = match source.origin {
        Origin::User => 3.0,
        Origin::Assistant => 1.1,
        Origin::Argument(call) => match span.calls[call].action {
            Action::Write | Action::Edit => 1.2,
            _ => 1.0,
        },
        Origin::Result(call) if span.calls[call].failed => 1.5,
        Origin::Result(_) => 1.0,
    };
    // A file named after a session or a commit also contains its id.
    let ids = match fact.kind {
        Kind::Path => 1.0 + 0.7 * hex_runs(fact.text(span)) as f32,
        _ => 1.0,
    };
    let rarity = if fact.messages == 1 { 1.0 } else { 0.08 };
    let age = 1.0 - source.message as f32 / span.messages.max(1) as f32;
    kind * ids * origin * rarity * (1.15 - 0.3 * age)
}

/// The runs of eight or more hexadecimal digits.
fn hex_runs(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_hexdigit())
        .filter(|run| run.len() >= 8 && run.bytes().any(|byte| byte.is_ascii_digit()))
        .count()
}

fn bare_segment(path: &str) -> bool {
    let trimmed = path.trim_matches('/');
    trimmed.len() < path.len() && !trimmed.contains(['/', '.', '_'])
}
