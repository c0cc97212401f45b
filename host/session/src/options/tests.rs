#![allow(clippy::unwrap_used)]
use contexture_config::ModelCompression;

use super::*;

fn configured(model: &str, context_length: u64) -> (WindowState, Option<String>) {
    let entry = |threshold: Option<f64>, context_length| ModelCompression {
        threshold: threshold.map(Threshold::from),
        context_length,
    };
    let mut config = Config::default();
    config.compression.models = [
        ("small*", entry(Some(120_000.0), None)),
        ("gpt-6*", entry(Some(120_000.0), None)),
        ("gpt-6-mini", entry(Some(0.5), Some(100_000))),
    ]
    .map(|(pattern, entry)| (pattern.to_owned(), entry))
    .into();
    let agent = AgentWindow::new(model.to_owned(), context_length, 10_000);
    let (agent, warning) = ConfiguredAgent::of(agent, &config);
    (agent.empty_window(), warning)
}

#[test]
fn the_entry_of_a_model_sets_its_threshold_and_its_window() {
    let (window, warning) = configured("gpt-6", 400_000);
    assert_eq!((window.threshold_tokens, warning), (Some(120_000), None));
    for (given, length) in [(400_000, 100_000), (0, 100_000), (60_000, 60_000)] {
        let (window, _) = configured("gpt-6-mini", given);
        assert_eq!(window.context_length, length);
        assert_eq!(window.threshold_tokens, Some(length / 2));
    }
    assert_eq!(
        configured("claude-opus-5", 200_000).0.threshold_tokens,
        None
    );
}

#[test]
fn a_threshold_above_the_window_is_cut_to_it_and_told() {
    let (window, warning) = configured("small", 50_000);
    assert_eq!(window.threshold_tokens, Some(40_000));
    // A session may have only a part of the model's window.
    let (part, none) = configured("gpt-6", 50_000);
    assert_eq!((part.threshold_tokens, none), (Some(40_000), None));
    let warning = warning.unwrap();
    let says = [
        "`compression.models.small*.threshold` is 120,000",
        "only 50,000",
        "`0.8`",
    ];
    assert!(says.iter().all(|part| warning.contains(part)), "{warning}");
}
