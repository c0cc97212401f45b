//! Ranking messages by how well they could answer a question.
//!
//! Two rounds. The first asks the index alone: every message gets the rarity of each word of the question
//! that it holds in any form, and a share of what its neighbours got, for an answer often stands beside
//! the words it answers. The second reads the best of these and scores them by BM25, by how close
//! together the words stand, and by small preferences: for the asker's own words where the question is
//! about the asker, for figures where it asks how many, for what was said later among equals.

use std::collections::HashMap;
use std::ops::Range;

use rustc_hash::FxBuildHasher;

use super::candidates::Stretch;
use super::run::Search;
use super::words::{Words, irregular_forms, is_stop_word};
use crate::error::StoreError;
use crate::index::fold::{fold, fold_into, in_original};
use crate::index::need::for_each_term_like;
use crate::index::segment::Segment;
use crate::index::terms::{Class, runs};
use crate::store::{Key, SessionId, row_in};

/// How many messages the second round reads, at most.
const CANDIDATES: usize = 300;

/// What a word that means nearly the same counts beside the word itself.
const SYNONYM_WEIGHT: f64 = 0.4;

/// What a neighbour's words count beside a message's own, and what those of a question do for the message
/// that follows it.
const NEIGHBOUR_WEIGHT: f64 = 0.1;
const ANSWER_WEIGHT: f64 = 0.3;

/// BM25's own two: how soon repetition stops to count, and how much length does.
const K1: f64 = 1.2;
const B: f64 = 0.6;

/// What two words of the question that stand side by side add, as a share of the rarer one's weight.
const PROXIMITY_WEIGHT: f64 = 0.5;

/// Words further apart than this say nothing of each other.
const PROXIMITY_WORDS: usize = 8;

/// What the best passage of a text counts beside the whole, and how long a passage is: about two sentences.
/// In a long text the words of a question may stand far apart by chance.
const PASSAGE_WEIGHT: f64 = 0.5;
const PASSAGE_WORDS: usize = 40;

/// The small preferences, as factors.
const ASKER_FACTOR: f64 = 1.1;
const FIGURE_FACTOR: f64 = 1.2;
const RECENCY_FACTOR: f64 = 0.03;

/// A question, taken apart.
pub(super) struct Question {
    words: Words,
    terms: Vec<Term>,
    about_asker: bool,
    wants_figure: bool,
    /// The mean length of the texts that were read, in words.
    mean_words: f64,
}

/// A word of the question, or one that means nearly the same.
struct Term {
    form: Form,
    /// Terms of one group are the same word of the question: only the best of them counts.
    group: usize,
    weight: f64,
    idf: f64,
}

enum Form {
    /// All words of this stem; they begin with `prefix`, or are among `irregular`.
    Stem {
        stem: String,
        prefix: String,
        irregular: Vec<&'static str>,
    },
    /// A stretch of one or two characters of a spaceless script.
    Gram(String),
}

/// A term's index at a place in a text.
struct Occurrence {
    term: usize,
    /// Which word of the text.
    word: usize,
    /// Where in the folded text.
    range: Range<usize>,
}

impl Question {
    /// Takes a question apart.
    ///
    /// # Errors
    /// A question without any word.
    pub(super) fn new(text: &str) -> Result<Self, StoreError> {
        let words = Words::new();
        let folded = fold(text);
        let mut plain: Vec<&str> = Vec::new();
        let mut grams: Vec<&str> = Vec::new();
        for run in runs(&folded) {
            let part = &folded[run.range];
            match run.class {
                Class::Word => plain.push(part),
                _ if part.chars().nth(1).is_none() => grams.push(part),
                _ => crate::index::terms::for_each_gram(part, |gram| {
                    if gram.chars().nth(1).is_some() {
                        grams.push(gram);
                    }
                }),
            }
        }
        let telling: Vec<&str> = plain
            .iter()
            .copied()
            .filter(|word| !is_stop_word(word))
            .collect();
        // "Who am I?" has nothing but stop words: then they have to do.
        let asked = if telling.is_empty() && grams.is_empty() {
            plain.clone()
        } else {
            telling
        };
        if asked.is_empty() && grams.is_empty() {
            return Err(StoreError::Query(
                "the question has no words in it; to find punctuation, use a pattern in mode `literal`"
                    .into(),
            ));
        }
        let has = |wanted: &[&str]| plain.iter().any(|word| wanted.contains(word));
        let mut question = Self {
            about_asker: has(&["i", "my", "me", "mine", "myself"]),
            wants_figure: has(&["how"])
                && has(&["many", "much", "old", "long", "far", "often", "tall", "big"])
                || has(&[
                    "number",
                    "percent",
                    "percentage",
                    "age",
                    "when",
                    "year",
                    "price",
                    "date",
                ]),
            words,
            terms: Vec::new(),
            mean_words: 100.0,
        };
        question.add_words(&asked);
        question.add_grams(&grams);
        Ok(question)
    }

