//! Ranking messages by how well they could answer a question.
//!
//! Two rounds. The first ([`retrieve`]) asks the index alone: every message gets the rarity of each word
//! of the question that it holds in any form, or that one of its neighbours holds, for an answer often
//! stands beside the words it answers. The second ([`score`]) reads the best of these and weighs what
//! only the text tells: how often the words stand in it, whether they are asked or told, who speaks
//! ([`speaker`]), and whether the text has what is asked for ([`answer`]): a time, a number, a place, a
//! person.
//!
//! Weights are those of the literature, or log-odds: what a sign adds to the score is how many times
//! likelier it is in a message that answers than in one that does not (Robertson & Spärck Jones 1976).
//! The shares for neighbours and for what is asked were chosen, to one digit, on the invented conversations
//! of `tests/questions`, and whatever changed nothing there was left out; others were held back as a check.

mod answer;
mod parse;
mod period;
mod read;
mod retrieve;
mod score;
mod speaker;

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use self::answer::Wanted;
use self::period::Period;
use super::run::Search;
use crate::error::StoreError;
use crate::store::Key;

type Map<K, V> = HashMap<K, V, FxBuildHasher>;

/// A question, taken apart.
pub(super) struct Question {
    /// What was asked, folded.
    text: String,
    terms: Vec<Term>,
    /// How many words of the question there are to be found: each is a group of terms.
    groups: usize,
    /// The terms of a stem.
    by_stem: Map<String, Vec<usize>>,
    /// Words written with a capital letter, folded, and the group of each.
    names: Vec<(String, usize)>,
    wanted: Option<Wanted>,
    period: Option<Period>,
    /// The mean length of the texts that were read, in words.
    mean_words: f64,
}

/// A word of the question, or one that stands for it.
struct Term {
    form: Form,
    /// Terms of one group stand for the same word of the question: only the best of them counts.
    group: usize,
    /// What it counts beside the word itself.
    weight: f64,
    idf: f64,
}

enum Form {
    /// All words of this stem; they begin with `prefix`, or are among its irregular forms.
    Stem { stem: String, prefix: String },
    /// Words that begin like this stem and end a little differently.
    Akin { stem: String, prefix: String },
    /// A stretch of one or two characters of a spaceless script.
    Gram(String),
}

impl Question {
    /// Messages by score, best first.
    pub(super) fn rank(&mut self, search: &mut Search<'_>) -> Result<Vec<(Key, f64)>, StoreError> {
        let sessions = self.look_up(search)?;
        let participants = self.participants(search, &sessions)?;
        let (candidates, weighed) = self.retrieve(search, sessions)?;
        let readings = self.read_all(search, candidates)?;
        self.score(search, &readings, &weighed, &participants)
    }
}
