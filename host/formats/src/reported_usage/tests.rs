#![allow(clippy::unwrap_used)]
use serde_json::json;

use super::*;

#[test]
fn every_spelling_means_the_same_to_programs_and_in_logs() {
    // Input, output, read from the cache, written to it, and reasoning.
    let table = [
        (
            json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 30},
                    "completion_tokens_details": {"reasoning_tokens": 4}}),
            [50, 9, 30, 0, 4],
        ),
        (
            json!({"input_tokens": 50, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 30},
                    "output_tokens_details": {"reasoning_tokens": 4}}),
            [50, 9, 30, 0, 4],
        ),
        // Anthropic counts the cache beside the input, and Google the thoughts beside the output.
        (
            json!({"input_tokens": 10, "output_tokens": 9, "cache_read_input_tokens": 30,
                    "cache_creation_input_tokens": 10}),
            [50, 9, 30, 10, 0],
        ),
        (
            json!({"promptTokenCount": 45, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 5,
                    "thoughtsTokenCount": 4, "cachedContentTokenCount": 30, "totalTokenCount": 59}),
            [50, 9, 30, 0, 4],
        ),
        (
            json!({"inputTokens": 50, "outputTokens": 9, "cachedInputTokens": 30, "reasoningTokens": 4}),
            [50, 9, 30, 0, 4],
        ),
        (
            json!({"input_tokens": 50, "cached_input_tokens": 30, "cache_write_input_tokens": 10,
                    "output_tokens": 9, "reasoning_output_tokens": 4, "total_tokens": 59}),
            [50, 9, 30, 10, 4],
        ),
    ];
    for (value, expected) in table {
        let usage = reported_usage(&value).unwrap();
        let figures = [
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
        ];
        assert_eq!(figures, expected, "{value}");
        assert_eq!(known_usage(&value), Some(usage), "{value}");
    }
}

#[test]
fn a_wrong_figure_is_refused_or_counts_as_missing() {
    for wrong in [json!(-1), json!(1.5), json!("5"), json!(1e300), json!([])] {
        let value = json!({"input_tokens": wrong, "output_tokens": 9});
        assert!(reported_usage(&value).is_err(), "{value}");
        let known = Usage::default().output_tokens(9);
        assert_eq!(known_usage(&value), Some(known), "{value}");
    }
    for unknown in [
        json!({"total_tokens": 5}),
        json!({}),
        json!(null),
        json!([1]),
    ] {
        assert_eq!(known_usage(&unknown), None, "{unknown}");
    }
}
