//! The engine's steps. Another engine can replace each of them.

use contexture_engine_api::{MessageView, in_flight, safe_cut};

use crate::event::{Compacted, Event};
use crate::summary::StructuredSummary;

/// The steps of the engine. Each has a default, which is what the engine does by itself, so an
/// implementation overrides only the steps that differ. The type is created once per session with
/// `Default`.
pub trait Steps: Default + Send + 'static {
    /// Returns the compacted form of a message, or `None` to leave it as it is. The engine calls it
    /// only for messages that may be compacted.
    fn compact_event(&mut self, event: &Event<'_>) -> Option<Compacted> {
        event.compacted()
    }

    /// Returns the summary of these messages, or `None` to let the model or the engine make one,
    /// which is the default. The engine fills in `count`, `time_range` and `timestamp` if they are
    /// empty.
    fn summarise(&mut self, events: &[MessageView<'_>]) -> Option<StructuredSummary> {
        let _ = events;
        None
    }

    /// Called when a summary is in force in this session, for instance to store a copy elsewhere.
    /// The default does nothing.
    fn store_summary(&mut self, session: &str, summary: &StructuredSummary) {
        let _ = (session, summary);
    }

    /// Returns how many of the oldest messages a summary replaces. Whatever it returns, the user's
    /// last message stays, and calls stay with their results.
    fn clear_summarised(&mut self, events: &[MessageView<'_>], keep_recent_count: usize) -> usize {
        let waits_from = in_flight(events).unwrap_or(events.len());
        let recent = events.len().saturating_sub(keep_recent_count);
        safe_cut(events, recent.min(waits_from))
    }
}

/// The steps as the engine does them by itself. This is the default of [`Tiered`](crate::Tiered).
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Steps for Standard {}
