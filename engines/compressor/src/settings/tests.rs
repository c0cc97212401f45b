#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn window(context_length: u64, max_output_tokens: u64) -> WindowState {
    WindowState::default()
        .context_length(context_length)
        .max_output_tokens(max_output_tokens)
}

fn settings(json: &str) -> CompressionSettings {
    serde_json::from_str(json).unwrap()
}

#[test]
fn the_defaults_are_the_documents() {
    let settings = settings("{}");
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
}

#[test]
fn an_absolute_cap_fires_before_the_ratio() {
    let capped = settings(r#"{"max_threshold_tokens":60000}"#);
    assert_eq!(
        Budgets::for_window(&capped, &window(200_000, 0)).threshold_tokens,
        60_000
    );
    assert_eq!(
        Budgets::for_window(&capped, &window(64_000, 0)).threshold_tokens,
        32_000
    );
}

#[test]
fn a_threshold_may_be_tokens_and_that_of_the_model_comes_first() {
    let tokens = settings(r#"{"threshold":60000}"#);
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
