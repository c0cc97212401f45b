//! The facts of a span, each once, and what each is worth.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::scan::{Found, Kind, Signal, scan};
use crate::span::{Origin, Span};
use crate::tool::Act;

/// XXH3 for short keys; the hasher of the standard library takes longer than the scan.
#[derive(Default)]
pub(crate) struct FastHasher(u64);

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }

    fn write_u8(&mut self, _end_of_str: u8) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// A fact, at the place where it first stands.
#[derive(Debug, Clone)]
pub(crate) struct Fact {
    pub(crate) kind: Kind,
    /// The source, and the bytes in its text.
    pub(crate) source: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// In how many messages it stands.
    pub(crate) messages: u32,
    last_message: usize,
}

impl Fact {
    pub(crate) fn text<'s>(&self, span: &'s Span<'_>) -> &'s str {
        &span.sources[self.source].text[self.start..self.end]
    }
}

/// Takes the facts out of every source, in order of their first place, and notes in each source where
/// it tells how something went.
pub(crate) fn facts(span: &mut Span<'_>) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    let mut signals = Vec::new();
    let mut known: FastMap<&str, usize> = FastMap::default();
    known.reserve(span.sources.len() * 4);
    for (at, source) in span.sources.iter().enumerate() {
        let text: &str = &source.text;
        let mut error = None;
        let mut outcome = None;
        scan(text, |found| match found {
            Found::Signal(Signal::Error, place) => error = error.or(Some(place)),
            Found::Signal(Signal::Outcome, place) => outcome = Some(place),
            Found::Fact(kind, range) => {
                let next = facts.len();
                let index = *known.entry(&text[range.clone()]).or_insert(next);
                if index == next {
                    facts.push(Fact {
                        kind,
                        source: at,
                        start: range.start,
                        end: range.end,
                        messages: 1,
                        last_message: source.message,
                    });
                } else if facts[index].last_message != source.message {
                    facts[index].messages += 1;
                    facts[index].last_message = source.message;
                }
            }
        });
        signals.push((error, outcome));
    }
    for (source, (error, outcome)) in span.sources.iter_mut().zip(signals) {
        source.error = error;
        source.outcome = outcome;
    }
    facts
}

/// What a fact is worth. What users said comes first, then errors, then what was written over what was
/// read, recent over old, and what stands in one message over what many repeat.
pub(crate) fn value(fact: &Fact, span: &Span<'_>) -> f32 {
    let source = &span.sources[fact.source];
    let kind = match fact.kind {
        Kind::Test => 1.2,
        // `src/` or `/config` alone says little.
        Kind::Path if bare_segment(fact.text(span)) => 0.3,
        Kind::Path | Kind::Hash | Kind::Name | Kind::Url => 1.0,
        Kind::Uuid => 0.9,
        Kind::Code => 0.8,
        Kind::Slashed => 0.4,
    };
    let origin = match source.origin {
        Origin::User => 3.0,
        Origin::Assistant => 1.1,
        Origin::Argument(call) => match span.calls[call].act {
            Act::Write | Act::Edit => 1.2,
            _ => 1.0,
        },
        Origin::Result(call) if span.calls[call].failed => 1.5,
        Origin::Result(_) => 1.0,
    };
    // A file named after a session or a commit tells its id too.
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
