//! The matches are those of the `regex` crate, for any expression and text; what it would take too long for is refused.
#![allow(clippy::unwrap_used, missing_docs)]

use std::cell::Cell;

use contexture_pattern::{MAX_BYTES, PatternError, Regex, Stop};
use proptest::prelude::*;

/// Expressions of all kinds, over few characters, so that they match.
fn expressions() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        8 => "[ab \n_é索1-]|\\PC",
        2 => Just("".to_owned()),
        1 => prop::sample::select(vec![
            ".", "(?s:.)", r"\w", r"\d", r"\s", r"\W", r"\pL", r"\p{Han}", "[a-c]", "[^a]", "[^\\n]", "[é-索]",
            "(?i:É)", "(?i:k)", "[a&&b]",
        ]).prop_map(str::to_owned),
        2 => prop::sample::select(vec![
            "^", "$", "(?m:^)", "(?m:$)", r"\A", r"\z", r"\b", r"\B", r"\b{start}", r"\b{end}", r"\b{start-half}",
            r"\b{end-half}", r"(?-u:\b)", "(?mR:^)", "(?mR:$)", "(?R:.)",
        ]).prop_map(str::to_owned),
    ];
    let leaf = leaf.prop_map(|text| {
        let is_plain = text.chars().count() == 1 && text != "." && text != "^" && text != "$";
        match is_plain {
            true => regex::escape(&text),
            false => text,
        }
    });
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| parts.concat()),
            prop::collection::vec(inner.clone(), 1..4)
                .prop_map(|parts| format!("({})", parts.join("|"))),
            (
                inner,
                prop::sample::select(vec![
                    "*", "+", "?", "*?", "+?", "??", "{2}", "{0,2}", "{1,3}?", "{2,}", "{0}",
                    "{1,}?",
                ])
            )
                .prop_map(|(inner, repeat)| format!("(?:{inner}){repeat}")),
        ]
    })
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[ab \n\r_éÉ索引1kK\u{212a}-]{0,12}",
        1 => "(\\PC|\n){0,8}",
    ]
}

fn check(pattern: &str, any_case: bool, text: &str) {
    let truth = regex::RegexBuilder::new(pattern)
        .case_insensitive(any_case)
        .build();
    let ours = Regex::new(pattern, any_case);
    if let Err(PatternError::MixedBoundaries) = ours {
        return;
    }
    let (Ok(truth), Ok(ours)) = (&truth, &ours) else {
        assert_eq!(
            truth.is_ok(),
            ours.is_ok(),
            "{pattern:?}: {truth:?} {ours:?}"
        );
        return;
    };
    let all: Vec<_> = truth.find_iter(text).map(|found| found.range()).collect();
    assert_eq!(
        ours.is_match(text, &|| false),
        Ok(!all.is_empty()),
        "{pattern:?} in {text:?}"
    );
    assert_eq!(
        ours.find_all(text, 1_000, &|| false),
        Ok(all),
        "{pattern:?} in {text:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(4_000)
    ))]

    #[test]
    fn matches_are_those_of_the_regex_crate(
        pattern in expressions(), any_case in any::<bool>(), texts in prop::collection::vec(texts(), 1..4)
    ) {
        for text in texts {
            check(&pattern, any_case, &text);
        }
    }
}

#[test]
fn what_the_regex_crate_does_with_empty_repetitions() {
    for pattern in [
        "(|a)*",
        "(|a)+",
        "(a|)*",
        "(a*)*",
        "(a*?)*?",
        "(a*)+b",
        "(|a){2,}",
        "(|a){0,3}",
        "(?:|ab)*?b",
        "x*",
        "",
        "()",
        "(a|ab)(c|bcd)(d*)",
        "a.*?b",
        ".*[^A-Z]|[A-Z]",
        r"(?i)ſ",
        r"\b\w+\b",
        "(?m)^$",
        "a{0}b",
        "[a&&b]|c",
        r"(?:(?:[a&&b]|\b{start-half})|.)*",
    ] {
        for text in [
            "", "a", "aab", "ab\nab", "abcd", "AAAA", "Kſs", "索引 引a", "\r\n\n\r",
        ] {
            check(pattern, false, text);
            check(pattern, true, text);
        }
    }
}

#[test]
fn a_match_may_cross_what_is_read_at_once() {
    let border = 1 << 16;
    for shift in [0, 1, 2, 3, 100] {
        let text = format!(
            "{}needle in 索引{}",
            "é".repeat((border - shift) / 2),
            "x".repeat(border)
        );
        check(r"n\w+ in \w{2}", false, &text);
        check("索.*x$", false, &text);
    }
}

#[test]
fn what_is_too_large_is_refused_with_a_word_on_what_to_do() {
    let words: Vec<String> = (0..10_000).map(|n| format!("w{n}")).collect();
    for (pattern, expected) in [
        ("a{60000}b".to_owned(), PatternError::TooLarge),
        ("((a{100}){100}){100}".to_owned(), PatternError::TooLarge),
        (r"(\w{1,200}){200}".to_owned(), PatternError::TooLarge),
        (
            "((((((){99}){99}){99}){99}a?){99}){999}".to_owned(),
            PatternError::TooLarge,
        ),
        (r"\bword(?-u:\b)".to_owned(), PatternError::MixedBoundaries),
        (r"\pL".repeat(30), PatternError::TooManyClasses { most: 25 }),
        (
            "a".repeat(MAX_BYTES + 1),
            PatternError::TooLong {
                bytes: MAX_BYTES + 1,
            },
        ),
        (
            words.join("|"),
            PatternError::TooLong {
                bytes: words.join("|").len(),
            },
        ),
    ] {
        assert_eq!(
            Regex::new(&pattern, true).err(),
            Some(expected),
            "{:.40}",
            pattern
        );
    }
    let error = Regex::new("a(b", false).unwrap_err().to_string();
    assert!(error.contains("unclosed group"), "{error}");
}

#[test]
fn what_costs_too_much_ends_and_a_search_can_be_cancelled_inside_a_text() {
    let text = "ab".repeat(200_000) + &"a".repeat(200_000);
    let costly = Regex::new(r"(?:a|b){0,900}a(?:a|b){900}c", false).unwrap();
    assert_eq!(costly.is_match(&text, &|| false), Err(Stop::TooCostly));
    // Cheap or dear, it is asked again and again.
    for pattern in ["(a|b)*c", r"(?:a|b){0,900}a(?:a|b){900}c"] {
        let regex = Regex::new(pattern, false).unwrap();
        let asked = Cell::new(0);
        let cancelled = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        assert_eq!(
            regex.is_match(&text, &cancelled),
            Err(Stop::Cancelled),
            "{pattern}"
        );
        assert_eq!(asked.get(), 3);
    }
}

#[test]
fn counting_matches_ends_where_each_takes_reading_the_rest() {
    let text = "A".repeat(100_000);
    let regex = Regex::new(".*[^A-Z]|[A-Z]", false).unwrap();
    let found = regex.find_all(&text, 1_000, &|| false).unwrap();
    assert!((1..40).contains(&found.len()), "{}", found.len());
    assert_eq!(found[0], 0..1);
}
