//! Session hygiene: the safety net before a turn. It fires if a session has grown past its engine's
//! own trigger, because messages piled up between two turns or because the engine is broken.
//!
//! [`check`] is the whole decision. It fires at a fixed 85 % of the context window, if the session
//! has at least four messages. The usage that the provider reported takes precedence over the
//! estimate. A limit on the number of messages can be configured too.
//!
//! Source: "Context compression and caching", layer 1 ("Gateway session hygiene"). What happens
//! when it fires is decided in `compaction`.

use contexture_config::Hygiene;
use contexture_engine_api::{Decision, WindowState, grouped};

/// The share of the context window at which hygiene fires, in percent. It is here for the message
/// only: [`WindowState::required_from`] does the calculation.
const HYGIENE_PERCENT: u64 = 85;

/// The fewest messages at which hygiene fires. With fewer there is nothing to compact.
pub(crate) const MIN_MESSAGES: usize = 4;

/// Whether the session must be compacted before its next turn, and why. If the provider reported
/// usage, that decides. Otherwise the count or estimate in `window.prompt_tokens` does. If the size
/// of the window is not known, only the message limit applies.
pub(crate) fn check(window: &WindowState, hygiene: &Hygiene) -> Decision {
    let messages = window.messages;
    if messages < MIN_MESSAGES {
        return Decision::No(format!(
            "the session has {messages} messages, and hygiene needs at least {MIN_MESSAGES}"
        ));
    }
    if let Some(limit) = hygiene.max_messages
        && messages as u64 >= limit
    {
        return Decision::Yes(format!(
            "the session has {} messages, and the limit is {}",
            grouped(messages as u64),
            grouped(limit)
        ));
    }
    let Some(trigger) = window.required_from() else {
        return Decision::No("the size of the model's context window is not known".into());
    };
    let tokens = window.best_prompt_tokens();
    let origin = match window.reported_tokens {
        Some(_) => "as the provider reported",
        None if window.estimated => "by a rough estimate",
        None => "as counted",
    };
    let whole = grouped(window.context_length);
    // The message must name the limit that applies, which is the lower of the two.
    let limit = match window.usable_tokens() == trigger {
        true => format!(
            "which a window of {whole} leaves beside the {} reserved for the answer",
            grouped(window.max_output_tokens)
        ),
        false => format!("{HYGIENE_PERCENT} % of a window of {whole}"),
    };
    let figures = format!(
        "the prompt has {} tokens {origin}, and hygiene fires at {}, {limit}",
        grouped(tokens),
        grouped(trigger)
    );
    if tokens >= trigger {
        Decision::Yes(figures)
    } else {
        Decision::No(figures)
    }
}

#[cfg(test)]
mod tests {
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
}
