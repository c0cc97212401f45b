//! How many of the identifiers that stand in one message of a real session's middle are in its digest.
//!
//! The identifiers are found by patterns that share nothing with the digest's scan.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../../host/replay/src/identifiers.rs"]
#[allow(unreachable_pub)]
mod identifiers;
mod support;

use std::collections::HashMap;

use contexture_digest::{Budget, Digest};
use identifiers::identifiers;
use support::{Message, claude_code, data, with_views};

/// The identifiers that stand in exactly one of the messages.
fn mentioned_once(messages: &[Message]) -> Vec<String> {
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (at, message) in messages.iter().enumerate() {
        for name in identifiers(&message.all_text()) {
            places.entry(name).or_default().push(at);
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
        let shares = [(12_000, 0.93), (6_000, 0.35)].map(|(budget, least)| {
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
