//! How many of the identifiers that stand in one message of a real session's middle are in its digest.
//!
//! The identifiers are found by patterns of this test's own, which share nothing with the digest's scan.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::HashMap;

use contexture_digest::{Budget, Digest};
use regex::Regex;
use support::{Message, claude_code, data, with_views};

const PATTERNS: [&str; 6] = [
    // Paths with a slash, and file names with an extension.
    r"(?:~|\.{1,2})?/?(?:[\w.@+-]+/)+[\w.@+-]*[\w-]",
    r"\b[\w-]+\.(?:py|rs|js|ts|tsx|md|jsonl|json|txt|toml|yaml|yml|sh|go|c|h|cpp|java|db|xml|html|css|sql|log|cfg|ini|lock|rst)\b",
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    r"\b[0-9a-f]{7,64}\b",
    // camelCase and PascalCase.
    r"\b[a-z]+(?:[A-Z][a-z0-9]+)+\b|\b(?:[A-Z][a-z0-9]+){2,}\b",
    // snake_case, tests among it.
    r"\b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b",
];

/// The identifiers that stand in exactly one of the messages.
fn mentioned_once(messages: &[Message]) -> Vec<String> {
    let patterns: Vec<Regex> = PATTERNS
        .iter()
        .map(|pattern| Regex::new(pattern).unwrap())
        .collect();
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        let text = message.all_text();
        for (pattern_at, pattern) in patterns.iter().enumerate() {
            for found in pattern.find_iter(&text) {
                let name = found.as_str();
                let is_number = pattern_at == 3
                    && !(name.bytes().any(|b| b.is_ascii_digit())
                        && name.bytes().any(|b| b.is_ascii_alphabetic()));
                if is_number || name.len() > 200 {
                    continue;
                }
                let places = places.entry(name.to_owned()).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
        }
    }
    let mut once: Vec<String> = places
        .into_iter()
        .filter(|(_, places)| places.len() == 1)
        .map(|(name, _)| name)
        .collect();
    once.sort();
    once
}

fn share(once: &[String], text: &str) -> f64 {
    once.iter()
        .filter(|name| text.contains(name.as_str()))
        .count() as f64
        / once.len() as f64
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn nine_of_ten_identifiers_of_a_real_session_are_kept() {
    let messages = claude_code(&data("claude-code/main.jsonl"));
    let middle = &messages[2..messages.len() - 20];
    let once = mentioned_once(middle);
    with_views(middle, |views| {
        let digest = Digest::of(views, None);
        let shares = [(12_000, 0.9), (6_000, 0.45)].map(|(budget, least)| {
            let text = digest.render(Budget::chars(budget));
            let kept = share(&once, &text);
            println!(
                "{budget} characters: {} of {} identifiers, {:.1} %, {} characters",
                (kept * once.len() as f64).round(),
                once.len(),
                kept * 100.0,
                text.chars().count()
            );
            if std::env::var_os("SHOW_DIGEST").is_some() {
                println!("{text}");
                let lost: Vec<&String> = once
                    .iter()
                    .filter(|name| !text.contains(name.as_str()))
                    .collect();
                println!("lost: {lost:?}");
            }
            assert!(text.chars().count() <= budget);
            (kept, least)
        });
        for (kept, least) in shares {
            assert!(kept >= least, "{kept}");
        }
    });
}
