//! The two things that are indexed.

use std::ops::{ControlFlow, Range};

use rusqlite::Connection;

use crate::error::StoreError;
use crate::store::{SessionId, for_each_body, for_each_summary, info_in, summaries_end};

/// The kind of texts that a segment covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Corpus {
    /// A session's messages, by their ordinals.
    Messages,
    /// A session's summaries, by their numbers.
    Summaries,
}

impl Corpus {
    pub(crate) const ALL: [Self; 2] = [Self::Messages, Self::Summaries];

    /// The value in the table of segments.
    pub(crate) fn code(self) -> i64 {
        match self {
            Self::Messages => 0,
            Self::Summaries => 1,
        }
    }

    /// One past the number of the last text that is stored.
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

    /// Calls `each` with the number and the text of each existing one of these, in order. Returns how many
    /// could not be read.
    pub(crate) fn for_each_text(
        self,
        connection: &Connection,
        session: SessionId,
        numbers: &Range<u32>,
        mut each: impl FnMut(u32, &str) -> Result<ControlFlow<()>, StoreError>,
    ) -> Result<u64, StoreError> {
        match self {
            Self::Messages => for_each_body(connection, session, numbers, |key, body| {
                each(key.ordinal(), body)
            }),
            Self::Summaries => for_each_summary(connection, session, numbers, |summary| {
                each(summary.key.ordinal(), &summary.text)
            }),
        }
    }
}
