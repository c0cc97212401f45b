//! Prompt-cache markers, the outermost layer before the model: up to four `cache_control` breakpoints by
//! the strategy `system_and_3`, one on the system prompt and three on the last messages. Where summaries lead
//! a window, one of the three stands before the last of them, which the next compaction may leave as it is.
//!
//! Source: "Context compression and caching", section "Prompt caching (Anthropic)". Markers are spliced
//! into the JSON text, so that everything else leaves byte for byte, and carry a signature in white space,
//! so that [`remove`] finds the host's own among the client's.

mod document;
mod lifetime;
mod splice;
mod status;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::WireBody;
use document::{Document, Marker, Position};
pub use lifetime::CacheTtl;
pub use lifetime::Pauses;
pub use splice::remove;
pub use status::{CacheStatus, DisabledReason, decide, provider_at};
pub use status::{least_prefix, prices};

/// Breakpoints that a request may have, the client's own included (Anthropic's limit).
pub(crate) const MAX_BREAKPOINTS: usize = 4;

/// Breakpoints on the last messages, beside the one on the system prompt.
const ROLLING_MESSAGES: usize = 3;

/// How many blocks before a breakpoint the provider looks for an earlier one (platform.claude.com, "Prompt caching").
const LOOK_BACK: usize = 20;

/// The format of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// OpenAI chat completions: `{"messages": […]}` or the bare list of messages.
    OpenAiChat,
    /// Anthropic messages: `{"system": …, "messages": […]}`.
    Anthropic,
}

/// A provider that supports the markers. Both follow Anthropic's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheProvider {
    /// Anthropic's own API.
    Anthropic,
    /// OpenRouter, for Claude models.
    OpenRouter,
}

/// How long the provider keeps the prefix before a breakpoint. `5m` and `1h` in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Ttl {
    /// Five minutes, renewed at each use.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// One hour; writing costs more.
    #[serde(rename = "1h")]
    OneHour,
}

impl Ttl {
    /// In milliseconds.
    pub fn ms(self) -> u64 {
        match self {
            Self::FiveMinutes => 5 * 60_000,
            Self::OneHour => 60 * 60_000,
        }
    }
}

impl std::fmt::Display for Ttl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FiveMinutes => "5m",
            Self::OneHour => "1h",
        })
    }
}

/// Why a request could not be marked. It can be sent unchanged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The document is not JSON, or not a request of this shape.
    #[error("no prompt cache markers: the request is not a chat request in JSON: {0}")]
    NotARequest(serde_json::Error),
    /// One of its messages is not a message.
    #[error("no prompt cache markers: message {index} (from 0) is not a message: {cause}")]
    NotAMessage {
        /// Which message, from 0.
        index: usize,
        /// What is wrong with it.
        cause: serde_json::Error,
    },
}

/// The part of a request that has a breakpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakpointTarget {
    /// The system prompt.
    System,
    /// The message with this index in `messages`, from 0.
    Message(usize),
}

/// A breakpoint that was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breakpoint {
    /// Where.
    pub place: BreakpointTarget,
    /// For how long.
    pub ttl: Ttl,
}

/// A request with markers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The request to send.
    pub document: String,
    /// The breakpoints that were set, in the order of the document. The client's own are not among them.
    pub applied: Vec<Breakpoint>,
    /// What was inserted, as byte ranges of `document` in rising order.
    inserted: Vec<std::ops::Range<usize>>,
}

impl Marked {
    /// The original request, byte for byte.
    pub fn original(&self) -> String {
        splice::cut(&self.document, &self.inserted)
    }
}

/// Marks a request: one breakpoint on the system prompt, three on the last messages that can carry one, as
/// far as the client's own markers leave room. The client's markers stay and count as breakpoints.
///
/// The provider wants every `1h` breakpoint before every `5m` one. So `ttl` adapts to the client's markers:
/// a breakpoint before a client's `1h` becomes `1h` (the later one pays for that prefix anyway), one after
/// a client's `5m` becomes `5m`.
///
/// ```
/// use contexture_formats::prompt_cache::{CacheProvider, Shape, Ttl, apply};
///
/// let request = r#"{"model":"anthropic/claude-sonnet-4.5","messages":[{"role":"user","content":"hi"}]}"#;
/// let marked = apply(request, Shape::OpenAiChat, CacheProvider::OpenRouter, Ttl::OneHour)?;
/// let sent: serde_json::Value = serde_json::from_str(&marked.document)?;
/// assert_eq!(
///     sent["messages"][0]["content"],
///     serde_json::json!([{
///         "type": "text", "text": "hi", "cache_control": {"type": "ephemeral", "ttl": "1h"},
///     }]),
/// );
/// assert_eq!(marked.original(), request);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`MarkError`] for what is not a request.
pub fn apply(
    request: &str,
    shape: Shape,
    provider: CacheProvider,
    ttl: Ttl,
) -> Result<Marked, MarkError> {
    mark(Document::parse(request, shape)?, provider, ttl)
}

/// As [`apply`], for a request that was split before.
///
/// # Errors
/// As there.
pub fn apply_to(
    wire: &WireBody<'_>,
    shape: Shape,
    provider: CacheProvider,
    ttl: Ttl,
) -> Result<Marked, MarkError> {
    mark(Document::of(wire, shape), provider, ttl)
}

fn mark(document: Document<'_>, provider: CacheProvider, ttl: Ttl) -> Result<Marked, MarkError> {
    let markers = document.client_markers()?;
    let mut free = MAX_BREAKPOINTS.saturating_sub(markers.len());
    let mut chosen = Vec::new();
    for wanted in document.wanted(provider, &markers)? {
        if free == 0 {
            break;
        }
        if let Some(ttl) = fitting_ttl(wanted.position, ttl, &markers) {
            chosen.push((wanted, ttl));
            free -= 1;
        }
    }
    chosen.sort_by_key(|(wanted, _)| wanted.site.start());
    let applied = chosen
        .iter()
        .map(|(wanted, ttl)| Breakpoint {
            place: wanted.place,
            ttl: *ttl,
        })
        .collect();
    let spots: Vec<_> = chosen
        .iter()
        .map(|(wanted, ttl)| (wanted.site, *ttl))
        .collect();
    let (document, inserted) = splice::insert(document.text(), &spots);
    Ok(Marked {
        document,
        applied,
        inserted,
    })
}

/// The allowed lifetime of a breakpoint here that is nearest to the requested one. None if the client's
/// markers already break the rule.
fn fitting_ttl(position: Position, asked: Ttl, markers: &[Marker]) -> Option<Ttl> {
    let short_before = markers
        .iter()
        .any(|marker| marker.position < position && marker.ttl == Ttl::FiveMinutes);
    let long_after = markers
        .iter()
        .any(|marker| marker.position > position && marker.ttl == Ttl::OneHour);
    match (short_before, long_after) {
        (false, false) => Some(asked),
        (true, false) => Some(Ttl::FiveMinutes),
        (false, true) => Some(Ttl::OneHour),
        (true, true) => None,
    }
}
