//! Reads a text for a question: where its words occur, and other signs.

use std::hash::BuildHasher;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use super::speaker::speaker_of;
use super::{Map, Question};
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
    /// Which of the occurrences are in the passage by which the text is ranked: in a short one all.
    pub(super) passage: Range<usize>,
    /// The sentences of that passage, in the folded text.
    span: Range<usize>,
    /// A hash of these sentences: the same where they are repeated.
    pub(super) told: u64,
    /// Who speaks, folded, where the text says so.
    pub(super) speaker: Option<String>,
    /// Whether that passage contains something of the kind asked for.
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
    /// Its sentence in the folded text.
    sentence: Range<usize>,
    /// Whether it is part of a question.
    pub(super) asked: bool,
}

/// Reads texts, reusing its buffers.
pub(super) struct Reader<'q> {
    question: &'q Question<'q>,
    folded: String,
    /// Which terms a word is a form of.
    known: Map<String, Vec<usize>>,
}

impl Question<'_> {
    pub(super) fn reader(&self) -> Reader<'_> {
        Reader {
            question: self,
            folded: String::new(),
            known: Map::default(),
        }
    }

    /// Reads the messages, which come in the order in which they are stored.
    pub(super) fn read_all(
        &mut self,
        search: &mut Search<'_>,
        messages: Vec<Key>,
    ) -> Result<Vec<(Key, Reading)>, StoreError> {
        let mut readings = Vec::with_capacity(messages.len());
        let mut reader = self.reader();
        for key in messages {
            let reading = search.with_body(key, |body| reader.read(body.as_str()))?;
            readings.extend(reading.map(|reading| (key, reading)));
        }
        let words: usize = readings.iter().map(|(_, reading)| self.size(reading)).sum();
        self.mean_size = (words as f64 / readings.len().max(1) as f64).max(1.0);
        Ok(readings)
    }

    /// The terms that a folded word is a form of.
    fn terms_of(&self, word: &str) -> Vec<usize> {
        let found = self.by_stem.get(&lexicon().stem(word));
        found.cloned().unwrap_or_default()
    }

    /// The positions of the terms in a text, first those of the passage by which it is ranked, the densest
    /// first; and where that passage is.
    pub(in crate::search) fn places(
        &self,
        key: Key,
        text: &str,
    ) -> (Vec<Range<usize>>, Range<usize>) {
        let Reading {
            occurrences,
            passage,
            span,
            ..
        } = self.reader().read(text);
        let weight_from = |at: usize| {
            let end = occurrences[at].range.start + 200;
            let mut groups: Vec<usize> = Vec::new();
            let mut weight = 0.0;
            for occurrence in &occurrences[at..passage.end] {
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
        let counts = |at: &usize| self.terms[occurrences[*at].term].weight > 0.0;
        let best = passage
            .clone()
            .filter(counts)
            .max_by(|a, b| weight_from(*a).total_cmp(&weight_from(*b)).then(b.cmp(a)))
            .unwrap_or(0);
        let mut places: Vec<Range<usize>> = (best..occurrences.len())
            .chain(0..best)
            .filter(counts)
            .take(MAX_COUNTED)
            .map(|at| occurrences[at].range.clone())
            .collect();
        let mut span = [span];
        in_original(text, &mut span);
        in_original(text, &mut places);
        let [mut span] = span;
        if places.is_empty()
            && let Some(passage) = self.passage_alike(key, text)
        {
            places.push(passage.start..passage.start);
            span = passage;
        }
        (places, span)
    }
}

impl Reader<'_> {
    /// The terms that a folded word is a form of.
    pub(super) fn terms_of(&mut self, word: &str) -> &[usize] {
        if !self.known.contains_key(word) {
            let terms = self.question.terms_of(word);
            self.known.insert(word.to_owned(), terms);
        }
        self.known.get(word).map_or(&[], Vec::as_slice)
    }

    pub(super) fn read(&mut self, text: &str) -> Reading {
        fold_into(text, &mut self.folded);
        let (occurrences, words) = self.occurrences();
        let is_short = words <= self.question.weights.passage;
        let passage = self.question.passage(&occurrences, words);
        let span = match occurrences[passage.clone()] {
            [ref first, .., ref last] if !is_short => around(&self.folded, first, last),
            [ref only] if !is_short => around(&self.folded, only, only),
            _ => 0..self.folded.len(),
        };
        let folded = &self.folded[span.clone()];
        let told = FxBuildHasher.hash_one(folded);
        let has_wanted = self.question.wanted.is_some_and(|wanted| {
            let mut place = [span.clone()];
            in_original(text, &mut place);
            let [place] = place;
            wanted.is_in(&text[place], folded)
        });
        Reading {
            occurrences,
            words,
            passage,
            span,
            told,
            speaker: speaker_of(text).map(str::to_lowercase),
            has_wanted,
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
                sentence: 0..0,
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
                let rest = &part[at..];
                let mut ends = rest.char_indices().skip(1).map(|(end, _)| end);
                let ends = [ends.next(), ends.next()];
                // The last characters have none after them.
                let ends = match ends {
                    [Some(one), Some(two)] => [Some(one), Some(two)],
                    [Some(one), None] => [Some(one), Some(rest.len())],
                    _ => [Some(rest.len()), None],
                };
                for end in ends.into_iter().flatten() {
                    if let Some(term) = question.by_gram.get(&rest[..end]) {
                        add(*term, words, start..start + end);
                    }
                }
            }
        }
        mark_sentences(folded, &mut found);
        (found, words)
    }
}

/// The sentences from one occurrence to another, but no more than a long line on either side.
fn around(folded: &str, first: &Occurrence, last: &Occurrence) -> Range<usize> {
    let start = first
        .range
        .start
        .saturating_sub(LONGEST)
        .max(first.sentence.start);
    let end = (last.range.end + LONGEST).min(last.sentence.end);
    folded.floor_char_boundary(start)..folded.ceil_char_boundary(end)
}

/// The most of a sentence before or after a word that belongs to its passage, in bytes.
const LONGEST: usize = 240;

/// What ends a sentence.
const STOPS: [char; 7] = ['.', '!', '?', '\n', '。', '！', '？'];

/// Finds the sentence of each term, and whether it ends with a question mark.
fn mark_sentences(folded: &str, occurrences: &mut [Occurrence]) {
    let (mut start, mut end) = (0, 0);
    let mut asked = false;
    for occurrence in occurrences {
        if occurrence.range.start >= end {
            let between = &folded[end..occurrence.range.start];
            start = end
                + between
                    .rfind(STOPS)
                    .map_or(0, |at| between.ceil_char_boundary(at + 1));
            let rest = &folded[occurrence.range.end..];
            let stop = rest.find(STOPS);
            end = stop.map_or(folded.len(), |stop| {
                rest.ceil_char_boundary(stop + 1) + occurrence.range.end
            });
            asked = stop.is_some_and(|stop| rest[stop..].starts_with(['?', '？']));
        }
        occurrence.sentence = start..end;
        occurrence.asked = asked;
    }
}
