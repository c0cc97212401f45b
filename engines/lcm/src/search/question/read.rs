//! Reads a text for a question: where its words occur, and which other signs it shows.
//!
//! [`TextReader::read`] returns a [`Reading`] with everything that the score needs, so that each text
//! is read once. A long text is judged by its best passage, because the words of a question may be
//! anywhere in it by chance. The reader keeps the terms of each word it has seen, since the same
//! words occur in most texts.
//!
//! [`Question::places`] uses the same reading to choose what a hit shows.

use std::hash::BuildHasher;
use std::ops::Range;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::Question;
use super::speaker::speaker_of;
use crate::error::StoreError;
use crate::search::lexicon::lexicon;
use crate::search::run::Search;
use crate::search::snippet::MAX_COUNTED;
use crate::store::Key;
use crate::text::fold::{fold_into, in_original};
use crate::text::terms::{Class, runs};

/// What was found in a text. Positions refer to the folded text unless the field says otherwise.
pub(super) struct Reading {
    pub(super) occurrences: Vec<Occurrence>,
    pub(super) words: usize,
    /// The occurrences within the passage by which the text is ranked, as a range of indexes. In a
    /// short text these are all occurrences.
    pub(super) passage: Range<usize>,
    span: Range<usize>,
    /// A hash of the passage. It is equal if another message repeats the same sentences.
    pub(super) told: u64,
    /// The name of the speaker in folded form, if the text begins with one.
    pub(super) speaker: Option<String>,
    /// Whether the passage contains something of the kind that is asked for.
    pub(super) has_wanted: bool,
    pub(super) asks: bool,
    /// How rare the other words of the passage are among the texts that were read: the mean of the
    /// logarithms of the inverse document frequencies. It is 0 until all texts have been read.
    pub(super) rarity: f64,
    /// Whether the text speaks of its author, in English.
    pub(super) says_i: bool,
}

/// An occurrence of a term in a text, with its place and its sentence.
pub(super) struct Occurrence {
    pub(super) term: usize,
    pub(super) word: usize,
    range: Range<usize>,
    sentence: Range<usize>,
    /// Whether its sentence only asks, so that the word is asked for and not told.
    pub(super) asked: bool,
}

/// What the words of a text show, with the occurrences of terms in order.
struct Words {
    occurrences: Vec<Occurrence>,
    words: usize,
    says_i: bool,
}

/// Reads texts for one question and reuses its buffers. It remembers which terms each word is a
/// form of.
pub(super) struct TextReader<'q> {
    question: &'q Question<'q>,
    folded: String,
    known: FxHashMap<String, Vec<usize>>,
}

impl Question<'_> {
    pub(super) fn reader(&self) -> TextReader<'_> {
        TextReader {
            question: self,
            folded: String::new(),
            known: FxHashMap::default(),
        }
    }

    /// Reads the messages and updates the mean size of a text. If the messages are in the order of
    /// the conversation, they are fetched from the transcript with few requests. Messages that
    /// cannot be read are left out.
    pub(super) fn read_all(
        &mut self,
        search: &mut Search<'_>,
        messages: Vec<Key>,
    ) -> Result<Vec<(Key, Reading)>, StoreError> {
        let mut readings = Vec::with_capacity(messages.len());
        let mut others = Vec::with_capacity(messages.len());
        let mut reader = self.reader();
        search.bodies.expect(messages.iter().copied());
        for key in messages {
            let read = search.with_body(key, |body| {
                let reading = reader.read(body.as_str());
                let others = reader.other_words(reading.span.clone());
                (reading, others)
            })?;
            if let Some((reading, words)) = read {
                readings.push((key, reading));
                others.push(words);
            }
        }
        set_rarity(&mut readings, &others);
        let words: usize = readings.iter().map(|(_, reading)| self.size(reading)).sum();
        self.mean_size = (words as f64 / readings.len().max(1) as f64).max(1.0);
        Ok(readings)
    }

    /// Returns the places of the terms in a text and the range of the passage by which it is
    /// ranked. The places begin with the densest part of that passage. If the text shares no word
    /// with the question, both are the passage that is most similar in meaning.
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
            // A snippet shows about so many bytes of a line, so words this close are seen together.
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
        // The message shares no word with the question and was found by its meaning.
        if places.is_empty()
            && let Some(passage) = self.passage_alike(key, text)
        {
            places.push(passage.start..passage.start);
            span = passage;
        }
        (places, span)
    }
}

