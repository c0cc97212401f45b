//! Parses a question into the terms to look for.
//!
//! Words that only ask are left out, since they say nothing about the subject. Each other word
//! becomes a group of terms: its stem, its synonyms and the members of its kind, with weights that
//! fall with the distance in meaning. Text in scripts without spaces becomes pairs of neighbouring
//! characters, or one character if it stands alone.
//!
//! [`Question::new`] also notes what the later rounds need: which words may be names, what is asked
//! for, which period is named, and whether the user asks about themselves.

use rustc_hash::FxHashMap;

use super::alike::{Alike, Sense};
use super::answer::{AnswerKind, is_measure};
use super::period::Period;
use super::speaker::short_forms;
use super::{Beginnings, MAX_NAMES, MAX_WORDS, Question, QuestionTerm, TermForm, Weights};
use crate::error::StoreError;
use crate::search::lexicon::lexicon;
use crate::text::fold::{fold, in_original};
use crate::text::terms::{Class, for_each_gram, runs};

impl<'e> Question<'e> {
    /// Parses a question. At most [`MAX_WORDS`] of its words are looked for, and the number of the
    /// others is kept.
    ///
    /// # Errors
    /// Returns an error if the question contains no word at all.
    pub(in crate::search) fn new(
        text: &str,
        weights: &Weights,
        sense: Option<Sense<'e>>,
    ) -> Result<Self, StoreError> {
        let folded = fold(text);
        let mut plain: Vec<(&str, bool)> = Vec::new();
        let mut places = Vec::new();
        let mut grams: Vec<&str> = Vec::new();
        for run in runs(&folded) {
            let part = &folded[run.range.clone()];
            match run.class {
                Class::Word => {
                    plain.push((part, false));
                    places.push(run.range);
                }
                _ if part.chars().nth(1).is_none() => grams.push(part),
                _ => for_each_gram(part, |gram, is_pair| {
                    if is_pair {
                        grams.push(gram);
                    }
                }),
            }
        }
        // Names are recognised by their capital letter, which the folded text no longer has.
        in_original(text, &mut places);
        for ((_, capital), place) in plain.iter_mut().zip(&places) {
            *capital = text[place.start..].starts_with(char::is_uppercase);
        }
        let mut before = "";
        let mut telling: Vec<(&str, bool)> = Vec::new();
        for (word, capital) in &plain {
            // "How long" asks for a length of time. Looking for the word "long" would find other
            // texts.
            let is_asked = before == "how" && is_measure(word);
            let is_left_out = is_asked || weights.stop_words && lexicon().is_stop_word(word);
            if !is_left_out {
                telling.push((word, *capital));
            }
            before = word;
        }
        // A question such as "Who am I?" has only stop words. Looking for those is better than
        // looking for nothing.
        let mut asked = if telling.is_empty() && grams.is_empty() {
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
        let count = asked.len() + grams.len();
        asked.truncate(MAX_WORDS);
        grams.truncate(MAX_WORDS - asked.len());
        let words: Vec<&str> = plain.iter().map(|(word, _)| *word).collect();
        let mut question = Self {
            weights: *weights,
            text: String::new(),
            terms: Vec::new(),
            groups: 0,
            left_out: count - asked.len() - grams.len(),
            by_stem: FxHashMap::default(),
            beginnings: Beginnings::new(),
            by_gram: FxHashMap::default(),
            names: Vec::new(),
            wanted: AnswerKind::of(&words, &folded),
            period: Period::of(&words),
            role: role_asked_about(&words),
            mean_size: 40.0,
            participants: Vec::new(),
            sense,
            alike: Alike::default(),
        };
        question.add_words(&asked);
        question.add_grams(&grams);
        question.text = folded;
        Ok(question)
    }

    fn add_words(&mut self, asked: &[(&str, bool)]) {
        let lexicon = lexicon();
        let weights = self.weights;
        let mut stems: Vec<String> = Vec::new();
        for (word, capital) in asked {
            let stem = lexicon.stem(word);
            let group = match stems.iter().position(|known| *known == stem) {
                Some(group) => group,
                None => {
                    stems.push(stem);
                    stems.len() - 1
                }
            };
            if *capital && self.names.len() < MAX_NAMES {
                self.names.push(((*word).to_owned(), group));
            }
        }
        self.groups = stems.len();
        for (name, group) in self.names.clone() {
            for form in short_forms(&name) {
                // A short form helps to recognise participants. By itself it may be any word, so it
                // has no weight in the ranking.
                self.add_stem(&lexicon.stem(form), group, 0.0);
            }
        }
        for (group, stem) in stems.iter().enumerate() {
            self.add_stem(stem, group, 1.0);
            let synonyms = lexicon.synonyms(stem).iter();
            let members = lexicon.members(stem).iter();
            let expansions = synonyms
                .map(|stem| (stem, weights.synonym))
                .chain(members.map(|stem| (stem, weights.member)));
            for (expansion, weight) in expansions {
                let known = self
                    .by_stem
                    .get(expansion)
                    .is_some_and(|terms| terms.iter().any(|term| self.terms[*term].group == group));
                if !known && !stems.contains(expansion) {
                    self.add_stem(expansion, group, weight);
                }
            }
        }
    }

    fn add_stem(&mut self, stem: &str, group: usize, weight: f64) {
        // Stemming may have changed the last letter, as from "happy" to "happi". The prefix for the
        // vocabulary must begin both.
        let keep = stem.chars().count().saturating_sub(1).max(2);
        let prefix: String = stem.chars().take(keep).collect();
        self.beginnings.add(&prefix);
        for form in lexicon().irregular_forms(stem) {
            self.beginnings.add(form);
        }
        let form = TermForm::Stem {
            prefix,
            stem: stem.to_owned(),
        };
        self.by_stem
            .entry(stem.to_owned())
            .or_default()
            .push(self.terms.len());
        self.push(form, group, weight);
    }

    fn add_grams(&mut self, grams: &[&str]) {
        for gram in grams {
            if !self.by_gram.contains_key(*gram) {
                self.by_gram.insert((*gram).to_owned(), self.terms.len());
                self.push(
                    TermForm::Gram((*gram).to_owned()),
                    self.groups,
                    self.weights.pair,
                );
                self.groups += 1;
            }
        }
    }

    fn push(&mut self, form: TermForm, group: usize, weight: f64) {
        self.terms.push(QuestionTerm {
            form,
            group,
            weight,
            idf: 1.0,
        });
    }
}

/// Returns the role of whom a question is about, if it says "I" or "you".
fn role_asked_about(words: &[&str]) -> Option<&'static str> {
    // "Did you tell me" is about what the assistant said. "Can you tell me" only asks for it.
    let did_you = |pair: &[&str]| {
        matches!(pair, ["did" | "have" | "had" | "were", "you"])
            || matches!(pair, ["you", verb] if verb.ends_with("ed") || is_told(verb))
    };
    if words.windows(2).any(did_you) {
        return Some("assistant");
    }
    let is_i = |word: &&str| matches!(*word, "i" | "me" | "my" | "mine" | "myself");
    words.iter().any(is_i).then_some("user")
}

