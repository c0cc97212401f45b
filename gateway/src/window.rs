//! Determines the context window of the model that a request names.

use contexture::formats::{Format, WireBody};
use contexture::session::AgentWindow;
use contexture::tokens::known_window;
use http::HeaderMap;

use crate::gemini;
use crate::settings::Settings;

/// The window in tokens that `anthropic-beta: context-1m-…` asks for.
const MILLION: u64 = 1_000_000;

/// The window of a request's model, and the part of it that the answer may take.
/// The configuration takes precedence over the built-in table. Returns None if the model is
/// not known and nothing is configured.
pub(crate) fn of(
    settings: &Settings,
    headers: &HeaderMap,
    wire: &WireBody<'_>,
    model: &str,
) -> Option<AgentWindow> {
    let known = known_window(model).map(|window| window.context_length);
    let configured = settings.config.context_length_of(model);
    let mut context_length = configured.or(known)?;
    let betas = headers.get_all("anthropic-beta").into_iter();
    let mut betas = betas.filter_map(|value| value.to_str().ok());
    if configured.is_none() && betas.any(|betas| betas.contains("context-1m")) {
        context_length = context_length.max(MILLION);
    }
    let max_output_tokens = longest_answer(wire)
        .or(settings.config.model.max_output_tokens)
        .unwrap_or(0);
    // A client that asks for more than half of the window leaves the length to the provider.
    let reserved = Some(max_output_tokens).filter(|reserved| *reserved < context_length / 2);
    Some(AgentWindow::new(
        model,
        context_length,
        reserved.unwrap_or(0),
    ))
}

/// The limit on the answer's tokens that the request names. None if it names none.
pub(crate) fn longest_answer(wire: &WireBody<'_>) -> Option<u64> {
    if wire.format == Format::Gemini {
        return gemini::field(&gemini::options(wire), "maxOutputTokens").as_u64();
    }
    ["max_tokens", "max_completion_tokens", "max_output_tokens"]
        .iter()
        .find_map(|name| wire.member(name)?.parse::<u64>().ok())
}
