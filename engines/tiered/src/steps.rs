//! The steps of the engine, each of which another engine may replace.

use contexture_engine_api::{MessageView, in_flight, safe_cut};

use crate::event::{Compacted, Event};
use crate::summary::StructuredSummary;

/// The steps of the engine. Each has a default, which is what the engine does by itself.
pub trait Steps: Default + Send + 'static {
    /// The compacted form of an event; none leaves it as it is.
    fn compact_event(&mut self, event: &Event<'_>) -> Option<Compacted> {
        event.compacted()
    }

    /// The summary of these events; none has the model, or the engine itself, make one. `count`, `time_range` and
    /// `timestamp` are filled in where they are left empty.
    fn summarise(&mut self, events: &[MessageView<'_>]) -> Option<StructuredSummary> {
        let _ = events;
        None
    }

    /// A summary is in force in this session.
    fn store_summary(&mut self, session: &str, summary: &StructuredSummary) {
        let _ = (session, summary);
    }

    /// How many of the oldest events a summary takes the place of. Whatever it says, the user's last message stays, and
    /// calls stay with their results.
    fn clear_summarised(&mut self, events: &[MessageView<'_>], keep_recent_count: usize) -> usize {
        let waits_from = in_flight(events).unwrap_or(events.len());
        let recent = events.len().saturating_sub(keep_recent_count);
        safe_cut(events, recent.min(waits_from))
    }
}

/// The steps as the engine does them by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Steps for Standard {}
