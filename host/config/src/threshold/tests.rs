#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;
use crate::Compression;

fn with(patterns: &[String]) -> Compression {
    let entries = patterns
        .iter()
        .map(|pattern| (pattern.clone(), ModelCompression::default()));
    Compression {
        models: entries.collect(),
        ..Compression::default()
    }
}

/// The definition of a match, without regard to its cost.
fn matches_by_definition(pattern: &[char], name: &[char]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, rest) => rest.is_none(),
        (Some(('*', after)), rest) => {
            matches_by_definition(after, name)
                || rest.is_some_and(|(_, rest)| matches_by_definition(pattern, rest))
        }
        (Some((c, after)), Some((of_name, rest))) => {
            (*c == '?' || c == of_name) && matches_by_definition(after, rest)
        }
        (Some(_), None) => false,
    }
}

#[test]
fn a_number_is_a_share_or_tokens_and_stays_as_written() {
    for (written, threshold, tokens) in [
        ("0.5", Threshold::Share(0.5), 100_000),
        ("1", Threshold::Share(1.0), 200_000),
        ("120000", Threshold::Tokens(120_000), 120_000),
    ] {
        let read: Threshold = serde_json::from_str(written).unwrap();
        assert_eq!(read, threshold);
        assert_eq!(read.tokens(200_000), Some(tokens));
    }
    assert_eq!(Threshold::Share(0.5).tokens(0), None);
    let shown = serde_json::to_string(&Threshold::Tokens(120_000)).unwrap();
    assert_eq!(shown, "120000");
    for wrong in [0.0, -1.0, 1.5, 50.0, 999.0, 1_000.5, 2e15, f64::NAN] {
        assert!(!Threshold::allows(wrong), "{wrong}");
    }
}

#[test]
fn the_most_specific_pattern_counts() {
    let patterns = [
        "*", "gpt-*", "gpt-6*", "GPT-6-mini", "gpt-6-????", "openai/gpt-6*",
    ];
    let compression = with(&patterns.map(String::from));
    for (model, pattern) in [
        ("claude-opus-5", "*"),
        ("gpt-5", "gpt-*"),
        ("gpt-6", "gpt-6*"),
        ("gpt-6-mini", "GPT-6-mini"),
        ("gpt-6-nano", "gpt-6-????"),
        ("openai/gpt-6", "openai/gpt-6*"),
        ("openrouter/gpt-5", "gpt-*"),
    ] {
        let (found, _) = compression.for_model(model).unwrap();
        assert_eq!(found, pattern, "{model}");
    }
    assert_eq!(with(&["gpt-6*".to_owned()]).for_model("my-gpt-6"), None);
    assert_eq!(Compression::default().for_model("gpt-6"), None);
}

proptest! {
    #[test]
    fn a_pattern_matches_as_defined(pattern in "[ab*?]{0,8}", name in "[ab]{0,8}") {
        let as_chars = |text: &str| text.chars().collect::<Vec<_>>();
        let expected = matches_by_definition(&as_chars(&pattern), &as_chars(&name));
        prop_assert_eq!(matches(&pattern, &name), expected);
    }

    #[test]
    fn no_matching_pattern_is_more_specific_and_the_order_does_not_matter(
        mut patterns in prop::collection::vec("[ab*?]{0,5}", 0..6),
        name in "[ab]{0,5}",
    ) {
        let compression = with(&patterns);
        let found = compression.for_model(&name).map(|(pattern, _)| pattern.to_owned());
        let literals = |pattern: &str| pattern.chars().filter(|c| !is_wildcard(*c)).count();
        let most = patterns.iter().filter(|pattern| matches(pattern, &name)).map(|pattern| literals(pattern)).max();
        prop_assert_eq!(found.as_deref().map(literals), most);
        patterns.reverse();
        let reversed = with(&patterns);
        prop_assert_eq!(reversed.for_model(&name).map(|(pattern, _)| pattern), found.as_deref());
    }
}