impl TextReader<'_> {
    /// Returns the terms that a folded word is a form of.
    pub(super) fn terms_of(&mut self, word: &str) -> &[usize] {
        terms_of(word, self.question, &mut self.known)
    }

    pub(super) fn read(&mut self, text: &str) -> Reading {
        fold_into(text, &mut self.folded);
        let Words {
            occurrences,
            words,
            says_i,
        } = self.words();
        // In a short text nothing stands by chance, so all of it is one passage.
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
            // Names are recognised by their capital letters, so the original text is needed.
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
            rarity: 0.0,
            says_i,
        }
    }

    /// Returns the hashes of the words in a span of the text that was read last, each once, without stop
    /// words and the words of the question. Returns None if it is all in scripts without spaces, whose
    /// words are not known.
    fn other_words(&self, span: Range<usize>) -> Option<Vec<u64>> {
        let folded = &self.folded[span];
        let is_of_question = |word: &str| {
            self.question.beginnings.contains(word)
                && self.known.get(word).is_some_and(|terms| !terms.is_empty())
        };
        let words = runs(folded).filter(|run| run.class == Class::Word);
        let mut words = words.map(|run| &folded[run.range]).peekable();
        words.peek()?;
        let mut others: Vec<u64> = words
            .filter(|word| !lexicon().is_stop_word(word) && !is_of_question(word))
            .map(|word| FxBuildHasher.hash_one(word))
            .collect();
        others.sort_unstable();
        others.dedup();
        Some(others)
    }

    /// Goes through the words of the folded text. Each character of a script without spaces counts as
    /// a word.
    fn words(&mut self) -> Words {
        let Self {
            question,
            folded,
            known,
        } = self;
        let mut found = Vec::new();
        let mut words = 0;
        let mut says_i = false;
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
                says_i |= is_first_person(part);
                if !question.beginnings.contains(part) {
                    continue;
                }
                for term in terms_of(part, question, known) {
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
                // The last two characters of a run have fewer characters after them.
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
        Words {
            occurrences: found,
            words,
            says_i,
        }
    }
}

/// Returns the terms of the question that a folded word is a form of, found by its stem. The result is
/// remembered in `known`, because stemming is slow compared with a look-up.
fn terms_of<'k>(
    word: &str,
    question: &Question<'_>,
    known: &'k mut FxHashMap<String, Vec<usize>>,
) -> &'k [usize] {
    if !known.contains_key(word) {
        let terms = question.by_stem.get(&lexicon().stem(word)).cloned();
        known.insert(word.to_owned(), terms.unwrap_or_default());
    }
    known.get(word).map_or(&[], Vec::as_slice)
}

/// Sets how rare the other words of each reading are, which are given by their hashes. If they are
/// not known, it is the mean of all readings.
fn set_rarity(readings: &mut [(Key, Reading)], others: &[Option<Vec<u64>>]) {
    let mut texts_with: FxHashMap<u64, usize> = FxHashMap::default();
    for word in others.iter().flatten().flatten() {
        *texts_with.entry(*word).or_default() += 1;
    }
    let all = readings.len() as f64;
    let rarity = |words: &Vec<u64>| {
        let of_word = |word: &u64| (all / texts_with[word] as f64).ln();
        words.iter().map(of_word).sum::<f64>() / words.len().max(1) as f64
    };
    let rarities: Vec<Option<f64>> = (others.iter())
        .map(|words| words.as_ref().map(rarity))
        .collect();
    let known = rarities.iter().flatten().count();
    let mean = rarities.iter().flatten().sum::<f64>() / known.max(1) as f64;
    for ((_, reading), rarity) in readings.iter_mut().zip(rarities) {
        reading.rarity = rarity.unwrap_or(mean);
    }
}

/// Returns the sentences from one occurrence to another, but no more than [`LONGEST`] bytes before
/// the first and after the last.
fn around(folded: &str, first: &Occurrence, last: &Occurrence) -> Range<usize> {
    let start = first
        .range
        .start
        .saturating_sub(LONGEST)
        .max(first.sentence.start);
    let end = (last.range.end + LONGEST).min(last.sentence.end);
    folded.floor_char_boundary(start)..folded.ceil_char_boundary(end)
}

/// The maximum number of bytes of a sentence before or after a word that belong to its passage. It
/// limits texts without punctuation.
const LONGEST: usize = 240;

/// The characters that end a sentence. Line ends do as well, since logs and lists often have no
/// stops.
const STOPS: [char; 7] = ['.', '!', '?', '\n', '。', '！', '？'];

/// Whether a folded word stands for its author, in English.
fn is_first_person(word: &str) -> bool {
    matches!(word, "i" | "me" | "my" | "we" | "us" | "our")
}

/// Finds the sentence of each occurrence, and whether it only asks. Somebody who asks for advice in
/// one long sentence also tells what it is about: "I got a cat on 3 May, can you help me find a
/// name?". The occurrences must be in order.
fn mark_sentences(folded: &str, occurrences: &mut [Occurrence]) {
    let (mut start, mut end) = (0, 0);
    let mut asked = false;
    for occurrence in occurrences {
        // Several occurrences may be in one sentence, which is then found once.
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
            let tells = || {
                let mut words = runs(&folded[start..end]);
                words.any(|run| is_first_person(&folded[start..end][run.range]))
            };
            asked = stop.is_some_and(|stop| rest[stop..].starts_with(['?', '？'])) && !tells();
        }
        occurrence.sentence = start..end;
        occurrence.asked = asked;
    }
}
