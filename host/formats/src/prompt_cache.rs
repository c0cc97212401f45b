//! Marks a request for the provider's prompt cache.
//!
//! A marker is a `cache_control` breakpoint: the provider caches the prompt up to it. Up to four
//! are set, by the strategy `system_and_3`: one on the system prompt and three on the last
//! messages. If summaries lead a window, one of the three is placed before the last summary,
//! because the next compaction may leave everything before it unchanged. [`decide`] tells whether
//! a request is marked at all. [`WireBody::write`](crate::WireBody::write) marks a body while it is
//! written, and [`mark`](crate::mark) marks a text.
//!
//! Markers are spliced into the JSON text, so everything else keeps its bytes. The strategy follows "Context compression and caching", section "Prompt caching (Anthropic)".

mod document;
mod lifetime;
mod splice;
mod status;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Format, FormatError};
pub(crate) use document::{Document, MarkerSite};
use document::{Marker, Position};
pub use lifetime::CacheTtl;
pub use lifetime::Pauses;
pub(crate) use splice::{MARKER_BYTES, write_marked};
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

    pub(crate) fn format(self) -> Format {
        match self {
            Self::OpenAiChat => Format::OpenAiChat,
            Self::Anthropic => Format::Anthropic,
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
    /// The document is not JSON or not a request of this shape.
    #[error("no prompt cache markers: the request is not a chat request in JSON: {0}")]
    NotARequest(FormatError),
    /// An entry of the list of messages is not a message.
    #[error("no prompt cache markers: message {index} (from 0) is {kind}, not an object")]
    NotAMessage {
        /// The index of the entry, from 0.
        index: usize,
        /// What the entry is, such as "a list".
        kind: &'static str,
    },
}

/// Chooses the breakpoints of a request, in the order of the document: the place of the marker of
/// each, and its lifetime.
pub(crate) fn choose(
    document: &Document<'_>,
    provider: CacheProvider,
    ttl: Ttl,
) -> Result<Vec<(MarkerSite, Ttl)>, MarkError> {
    for (index, (_, message)) in document.messages.iter().enumerate() {
        if !message.is_object() {
            let kind = message.kind();
            return Err(MarkError::NotAMessage { index, kind });
        }
    }
    let markers = document.client_markers();
    let mut free = MAX_BREAKPOINTS.saturating_sub(markers.len());
    let mut chosen = Vec::new();
    for wanted in document.wanted(provider, &markers) {
        if free == 0 {
            break;
        }
        if let Some(ttl) = fitting_ttl(wanted.position, ttl, &markers) {
            chosen.push((wanted.site, ttl));
            free -= 1;
        }
    }
    // The markers are inserted while the body is written, which needs them in its order.
    chosen.sort_by_key(|(site, _)| (site.piece, site.spot.start()));
    Ok(chosen)
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
