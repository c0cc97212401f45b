//! Where a page ended, and how much was stored at that time.

use std::fmt::Write as _;

use xxhash_rust::xxh3::Xxh3;

use super::Query;
use crate::error::StoreError;
use crate::store::{Key, SessionId};

/// Distinguishes a summary's key from a message's: a summary sorts after the message it ends with.
const SUMMARY: i64 = 1 << 62;

/// The position of a hit among the others of its query, independent of later changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HitPosition {
    /// The score, in millionths; 0 in an order by time.
    pub(super) rank: u64,
    /// Its time, which never goes back within a session, then its key.
    pub(super) when: (i64, i64),
}

/// Scores, which may be negative, in millionths from the least.
fn rank(score: f64) -> u64 {
    ((score * 1e6) as i64).abs_diff(i64::MIN)
}

impl HitPosition {
    pub(super) fn message(score: f64, order_at: i64, key: Key) -> Self {
        Self {
            rank: rank(score),
            when: (order_at, key.0),
        }
    }

    pub(super) fn summary(score: f64, at: i64, key: Key) -> Self {
        Self {
            rank: rank(score),
            when: (at, key.0 | SUMMARY),
        }
    }
}

/// How much of a session belongs to a query: what was stored at its first page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Its messages, counted from the first.
    pub(super) messages: u32,
    /// Its summaries below this number.
    pub(super) summaries: u32,
}

impl Extent {
    /// Restricts this extent to an earlier one.
    pub(super) fn shrink_to(&mut self, earlier: Self) {
        self.messages = self.messages.min(earlier.messages);
        self.summaries = self.summaries.min(earlier.summaries);
    }
}

/// The end of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The last hit of the page.
    pub(super) last: HitPosition,
    /// How much of each session of the query belongs to it, in the query's order.
    pub(super) extents: Vec<Extent>,
}

impl Cursor {
    /// The cursor as text, such as `1f2e3d.0.1767225600000.0m41.812s9`: the query that it belongs to, the
    /// rank and time of the last hit, that hit by session and number, and the extents.
    pub(super) fn write(query: &Query, last: HitPosition, extents: &[Extent]) -> String {
        let (at, key) = last.when;
        let kind = if key & SUMMARY == 0 { 'm' } else { 's' };
        let key = Key(key & !SUMMARY);
        let session = query.sessions.iter().position(|id| *id == key.session());
        let mut text = format!(
            "{:06x}.{}.{at}.{}{kind}{}",
            fingerprint(query),
            last.rank,
            session.unwrap_or(0),
            key.ordinal()
        );
        for extent in extents {
            // Writing to a string does not fail.
            let _ = write!(text, ".{}s{}", extent.messages, extent.summaries);
        }
        text
    }

    /// Parses the cursor of a query, if it has one.
    ///
    /// # Errors
    /// A text that is not a cursor, or the cursor of another query.
    pub(super) fn of(query: &Query) -> Result<Option<Self>, StoreError> {
        let Some(text) = &query.cursor else {
            return Ok(None);
        };
        match Self::read(query, text) {
            Some(cursor) => Ok(Some(cursor)),
            None => Err(StoreError::Query(format!(
                "the cursor `{text}` belongs to another query; repeat the query it came with, or leave it out"
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
        let last = parts.next()?;
        let kind = last.find(['m', 's'])?;
        let session: usize = last[..kind].parse().ok()?;
        let number = last[kind + 1..].parse().ok()?;
        let key = Key::new(*query.sessions.get(session)?, number).0;
        let is_summary = last.as_bytes()[kind] == b's';
        let extents = parts
            .map(|part| {
                let (messages, summaries) = part.split_once('s')?;
                Some(Extent {
                    messages: messages.parse().ok()?,
                    summaries: summaries.parse().ok()?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        (extents.len() == query.sessions.len()).then_some(Self {
            last: HitPosition {
                rank,
                when: (at, if is_summary { key | SUMMARY } else { key }),
            },
            extents,
        })
    }
}

/// The extent of one session of a query.
pub(super) fn extent_of(query: &Query, extents: &[Extent], session: SessionId) -> Extent {
    let at = query.sessions.iter().position(|id| *id == session);
    at.and_then(|at| extents.get(at))
        .copied()
        .unwrap_or(Extent {
            messages: 0,
            summaries: 0,
        })
}

/// A 24-bit hash that distinguishes queries whose pages must not be mixed.
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
            second in any::<bool>(), is_summary in any::<bool>(), extents in any::<[u32; 4]>(),
        ) {
            let session = SessionId(if second { 9 } else { 7 });
            let key = Key::new(session, ordinal).0;
            let last = HitPosition { rank, when: (at, if is_summary { key | SUMMARY } else { key }) };
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
