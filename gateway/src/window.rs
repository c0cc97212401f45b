//! The window of the model that a request names, and what providers say of requests that do not fit.

use contexture::formats::WireBody;
use contexture::session::AgentWindow;
use contexture::tokens::known_window;
use http::HeaderMap;
use serde_json::Value;

use crate::settings::Settings;

/// The window that `anthropic-beta: context-1m-…` asks for.
const MILLION: u64 = 1_000_000;

/// The window of a request; none where it is not known.
pub(crate) fn of(
    settings: &Settings,
    headers: &HeaderMap,
    wire: &WireBody<'_>,
    model: &str,
) -> Option<AgentWindow> {
    let known = known_window(model).map(|window| window.context_length);
    let mut context_length = settings.context_length.or(known)?;
    let betas = headers.get_all("anthropic-beta").into_iter();
    let mut betas = betas.filter_map(|value| value.to_str().ok());
    if settings.context_length.is_none() && betas.any(|betas| betas.contains("context-1m")) {
        context_length = context_length.max(MILLION);
    }
    let asked = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
        .iter()
        .find_map(|name| wire.member(name)?.parse::<u64>().ok());
    let max_output_tokens = asked.or(settings.max_output_tokens).unwrap_or(0);
    Some(AgentWindow {
        model: model.to_owned(),
        context_length,
        // Who asks for more than there is leaves the answer to the provider.
        max_output_tokens: if max_output_tokens < context_length / 2 {
            max_output_tokens
        } else {
            0
        },
    })
}

/// Whether an error says that a request does not fit; and the number of tokens that would, where it says that.
pub(crate) fn overflow(status: u16, body: &[u8]) -> Option<Option<u64>> {
    if !matches!(status, 400 | 413 | 422) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error").unwrap_or(&body);
    let text = |key: &str| {
        error
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (code, message) = (text("code"), text("message").to_ascii_lowercase());
    let says = [
        "prompt is too long",
        "maximum context length",
        "context window",
        "context_length_exceeded",
        "exceed context limit",
    ];
    let is_it = code == "context_length_exceeded" || says.iter().any(|says| message.contains(says));
    is_it.then(|| limit_in(&message))
}

/// The limit in `… 213462 tokens > 200000 maximum` and `maximum context length is 128000 tokens`.
fn limit_in(message: &str) -> Option<u64> {
    let number = |text: &str| {
        let digits: String = text
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',')
            .collect();
        digits.replace(',', "").parse::<u64>().ok()
    };
    let after = |mark: &str| {
        message
            .split_once(mark)
            .and_then(|(_, rest)| number(rest.trim_start()))
    };
    after("> ")
        .or_else(|| after("maximum context length is "))
        .filter(|limit| *limit > 1_000)
}
