//! The two kinds of texts that are indexed: messages and summaries.
//!
//! They are numbered separately and have separate segments, because summaries can be deleted and
//! rewritten, while messages only arrive at the end. [`Corpus`] hides the difference from the code
//! that builds and searches segments. If a text cannot be read, it is skipped and counted.

use std::ops::{ControlFlow, Range};

use rusqlite::Connection;

use crate::error::StoreError;
use crate::store::{SessionId, Snapshot, for_each_body, for_each_summary, info_in, summaries_end};

/// The kind of texts that a segment covers. The numbers are those of the table of segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Corpus {
    Messages = 0,
    Summaries = 1,
}

impl Corpus {
    pub(crate) const ALL: [Self; 2] = [Self::Messages, Self::Summaries];

    /// Returns one past the highest number of a text that is stored, or 0 if there is none. Some of
    /// the lower numbers may be unused.
    pub(crate) fn end(
        self,
        connection: &Connection,
        session: SessionId,
    ) -> Result<u32, StoreError> {
        match self {
            Self::Messages => Ok(info_in(connection, session)?.messages),
            Self::Summaries => summaries_end(connection, session),
        }
    }

    /// Calls `each` with the number and the text of each of these texts that exists, in order,
    /// until it breaks. Returns how many could not be read.
    pub(crate) fn for_each_text(
        self,
        snapshot: &Snapshot<'_>,
        session: SessionId,
        numbers: &Range<u32>,
        mut each: impl FnMut(u32, &str) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Messages => for_each_body(snapshot, session, numbers, |key, body| {
                each(key.ordinal(), body)
            }),
            Self::Summaries => for_each_summary(snapshot, session, numbers, |summary| {
                each(summary.key.ordinal(), &summary.text)
            }),
        }
    }
}
