//! Marks the text of a request for the provider's prompt cache.
//!
//! [`mark`] is for a request that is at hand as a text. A body that is written anyway gets its
//! markers by [`WireBody::write`](super::WireBody::write).

use super::body::split;
use super::draft::BodyEdits;
use super::prompt_cache::{CacheProvider, MarkError, Shape, Ttl};

/// Marks a request with one breakpoint on the system prompt and three on the last messages that
/// can carry one. If the client set markers, these stay and count towards the limit, so fewer
/// are added.
///
/// The provider requires every `1h` breakpoint to come before every `5m` one, so `ttl` adapts
/// to the client's markers. A breakpoint before a client's `1h` becomes `1h`, because the later
/// one pays for that prefix anyway. A breakpoint after a client's `5m` becomes `5m`.
///
/// ```
/// use contexture_formats::mark;
/// use contexture_formats::prompt_cache::{CacheProvider, Shape, Ttl};
///
/// let request = r#"{"model":"anthropic/claude-sonnet-4.5","messages":[{"role":"user","content":"hi"}]}"#;
/// let marked = mark(request, Shape::OpenAiChat, CacheProvider::OpenRouter, Ttl::OneHour)?;
/// let sent: serde_json::Value = serde_json::from_str(&marked)?;
/// assert_eq!(
///     sent["messages"][0]["content"],
///     serde_json::json!([{
///         "type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"},
///     }]),
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Fails with a [`MarkError`] if the text is not a request of this shape.
pub fn mark(
    request: &str,
    shape: Shape,
    provider: CacheProvider,
    ttl: Ttl,
) -> Result<String, MarkError> {
    let wire = split(request, Some(shape.format())).map_err(MarkError::NotARequest)?;
    let written = wire.write(&BodyEdits::default().markers(Some((provider, ttl))));
    match written.unmarked {
        Some(error) => Err(error),
        None => Ok(written.body.text.into_owned()),
    }
}
