//! Compares rules: which say the same, and which later one replaces an earlier one.
//!
//! Two rules with the same [`key`] are one. [`About`] says what a rule is about. A later rule about
//! the same replaces an earlier one if one of the two forbids what the other demands, or if the user
//! says that something changes.

use std::collections::BTreeSet;

use super::declared;
use super::directive::{self, LanguageNumber};
use super::permission::Ending;
use super::words::{WORDS, lowered};
use super::wraps::without_vocative;
use crate::text::chars;

/// What a rule, or a sentence that ends one, is about.
pub(super) struct About {
    topic: BTreeSet<String>,
    /// What it demands and what it forbids, if it does both: "Use tabs, not spaces."
    sides: Option<(BTreeSet<String>, BTreeSet<String>)>,
    names: BTreeSet<String>,
    is_negative: bool,
    changes: bool,
    ending: Option<Ending>,
    only_ends: bool,
}

/// How a rule, or a sentence, replaces an earlier rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replacement {
    /// Both are about the same, and contradict each other.
    Contradicts,
    /// It says that the rule no longer holds.
    Ends,
}

impl About {
    /// `only_ends` if the text is no rule, and says something only if it ends one.
    pub(super) fn of(text: &str, only_ends: bool) -> Self {
        Self {
            topic: topic(text),
            sides: sides(text),
            names: names(text),
            is_negative: directive::is_negative(text),
            changes: directive::changes_course(text),
            ending: Ending::of(text),
            only_ends,
        }
    }

    /// Whether and how what is said now replaces an earlier rule. Two rules about the same thing are
    /// compatible, unless one forbids what the other demands or the user says that something
    /// changes. If they do, the rules need less in common.
    pub(super) fn replaces(&self, earlier: &Self) -> Option<Replacement> {
        let is_opposite = self.is_negative != earlier.is_negative;
        // What holds for one file or language does not contradict what holds for another.
        let have_names = !self.names.is_empty() && !earlier.names.is_empty();
        if is_opposite && have_names && self.names.is_disjoint(&earlier.names) {
            return None;
        }
        let common = Common::of(&self.topic, &earlier.topic);
        if self.ends(earlier, common) {
            return Some(Replacement::Ends);
        }
        // "You can answer in English again" has one word in place of another.
        let may_change = !self.only_ends || common.differs() && common.own == 1;
        let contradicts = is_opposite && common.is_all() && !self.only_ends
            || self.changes && may_change && common.most() >= 0.5 && common.least() >= 0.4
            || self.turns_round(earlier);
        contradicts.then_some(Replacement::Contradicts)
    }

    /// Whether what is said now ends an earlier rule.
    fn ends(&self, earlier: &Self, common: Common) -> bool {
        let is_same = common.least() >= 0.7 && !common.differs();
        match self.ending {
            None => false,
            // Who withdraws a rule names it by a word or two.
            Some(Ending::Withdraws) => common.most() >= 0.5 && common.least() >= 0.25,
            Some(Ending::Permits) => earlier.is_negative && is_same,
            Some(Ending::Releases) => is_same,
            // Who lifts a ban names what was forbidden, and not what was done with it.
            Some(Ending::Lifts) => earlier.is_negative && common.own == 0 && common.least() >= 0.5,
            Some(Ending::Switches) => !earlier.is_negative && common.least() >= 0.5,
        }
    }

    /// Whether what was demanded is forbidden now, and the reverse.
    fn turns_round(&self, earlier: &Self) -> bool {
        let (Some((demanded, forbidden)), Some((before, forbidden_before))) =
            (&self.sides, &earlier.sides)
        else {
            return false;
        };
        !demanded.is_disjoint(forbidden_before) && !forbidden.is_disjoint(before)
    }
}

/// How much two topics have in common.
#[derive(Debug, Clone, Copy)]
struct Common {
    shared: usize,
    /// The number of words that only the one has, and only the other.
    own: usize,
    other: usize,
}

impl Common {
    fn of(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Self {
        let shared = one.intersection(other).count();
        // A character of Chinese alone may stand for a word: 改 for 修改.
        let stands_for = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            let alone = one.difference(other).filter(|word| chars(word) == 1);
            let stands = |char: &&String| {
                let mut words = other.difference(one).filter(|word| chars(word) == 2);
                words.any(|word| word.contains(char.as_str()))
            };
            alone.filter(stands).count()
        };
        let (of_one, of_other) = (stands_for(one, other), stands_for(other, one));
        let is_long = |word: &&String| chars(word) > 1 || word.is_ascii();
        let own = one.difference(other).filter(is_long).count();
        let others = other.difference(one).filter(is_long).count();
        Self {
            shared: shared + of_one + of_other,
            own: own.saturating_sub(of_other),
            other: others.saturating_sub(of_one),
        }
    }