    fn add_words(&mut self, asked: &[&str]) {
        let mut stems: Vec<String> = Vec::new();
        for word in asked {
            let stem = self.words.stem(word);
            if !stems.contains(&stem) {
                stems.push(stem);
            }
        }
        for (group, stem) in stems.iter().enumerate() {
            self.terms.push(self.stem_term(stem, group, 1.0));
            for synonym in self.words.synonyms(stem) {
                if !stems.contains(&synonym) {
                    self.terms
                        .push(self.stem_term(&synonym, group, SYNONYM_WEIGHT));
                }
            }
        }
    }

    fn add_grams(&mut self, grams: &[&str]) {
        let first = self.terms.len();
        for (at, gram) in grams.iter().enumerate() {
            if !grams[..at].contains(gram) {
                self.terms.push(Term {
                    form: Form::Gram((*gram).to_owned()),
                    group: first + at,
                    weight: 1.0,
                    idf: 1.0,
                });
            }
        }
    }

    fn stem_term(&self, stem: &str, group: usize, weight: f64) -> Term {
        // Stemming may have changed the last letter: happy, happi.
        let keep = stem.chars().count().saturating_sub(1).max(2);
        Term {
            form: Form::Stem {
                prefix: stem.chars().take(keep).collect(),
                irregular: irregular_forms(&self.words, stem),
                stem: stem.to_owned(),
            },
            group,
            weight,
            idf: 1.0,
        }
    }

    /// Messages by score, best first.
    pub(super) fn rank(&mut self, search: &mut Search<'_>) -> Result<Vec<(Key, f64)>, StoreError> {
        let mut sessions = Vec::new();
        let mut counts = vec![0usize; self.terms.len()];
        let mut messages = 0;
        for &session in &search.query.sessions {
            let holders = self.holders(search, session)?;
            for (count, list) in counts.iter_mut().zip(&holders.lists) {
                *count += list.len();
            }
            messages += holders.messages as usize;
            search.searched.sessions += 1;
            search.searched.messages += u64::from(holders.messages);
            sessions.push((session, holders));
        }
        for (term, count) in self.terms.iter_mut().zip(counts) {
            let (with, all) = (count as f64, messages as f64);
            term.idf = (1.0 + (all - with + 0.5) / (with + 0.5)).ln();
        }
        let mut first_round = Vec::new();
        for (session, holders) in &sessions {
            self.first_round(search, *session, holders, &mut first_round)?;
        }
        first_round.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        first_round.truncate(CANDIDATES);
        self.second_round(search, &first_round)
    }

