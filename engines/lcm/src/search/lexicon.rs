//! Knowledge about words, for the ranking of questions.
//!
//! A question rarely uses the same words as its answer. The lexicon knows the stop words of
//! English, German, Spanish and French. For English it also knows irregular forms, synonyms, and
//! kinds of things, such as that a clarinet is an instrument. It contains general language only,
//! because names and technical terms did not improve the ranking.
//!
//! The words are in the files next to this one, with one group on each line. [`lexicon`] parses
//! them once. All words are folded, and synonyms and kinds are looked up by stem.

use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use rustc_hash::{FxHashMap, FxHashSet};

static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::new);

/// Returns the lexicon, which is parsed on first use and then shared by all searches.
pub(super) fn lexicon() -> &'static Lexicon {
    &LEXICON
}

pub(super) struct Lexicon {
    stemmer: Stemmer,
    stop_words: FxHashSet<&'static str>,
    /// The base form of each irregular form, such as `go` for `went`.
    base: FxHashMap<&'static str, &'static str>,
    /// The irregular forms of each stem, which have other letters and so cannot be found by a
    /// prefix.
    irregular: FxHashMap<String, Vec<&'static str>>,
    synonyms: FxHashMap<String, Vec<String>>,
    kinds: FxHashMap<String, Vec<String>>,
    signs: FxHashMap<&'static str, FxHashSet<&'static str>>,
}

impl Lexicon {
    fn new() -> Self {
        let mut lexicon = Self {
            stemmer: Stemmer::create(Algorithm::English),
            stop_words: include_str!("lexicon/stop_words.txt")
                .split_whitespace()
                .collect(),
            base: FxHashMap::default(),
            irregular: FxHashMap::default(),
            synonyms: FxHashMap::default(),
            kinds: FxHashMap::default(),
            signs: include_str!("lexicon/signs.txt")
                .lines()
                .filter_map(|line| line.split_once(':'))
                .map(|(of, signs)| (of, signs.split_whitespace().collect()))
                .collect(),
        };
        for line in include_str!("lexicon/irregular.txt").lines() {
            let mut forms = line.split_whitespace();
            let Some(base) = forms.next() else { continue };
            for form in forms {
                // A question may contain the base form and the answer an irregular one, or the
                // reverse.
                lexicon.base.insert(form, base);
                let stem = lexicon.stemmer.stem(base).into_owned();
                lexicon.irregular.entry(stem).or_default().push(form);
            }
        }
        // Synonyms hold in both directions, so every word of a group leads to all the others.
        for line in include_str!("lexicon/synonyms.txt").lines() {
            let group = lexicon.stems(line);
            for stem in &group {
                let others = group.iter().filter(|other| *other != stem).cloned();
                lexicon
                    .synonyms
                    .entry(stem.clone())
                    .or_default()
                    .extend(others);
            }
        }
        // Each word before the colon names a kind, and the words after it are its members.
        let kinds = include_str!("lexicon/kinds.txt").lines();
        for (of, members) in kinds.filter_map(|line| line.split_once(':')) {
            let members = lexicon.stems(members);
            for stem in lexicon.stems(of) {
                let known = lexicon.kinds.entry(stem).or_default();
                known.extend(members.iter().cloned());
            }
        }
        lexicon
    }

    fn stems(&self, line: &str) -> Vec<String> {
        let mut stems: Vec<String> = line
            .split_whitespace()
            .map(|word| self.stem(word))
            .collect();
        stems.sort();
        stems.dedup();
        stems
    }

    /// Returns the stem of a folded word. The stem of an irregular form is that of its base form.
    pub(super) fn stem(&self, word: &str) -> String {
        let base = self.base.get(word).copied().unwrap_or(word);
        self.stemmer.stem(base).into_owned()
    }

    /// Returns the irregular forms of the word with this stem, or an empty slice if it has none.
    pub(super) fn irregular_forms(&self, stem: &str) -> &[&'static str] {
        self.irregular.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Returns the stems of words that mean nearly the same as the word with this stem. It is empty
    /// if none are known.
    pub(super) fn synonyms(&self, stem: &str) -> &[String] {
        self.synonyms.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Returns the stems of things of this kind. If the stem is `instrument`, `clarinet` is among
    /// them.
    pub(super) fn members(&self, stem: &str) -> &[String] {
        self.kinds.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Returns whether a folded word is a sign of `of`, which is `time`, `span`, `number` or
    /// `reason`. A span is a unit of time, such as a week.
    pub(super) fn is_sign(&self, of: &str, word: &str) -> bool {
        self.signs.get(of).is_some_and(|signs| signs.contains(word))
    }

    /// Returns whether a folded word is a stop word. Stop words say nothing about the subject of a
    /// question, so they are not searched for.
    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        self.stop_words.contains(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_share_a_stem() {
        let lexicon = lexicon();
        for (a, b) in [
            ("went", "going"),
            ("bought", "buys"),
            ("children", "child"),
            ("ponies", "pony"),
        ] {
            assert_eq!(lexicon.stem(a), lexicon.stem(b), "{a} and {b}");
        }
        assert_ne!(lexicon.stem("universe"), lexicon.stem("unit"));
        assert!(
            lexicon
                .irregular_forms(&lexicon.stem("go"))
                .contains(&"went")
        );
    }

    #[test]
    fn synonyms_go_both_ways() {
        let lexicon = lexicon();
        for (a, b) in [("purchased", "bought"), ("buy", "purchase")] {
            let synonyms = lexicon.synonyms(&lexicon.stem(a));
            assert!(synonyms.contains(&lexicon.stem(b)), "{a} and {b}");
        }
    }

    #[test]
    fn a_kind_has_members() {
        let lexicon = lexicon();
        let members = lexicon.members(&lexicon.stem("instruments"));
        assert!(members.contains(&lexicon.stem("clarinet")));
    }
}
