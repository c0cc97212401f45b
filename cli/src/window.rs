//! Finds out the window that a conversation must fit into.
//!
//! Commands know the window only indirectly: from `--context-length`, from the configuration, or
//! from the name of the model. [`choose`] goes through these sources in order and returns the first
//! that has an answer, together with notes for the user. If none has, a common window is assumed.
//!
//! The module also decides how many tokens of the window are reserved for the answer, and parses
//! the option itself, see [`length`]. The windows of known models are in `contexture::tokens`.

use crate::human::grouped;
use contexture::config::Config;
use contexture::session::AgentWindow;
use contexture::tokens::known_window;

/// The window in tokens if nothing tells it. Most models of today have at least this much.
const UNKNOWN_WINDOW: u64 = 128_000;

/// The longest answer in tokens if nothing tells it.
const UNKNOWN_OUTPUT: u64 = 4_096;

/// The smallest window that can be asked for, in tokens. Less is a typing error, such as a
/// forgotten `k`, and no conversation fits it.
const LEAST_WINDOW: u64 = 1_000;

/// Parses a window as people write it: `128000`, `64k`, `200K` or `1M`. The units are powers of
/// ten. Fails below 1,000 tokens, and the message suggests the number with a `k`.
pub(crate) fn length(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K', 'm', 'M']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 1_000),
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let tokens = digits.parse::<u64>().ok();
    let Some(tokens) = tokens.and_then(|tokens| tokens.checked_mul(unit)) else {
        return Err("write a number of tokens such as 128000, 64k, 200K or 1M".to_owned());
    };
    if tokens >= LEAST_WINDOW {
        return Ok(tokens);
    }
    let meant = match tokens {
        0 => String::new(),
        few => format!("; {few}k is {}", grouped(few * 1_000)),
    };
    Err(format!(
        "a window of {} tokens is too small for any conversation, the minimum is {}{meant}",
        grouped(tokens),
        grouped(LEAST_WINDOW)
    ))
}

/// The window of an agent, with notes that tell the user how it was found if that was not obvious.
pub(crate) struct Chosen {
    pub(crate) agent: AgentWindow,
    pub(crate) notes: Vec<String>,
}

/// Finds the window of a conversation. The first of these that is known counts: the window asked
/// for, the configured one, and that of the model, whose name is asked for, configured, or in the
/// conversation. If none is known, a common window is assumed and a note says so.
///
/// The longest answer of many models is half of their window or more, although answers seldom take
/// that much. Reserving it would compact conversations that fit. So if no figure is configured, a
/// quarter of the window is the most that is reserved.
pub(crate) fn choose(
    asked: Option<u64>,
    model_asked: Option<&str>,
    model_in_conversation: Option<&str>,
    config: &Config,
) -> Chosen {
    let configured = &config.model;
    let model = model_asked
        .or(configured.name.as_deref())
        .or(model_in_conversation)
        .unwrap_or_default();
    let known = known_window(model);
    // The order is from the most specific source to the most general one.
    let told = asked
        .or(config.context_length_of(model))
        .or(known.map(|window| window.context_length));
    let context_length = told.unwrap_or(UNKNOWN_WINDOW);
    let mut notes = Vec::new();
    if told.is_none() {
        let what = if model.is_empty() {
            "the conversation names no model".to_owned()
        } else {
            format!("the window of the model `{model}` is not known")
        };
        notes.push(format!(
            "{what}: assuming a window of {} tokens; set it with --context-length or --model",
            grouped(UNKNOWN_WINDOW)
        ));
    }
    let quarter = context_length / 4;
    let max_output_tokens = match configured.max_output_tokens {
        // A reserve as large as the window would leave no room for a single message.
        Some(tokens) if tokens < context_length => tokens,
        Some(tokens) => {
            notes.push(format!(
                "`model.max_output_tokens` ({tokens}) leaves nothing of a window of {} tokens: a quarter of the \
                 window is reserved for the answer instead",
                grouped(context_length)
            ));
            quarter
        }
        None => known
            .map_or(UNKNOWN_OUTPUT, |window| window.max_output_tokens)
            .min(quarter),
    };
    Chosen {
        agent: AgentWindow::new(model.to_owned(), context_length, max_output_tokens),
        notes,
    }
}

#[cfg(test)]
mod tests;
