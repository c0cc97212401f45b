//! Ranks messages by how well they could answer a question.
//!
//! There are two rounds. The first ([`retrieve`]) uses only the index. A message scores the rarity
//! of each word of the question that it or a neighbour contains in any form, because an answer is
//! often near the words it answers. The second ([`score`]) reads the best of these and weighs what
//! only the text shows: how often the words occur, whether they are asked or told, who speaks
//! ([`speaker`]), and whether the text contains what is asked for ([`answer`]), such as a time, a
//! number, a place or a person.
//!
//! If there is an embedder, the messages that are most similar to the question in meaning
//! ([`alike`]) are read too, and the similarity counts as one more sign.
//!
//! The [`Weights`] are those of the literature, or log-odds: a sign adds to the score how much more
//! likely it is in a message that answers than in one that does not (Robertson & Spärck Jones
//! 1976). Weights that were chosen by their effect were chosen to one digit. `cargo bench --bench
//! questions` prints what each contributes.

mod alike;
mod answer;
mod parse;
mod period;
mod read;
mod retrieve;
mod score;
mod speaker;
mod weights;

use rustc_hash::FxHashMap;

use self::alike::Alike;
use self::answer::AnswerKind;
use self::period::Period;
use super::page::Found;
use super::run::Search;
use crate::error::StoreError;

pub(super) use self::alike::Sense;
pub use self::weights::Weights;

/// A parsed question, with what the rounds of the ranking learn about it on the way.
pub(super) struct Question<'e> {
    weights: Weights,
    text: String,
    terms: Vec<QuestionTerm>,
    /// The number of words to look for. Each is a group of terms, of which only the best counts.
    groups: usize,
    /// The number of words that are not looked for, because the question is too long.
    left_out: usize,
    by_stem: FxHashMap<String, Vec<usize>>,
    beginnings: Beginnings,
    by_gram: FxHashMap<String, usize>,
    /// The words that are written with a capital letter, in folded form, each with its group. They
    /// may name participants.
    names: Vec<(String, usize)>,
    wanted: Option<AnswerKind>,
    period: Option<Period>,
    /// The role of whom the question is about: the user in "my" or "did I say", and the assistant in
    /// "did you say".
    role: Option<&'static str>,
    /// The mean size in words of the texts that were read. It is a guess until they have been read.
    mean_size: f64,
    /// The names of participants in the question, in folded form.
    participants: Vec<String>,
    /// The embedder and the question, or None if there is no embedder.
    sense: Option<Sense<'e>>,
    alike: Alike,
}

/// A word of the question, or a substitute for it such as a synonym.
struct QuestionTerm {
    form: TermForm,
    /// The group of the word in the question. Only the best term of a group counts.
    group: usize,
    /// The weight relative to the word itself, which has 1. A term with weight 0 only helps to
    /// recognise participants.
    weight: f64,
    idf: f64,
}

/// What a word of a text must look like to count as an occurrence of a term.
enum TermForm {
    /// Any word with this stem. It begins with `prefix`, so that the index can find it, or is one
    /// of the irregular forms of the stem.
    Stem {
        stem: String,
        prefix: String,
    },
    Gram(String),
}

/// The first two bytes of all words that may be an occurrence of a term. Few words of a text begin
/// like that, and only those are stemmed.
struct Beginnings(Vec<bool>);

impl Beginnings {
    fn new() -> Self {
        Self(vec![false; 1 << 16])
    }

    /// Adds all words that begin with `prefix`.
    fn add(&mut self, prefix: &str) {
        match *prefix.as_bytes() {
            [] => self.0.fill(true),
            [first] => self.0[usize::from(first) << 8..][..1 << 8].fill(true),
            [first, second, ..] => self.0[Self::index(first, second)] = true,
        }
    }

    fn contains(&self, word: &str) -> bool {
        match *word.as_bytes() {
            [] => false,
            // No word contains a zero byte, so this place is that of words of a single byte.
            [first] => self.0[Self::index(first, 0)],
            [first, second, ..] => self.0[Self::index(first, second)],
        }
    }

    fn index(first: u8, second: u8) -> usize {
        usize::from(u16::from_be_bytes([first, second]))
    }
}

/// The maximum number of words of a question that are looked for. Each is looked up in every
/// session and weighed in every text.
const MAX_WORDS: usize = 200;

/// The maximum number of capitalised words that may be participants. Messages are read to find out,
/// so each costs time.
const MAX_NAMES: usize = 16;

impl Question<'_> {
    /// Returns the number of words of the question that are not looked for, because it is too long.
    pub(super) fn words_left_out(&self) -> u64 {
        self.left_out as u64
    }

    /// Scores the messages. A message is left out if neither it nor a neighbour has a
    /// word of the question and it is not similar in meaning either.
    pub(super) fn rank(&mut self, search: &mut Search<'_>) -> Result<Vec<Found>, StoreError> {
        let sessions = self.look_up(search)?;
        // Participants are found before the first round, because their names are then no longer
        // searched for.
        let participants = self.participants(search, &sessions)?;
        let (mut candidates, weighed) = self.retrieve(search, sessions)?;
        candidates.extend(self.compare(search)?);
        // A message may be found by its words and by its meaning.
        candidates.sort_unstable();
        candidates.dedup();
        let readings = self.read_all(search, candidates)?;
        self.score(search, &readings, &weighed, &participants)
    }
}
