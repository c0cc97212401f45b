//! What users said: quoted, never paraphrased, and never as a new request.

use std::borrow::Cow;
use std::sync::LazyLock;

use contexture_secrets::mask_secrets;
use hashbrown::HashSet;
use xxhash_rust::xxh3::xxh3_64;

use crate::span::Span;
use crate::text::{chars, one_line, sentences, shorten_middle};
use crate::words::Words;

/// A quote longer than this many characters loses its middle.
const QUOTE_CHARS: usize = 200;
/// A rule longer than this many characters loses its middle.
const RULE_CHARS: usize = 240;

/// Words of a sentence that states a rule.
static RULE_WORDS: LazyLock<Words> = LazyLock::new(|| {
    Words::new([
        "always",
        "never",
        "must",
        "mustn't",
        "don't",
        "dont",
        "prefer",
        "avoid",
        "ensure",
        "only",
        "without",
        "instead",
        "make sure",
        "do not",
        "should not",
        "shouldn't",
        "rather than",
    ])
});

/// A user's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quote {
    /// The message, counted from 0.
    pub(crate) message: usize,
    /// The source it is from.
    pub(crate) source: usize,
    /// The sentence, or the message shortened in its middle.
    pub(crate) text: String,
    /// It is a rule for the work, rather than a request.
    pub(crate) is_rule: bool,
}

/// A user's words as a quote; none where a client wrote them alone.
pub(crate) fn quote(text: &str) -> Option<String> {
    let words = one_line(&mask_secrets(&users_own(text))).replace('"', "'");
    (!words.is_empty()).then(|| shorten_middle(&words, QUOTE_CHARS).into_owned())
}

/// Everything that users said, in order, with rules as separate entries.
pub(crate) fn quotes(span: &Span<'_>) -> Vec<Quote> {
    let mut quotes = Vec::new();
    let mut seen = HashSet::new();
    for (source, said) in span.user_sources() {
        let text = users_own(&said.text);
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
        let mut rest = String::new();
        for sentence in sentences(&text) {
            // Terminal output pasted again adds nothing.
            if sentence.len() > 24 && !seen.insert(xxh3_64(sentence.as_bytes())) {
                continue;
            }
            if is_rule(sentence) {
                add(sentence, RULE_CHARS, true);
            } else {
                rest.push_str(sentence);
                rest.push(' ');
            }
        }
        // "Thanks." next to a rule is not worth a line.
        if chars(rest.trim()) > 12 || rest.trim() == one_line(&text) {
            add(&rest, QUOTE_CHARS, false);
        }
    }
    quotes
}

/// The text without what a client inserted into the user's words, or said in their place.
fn users_own(text: &str) -> Cow<'_, str> {
    const TAGS: [(&str, &str); 4] = [
        ("<system-reminder>", "</system-reminder>"),
        ("<local-command-stdout>", "</local-command-stdout>"),
        ("<local-command-caveat>", "</local-command-caveat>"),
        // `[Request interrupted by user for tool use]`, too.
        ("[Request interrupted by user", "]"),
    ];
    let mut text = Cow::Borrowed(text);
    for (open, close) in TAGS {
        while let Some(start) = text.find(open) {
            let end = text[start..]
                .find(close)
                .map_or(text.len(), |end| start + end + close.len());
            text = Cow::Owned(format!("{}{}", &text[..start], &text[end..]));
        }
    }
    text
}

/// Whether a sentence states a rule: `never push`, `always use tabs`, 不要.
fn is_rule(sentence: &str) -> bool {
    const CJK: [&str; 18] = [
        "不要",
        "必须",
        "总是",
        "始终",
        "务必",
        "禁止",
        "不能",
        "不准",
        "只能",
        "尽量",
        "记住",
        "別",
        "してはいけ",
        "しないで",
        "必ず",
        "하지 마",
        "반드시",
        "항상",
    ];
    if sentence.len() > 1200 || sentence.ends_with('?') {
        return false;
    }
    if !sentence.is_ascii() && CJK.iter().any(|word| sentence.contains(word)) {
        return true;
    }
    let mut from = 0;
    while let Some((_, place)) = RULE_WORDS.find(sentence, from) {
        let is_letter = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !is_letter(sentence[..place.start].bytes().next_back())
            && !is_letter(sentence[place.end..].bytes().next())
        {
            return true;
        }
        from = place.end;
    }
    false
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn rules_are_told_from_requests() {
        for rule in [
            "Never push to main.",
            "please use tabs, don't use spaces",
            "不要删除数据库。",
            "必ずテストを書いて。",
        ] {
            assert!(is_rule(rule), "{rule}");
        }
        for request in [
            "Fix the failing tests.",
            "add a neverland page",
            "do you always do that?",
            "帮我查一下天气",
        ] {
            assert!(!is_rule(request), "{request}");
        }
    }

    #[test]
    fn what_a_client_added_is_not_quoted() {
        assert_eq!(users_own("a<system-reminder>x</system-reminder>b"), "ab");
        assert_eq!(users_own("a<system-reminder>x"), "a");
        assert_eq!(users_own("[Request interrupted by user for tool use]"), "");
    }
}
