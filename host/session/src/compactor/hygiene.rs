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
use contexture_engine_api::{Decision, REQUIRED_PERCENT, WindowState, grouped};

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
    let limit = match window.room_for_prompt() == Some(trigger) {
        true => format!(
            "which a window of {whole} leaves beside the {} reserved for the answer",
            grouped(window.max_output_tokens)
        ),
        false => format!("{REQUIRED_PERCENT} % of a window of {whole}"),
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
mod tests;
