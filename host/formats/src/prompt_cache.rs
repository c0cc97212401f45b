//! Marks a request for the provider's prompt cache.
//!
//! A marker is a `cache_control` breakpoint: the provider caches the prompt up to it. [`apply`]
//! sets up to four, by the strategy `system_and_3`: one on the system prompt and three on the
//! last messages. If summaries lead a window, one of the three is placed before the last
//! summary, because the next compaction may leave everything before it unchanged. [`decide`]
//! tells whether a request is marked at all.
//!
//! Markers are spliced into the JSON text, so everything else keeps its bytes. They carry a
//! signature in white space, so that [`remove`] can tell them from the client's own. The
//! strategy follows "Context compression and caching", section "Prompt caching (Anthropic)".

mod document;
mod lifetime;
mod splice;
mod status;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Format, WireBody};
use document::{Document, Marker, Position};
pub use lifetime::CacheTtl;
pub use lifetime::Pauses;
pub use splice::remove;
pub use status::{CacheStatus, DisabledReason, decide, provider_at};
pub use status::{least_prefix, prices};

/// The number of breakpoints that a request may have, including the client's own. This is
/// Anthropic's limit.
pub(crate) const MAX_BREAKPOINTS: usize = 4;

/// The number of breakpoints on the last messages, besides the one on the system prompt.
const ROLLING_MESSAGES: usize = 3;

/// The number of blocks before a breakpoint in which the provider looks for an earlier one
/// (platform.claude.com, "Prompt caching").
const LOOK_BACK: usize = 20;

/// The format of a request that markers are added to. The Responses API has no markers, so it has
/// no shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// OpenAI chat completions: `{"messages": […]}` or a bare list of messages.
    OpenAiChat,
    /// Anthropic messages: `{"system": …, "messages": […]}`.
    Anthropic,
}

impl Shape {
    /// The shape of bodies of this format. `None` if its prompt cache takes no markers.
    pub fn of(format: Format) -> Option<Self> {
        match format {
            Format::OpenAiChat => Some(Self::OpenAiChat),
            Format::Anthropic => Some(Self::Anthropic),
            _ => None,
        }
    }
}

/// A provider that supports the markers. Both follow Anthropic's rules for their number and
/// position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheProvider {
    /// Anthropic's own API, or a proxy in front of it.
    Anthropic,
    /// OpenRouter, which passes the markers on for Claude models.
    OpenRouter,
}

/// How long the provider keeps the prefix before a breakpoint. `5m` and `1h` in the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Ttl {
    /// Five minutes, renewed at each use.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// One hour, which costs more to write.
    #[serde(rename = "1h")]
    OneHour,
}

impl Ttl {
    /// The lifetime in milliseconds, counted from the last use of the prefix.
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

/// Why a request could not be marked. The request can be sent unmarked instead.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MarkError {
    /// The document is not JSON or not a request of this shape. Holds the error of the parser.
    #[error("no prompt cache markers: the request is not a chat request in JSON: {0}")]
    NotARequest(serde_json::Error),
    /// An entry of the list of messages is not a message.
    #[error("no prompt cache markers: message {index} (from 0) is not a message: {cause}")]
    NotAMessage {
        /// The index of the entry, from 0.
        index: usize,
        /// What is wrong with the entry.
        cause: serde_json::Error,
    },
}

/// The part of a request that a breakpoint is on. The prompt is cached up to the end of this part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakpointTarget {
    /// The system prompt.
    System,
    /// The message with this index in `messages`, from 0.
    Message(usize),
}

/// A breakpoint that was set, which the provider bills as a write if the prefix is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breakpoint {
    /// The part of the request that the breakpoint is on.
    pub place: BreakpointTarget,
    /// How long the provider keeps the prefix up to the breakpoint.
    pub ttl: Ttl,
}

/// A request with markers, together with what is needed to remove them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marked {
    /// The marked request. This is the text to send to the provider.
    pub document: String,
    /// The breakpoints that were set, in the order of the document. The client's own are not
    /// among them.
    pub applied: Vec<Breakpoint>,
    /// The inserted texts, as byte ranges of `document` in ascending order.
    inserted: Vec<std::ops::Range<usize>>,
}

impl Marked {
    /// Returns the request before it was marked, byte for byte.
    pub fn original(&self) -> String {
        splice::cut(&self.document, &self.inserted)
    }
}

/// Marks a request with one breakpoint on the system prompt and three on the last messages that
/// can carry one. If the client set markers, these stay and count towards the limit, so fewer
/// are added.
///
/// The provider requires every `1h` breakpoint to come before every `5m` one, so `ttl` adapts
/// to the client's markers. A breakpoint before a client's `1h` becomes `1h`, because the later
/// one pays for that prefix anyway. A breakpoint after a client's `5m` becomes `5m`.
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
/// Fails with a [`MarkError`] if the text is not a request of this shape.
pub fn apply(
    request: &str,
    shape: Shape,
    provider: CacheProvider,
    ttl: Ttl,
) -> Result<Marked, MarkError> {
    mark(Document::parse(request, shape)?, provider, ttl)
}

/// Like [`apply`], for a request that was already split, so that it need not be parsed again.
///
/// # Errors
/// Fails for the same reasons as [`apply`].
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
    // The markers are inserted in one pass over the text, which needs them in its order.
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

/// Returns the allowed lifetime of a breakpoint at this position that is nearest to the
/// requested one. `None` if the client's markers already break the rule.
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
