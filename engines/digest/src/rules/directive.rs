//! Tells whether a sentence states a rule, in English, German, French, Spanish, Chinese or
//! Japanese, and in a few words of Korean.
//!
//! [`is_directive`] is the entry point. A sentence is a rule if it has the form of one and [`learned`]
//! does not deny it, or if [`learned`] is sure.
//!
//! Most words that mark a rule occur in complaints and reports too: "it always fails". So a form with a
//! word such as *always* counts only if the sentence tells somebody what to do: the word begins the
//! clause, follows *please* or a modal verb, or the clause begins with an imperative. Phrases such as
//! *from now on* count anywhere. Other forms need no such word: "keep functions under 40 lines". The
//! words are in a file for each language, and what is peculiar to it is in a module.

mod chinese;
mod english;
mod french;
mod german;
mod japanese;
mod shapes;
mod spanish;
mod tongue;

use std::sync::LazyLock;

use hashbrown::HashMap;

use super::words::{SHARED, Table, clauses, flat, lowered};
use super::{learned, own_words};

/// The words of a language, and whether a sentence of it states a rule.
type LanguageRules = (LazyLock<Table>, fn(&Table, &str) -> bool);

macro_rules! words_of {
    ($name:literal) => {
        LazyLock::new(|| Table::of(include_str!(concat!("words/", $name, ".txt"))))
    };
}

static LANGUAGES: [LanguageRules; 4] = [
    (words_of!("english"), english::states_rule),
    (words_of!("german"), german::states_rule),
    (words_of!("french"), french::states_rule),
    (words_of!("spanish"), spanish::states_rule),
];
static CHINESE: LazyLock<Table> = words_of!("chinese");
static JAPANESE: LazyLock<Table> = words_of!("japanese");

/// A language, by its place in [`LANGUAGES`].
#[derive(Debug, Clone, Copy)]
pub(super) enum LanguageNumber {
    German = 1,
    Spanish = 3,
}

/// Which of the languages a common word is of.
static COMMON: LazyLock<HashMap<&str, Vec<usize>>> = LazyLock::new(|| {
    let mut languages: HashMap<&str, Vec<usize>> = HashMap::new();
    for (language, (words, _)) in LANGUAGES.iter().enumerate() {
        for word in words.all("common") {
            languages.entry(word).or_default().push(language);
        }
    }
    languages
});

/// A sentence with the form of a rule is none below this score.
const DENIED: f32 = -3.0;
/// A sentence without the form of a rule is one from this score on.
const SURE: f32 = 2.5;
/// Nothing is learned of sentences with more characters than this.
const LONGEST: usize = 300;

/// Whether a sentence states a rule. Quotes in it are expected to be blanked out.
pub(super) fn is_directive(sentence: &str) -> bool {
    let lower = lowered(sentence);
    let lower = lower.trim();
    match has_form(lower) {
        true => learned::score(lower) >= DENIED,
        false => may_be_rule(lower) && learned::score(lower) >= SURE,
    }
}

/// Whether a sentence without the form of a rule may be one: no heading, no word or two, no question,
/// nothing that announces other words, and nothing for the moment.
fn may_be_rule(lower: &str) -> bool {
    let cjk = lower.chars().filter(|c| is_cjk(*c)).count();
    let is_short = lower.split_whitespace().count() < 3 && cjk < 4;
    !is_short
        && lower.chars().count() <= LONGEST
        && !lower.starts_with(['#', '|', '<'])
        && !lower.ends_with(['?', '？', ':', '：'])
        && !SHARED.is_in("no rules cjk", lower)
        && !SHARED.matches("no rules", &flat(lower))
}

/// Whether a sentence has the form of a rule.
fn has_form(lower: &str) -> bool {
    let is_question = lower.ends_with(['?', '？']);
    let head = lower.split_once([':', '：']).map(|(head, _)| head);
    if SHARED.is_in("no rules cjk", lower) || head.is_some_and(own_words::asks_to_translate) {
        return false;
    }
    // Japanese has Han characters as well, so kana are looked for first.
    if lower.chars().any(is_kana) {
        return !is_question && japanese::states_rule(&JAPANESE, lower);
    }
    // A single one may be a name or a unit in a sentence of another language.
    let han = lower.chars().filter(|c| is_han(*c)).count();
    if han >= 2 {
        return !is_question && chinese::states_rule(&CHINESE, lower);
    }
    if lower
        .chars()
        .any(|c| ('\u{ac00}'..='\u{d7af}').contains(&c))
    {
        let is_report = SHARED.is_in("korean reports", lower);
        return !is_question && !is_report && SHARED.is_in("korean rules", lower);
    }
    let flat = lasting(flat(lower));
    // "Never push, ok?" is a rule, and "do you always push?" is none.
    let begins = ["never ", "always ", "please never ", "from now on "];
    if is_question
        && !begins
            .iter()
            .any(|word| flat.trim_start().starts_with(word))
    {
        return false;
    }
    if tongue::is_contrast(&flat) || shapes::states_rule(&flat) {
        return true;
    }
    // The language whose words occur most often in a sentence is the one that it is read in.
    let counts = common_words(&flat);
    let most = counts.iter().max().copied().unwrap_or_default();
    // A short sentence often has as many common words of two languages, or none of any. Then each
    // of them may say that it is a rule.
    let likely = LANGUAGES
        .iter()
        .zip(counts)
        .filter(|(_, count)| *count == most);
    likely
        .into_iter()
        .any(|((words, states_rule), _)| states_rule(words, &flat))
}

/// The number of common words that a sentence has of each language.
fn common_words(flat: &str) -> [usize; LANGUAGES.len()] {
    let mut counts = [0; LANGUAGES.len()];
    for word in flat.split_whitespace() {
        for language in COMMON.get(word).into_iter().flatten() {
            counts[*language] += 1;
        }
    }
    counts
}

/// Whether a sentence may be of a language: it has common words of it, and no more of any other.
pub(super) fn reads_as(sentence: &str, language: LanguageNumber) -> bool {
    let counts = common_words(&flat(&sentence.to_lowercase()));
    let count = counts[language as usize];
    count > 0 && counts.iter().all(|other| *other <= count)
}

/// Returns a sentence up to the clause that makes it no rule: what follows belongs to that clause.
fn lasting(flat: String) -> String {
    let is_rule = |text: &str| !SHARED.matches("no rules", text);
    if is_rule(&flat) {
        return flat;
    }
    let clauses = clauses(&flat).map(|clause| format!(" {clause} | "));
    clauses.take_while(|clause| is_rule(clause)).collect()
}

/// Whether a sentence forbids something rather than demanding it.
pub(super) fn is_negative(sentence: &str) -> bool {
    let lower = lowered(sentence);
    SHARED.has("negative", &flat(&lower)) || SHARED.is_in("negative cjk", sentence)
}

/// Whether a sentence says that it changes what held before.
pub(super) fn changes_course(sentence: &str) -> bool {
    let lower = lowered(sentence);
    SHARED.has("changes", &flat(&lower)) || SHARED.is_in("changes cjk", &lower)
}

pub(super) fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}')
}

pub(super) fn is_cjk(c: char) -> bool {
    is_han(c) || is_kana(c)
}

pub(super) fn is_kana(c: char) -> bool {
    // U+30FB, the middle dot, is left out, because it also separates names in Chinese.
    matches!(c, '\u{3041}'..='\u{30fa}')
}

#[cfg(test)]
mod tests;
