#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;

#[test]
fn the_figure_of_a_decision_is_found_in_the_words_of_each_engine() {
    for (decision, wanted) in [
        (
            "the prompt has 9,010 tokens; a compaction is due from 12,000, in a window of 24,000",
            Some(12_000),
        ),
        (
            "12,345 tokens; compaction from 16,800, a summary from 20,400",
            Some(16_800),
        ),
        ("estimated 1,200 tokens, threshold 90,000", Some(90_000)),
        (
            "the prompt has 170,001 tokens as counted, and hygiene fires at 170,000, 85 % of a window of 200,000",
            Some(170_000),
        ),
        ("it pays off", None),
        ("a compaction is due from now on", None),
    ] {
        assert_eq!(due_from(decision), wanted, "{decision}");
    }
}

#[test]
fn a_configured_price_takes_precedence_over_the_list() {
    let price = |input, output| ModelPrice {
        input,
        output,
        ..ModelPrice::default()
    };
    let settings = PriceSettings {
        models: [
            ("qwen3*".to_owned(), price(Some(0.5), Some(2.0))),
            ("gpt-4o".to_owned(), price(Some(1.0), None)),
            ("gpt-5".to_owned(), price(None, Some(3.0))),
        ]
        .into(),
    };
    let of = |model| price_of(&settings, model).map(|price| (price.input, price.output));
    assert_eq!(of("openrouter/qwen3-coder"), Some((0.5, 2.0)));
    assert_eq!(of("gpt-4o"), Some((1.0, 0.0)));
    // Without a price of prompts, the entry says nothing.
    assert_eq!(of("gpt-5"), Some((1.25, 10.0)));
    assert_eq!(of("claude-sonnet-4-5"), Some((3.0, 15.0)));
    assert_eq!(of("llama"), None);
    assert_eq!(price_of(&settings, "qwen3").unwrap().cached, 0.05);
}

#[test]
fn hours_are_summed_up_and_the_oldest_is_dropped() {
    let mut totals = SessionTotals::default();
    let one = Sums {
        turns: 1,
        prompt: 10,
        ..Sums::default()
    };
    for hour in [1, 1, 2] {
        totals.add_to_hour(hour, &one);
    }
    let prompts = |totals: &SessionTotals| -> Vec<_> {
        let hours = totals.hours.iter();
        hours.map(|hour| (hour.hour, hour.sums.prompt)).collect()
    };
    assert_eq!(prompts(&totals), [(1, 20), (2, 10)]);
    for hour in 3..=MAX_HOURS as u64 + 1 {
        totals.add_to_hour(hour, &one);
    }
    assert_eq!(totals.hours.len(), MAX_HOURS);
    assert_eq!(prompts(&totals)[0], (2, 10));
}

/// What the engine saved would be far too high if the cache of the other side missed each time
/// that the estimate falls.
#[test]
fn an_estimate_that_falls_is_no_cache_miss() {
    let totals = SessionTotals {
        at_ms: 1_000_000,
        last_without: 50_344,
        last_bytes: 200_000,
        ..SessionTotals::default()
    };
    assert_eq!(totals.cached_without(1_001_000, 48_732, 204_000), 48_732);
    assert_eq!(totals.cached_without(1_001_000, 52_000, 204_000), 50_344);
    // The client went back, or came back after the cache's lifetime.
    assert_eq!(totals.cached_without(1_001_000, 20_000, 90_000), 0);
    assert_eq!(totals.cached_without(1_400_000, 52_000, 204_000), 0);
}
