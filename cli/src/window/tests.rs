#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use contexture::config;
use proptest::prelude::*;

fn window(asked: Option<u64>, model: Option<&str>, configured: &config::Model) -> AgentWindow {
    choose(asked, None, model, &with(configured)).agent
}

fn with(model: &config::Model) -> Config {
    Config {
        model: model.clone(),
        ..Config::default()
    }
}

#[test]
fn what_is_asked_for_wins_then_the_configuration_then_the_name() {
    let none = config::Model::default();
    let configured = config::Model {
        context_length: Some(50_000),
        ..config::Model::default()
    };
    let model = Some("claude-sonnet-4-20250514");
    assert_eq!(
        window(Some(9_000), model, &configured).context_length,
        9_000
    );
    assert_eq!(window(None, model, &configured).context_length, 50_000);
    assert_eq!(window(None, model, &none).context_length, 200_000);
    let chosen = choose(None, None, Some("no-such-model"), &with(&none));
    assert_eq!(chosen.agent.context_length, 128_000);
    assert!(chosen.notes[0].contains("`no-such-model` is not known"));
    let chosen = choose(None, Some("gpt-4o"), Some("no-such-model"), &with(&none));
    assert_eq!(
        (chosen.agent.context_length, chosen.notes),
        (128_000, vec![])
    );
}

#[test]
fn the_entry_of_a_model_comes_before_the_section() {
    let mut config = with(&config::Model {
        context_length: Some(50_000),
        ..config::Model::default()
    });
    let entry = config::ModelCompression {
        context_length: Some(70_000),
        ..config::ModelCompression::default()
    };
    config.compression.models.insert("my-*".to_owned(), entry);
    for (asked, model, length) in [
        (None, "my-model", 70_000),
        (None, "gpt-4o", 50_000),
        (Some(9_000), "my-model", 9_000),
    ] {
        let chosen = choose(asked, None, Some(model), &config);
        assert_eq!(chosen.agent.context_length, length, "{model}");
    }
}

#[test]
fn a_small_window_does_not_go_to_the_answer() {
    let none = config::Model::default();
    let model = Some("claude-sonnet-4");
    assert_eq!(window(None, model, &none).max_output_tokens, 50_000);
    assert_eq!(
        window(Some(100_000), model, &none).max_output_tokens,
        25_000
    );
    assert_eq!(window(Some(100_000), None, &none).max_output_tokens, 4_096);
    let configured = config::Model {
        max_output_tokens: Some(30_000),
        ..config::Model::default()
    };
    assert_eq!(
        window(Some(40_000), model, &configured).max_output_tokens,
        30_000
    );
    let chosen = choose(Some(20_000), None, model, &with(&configured));
    assert_eq!(chosen.agent.max_output_tokens, 5_000);
    assert_eq!(chosen.notes.len(), 1);
}

proptest! {
    #[test]
    fn the_answer_never_takes_the_whole_window(
        asked in proptest::option::of(1_u64..), output in proptest::option::of(1_u64..),
        length in proptest::option::of(1_u64..), model in "claude|gpt-4|x|",
    ) {
        let configured = config::Model {
            context_length: length,
            max_output_tokens: output,
            ..config::Model::default()
        };
        let agent = window(asked, Some(&model), &configured);
        prop_assert!(agent.max_output_tokens < agent.context_length);
    }
}
