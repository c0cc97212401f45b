#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn window(context_length: u64, max_output_tokens: u64) -> WindowState {
    WindowState::default()
        .context_length(context_length)
        .max_output_tokens(max_output_tokens)
}

#[test]
fn the_defaults_are_the_documents() {
    let settings = CompressionSettings::from_json("{}").unwrap();
    assert_eq!(settings, CompressionSettings::default());
    assert_eq!(
        (
            settings.enabled,
            settings.threshold,
            settings.target_ratio,
            settings.protect_last_n
        ),
        (true, 0.50, 0.20, 20)
    );
    assert_eq!(
        CompressionSettings::from_json(r#"{"threshold":null}"#).unwrap(),
        settings
    );
}

#[test]
fn a_value_out_of_range_names_key_value_and_range() {
    for (json, key, value) in [
        (r#"{"threshold":1.01}"#, "compression.threshold", "1.01"),
        (r#"{"threshold":-5}"#, "compression.threshold", "-5"),
        (
            r#"{"threshold":"half"}"#,
            "compression.threshold",
            "\"half\"",
        ),
        (
            r#"{"target_ratio":0.05}"#,
            "compression.target_ratio",
            "0.05",
        ),
        (r#"{"target_ratio":0.9}"#, "compression.target_ratio", "0.9"),
        (r#"{"protect_last_n":0}"#, "compression.protect_last_n", "0"),
        (
            r#"{"protect_last_n":-3}"#,
            "compression.protect_last_n",
            "-3",
        ),
        (r#"{"enabled":"yes"}"#, "compression.enabled", "\"yes\""),
    ] {
        let error = CompressionSettings::from_json(json)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(key) && error.contains(value) && error.contains("must be"),
            "{error}"
        );
    }
    for json in [
        r#"{"threshold":0.0,"target_ratio":0.1,"protect_last_n":1}"#,
        r#"{"threshold":1,"target_ratio":0.8,"other":[]}"#,
    ] {
        CompressionSettings::from_json(json).unwrap();
    }
    assert!(CompressionSettings::from_json("[1]").is_err());
}

#[test]
fn an_absolute_cap_fires_before_the_ratio_and_a_wrong_one_is_none() {
    let capped = CompressionSettings::from_json(r#"{"max_threshold_tokens":60000}"#).unwrap();
    assert_eq!(
        Budgets::for_window(&capped, &window(200_000, 0)).threshold_tokens,
        60_000
    );
    assert_eq!(
        Budgets::for_window(&capped, &window(64_000, 0)).threshold_tokens,
        32_000
    );
    for wrong in ["0", "-1", "1.5", "\"many\"", "true"] {
        let json = format!(r#"{{"max_threshold_tokens":{wrong}}}"#);
        let settings = CompressionSettings::from_json(&json).unwrap();
        assert_eq!(settings.max_threshold_tokens, None);
        assert!(
            settings.warnings()[0].contains(wrong),
            "{:?}",
            settings.warnings()
        );
    }
}

#[test]
fn a_threshold_may_be_tokens_and_that_of_the_model_comes_first() {
    let tokens = CompressionSettings::from_json(r#"{"threshold":60000}"#).unwrap();
    let due = |settings: &CompressionSettings, window: &WindowState| {
        Budgets::for_window(settings, window).threshold_tokens
    };
    assert_eq!(due(&tokens, &window(200_000, 0)), 60_000);
    assert_eq!(due(&tokens, &window(64_000, 8_000)), 56_000);
    assert_eq!(
        Budgets::for_window(&tokens, &window(0, 0)),
        Budgets::default()
    );
    let of_model = window(200_000, 0).threshold_tokens(Some(30_000));
    assert_eq!(due(&tokens, &of_model), 30_000);
    assert_eq!(due(&tokens, &of_model.timed_by_price(true)), 15_000);
}

#[test]
fn the_trigger_leaves_room_for_the_answer() {
    let all = CompressionSettings {
        threshold: 1.0,
        // 56,000 is the whole window of 64,000 less the 8,000 reserved for the answer.
        ..CompressionSettings::default()
    };
    assert_eq!(
        Budgets::for_window(&all, &window(64_000, 8_000)).threshold_tokens,
        56_000
    );
    let half = CompressionSettings::default();
    assert_eq!(
        Budgets::for_window(&half, &window(64_000, 8_000)).threshold_tokens,
        32_000
    );
    assert_eq!(
        Budgets::for_window(&half, &window(64_000, 40_000)).threshold_tokens,
        24_000
    );
    // A reservation as large as the window is a mistake in the configuration and must not leave
    // a budget of 0.
    assert_eq!(
        Budgets::for_window(&half, &window(64_000, 64_000)).threshold_tokens,
        32_000
    );
}

#[test]
fn the_summary_budget_follows_the_content_within_its_limits() {
    let budgets = Budgets::for_window(&CompressionSettings::default(), &window(200_000, 0));
    assert_eq!(budgets.summary_tokens(30_000), 6_000);
    assert_eq!(budgets.summary_tokens(5_000), 2_000);
    assert_eq!(budgets.summary_tokens(500_000), 10_000);
    // A fifth would be less than the minimum, and the minimum would be more than half of the
    // content.
    assert_eq!(budgets.summary_tokens(1_000), 500);
    let large = Budgets::for_window(&CompressionSettings::default(), &window(1_000_000, 0));
    assert_eq!(large.max_summary_tokens, 12_000);
}
