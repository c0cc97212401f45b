//! Knowledge of words: the stop words of English, German, Spanish and French, and of English irregular forms,
//! synonyms and kinds of things. General language only: names and terms of a trade earned nothing.
//!
//! The words are in the files beside this one, one group a line.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use rustc_hash::FxBuildHasher;

type Map<K, V> = HashMap<K, V, FxBuildHasher>;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(Lexicon::new);

/// The lexicon, parsed once.
pub(super) fn lexicon() -> &'static Lexicon {
    &LEXICON
}

pub(super) struct Lexicon {
    stemmer: Stemmer,
    stop_words: HashSet<&'static str, FxBuildHasher>,
    /// The base form of each irregular form.
    base: Map<&'static str, &'static str>,
    /// The irregular forms of each stem.
    irregular: Map<String, Vec<&'static str>>,
    synonyms: Map<String, Vec<String>>,
    kinds: Map<String, Vec<String>>,
    signs: Map<&'static str, HashSet<&'static str, FxBuildHasher>>,
}

impl Lexicon {
    fn new() -> Self {
        let mut lexicon = Self {
            stemmer: Stemmer::create(Algorithm::English),
            stop_words: include_str!("lexicon/stop_words.txt")
                .split_whitespace()
                .collect(),
            base: Map::default(),
            irregular: Map::default(),
            synonyms: Map::default(),
            kinds: Map::default(),
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
                lexicon.base.insert(form, base);
                let stem = lexicon.stemmer.stem(base).into_owned();
                lexicon.irregular.entry(stem).or_default().push(form);
            }
        }
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
        lexicon.kinds = lexicon.directed(include_str!("lexicon/kinds.txt"));
        lexicon
    }

    /// Parses lines of `words: targets`.
    fn directed(&self, lines: &str) -> Map<String, Vec<String>> {
        let mut map: Map<String, Vec<String>> = Map::default();
        for (from, to) in lines.lines().filter_map(|line| line.split_once(':')) {
            let to = self.stems(to);
            for stem in self.stems(from) {
                map.entry(stem).or_default().extend(to.iter().cloned());
            }
        }
        map
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

    /// The stem of a folded word.
    pub(super) fn stem(&self, word: &str) -> String {
        let base = self.base.get(word).copied().unwrap_or(word);
        self.stemmer.stem(base).into_owned()
    }

    /// The irregular forms of the word with this stem.
    pub(super) fn irregular_forms(&self, stem: &str) -> &[&'static str] {
        self.irregular.get(stem).map_or(&[], Vec::as_slice)
    }

    /// The stems of words that mean nearly the same as the one with this stem.
    pub(super) fn synonyms(&self, stem: &str) -> &[String] {
        self.synonyms.get(stem).map_or(&[], Vec::as_slice)
    }

    /// The stems of things of this kind: of `instrument`, `clarinet`.
    pub(super) fn members(&self, stem: &str) -> &[String] {
        self.kinds.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Whether a folded word signals a `time`, a `span` of time, a `number`, a `person` or a `reason`.
    pub(super) fn is_sign(&self, of: &str, word: &str) -> bool {
        self.signs.get(of).is_some_and(|signs| signs.contains(word))
    }

    /// Whether a folded word is a stop word.
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
