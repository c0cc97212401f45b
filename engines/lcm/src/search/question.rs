//! Ranking messages by how well they could answer a question.
//!
//! Two rounds. The first ([`retrieve`]) uses only the index: every message scores the rarity of each word
//! of the question that it, or a neighbour, contains in any form, because an answer is often near the words
//! it answers. The second ([`score`]) reads the best of these and weighs what only the text shows: how
//! often the words occur, whether they are asked or told, who speaks ([`speaker`]), and whether the text
//! contains what is asked for ([`answer`]): a time, a number, a place, a person.
//!
//! Where there is an embedder, messages that are most like the question in meaning ([`alike`]) are read too, and how
//! like it a message is counts as one sign more.
//!
//! [`Weights`] are those of the literature, or log-odds: a sign adds to the score how much likelier it is in a
//! message that answers than in one that does not (Robertson & Spärck Jones 1976). Where they were chosen by
//! their effect, it was to one digit. What each earns is printed by `cargo bench --bench questions`.

mod alike;
mod answer;
mod parse;
mod period;
mod read;
mod retrieve;
mod score;
mod speaker;
mod weights;

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use self::alike::Alike;
use self::answer::Wanted;
use self::period::Period;
use super::run::Search;
use crate::error::StoreError;
use crate::store::Key;

pub(super) use self::alike::Sense;
pub use self::weights::Weights;

type Map<K, V> = HashMap<K, V, FxBuildHasher>;

/// A parsed question.
pub(super) struct Question<'e> {
    weights: Weights,
    /// The question's text, folded.
    text: String,
    terms: Vec<Term>,
    /// The number of words to find; each is a group of terms.
    groups: usize,
    /// How many words more there are than are looked for.
    left_out: usize,
    /// The terms of a stem.
    by_stem: Map<String, Vec<usize>>,
    /// The terms of a stretch of one or two characters.
    by_gram: Map<String, usize>,
    /// Words written with a capital letter, folded, and the group of each.
    names: Vec<(String, usize)>,
    wanted: Option<Wanted>,
    period: Option<Period>,
    /// Whether the user asks about themselves: "my", "did I say".
    is_own: bool,
    /// The mean size of the texts that were read, in words.
    mean_size: f64,
    /// Where there is an embedder.
    sense: Option<Sense<'e>>,
    alike: Alike,
}

/// A word of the question, or a substitute for it.
struct Term {
    form: Form,
    /// The word of the question: of the terms of one group only the best counts.
    group: usize,
    /// Its weight relative to the word itself.
    weight: f64,
    idf: f64,
}

enum Form {
    /// All words of this stem; they begin with `prefix`, or are among its irregular forms.
    Stem { stem: String, prefix: String },
    /// A stretch of one or two characters of a spaceless script.
    Gram(String),
}

/// How many words of a question are looked for. Each is looked up in every session, and weighed in every text.
const MAX_WORDS: usize = 200;

/// How many of its capitalised words may be participants: messages are read to find out.
const MAX_NAMES: usize = 16;

impl Question<'_> {
    /// How many words of the question are not looked for.
    pub(super) fn words_left_out(&self) -> u64 {
        self.left_out as u64
    }

    /// Messages by score, best first.
    pub(super) fn rank(&mut self, search: &mut Search<'_>) -> Result<Vec<(Key, f64)>, StoreError> {
        let sessions = self.look_up(search)?;
        let participants = self.participants(search, &sessions)?;
        let (mut candidates, weighed) = self.retrieve(search, sessions)?;
        candidates.extend(self.compare(search)?);
        candidates.sort_unstable();
        candidates.dedup();
        let readings = self.read_all(search, candidates)?;
        self.score(search, &readings, &weighed, &participants)
    }
}
