//! Where a wire item is in its document.

use std::ops::Range;

use super::views::Speaker;

/// The byte ranges that one wire item occupies in the document, and what its line says about
/// it.
#[derive(Debug, Clone)]
pub(super) struct ItemSpan {
    /// The item with everything that the document puts around it, which is its line for a log.
    pub(super) outer: Range<usize>,
    /// The message alone, as a request would carry it.
    pub(super) body: Range<usize>,
    pub(super) speaker: Speaker,
    pub(super) continues: bool,
    pub(super) time_ms: Option<i64>,
    /// The state kept with the message: the member `state` of an event.
    pub(super) state: Option<Range<usize>>,
}

impl ItemSpan {
    pub(super) fn bare(span: Range<usize>) -> Self {
        Self {
            outer: span.clone(),
            body: span,
            speaker: Speaker::Wire,
            continues: false,
            time_ms: None,
            state: None,
        }
    }
}
