//! Reads a text for a question: where its words occur, and other signs.

use std::ops::Range;

use super::parse::are_akin;
use super::score::size;
use super::speaker::speaker_of;
use super::{Form, Map, Question};
use crate::error::StoreError;
use crate::search::lexicon::lexicon;
use crate::search::run::Search;
use crate::search::snippet::MAX_COUNTED;
use crate::store::Key;
use crate::text::fold::{fold_into, in_original};
use crate::text::terms::{Class, runs};

/// What was seen in a text.
pub(super) struct Reading {
    pub(super) occurrences: Vec<Occurrence>,
    pub(super) words: usize,
    /// Who speaks, folded, where the text says so.
    pub(super) speaker: Option<String>,
    /// Whether it contains something of the kind asked for.
    pub(super) has_wanted: bool,
    /// Whether it ends with a question.
    pub(super) asks: bool,
}

/// A term at a place in a text.
pub(super) struct Occurrence {
    /// Its index.
    pub(super) term: usize,
    /// Which word of the text.
    pub(super) word: usize,
    /// Where in the folded text.
    range: Range<usize>,
    /// Whether it is part of a question.
    pub(super) asked: bool,
}

/// Reads texts, reusing its buffers.
pub(super) struct Reader<'q> {
    question: &'q Question,
    folded: String,
    /// Which terms a word is a form of.
    known: Map<String, Vec<usize>>,
}

impl Question {
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            question: self,
            folded: String::new(),
            known: Map::default(),
        }
    }

    /// Reads the messages, in the order in which they are stored.
    pub(super) fn read_all(
        &mut self,
        search: &mut Search<'_>,
        mut messages: Vec<Key>,
    ) -> Result<Vec<(Key, Reading)>, StoreError> {
        messages.sort_unstable();
        let mut readings = Vec::with_capacity(messages.len());
        let mut reader = self.reader();
        for key in messages {
            let reading = search.with_body(key, |body| reader.read(body.as_str()))?;
            readings.extend(reading.map(|reading| (key, reading)));
        }
        let words: usize = readings.iter().map(|(_, reading)| size(reading)).sum();
        self.mean_size = (words as f64 / readings.len().max(1) as f64).max(1.0);
        Ok(readings)
    }

    /// The terms that a folded word is a form of.
    fn terms_of(&self, word: &str) -> Vec<usize> {
        let stem = lexicon().stem(word);
        let mut found = self.by_stem.get(&stem).cloned().unwrap_or_default();
        for (at, term) in self.terms.iter().enumerate() {
            if let Form::Akin { stem: other, .. } = &term.form
                && are_akin(&stem, other)
            {
                found.push(at);
            }
        }
        found
    }

    fn grams(&self) -> impl Iterator<Item = (usize, &str)> {
        self.terms
            .iter()
            .enumerate()
            .filter_map(|(at, term)| match &term.form {
                Form::Gram(gram) => Some((at, gram.as_str())),
                Form::Stem { .. } | Form::Akin { .. } => None,
            })
    }

    /// The positions of the terms in a text, the densest first.
    pub(in crate::search) fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut occurrences = self.reader().read(text).occurrences;
        occurrences.retain(|occurrence| self.terms[occurrence.term].weight > 0.0);
        let weight_from = |at: usize| {
            let end = occurrences[at].range.start + 200;
            let mut groups: Vec<usize> = Vec::new();
            let mut weight = 0.0;
            for occurrence in &occurrences[at..] {
                let term = &self.terms[occurrence.term];
                if occurrence.range.start >= end {
                    break;
                }
                if !groups.contains(&term.group) {
                    groups.push(term.group);
                    weight += term.idf * term.weight;
                }
            }
            weight
        };
        let best = (0..occurrences.len())
            .max_by(|a, b| weight_from(*a).total_cmp(&weight_from(*b)).then(b.cmp(a)))
            .unwrap_or(0);
        let mut places: Vec<Range<usize>> = occurrences
            .get(best..)
            .unwrap_or_default()
            .iter()
            .chain(&occurrences[..best])
            .take(MAX_COUNTED)
            .map(|occurrence| occurrence.range.clone())
            .collect();
        in_original(text, &mut places);
        places
    }
}

impl Reader<'_> {
    pub(super) fn read(&mut self, text: &str) -> Reading {
        fold_into(text, &mut self.folded);
        let (occurrences, words) = self.occurrences();
        let wanted = self.question.wanted;
        Reading {
            occurrences,
            words,
            speaker: speaker_of(text).map(str::to_lowercase),
            has_wanted: wanted.is_some_and(|wanted| wanted.is_in(text, &self.folded)),
            asks: text.trim_end().ends_with(['?', '？']),
        }
    }

    /// The positions of the terms in a text, in order, and the number of its words.
    fn occurrences(&mut self) -> (Vec<Occurrence>, usize) {
        let Self {
            question,
            folded,
            known,
        } = self;
        let mut found = Vec::new();
        let mut words = 0;
        let mut add = |term: usize, word: usize, range: Range<usize>| {
            found.push(Occurrence {
                term,
                word,
                range,
                asked: false,
            });
        };
        for run in runs(folded) {
            let part = &folded[run.range.clone()];
            if run.class == Class::Word {
                words += 1;
                if !known.contains_key(part) {
                    known.insert(part.to_owned(), question.terms_of(part));
                }
                for term in known.get(part).into_iter().flatten() {
                    add(*term, words, run.range.clone());
                }
                continue;
            }
            for (at, _) in part.char_indices() {
                words += 1;
                let start = run.range.start + at;
                for (term, gram) in question.grams() {
                    if part[at..].starts_with(gram) {
                        add(term, words, start..start + gram.len());
                    }
                }
            }
        }
        mark_asked(folded, &mut found);
        (found, words)
    }
}

/// Marks the terms in sentences that end with a question mark.
fn mark_asked(folded: &str, occurrences: &mut [Occurrence]) {
    let mut end = 0;
    let mut asked = false;
    for occurrence in occurrences {
        if occurrence.range.start >= end {
            let rest = &folded[occurrence.range.end..];
            let stop = rest.find(['.', '!', '?', '\n', '。', '！', '？']);
            end = stop.map_or(folded.len(), |stop| occurrence.range.end + stop + 1);
            asked = stop.is_some_and(|stop| rest[stop..].starts_with(['?', '？']));
        }
        occurrence.asked = asked;
    }
}