    /// The share of the larger topic that both have.
    fn least(self) -> f32 {
        self.shared as f32 / (self.shared + self.own.max(self.other)).max(1) as f32
    }

    /// The share of the smaller topic that both have.
    fn most(self) -> f32 {
        self.shared as f32 / (self.shared + self.own.min(self.other)).max(1) as f32
    }

    fn is_all(self) -> bool {
        self.shared > 0 && self.own + self.other == 0
    }

    /// Whether each has a word that the other has not, as patients' names and patients' ages have.
    fn differs(self) -> bool {
        self.own > 0 && self.other > 0
    }
}

/// What a rule demands and what it forbids, if one of its clauses does the one and one the other.
fn sides(rule: &str) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let clauses = rule
        .split([',', ';', '，', '；', '、'])
        .filter(|clause| !clause.trim().is_empty());
    let (forbids, demands): (Vec<&str>, Vec<&str>) =
        clauses.partition(|clause| directive::is_negative(clause));
    let all = |clauses: Vec<&str>| clauses.into_iter().flat_map(topic).collect::<BTreeSet<_>>();
    let sides = (all(demands), all(forbids));
    (!sides.0.is_empty() && !sides.1.is_empty()).then_some(sides)
}

/// The key by which two rules are the same: their words without the case of plain words, quotes, and
/// punctuation of sentences. What else stands in a word may tell two rules apart: `-f`, `C#`, `< 3`.
pub(super) fn key(rule: &str) -> String {
    let rule = without_lead(rule);
    let words: Vec<String> = words(without_vocative(rule).unwrap_or(rule))
        .map(|word| match word.chars().all(is_letter) {
            true => lowered(word),
            false => word.to_owned(),
        })
        .collect();
    // A rule is said in letters.
    match rule.contains(char::is_alphanumeric) {
        true => words.join(" "),
        false => String::new(),
    }
}

/// A rule without words before it that say that it was said: "As I said, never push."
fn without_lead(rule: &str) -> &str {
    let Some(end) = rule.find([',', ':', '，', '：', '、', '—', '–']) else {
        return rule;
    };
    let (lead, rest) = rule.split_at(end);
    let is_word = |word: &str| WORDS.lists("said", &word.to_ascii_lowercase());
    let is_said =
        lead.split(|c: char| !c.is_alphanumeric()).any(is_word) || WORDS.is_in("said cjk", lead);
    let rest =
        rest.trim_start_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '`' | '/' | '"'));
    match is_said && chars(lead) <= 40 && !directive::is_directive(lead) && !rest.is_empty() {
        true => rest,
        false => rule,
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '\'' | '’')
}

/// The words of a rule, without quotes and punctuation of sentences around them.
fn words(rule: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &[char] = &[
        '"', '\'', '`', '“', '”', '„', '‘', '’', '«', '»', '(', '¡', '¿',
    ];
    const END: &[char] = &[
        '"', '\'', '`', '“', '”', '‘', '’', '«', '»', ')', '.', ',', ';', ':', '!', '?', '…',
    ];
    const BETWEEN: &[char] = &[
        '，', '。', '、', '！', '？', '；', '：', '「', '」', '『', '』', '（', '）', '《', '》',
        '—',
    ];
    let words = rule.split(|c: char| c.is_whitespace() || BETWEEN.contains(&c));
    let words = words.map(|word| {
        let bare = word.trim_start_matches(BEGIN).trim_end_matches(END);
        // `..` is a path, and a mark that stands alone ends a sentence.
        match bare.is_empty() && word.starts_with('.') {
            true => word,
            false => bare,
        }
    });
    words.filter(|word| !word.is_empty())
}

/// A rule that names a path, a command, a number or a name is more specific than one that does not.
/// A declared one outlives all others, whatever its age.
pub(super) fn specificity(rule: &str) -> f32 {
    if declared::is_declared(rule) {
        return 2.0;
    }
    match rule.split_whitespace().any(is_name) {
        true => 0.3,
        false => 0.0,
    }
}

/// Whether a word is a path, a command, a number or a name.
pub(super) fn is_name(word: &str) -> bool {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let has_hump = inner.chars().skip(1).any(char::is_uppercase);
    inner.contains(['/', '_', '.', '`'])
        || word.contains('`')
        || has_hump
        || inner.contains(|c: char| c.is_ascii_digit())
}