    /// Which messages of a session hold which term.
    fn holders(&self, search: &mut Search<'_>, session: SessionId) -> Result<Holders, StoreError> {
        let messages = search.extent(session).messages;
        let mut lists = vec![Vec::new(); self.terms.len()];
        let mut scratch = String::new();
        let mut known = HashMap::default();
        for stretch in search.stretches(session)? {
            let to_read = match stretch {
                Stretch::Unindexed(range) => {
                    search.searched.messages_not_indexed += range.len() as u64;
                    range
                }
                Stretch::Indexed(segment) => {
                    let before: Vec<usize> = lists.iter().map(Vec::len).collect();
                    let mut terms = self.terms.iter().zip(&mut lists);
                    match terms
                        .try_for_each(|(term, list)| self.look_up(search, &segment, term, list))
                    {
                        Ok(()) => 0..0,
                        // What the index cannot say any more, the messages can.
                        Err(StoreError::Damaged(_)) => {
                            for (list, length) in lists.iter_mut().zip(before) {
                                list.truncate(length);
                            }
                            segment.ordinals.start..segment.ordinals.end.min(messages)
                        }
                        Err(error) => return Err(error),
                    }
                }
            };
            for ordinal in to_read {
                let occurrences = search.with_body(Key::new(session, ordinal), |body| {
                    self.occurrences(body, &mut scratch, &mut known).0
                })?;
                for occurrence in occurrences.unwrap_or_default() {
                    lists[occurrence.term].push(ordinal);
                }
            }
        }
        for list in &mut lists {
            // What arrived after the first page is no part of the answer.
            list.retain(|ordinal| *ordinal < messages);
            list.sort_unstable();
            list.dedup();
        }
        Ok(Holders { messages, lists })
    }

    fn look_up(
        &self,
        search: &Search<'_>,
        segment: &Segment,
        term: &Term,
        out: &mut Vec<u32>,
    ) -> Result<(), StoreError> {
        let base = segment.ordinals.start;
        let exact = |word: &str, out: &mut Vec<u32>| {
            for_each_term_like(
                search.connection,
                segment,
                word,
                true,
                true,
                |found, list| {
                    if found == word.as_bytes() {
                        list.ordinals(base, out);
                    }
                },
            )
        };
        match &term.form {
            Form::Gram(gram) => exact(gram, out),
            Form::Stem {
                stem,
                prefix,
                irregular,
            } => {
                for form in irregular {
                    exact(form, out)?;
                }
                for_each_term_like(
                    search.connection,
                    segment,
                    prefix,
                    true,
                    false,
                    |found, list| {
                        if std::str::from_utf8(found)
                            .is_ok_and(|word| self.words.stem(word) == *stem)
                        {
                            list.ordinals(base, out);
                        }
                    },
                )
            }
        }
    }

    /// Every message that holds a term, by the rarity of what it and its neighbours hold.
    fn first_round(
        &self,
        search: &Search<'_>,
        session: SessionId,
        holders: &Holders,
        out: &mut Vec<(Key, f64)>,
    ) -> Result<(), StoreError> {
        let mut scores = vec![0f64; holders.messages as usize];
        let groups = self
            .terms
            .iter()
            .map(|term| term.group + 1)
            .max()
            .unwrap_or(0);
        for group in 0..groups {
            let mut best: HashMap<u32, f64, FxBuildHasher> = HashMap::default();
            for (term, list) in self.terms.iter().zip(&holders.lists) {
                if term.group == group {
                    for ordinal in list {
                        let entry = best.entry(*ordinal).or_default();
                        *entry = entry.max(term.idf * term.weight);
                    }
                }
            }
            for (ordinal, score) in best {
                scores[ordinal as usize] += score;
            }
        }
        let beside = |at: usize| {
            let before = at.checked_sub(1).map_or(0.0, |before| scores[before]);
            before.max(scores.get(at + 1).copied().unwrap_or(0.0))
        };
        let total = |ordinal: u32| {
            let at = ordinal as usize;
            // Whether the neighbour is a question is not known yet.
            scores[at] + ANSWER_WEIGHT * beside(at)
        };
        let mut ordinals: Vec<u32> = (0..holders.messages)
            .filter(|ordinal| total(*ordinal) > 0.0)
            .collect();
        search.filter(session, &mut ordinals)?;
        out.extend(
            ordinals
                .into_iter()
                .map(|ordinal| (Key::new(session, ordinal), total(ordinal))),
        );
        Ok(())
    }

