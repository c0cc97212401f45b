//! Cursors: where a page ended, and how much was stored when its query began.
//!
//! New messages arrive while somebody pages through an answer. A cursor therefore holds the
//! position of the last hit instead of a count of hits, and the [`Extent`] of each session at the
//! first page. Later pages ignore what was stored since, so that no hit appears twice and the
//! totals stay the same.
//!
//! [`Cursor::write`] makes the text and [`Cursor::of`] parses it. The text includes a hash of the
//! query, because the cursor of another query would give wrong pages without any error.

use std::fmt::Write as _;

use contexture_engine_api::printable;
use xxhash_rust::xxh3::Xxh3;

use super::Query;
use crate::error::StoreError;
use crate::store::{Key, SessionId, SummaryTimes};

/// The position of a hit among the others of its query. It depends only on the hit, so it stays
/// valid if other hits come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HitPosition {
    /// The score in millionths, shifted so that it is never negative. All ranks are equal in an
    /// order by time.
    pub(super) rank: u64,
    /// The time of the hit, its message, and its number if it is a summary. The time never goes
    /// back within a session. A summary sorts directly after the last message it covers.
    pub(super) when: (i64, Key, Option<u32>),
}

/// Converts a score, which may be negative, to millionths counted from the lowest possible score.
fn rank(score: f64) -> u64 {
    ((score * 1e6) as i64).abs_diff(i64::MIN)
}

impl HitPosition {
    pub(super) fn message(score: f64, order_at: i64, key: Key) -> Self {
        Self {
            rank: rank(score),
            when: (order_at, key, None),
        }
    }

    pub(super) fn summary(score: f64, times: SummaryTimes, key: Key) -> Self {
        let at = times.last_at.unwrap_or(times.created_at);
        // If the last message is unknown, the summary sorts after all messages of its time.
        let last = times.last.unwrap_or(Key::new(key.session(), u32::MAX));
        Self {
            rank: rank(score),
            when: (at, last, Some(key.ordinal())),
        }
    }

    pub(super) fn is_summary(&self) -> bool {
        self.when.2.is_some()
    }
}

/// The maximum number of characters of a wrong cursor that an error shows.
const SHOWN: usize = 80;

/// How much of a session belongs to a query, which is what was stored at its first page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The number of messages, counted from the first one of the session.
    pub(super) messages: u32,
    /// The number below which summaries belong to the query.
    pub(super) summaries: u32,
}

impl Extent {
    /// Restricts this extent to an earlier one. Of the messages and of the summaries the smaller
    /// number counts.
    pub(super) fn shrink_to(&mut self, earlier: Self) {
        self.messages = self.messages.min(earlier.messages);
        self.summaries = self.summaries.min(earlier.summaries);
    }
}

/// The end of a page, from which the next page continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The position of the last hit of the page.
    pub(super) last: HitPosition,
    /// How much of each session belongs to the query, in the order of its sessions.
    pub(super) extents: Vec<Extent>,
}

impl Cursor {
    /// Writes a cursor, such as `1f2e3d.0.1767225600000.0m41.812s9`. Its parts are the hash of the
    /// query, the rank and time of the last hit, its session and message, and the extents. If the
    /// hit is a summary, its number follows the message, as in `0m41s8`.
    pub(super) fn write(query: &Query, last: HitPosition, extents: &[Extent]) -> String {
        let (at, message, summary) = last.when;
        let session = query
            .sessions
            .iter()
            .position(|id| *id == message.session());
        let mut text = format!(
            "{:06x}.{}.{at}.{}m{}",
            fingerprint(query),
            last.rank,
            session.unwrap_or(0),
            message.ordinal()
        );
        // Writing to a string does not fail.
        if let Some(number) = summary {
            let _ = write!(text, "s{number}");
        }
        for extent in extents {
            let _ = write!(text, ".{}s{}", extent.messages, extent.summaries);
        }
        text
    }

    /// Parses the cursor of a query, if it has one.
    ///
    /// # Errors
    /// Returns an error if the text is not a cursor or is the cursor of another query.
    pub(super) fn of(query: &Query) -> Result<Option<Self>, StoreError> {
        let Some(text) = &query.cursor else {
            return Ok(None);
        };
        match Self::read(query, text) {
            Some(cursor) => Ok(Some(cursor)),
            None => Err(StoreError::Query(format!(
                "the cursor `{}` belongs to another query; repeat the query it came with, or leave it out",
                printable(text, SHOWN)
            ))),
        }
    }

    fn read(query: &Query, text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        if parts.next()? != format!("{:06x}", fingerprint(query)) {
            return None;
        }
        let rank = parts.next()?.parse().ok()?;
        let at = parts.next()?.parse().ok()?;
        let (session, place) = parts.next()?.split_once('m')?;
        let (ordinal, summary) = match place.split_once('s') {
            Some((ordinal, number)) => (ordinal, Some(number.parse().ok()?)),
            None => (place, None),
        };
        let session: usize = session.parse().ok()?;
        let message = Key::new(*query.sessions.get(session)?, ordinal.parse().ok()?);
        let extents = parts
            .map(|part| {
                let (messages, summaries) = part.split_once('s')?;
                Some(Extent {
                    messages: messages.parse().ok()?,
                    summaries: summaries.parse().ok()?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        // Every session needs an extent. Without one the rest of a truncated cursor would hide its
        // messages.
        (extents.len() == query.sessions.len()).then_some(Self {
            last: HitPosition {
                rank,
                when: (at, message, summary),
            },
            extents,
        })
    }
}

/// Returns the extent of one session of a query. A session that the query does not name has an
/// empty one.
pub(super) fn extent_of(query: &Query, extents: &[Extent], session: SessionId) -> Extent {
    let at = query.sessions.iter().position(|id| *id == session);
    at.and_then(|at| extents.get(at))
        .copied()
        .unwrap_or_default()
}

/// Returns a 24-bit hash that differs between queries whose pages must not be mixed. The limit and
/// the lines of context are not part of it, so that a caller can change them between pages.
fn fingerprint(query: &Query) -> u32 {
    let mut hasher = Xxh3::new();
    let same = Query {
        cursor: None,
        limit: 0,
        context_lines: 0,
        ..query.clone()
    };
    hasher.update(format!("{same:?}").as_bytes());
    hasher.digest() as u32 & 0x00ff_ffff
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::search::{Ask, Mode, Pattern};

    fn query() -> Query {
        let ask = Ask::Pattern(Pattern::new(Mode::Literal, "x"));
        let mut query = Query::new(SessionId(7), ask);
        query.sessions = vec![SessionId(7), SessionId(9)];
        query
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(
            rank in any::<u64>(), at in any::<i64>(), ordinal in any::<u32>(),
            second in any::<bool>(), summary in any::<Option<u32>>(), extents in any::<[u32; 4]>(),
        ) {
            let session = SessionId(if second { 9 } else { 7 });
            let last = HitPosition { rank, when: (at, Key::new(session, ordinal), summary) };
            let extents = vec![
                Extent { messages: extents[0], summaries: extents[1] },
                Extent { messages: extents[2], summaries: extents[3] },
            ];
            let mut query = query();
            query.cursor = Some(Cursor::write(&query, last, &extents));
            prop_assert_eq!(Cursor::of(&query).unwrap(), Some(Cursor { last, extents }));
            query.role = Some("user".into());
            prop_assert!(Cursor::of(&query).is_err());
        }

        #[test]
        fn any_other_text_is_refused(text in "\\PC{0,30}") {
            let mut query = query();
            query.cursor = Some(text);
            prop_assert!(Cursor::of(&query).is_err());
        }
    }
}
