//! What users said. It is quoted, never paraphrased, and never looks like a new request.
//!
//! [`quotes`] goes through all messages of users and separates rules, such as "never push", from
//! requests, because rules stay valid after a request is done. The module `rules` decides which
//! sentences are rules. Text that a client inserted, such as system reminders, is removed first. Text
//! that was pasted twice is quoted once. Long quotes lose their middle, since requests and conditions
//! tend to stand at the ends.

use std::borrow::Cow;

use contexture_contract::own_words;
use contexture_secrets::mask_secrets;
use hashbrown::HashSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::rules::{item, stated_in};
use crate::span::Span;
use crate::text::{chars, one_line, sentences, shorten_middle};

const QUOTE_CHARS: usize = 200;
const RULE_CHARS: usize = 240;

/// What a user said: one sentence if it is a rule, otherwise the remaining text of the message,
/// shortened in its middle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quote {
    pub(crate) message: usize,
    pub(crate) source: usize,
    pub(crate) text: String,
    pub(crate) is_rule: bool,
}

/// Returns a user's words as a quote. Returns `None` if the text has only what a client inserted.
pub(crate) fn quote(text: &str) -> Option<String> {
    let words = one_line(&mask_secrets(&quotable(text))).replace('"', "'");
    (!words.is_empty()).then(|| shorten_middle(&words, QUOTE_CHARS).into_owned())
}

/// Returns everything that users said, in order. Each rule is an entry of its own.
pub(crate) fn quotes(span: &Span<'_>) -> Vec<Quote> {
    let mut quotes = Vec::new();
    let mut seen = HashSet::new();
    for (source, said) in span.user_sources() {
        let text = quotable(&said.text);
        let mut add = |words: &str, most: usize, is_rule: bool| {
            let mut words = one_line(words);
            if words.contains('"') {
                words = words.replace('"', "'");
            }
            if !words.is_empty() {
                let text = match shorten_middle(&words, most) {
                    Cow::Owned(shorter) => shorter,
                    Cow::Borrowed(_) => words,
                };
                quotes.push(Quote {
                    message: said.message,
                    source,
                    text,
                    is_rule,
                });
            }
        };
        // The rules were read in the message itself, which masking may have changed.
        let known = span.stated.get(&said.message);
        let known = known.filter(|_| matches!(said.text, Cow::Borrowed(_)));
        let rules = match known {
            Some(rules) => Cow::Borrowed(rules),
            None => Cow::Owned(stated_in(&said.text, false)),
        };
        let is_stated = |sentence: &str| {
            let words = one_line(item(sentence).unwrap_or(sentence));
            words.len() > 3 && rules.iter().any(|rule| rule.contains(&words))
        };
        let mut rest = String::new();
        for sentence in sentences(&text) {
            // Pasting the same terminal output again adds nothing. Short sentences such as "yes"
            // can repeat.
            if sentence.len() > 24 && !seen.insert(xxh3_64(sentence.as_bytes())) {
                continue;
            }
            if is_stated(sentence) {
                add(sentence, RULE_CHARS, true);
            } else {
                rest.push_str(sentence);
                rest.push(' ');
            }
        }
        // A rest such as "Thanks." next to a rule is not worth a line.
        if chars(rest.trim()) > 12 || rest.trim() == one_line(&text) {
            add(&rest, QUOTE_CHARS, false);
        }
    }
    quotes
}

/// Returns the user's own words without pins.
fn quotable(text: &str) -> String {
    let own = own_words(text);
    match own.lines().any(is_pin) {
        true => {
            let lines: Vec<&str> = own.lines().filter(|line| !is_pin(line)).collect();
            lines.join("\n")
        }
        false => own,
    }
}

/// Whether a line is a command to the host about its section of pins, which stands beside the summary.
fn is_pin(line: &str) -> bool {
    let words = ["/pin", "/unpin"]
        .iter()
        .find_map(|command| line.strip_prefix(command));
    words.is_some_and(|words| words.is_empty() || words.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_added_is_not_quoted() {
        for (text, own) in [
            ("a<system-reminder>x</system-reminder>b", Some("a b")),
            ("a<system-reminder>x", Some("a")),
            ("[Request interrupted by user for tool use]", None),
            ("Run it.\n/pin x", Some("Run it.")),
        ] {
            assert_eq!(quote(text).as_deref(), own);
        }
    }
}
