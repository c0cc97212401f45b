use super::*;
use proptest::prelude::*;

fn window(messages: usize, prompt_tokens: u64) -> WindowState {
    WindowState::default()
        .context_length(200_000)
        .prompt_tokens(prompt_tokens)
        .estimated(true)
        .messages(messages)
}

#[test]
fn fires_at_85_percent_and_not_a_token_before() {
    let on = Hygiene::default();
    assert!(check(&window(4, 170_000), &on).is_yes());
    assert!(!check(&window(4, 169_999), &on).is_yes());
    assert_eq!(
        check(&window(9, 170_000), &on).reason(),
        "the prompt has 170,000 tokens by a rough estimate, and hygiene fires at 170,000, 85 % of a \
             window of 200,000"
    );
}

#[test]
fn reported_usage_wins_over_the_estimate_both_ways() {
    let on = Hygiene::default();
    let mut full_by_estimate = window(50, 190_000);
    full_by_estimate.reported_tokens = Some(90_000);
    assert!(!check(&full_by_estimate, &on).is_yes());
    let mut small_by_estimate = window(50, 90_000);
    small_by_estimate.reported_tokens = Some(175_000);
    let decision = check(&small_by_estimate, &on);
    assert!(decision.is_yes());
    assert!(
        decision
            .reason()
            .contains("175,000 tokens as the provider reported")
    );
}

#[test]
fn never_under_four_messages_whatever_their_size_or_the_limit() {
    let strict = Hygiene {
        max_messages: Some(1),
    };
    assert!(!check(&window(3, 10_000_000), &strict).is_yes());
    assert!(check(&window(4, 10), &strict).is_yes());
}

#[test]
fn the_message_limit_is_configurable_and_off_by_default() {
    let limited = Hygiene {
        max_messages: Some(400),
    };
    assert!(!check(&window(399, 1_000), &limited).is_yes());
    assert_eq!(
        check(&window(400, 1_000), &limited),
        Decision::Yes("the session has 400 messages, and the limit is 400".into())
    );
    assert!(!check(&window(100_000, 1_000), &Hygiene::default()).is_yes());
}

#[test]
fn a_large_reserved_answer_lowers_the_trigger_and_an_absurd_one_does_not() {
    let mut window = window(10, 100_000);
    window.max_output_tokens = 100_000;
    let decision = check(&window, &Hygiene::default());
    assert!(decision.is_yes());
    assert_eq!(
        decision.reason(),
        "the prompt has 100,000 tokens by a rough estimate, and hygiene fires at 100,000, which a \
             window of 200,000 leaves beside the 100,000 reserved for the answer"
    );
    // With 29,999 reserved, 170,001 tokens are usable, so the 85 % are the lower limit.
    window.max_output_tokens = 29_999;
    assert!(
        check(&window, &Hygiene::default())
            .reason()
            .contains("85 %")
    );
    window.max_output_tokens = 900_000;
    let decision = check(&window, &Hygiene::default());
    assert!(!decision.is_yes() && decision.reason().contains("85 %"));
}

#[test]
fn an_unknown_window_still_has_the_message_limit() {
    let unknown = window(500, 1_000_000).context_length(0);
    assert!(!check(&unknown, &Hygiene::default()).is_yes());
    let limited = Hygiene {
        max_messages: Some(500),
    };
    assert!(check(&unknown, &limited).is_yes());
}

proptest! {
    #[test]
    fn no_figure_overflows_and_more_tokens_never_turn_a_yes_into_a_no(
        context_length: u64, max_output_tokens: u64, tokens: u64, more: u64, messages in 0_usize..10,
    ) {
        let at = |prompt_tokens| check(
            &WindowState::default().context_length(context_length).max_output_tokens(max_output_tokens).prompt_tokens(prompt_tokens).messages(messages),
            &Hygiene::default(),
        );
        if at(tokens).is_yes() {
            prop_assert!(messages >= MIN_MESSAGES);
            prop_assert!(at(tokens.saturating_add(more)).is_yes());
        }
    }
}
