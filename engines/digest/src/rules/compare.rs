//! Compares rules: which say the same, and which later one replaces an earlier one.
//!
//! Two rules with the same [`key`] are one. [`About`] says what a rule is about. A later rule about
//! the same replaces an earlier one if one of the two forbids what the other demands, if they demand
//! values that exclude each other, or if the user takes back what was said.

use std::collections::BTreeSet;

use super::declared;
use super::directive;
use super::permission::Ending;
use super::topic::{Common, NUMBERS, Topic, is_name, slot, tongues, topic, topic_word, words};
use super::words::{WORDS, flat, lowered};
use super::wraps::without_vocative;
use crate::text::chars;

/// What a rule, or a sentence that ends one, is about.
pub(super) struct About {
    topic: Topic,
    /// What it demands, and what it forbids: "Use tabs, not spaces."
    demanded: Topic,
    forbidden: Topic,
    names: BTreeSet<String>,
    forbids: bool,
    /// Whether it says to do one thing without another: "Never push without asking me."
    is_without: bool,
    /// Whether it says that something else held before: "From now on use the linter." It may hold
    /// beside that.
    changes: bool,
    /// Whether it takes something back: "I changed my mind."
    takes_back: bool,
    /// Whether it says what to use.
    uses: bool,
    /// Whether it holds beside others: "Translate it into French, too."
    adds: bool,
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
        let lower = lowered(text);
        let flat = flat(&lower);
        let has = |name: &str, cjk: &str| WORDS.has(name, &flat) || WORDS.is_in(cjk, &lower);
        let all = |name: &str| WORDS.all(name).iter();
        let bare = all("without cjk").fold(flat.clone(), |text, word| text.replace(word, " "));
        let bare = all("without").fold(bare, |text, word| text.replace(&format!(" {word} "), " "));
        let (demanded, forbidden) = sides(text);
        Self {
            topic: topic(text),
            demanded,
            forbidden,
            names: names(text),
            forbids: directive::is_negative(&bare),
            is_without: has("without", "without cjk"),
            changes: directive::changes_course(text),
            takes_back: has("takes back", "takes back cjk"),
            uses: has("uses", "uses cjk"),
            adds: has("adds", "adds cjk") || WORDS.is_in("translates", &lower),
            ending: Ending::of(text),
            only_ends,
        }
    }

    /// Whether and how what is said now replaces an earlier rule. Two rules about the same thing are
    /// compatible, unless one forbids what the other demands, both demand values that exclude each
    /// other, or the user takes back what was said.
    pub(super) fn replaces(&self, earlier: &Self) -> Option<Replacement> {
        // What holds for one file or language does not contradict what holds for another.
        let have_names = !self.names.is_empty() && !earlier.names.is_empty();
        if have_names && !self.takes_back && self.names.is_disjoint(&earlier.names) {
            return None;
        }
        let common = Common::of(&self.topic, &earlier.topic);
        if self.ends(earlier, common) {
            return Some(Replacement::Ends);
        }
        let is_opposite = self.is_negative() != earlier.is_negative();
        let (most, least) = (common.most(), common.least());
        // "From now on use Vue for the frontend" names another thing for the same purpose.
        let uses_other = self.uses && earlier.uses && common.own == 1.0 && common.other == 1.0;
        let contradicts = !self.only_ends
            && (is_opposite && common.is_all()
                || is_opposite && self.changes && !common.differs() && least >= 0.4
                || !is_opposite && self.changes && !self.adds && uses_other && most >= 0.5
                || self.takes_back && most >= 0.5 && least >= 0.3)
            || self.turns_round(earlier)
            || self.has_other_value(earlier);
        contradicts.then_some(Replacement::Contradicts)
    }

    /// Whether it is against something. Who forbids to do without something is for it.
    fn is_negative(&self) -> bool {
        self.forbids != self.is_without
    }

    /// Whether what is said now ends an earlier rule.
    fn ends(&self, earlier: &Self, common: Common) -> bool {
        let is_same = common.least() >= 0.7 && !common.differs();
        match self.ending {
            None => false,
            // Who withdraws a rule names it by a word or two.
            Some(Ending::Withdraws) => common.most() > 0.5 && common.least() >= 0.25,
            Some(Ending::Permits) => earlier.forbids && is_same,
            Some(Ending::Releases) => (!earlier.forbids || earlier.is_without) && is_same,
            // Who lifts a ban names what was forbidden, and not what was done with it.
            Some(Ending::Lifts) => earlier.forbids && common.own == 0.0 && common.least() >= 0.5,
            Some(Ending::Switches) => !earlier.forbids && common.least() >= 0.5,
        }
    }

    /// Whether what was demanded is forbidden now, and something else demanded in its place.
    fn turns_round(&self, earlier: &Self) -> bool {
        let have_any = |one: &Topic, other: &Topic| Common::of(one, other).shared > 0.0;
        if self.demanded.is_empty() || !have_any(&self.forbidden, &earlier.demanded) {
            return false;
        }
        let common = Common::of(&self.topic, &earlier.demanded);
        let is_covered = match self.changes || self.takes_back {
            true if Common::of(&self.forbidden, &earlier.demanded).own > 0.0 => common.own <= 1.0,
            true => common.own <= 1.0 || common.most() >= 0.75,
            false => common.own <= 1.0 && common.other == 0.0,
        };
        have_any(&self.demanded, &earlier.forbidden)
            || earlier.forbidden.is_empty() && is_covered && common.most() >= 0.5
    }

    /// Whether both demand the same, but with values that exclude each other, such as languages.
    fn has_other_value(&self, earlier: &Self) -> bool {
        let rest = |topic: &Topic, at: usize| -> Topic {
            let is_rest = |word: &str| slot(word) != Some(at) && !WORDS.lists("idle verbs", word);
            let words = topic.iter().filter(|(word, _)| is_rest(word));
            words
                .map(|(word, weight)| (word.clone(), *weight))
                .collect()
        };
        let replaces = |at: usize| {
            let values = |topic: &Topic| -> BTreeSet<String> {
                let words = topic.keys().filter(|word| slot(word) == Some(at));
                words.cloned().collect()
            };
            let (now, before) = (values(&self.demanded), values(&earlier.demanded));
            if before.is_empty() || !now.is_disjoint(&before) {
                return false;
            }
            let common = Common::of(&rest(&self.demanded, at), &rest(&earlier.demanded, at));
            let is_same = common.own + common.other == 0.0;
            match self.changes || self.takes_back {
                true => is_same || common.own == 0.0 && common.shared > 0.0,
                false => is_same && at != NUMBERS && !self.only_ends,
            }
        };
        !self.adds
            && self
                .demanded
                .keys()
                .filter_map(|word| slot(word))
                .any(replaces)
    }
}

