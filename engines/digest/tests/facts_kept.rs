//! How many of the identifiers that stand in one message of a real session's middle are in its digest.
//!
//! The identifiers are found by patterns of this test's own, which share nothing with the digest's scan.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod support;

use std::collections::HashMap;

use contexture_digest::{Budget, Digest};
use regex::Regex;
use support::{Message, claude_code, data, with_views};

/// The group of a match is the identifier.
const PATTERNS: [&str; 6] = [
    // Paths from a root or a folder above, hidden files.
    r#"(?:^|[\s"'`(=:,\[<])((?:~|\.{1,2})?/(?:[\w.@+-]+/)*[\w.@+-]*[\w-]|\.[a-z][\w-]+(?:[./][\w-]+)*)"#,
    // Paths of three parts or more, and to a file with an extension.
    r"(?:^|[^\w.@+~/-])((?:[\w.@+-]+/){2,}[\w.@+-]*[\w-]|\b(?:[\w.@+-]+/)*[\w@+-]+\.(?:py|rs|jsx?|tsx?|md|jsonl?|txt|toml|ya?ml|sh|go|c|h|cpp|java|db|xml|html|css|sql|log|cfg|ini|lock|rst)\b)",
    r"\b([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b",
    // Hashes, where they hold digits and letters.
    r"\b((?:[0-9]+[a-f]|[a-f]+[0-9])[0-9a-f]{5,62})\b",
    // camelCase and PascalCase.
    r"\b([a-z]+(?:[A-Z][a-z0-9]+)+|(?:[A-Z][a-z0-9]+){2,})\b",
    // snake_case and CONSTANTS, whatever underscores stand before, behind and within.
    r"\b(_*[A-Za-z][A-Za-z0-9]*(?:_+[A-Za-z0-9]+)+_*|_+[A-Za-z][A-Za-z0-9]+_*)\b",
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
        for found in patterns
            .iter()
            .flat_map(|pattern| pattern.captures_iter(&text))
        {
            let name = &found[1];
            if !(3..=200).contains(&name.len()) {
                continue;
            }
            let places = places.entry(name.to_owned()).or_default();
            if places.last() != Some(&at) {
                places.push(at);
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
        let shares = [(12_000, 0.93), (6_000, 0.45)].map(|(budget, least)| {
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