/// Whether a word is what somebody did who answered, and does not end with "ed".
fn is_told(verb: &str) -> bool {
    matches!(
        verb,
        "said" | "told" | "gave" | "wrote" | "made" | "found" | "sent"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stems(question: &str) -> Vec<String> {
        let question = Question::new(question, &Weights::default(), None).unwrap();
        question.by_stem.into_keys().collect()
    }

    #[test]
    fn kinds_lead_to_things_and_words_to_their_like() {
        let stems = stems("What instrument did Ana purchase?");
        for expected in ["instrument", "clarinet", "buy", "ana"] {
            assert!(stems.iter().any(|stem| stem == expected), "{expected}");
        }
    }

    /// Otherwise the index would not find some of the forms that a text is searched for.
    #[test]
    fn every_form_of_a_word_begins_like_its_stem_or_is_irregular() {
        let words = include_str!("../lexicon/synonyms.txt").split_whitespace();
        let words = words.chain(["die", "lie", "tie", "sky", "go", "buy"]);
        for word in words.filter(|word| !lexicon().is_stop_word(word)) {
            let question = Question::new(word, &Weights::default(), None).unwrap();
            let base = word.trim_end_matches(['e', 'y']);
            let endings = ["", "s", "es", "ies", "ied", "ed", "ing", "ying", "er", "ly"];
            let endings = endings.into_iter();
            let forms =
                endings.flat_map(|ending| [word, base].map(|start| start.to_owned() + ending));
            for form in forms.filter(|form| lexicon().stem(form) == lexicon().stem(word)) {
                let finds = |term: &QuestionTerm| match &term.form {
                    TermForm::Stem { stem, prefix } => {
                        form.starts_with(prefix)
                            || lexicon().irregular_forms(stem).contains(&form.as_str())
                    }
                    TermForm::Gram(_) => false,
                };
                assert!(question.terms.iter().any(finds), "{form} of {word}");
                assert!(question.beginnings.contains(&form), "{form} of {word}");
            }
        }
    }

    #[test]
    fn you_is_the_assistant() {
        for (question, expected) in [
            ("What is my budget?", Some("user")),
            ("What did you recommend for my budget?", Some("assistant")),
            ("Which plan is the one you gave me?", Some("assistant")),
            ("Can you tell me what I said of it?", Some("user")),
            ("What did Ana say?", None),
        ] {
            let question = Question::new(question, &Weights::default(), None).unwrap();
            assert_eq!(question.role, expected, "{}", question.text);
        }
    }

    #[test]
    fn what_only_asks_is_not_looked_for() {
        assert!(!stems("How long was the walk?").contains(&"long".to_owned()));
        assert!(stems("Who wore the long coat?").contains(&"long".to_owned()));
        assert!(!stems("Which job did I mention?").contains(&"mention".to_owned()));
        assert!(!stems("Who am I?").is_empty());
        assert!(Question::new("?!", &Weights::default(), None).is_err());
    }
}