    fn second_round(
        &mut self,
        search: &mut Search<'_>,
        candidates: &[(Key, f64)],
    ) -> Result<Vec<(Key, f64)>, StoreError> {
        let mut scratch = String::new();
        let mut known = HashMap::default();
        let mut read = Vec::with_capacity(candidates.len());
        for &(key, _) in candidates {
            let text = search.with_body(key, |body| {
                let (occurrences, words) = self.occurrences(body, &mut scratch, &mut known);
                Reading {
                    occurrences,
                    words,
                    has_figure: has_figure(&scratch),
                    is_question: body.contains(['?', '？']),
                }
            })?;
            read.extend(text.map(|text| (key, text)));
        }
        let total: usize = read.iter().map(|(_, reading)| reading.words).sum();
        self.mean_words = (total as f64 / read.len().max(1) as f64).max(1.0);
        let own: HashMap<Key, (f64, bool)> = read
            .iter()
            .map(|(key, reading)| {
                let score = self.score(&reading.occurrences, reading.words);
                (*key, (score, reading.is_question))
            })
            .collect();
        let mut ranked = Vec::with_capacity(read.len());
        for (key, reading) in &read {
            let of = |key: i64| own.get(&Key(key)).copied().unwrap_or_default();
            // An answer owes more to the question before it than to what else stands beside it.
            let (before, answers) = of(key.0 - 1);
            let before = before
                * if answers {
                    ANSWER_WEIGHT
                } else {
                    NEIGHBOUR_WEIGHT
                };
            let beside = before.max(of(key.0 + 1).0 * NEIGHBOUR_WEIGHT);
            let mut score = of(key.0).0 + beside;
            if self.wants_figure && reading.has_figure {
                score *= FIGURE_FACTOR;
            }
            if let Some(row) = row_in(search.connection, *key)? {
                if self.about_asker && row.role == "user" {
                    score *= ASKER_FACTOR;
                }
                let newest = search.extent(key.session()).messages.max(1);
                score *= 1.0 + RECENCY_FACTOR * f64::from(key.ordinal()) / f64::from(newest);
            }
            ranked.push((*key, score));
        }
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(b.0.cmp(&a.0)));
        Ok(ranked)
    }

    /// How well a text by itself could answer; 0 where it shares no word.
    pub(super) fn score_text(&self, text: &str) -> f64 {
        let (occurrences, words) =
            self.occurrences(text, &mut String::new(), &mut HashMap::default());
        self.score(&occurrences, words)
    }

    /// BM25 over the groups of terms, how close together they stand, and how much of the question the best
    /// passage holds.
    fn score(&self, occurrences: &[Occurrence], words: usize) -> f64 {
        let mut counts = vec![0f64; self.terms.len()];
        for occurrence in occurrences {
            counts[occurrence.term] += 1.0;
        }
        let length = 1.0 - B + B * words as f64 / self.mean_words;
        let mut groups: HashMap<usize, f64> = HashMap::new();
        for (term, count) in self.terms.iter().zip(&counts) {
            let score = term.idf * term.weight * count * (K1 + 1.0) / (count + K1 * length);
            let best = groups.entry(term.group).or_default();
            *best = best.max(score);
        }
        groups.values().sum::<f64>()
            + self.proximity(occurrences)
            + PASSAGE_WEIGHT * self.best_passage(occurrences)
    }

    /// The most that one passage holds: the weights of the words of the question in it, each once.
    fn best_passage(&self, occurrences: &[Occurrence]) -> f64 {
        let mut best = 0f64;
        for (at, first) in occurrences.iter().enumerate() {
            let mut groups: Vec<(usize, f64)> = Vec::new();
            for occurrence in &occurrences[at..] {
                if occurrence.word > first.word + PASSAGE_WORDS {
                    break;
                }
                let term = &self.terms[occurrence.term];
                let weight = term.idf * term.weight;
                match groups.iter_mut().find(|(group, _)| *group == term.group) {
                    Some((_, known)) => *known = known.max(weight),
                    None => groups.push((term.group, weight)),
                }
            }
            best = best.max(groups.iter().map(|(_, weight)| weight).sum());
        }
        best
    }

    fn proximity(&self, occurrences: &[Occurrence]) -> f64 {
        let mut pairs: HashMap<(usize, usize), f64> = HashMap::new();
        for (at, one) in occurrences.iter().enumerate() {
            for other in &occurrences[at + 1..] {
                let distance = other.word - one.word;
                if distance > PROXIMITY_WORDS {
                    break;
                }
                let (a, b) = (&self.terms[one.term], &self.terms[other.term]);
                if a.group == b.group {
                    continue;
                }
                let weight = (a.idf * a.weight).min(b.idf * b.weight);
                let pair = (a.group.min(b.group), a.group.max(b.group));
                let best = pairs.entry(pair).or_default();
                *best = best.max(PROXIMITY_WEIGHT * weight / distance.max(1) as f64);
            }
        }
        pairs.values().sum()
    }

    /// Where the terms stand in a text, in order, and how many words it has. `known` remembers which
    /// words are which term.
    fn occurrences(
        &self,
        text: &str,
        folded: &mut String,
        known: &mut HashMap<String, Option<usize>, FxBuildHasher>,
    ) -> (Vec<Occurrence>, usize) {
        fold_into(text, folded);
        let mut found = Vec::new();
        let mut words = 0;
        for run in runs(folded) {
            let part = &folded[run.range.clone()];
            if run.class == Class::Word {
                words += 1;
                let term = match known.get(part) {
                    Some(term) => *term,
                    None => {
                        let term = self.term_of(part);
                        known.insert(part.to_owned(), term);
                        term
                    }
                };
                if let Some(term) = term {
                    found.push(Occurrence {
                        term,
                        word: words,
                        range: run.range,
                    });
                }
                continue;
            }
            let start = run.range.start;
            for (at, _) in part.char_indices() {
                words += 1;
                for (term, gram) in self.grams() {
                    if part[at..].starts_with(gram) {
                        found.push(Occurrence {
                            term,
                            word: words,
                            range: start + at..start + at + gram.len(),
                        });
                    }
                }
            }
        }
        (found, words)
    }

    fn grams(&self) -> impl Iterator<Item = (usize, &str)> {
        self.terms
            .iter()
            .enumerate()
            .filter_map(|(at, term)| match &term.form {
                Form::Gram(gram) => Some((at, gram.as_str())),
                Form::Stem { .. } => None,
            })
    }

    /// The term that a folded word is a form of.
    fn term_of(&self, word: &str) -> Option<usize> {
        let mut stemmed = None;
        self.terms.iter().position(|term| match &term.form {
            Form::Gram(_) => false,
            Form::Stem {
                stem,
                prefix,
                irregular,
            } => {
                irregular.contains(&word)
                    || word.starts_with(prefix)
                        && stemmed.get_or_insert_with(|| self.words.stem(word)) == stem
            }
        })
    }

    /// The places of the terms in a text; where they stand thickest first.
    pub(super) fn places(&self, text: &str) -> Vec<Range<usize>> {
        let mut folded = String::new();
        let (occurrences, _) = self.occurrences(text, &mut folded, &mut HashMap::default());
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
            .take(super::snippet::MAX_COUNTED)
            .map(|occurrence| occurrence.range.clone())
            .collect();
        in_original(text, &mut places);
        places
    }
}

/// What the second round saw in a text.
struct Reading {
    occurrences: Vec<Occurrence>,
    words: usize,
    has_figure: bool,
    is_question: bool,
}

/// Whether a folded text has a number in it, in figures or in words.
fn has_figure(folded: &str) -> bool {
    folded.bytes().any(|byte| byte.is_ascii_digit())
        || runs(folded).any(|run| NUMBERS.contains(&&folded[run.range]))
}

const NUMBERS: [&str; 24] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "twenty", "thirty", "forty", "fifty", "dozen",
    "hundred", "thousand", "million", "half",
];

/// Which messages of a session hold which term.
struct Holders {
    messages: u32,
    /// For each term, ordinals in order.
    lists: Vec<Vec<u32>>,
}