/// The names in a rule. A capital letter makes a word a name, except at the beginning and in German,
/// whose nouns all have one.
fn names(rule: &str) -> BTreeSet<String> {
    let is_german = directive::reads_as(rule, LanguageNumber::German);
    let is_capital =
        |at: usize, word: &str| at > 0 && !is_german && word.starts_with(char::is_uppercase);
    let words = words(rule).enumerate();
    let names = words.filter(|(at, word)| is_name(word) || is_capital(*at, word));
    names.map(|(_, word)| word.to_lowercase()).collect()
}

/// What a rule is about: its words without those that any rule may have. Names and paths are whole.
/// Other words are cut, so that their forms are equal. Chinese and Japanese count by pairs of
/// characters, and by characters that stand alone.
pub(super) fn topic(rule: &str) -> BTreeSet<String> {
    let lower = lowered(rule);
    if lower.chars().any(directive::is_cjk) {
        let cues = WORDS.all("in any rule cjk").iter();
        let bare = cues.fold(lower, |text, cue| text.replace(cue, " "));
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        let letters: Vec<char> = bare.chars().collect();
        let runs = letters.chunk_by(|one, next| {
            is_part(*one) && is_part(*next) && one.is_ascii() == next.is_ascii()
        });
        let mut pairs = BTreeSet::new();
        for run in runs.filter(|run| run[0].is_alphanumeric() || run.len() > 1) {
            match run[0].is_ascii() {
                true => pairs.extend([run.iter().collect::<String>()]),
                false if run.len() == 1 && directive::is_han(run[0]) => {
                    pairs.insert(run[0].to_string());
                }
                false => {
                    pairs.extend(run.windows(2).map(|two| two.iter().collect::<String>()));
                }
            }
        }
        return pairs;
    }
    let is_common =
        |word: &str| WORDS.lists("in any rule", word) || WORDS.lists("in any end", word);
    let [german, spanish] = [LanguageNumber::German, LanguageNumber::Spanish]
        .map(|language| directive::reads_as(rule, language));
    // French joins short words to the next one: "n'utilise".
    let joined = ["n'", "l'", "d'", "j'", "s'", "qu'"];
    let mut topic = BTreeSet::new();
    for word in words(rule) {
        if is_name(word) {
            topic.insert(word.to_lowercase());
            continue;
        }
        let lower = lowered(word);
        let parts = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let parts = parts.map(|part| {
            let mut joined = joined.iter();
            joined
                .find_map(|short| part.strip_prefix(short))
                .unwrap_or(part)
        });
        let parts = parts.filter(|part| !part.is_empty() && !is_common(part));
        topic.extend(parts.map(|part| stem(part, german, spanish)));
    }
    topic
}

/// A word without its ending, such as that of a verb or a plural.
fn stem(word: &str, is_german: bool, is_spanish: bool) -> String {
    /// Particles that German separates from a verb: "Fass es nicht an."
    const PARTICLES: [&str; 9] = ["an", "ab", "auf", "aus", "ein", "mit", "vor", "zu", "um"];
    let long = |short: &&str| chars(short) >= 4;
    let mut particles = PARTICLES.iter().filter(|_| is_german);
    let whole = particles.find_map(|particle| word.strip_prefix(particle).filter(long));
    let word = whole.unwrap_or(word);
    let word = (word.strip_suffix("ing").filter(long)).unwrap_or(word);
    // Six letters are enough to tell most words apart, and most endings come after them.
    let stem: String = word.chars().take(6).collect();
    let stem = match stem.ends_with("ss") {
        true => &stem,
        false => stem.trim_end_matches('s'),
    };
    if is_spanish {
        return spanish_stem(stem);
    }
    let endings = ["en", "e"];
    let mut short = endings.iter().filter_map(|end| stem.strip_suffix(end));
    short.find(long).unwrap_or(stem).to_owned()
}

/// The stem of a Spanish word, of which the last vowel decides how a consonant is written: "toca" and
/// "toque", "paga" and "pague".
fn spanish_stem(word: &str) -> String {
    let long = |short: &&str| chars(short) >= 2;
    let endings = ["ar", "er", "ir", "a", "e", "o"];
    let mut short = endings.iter().filter_map(|end| word.strip_suffix(end));
    let stem = short.find(long).unwrap_or(word);
    match (stem.strip_suffix("qu"), stem.strip_suffix("gu")) {
        (Some(stem), _) => format!("{stem}c"),
        (_, Some(stem)) => format!("{stem}g"),
        _ => stem.to_owned(),
    }
}
