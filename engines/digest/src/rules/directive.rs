//! Tells whether a sentence states a rule, and what else its words say.
//!
//! [`is_directive`] is the entry point. What it goes by is [`learned`] from sentences in English, German,
//! French, Spanish, Chinese, Japanese and Korean.

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::words::{WORDS, flat, lowered};
use super::{learned, own_words};

/// The score from which a sentence is a rule.
const SENTENCE: f32 = 0.0;
/// The score from which a sentence is one that begins like most rules: "Never rename it."
const PLAIN: f32 = -2.0;
/// The score from which one of two words is, and one with a clause that is: what stands beside a rule,
/// such as its reason, makes a sentence less like one.
const CLAUSE: f32 = 3.0;
/// Hardly a sentence that was learned from has more characters. Of a longer one, the clauses in its beginning are
/// judged.
const LONGEST: usize = 240;

/// The languages that are told apart by their most common words.
const LANGUAGES: [&str; 4] = [
    "common english", "common german", "common french", "common spanish",
];

/// A language, by its place in [`LANGUAGES`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LanguageNumber {
    German = 1,
    Spanish = 3,
}

/// Which of the languages a common word is of.
static COMMON: LazyLock<HashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    let mut languages: HashMap<&str, Vec<usize>> = HashMap::new();
    for (language, name) in LANGUAGES.into_iter().enumerate() {
        for word in WORDS.all(name) {
            languages.entry(word).or_default().push(language);
        }
    }
    languages
});

/// Whether a sentence states a rule. Quotes in it are expected to be blanked out.
pub(super) fn is_directive(sentence: &str) -> bool {
    let lower = lowered(sentence);
    let lower = lower.trim();
    if !may_be_rule(lower) {
        return false;
    }
    let end = lower.char_indices().nth(LONGEST).map(|(at, _)| at);
    let judged = &lower[..end.unwrap_or(lower.len())];
    let mut clauses: Vec<&str> = judged
        .split(|c: char| ",;:，；：()[]#*—".contains(c))
        .collect();
    if end.is_some() {
        clauses.pop();
    }
    let least = match end {
        _ if begins_plainly(judged) => PLAIN,
        None if has_words(judged, 3) => SENTENCE,
        None => CLAUSE,
        Some(_) => f32::INFINITY,
    };
    let is_rule = |clause: &&str| has_words(clause, 3) && learned::score(clause) >= CLAUSE;
    learned::score(judged) >= least || clauses.iter().any(is_rule)
}

/// Whether a sentence begins with words such as *never*.
fn begins_plainly(lower: &str) -> bool {
    let bare = lower.trim_start_matches(|c: char| !c.is_alphanumeric());
    let words = flat(&bare.replace(" d'", " de "));
    let is_first = |begin: &&str| {
        let behind = words.trim_start().strip_prefix(begin);
        behind.is_some_and(|behind| behind.starts_with(' '))
    };
    WORDS.begins("begins a rule cjk", bare) || WORDS.all("begins a rule").iter().any(is_first)
}

/// Whether a sentence may be a rule: no row of a table, no tag, no single word, nothing that announces
/// other words, and no text to translate.
fn may_be_rule(lower: &str) -> bool {
    let head = lower.split_once([':', '：']).map(|(head, _)| head);
    has_words(lower, 2)
        && !lower.starts_with(['|', '<'])
        && !lower.ends_with([':', '：'])
        && !head.is_some_and(own_words::asks_to_translate)
}

/// Whether a text has as many words. Two characters of Chinese or Japanese count as one more.
fn has_words(text: &str, least: usize) -> bool {
    let cjk = text.chars().filter(|c| is_cjk(*c)).count();
    text.split_whitespace().count() + cjk / 2 >= least
}

/// Whether a sentence may be of a language: it has common words of it, and no more of any other.
pub(super) fn reads_as(sentence: &str, language: LanguageNumber) -> bool {
    let mut counts = [0; LANGUAGES.len()];
    for word in flat(&sentence.to_lowercase()).split_whitespace() {
        for language in COMMON.get(word).into_iter().flatten() {
            counts[*language] += 1;
        }
    }
    let count = counts[language as usize];
    count > 0 && counts.iter().all(|other| *other <= count)
}

/// Whether a sentence forbids something rather than demanding it.
pub(super) fn is_negative(sentence: &str) -> bool {
    let lower = lowered(sentence);
    WORDS.has("negative", &flat(&lower)) || WORDS.is_in("negative cjk", sentence)
}

/// Whether a sentence says that it changes what held before.
pub(super) fn changes_course(sentence: &str) -> bool {
    let lower = lowered(sentence);
    WORDS.has("changes", &flat(&lower)) || WORDS.is_in("changes cjk", &lower)
}

pub(super) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

pub(super) fn is_cjk(c: char) -> bool {
    // U+30FB, the middle dot, is left out, because it also separates names in Chinese.
    is_han(c) || matches!(c, '\u{3041}'..='\u{30fa}')
}

#[cfg(test)]
mod tests;
