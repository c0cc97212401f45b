//! The patterns of sentences that state a rule.
//!
//! They are matched against a sentence in lower case with one space between words and a bar after
//! each clause, as [`flat`](super::words::flat) writes it. Chinese and Japanese sentences have no
//! words to separate and are matched as they are.

use regex::{RegexSet, RegexSetBuilder};

use super::english;

/// What stands for a part of a pattern, so that the patterns can be read.
const PARTS: [(&str, &str); 9] = [
    // The beginning of a clause, with words that may precede an order.
    (
        "START",
        r"(?:^ |\| )(?:(?:please|pls|plz|kindly|btw|hey|and|but|so|also|then|ok|okay|just|remember|note|bitte|und|aber|et|mais|y|pero|por favor|porfa|así que|sobre todo|s'il te plaît|stp|surtout|merci de|puis|alors|donc) )*",
    ),
    // The same in Chinese.
    ("BEGIN", r"(?:^|[，,；：。 ])[请并但就也那]*"),
    ("SOME", r"(?:[^ |]+ ){0,6}"),
    ("MANY", r"(?:[^ |]+ ){0,2}[^ |]+s "),
    ("WORD", r"[^ |]+ "),
    (
        "NUMBER",
        r"(?:\d[^ |]*|two|three|four|five|ten|zwei|drei|vier|fünf|zehn|deux|trois|quatre|cinq|dix|dos|tres|cuatro|cinco|diez) ",
    ),
    ("ING", r"[^ |]+ing "),
    (
        "LANGUAGE",
        r"(?:(?:plain|simple|british|american|gutem|einfachem) )?(?:english|german|french|spanish|chinese|japanese|korean|russian|italian|portuguese|dutch|polish|deutsch|englisch|französisch|spanisch|anglais|allemand|français|espagnol|inglés|alemán|francés|español) ",
    ),
    (
        "APPROVAL",
        r"(?:approval|permission|consent|sign-off|go-ahead|ok|okay) ",
    ),
];

/// The states of a set are built while it is used. With the default of 2 MiB most are built again
/// and again.
const DFA_BYTES: usize = 4 << 20;

/// Compiles patterns, in which the names of [`PARTS`] may stand, and ORDER for an English imperative.
pub(super) fn set(patterns: &[&str]) -> RegexSet {
    let order = format!("(?:{}) ", english::IMPERATIVES);
    let whole = |pattern: &&str| {
        let pattern = pattern.replace("ORDER", &order);
        PARTS
            .iter()
            .fold(pattern, |text, (name, part)| text.replace(name, part))
    };
    // A test compiles them all.
    let mut set = RegexSetBuilder::new(patterns.iter().map(whole));
    set.dfa_size_limit(DFA_BYTES).build().unwrap_or_default()
}