/// What a rule demands and what it forbids, by its clauses and by words such as *instead of*.
fn sides(rule: &str) -> (Topic, Topic) {
    let (mut demanded, mut forbidden) = (Topic::new(), Topic::new());
    for clause in rule.split([',', ';', '，', '；', '、']) {
        let cut = |name: &str| {
            let mut phrases = WORDS.all(name).iter();
            phrases.find_map(|phrase| clause.split_once(phrase))
        };
        let (demands, forbids) = match (cut("not what follows"), cut("not what precedes")) {
            (Some((demands, forbids)), _) | (None, Some((forbids, demands))) => (demands, forbids),
            _ if directive::is_negative(clause) => ("", clause),
            _ => (clause, ""),
        };
        demanded.append(&mut topic(demands));
        forbidden.append(&mut topic(forbids));
    }
    (demanded, forbidden)
}

/// The key by which two rules are the same: their words without those that make no difference, the
/// case of plain words, quotes, and punctuation of sentences. All words of a ban are one word. What else
/// stands in a word may tell two rules apart: `-f`, `C#`, `< 3`.
pub(super) fn key(rule: &str) -> String {
    // A rule is said in letters.
    if !rule.contains(char::is_alphanumeric) {
        return String::new();
    }
    let rule = without_lead(rule);
    let rule = without_vocative(rule).unwrap_or(rule);
    let without = |text: String, name: &str, by: &str| {
        let phrases = WORDS.all(name).iter();
        phrases.fold(text, |text, phrase| text.replace(phrase, by))
    };
    let rule = match rule.chars().any(directive::is_cjk) {
        true => without(
            without(rule.to_owned(), "bans cjk", "禁"),
            "no difference cjk",
            "",
        ),
        false => rule.to_owned(),
    };
    let mut key: Vec<String> = Vec::new();
    for (at, word) in words(&rule).enumerate() {
        let is_plain = word.chars().all(is_letter);
        let lower = match is_plain {
            true => lowered(word),
            false => word.to_owned(),
        };
        if WORDS.lists("bans", &lower) {
            // Spanish says it twice: "No hagas push nunca."
            let is_again =
                matches!(&*lower, "nunca" | "jamás") && key.iter().any(|word| word == "not");
            key.extend((!is_again).then(|| "not".to_owned()));
            continue;
        }
        // "Not always" is less than "never".
        let is_denied = key.last().is_some_and(|known| known == "not");
        let is_capital = at > 0 && word.starts_with(char::is_uppercase);
        if is_denied || is_capital || !WORDS.lists("no difference", &lower) {
            key.push(lower);
        }
    }
    key.join(" ")
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

/// The names in a rule. A capital letter makes a word a name, except at the beginning and in German,
/// whose nouns all have one. Numbers and values are none.
fn names(rule: &str) -> BTreeSet<String> {
    let tongues = tongues(rule);
    let is_cjk = rule.chars().any(directive::is_cjk);
    let latin = match is_cjk {
        true => rule.replace(|c: char| !c.is_ascii(), " "),
        false => rule.to_owned(),
    };
    let is_capital = |at: usize, word: &str| {
        (at > 0 || is_cjk) && !tongues[0] && word.starts_with(char::is_uppercase)
    };
    let words = words(&latin).enumerate();
    let names = words.filter(|(at, word)| is_name(word) || is_capital(*at, word));
    let names = names.map(|(_, word)| word.to_lowercase());
    let is_plain =
        |word: &str| WORDS.lists("in any rule", word) || slot(&topic_word(word, tongues)).is_some();
    names.filter(|word| !is_plain(word)).collect()
}
