//! Branches: what is part of the conversation now, and what a cut left behind.

use std::ops::Range;

use contexture_engine_api::{MessageId, Observed};
use rusqlite::{Connection, OptionalExtension, params};

use super::sessions::unknown;
use super::{Key, SessionId, Store};
use crate::error::StoreError;

impl Store {
    /// How far the session has been delivered: the last live message at which a delivery ended, with
    /// the host's chain hash after it. None before the first.
    ///
    /// After a cut into the middle of a delivery this is an earlier message than the last live one; what
    /// the host then shows again is recognised by its id.
    ///
    /// # Errors
    /// A store that failed.
    pub fn observed(&self, session: SessionId) -> Result<Option<Observed>, StoreError> {
        self.read(|connection| {
            for range in live_ranges(connection, session)?.iter().rev() {
                let found = connection
                    .prepare_cached(
                        "SELECT host, chain FROM messages
                         WHERE id >= ?1 AND id < ?2 AND chain IS NOT NULL ORDER BY id DESC LIMIT 1",
                    )?
                    .query_row(keys(session, range), |row| {
                        Ok(Observed {
                            last: MessageId(row.get::<_, i64>(0)? as u64),
                            chain: row.get::<_, i64>(1)? as u64,
                        })
                    })
                    .optional()?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        })
    }

    /// Cuts the conversation back: everything after `last` (all of it, for none) is no longer part of
    /// it. It stays stored and can be found. Cutting at the end changes nothing.
    ///
    /// # Errors
    /// `last` is not part of the conversation; a store that failed.
    pub fn cut(&self, session: SessionId, last: Option<MessageId>) -> Result<(), StoreError> {
        self.write(|transaction| {
            let (branch, next): (i64, u32) = transaction
                .query_row(
                    "SELECT branch, next_ordinal FROM sessions WHERE id = ?1",
                    [session.0],
                    |row| Ok((row.get(0)?, row.get(1)?)),
                )
                .optional()?
                .ok_or_else(|| unknown(session))?;
            let live = live_ranges(transaction, session)?;
            let forked_at = match last {
                None => 0,
                Some(id) => {
                    live_ordinal(transaction, session, &live, id)?
                        .ok_or_else(|| StoreError::Unknown(format!("message {id} to cut after")))?
                        + 1
                }
            };
            if live.last().map_or(0, |range| range.end) == forked_at {
                return Ok(());
            }
            transaction.execute(
                "INSERT INTO branches(session, number, parent, forked_at, first)
                 VALUES(?1, ?2, ?3, ?4, ?5)",
                params![session.0, branch + 1, branch, forked_at, next],
            )?;
            transaction.execute(
                "UPDATE sessions SET branch = ?2, last_host = ?3 WHERE id = ?1",
                params![session.0, branch + 1, last.map(|id| id.0 as i64)],
            )?;
            Ok(())
        })
    }

    /// The ordinals of the messages that are part of the conversation now: disjoint runs, in order.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn live(&self, session: SessionId) -> Result<Vec<Range<u32>>, StoreError> {
        self.read(|connection| live_ranges(connection, session))
    }
}

/// The runs of live ordinals, in order.
pub(crate) fn live_ranges(
    connection: &Connection,
    session: SessionId,
) -> Result<Vec<Range<u32>>, StoreError> {
    let (newest, mut end): (i64, u32) = connection
        .prepare_cached("SELECT branch, next_ordinal FROM sessions WHERE id = ?1")?
        .query_row([session.0], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?
        .ok_or_else(|| unknown(session))?;
    let mut statement = connection.prepare_cached(
        "SELECT parent, forked_at, first FROM branches WHERE session = ?1 AND number = ?2",
    )?;
    let mut ranges = Vec::new();
    let mut next = Some(newest);
    while let Some(number) = next {
        let (parent, forked_at, first): (Option<i64>, u32, u32) = statement
            .query_row([session.0, number], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })?;
        if first < end {
            ranges.push(first..end);
        }
        // A parent is always older, so that a damaged file cannot make this endless.
        next = parent.filter(|parent| *parent < number);
        end = end.min(forked_at);
    }
    ranges.reverse();
    Ok(ranges)
}

/// The ordinal of the live message with this id of the host's.
pub(crate) fn live_ordinal(
    connection: &Connection,
    session: SessionId,
    live: &[Range<u32>],
    id: MessageId,
) -> Result<Option<u32>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT id FROM messages WHERE session = ?1 AND host = ?2 ORDER BY id DESC",
    )?;
    let mut rows = statement.query(params![session.0, id.0 as i64])?;
    while let Some(row) = rows.next()? {
        let ordinal = Key(row.get(0)?).ordinal();
        if live.iter().any(|range| range.contains(&ordinal)) {
            return Ok(Some(ordinal));
        }
    }
    Ok(None)
}

/// The first key of a run of ordinals and the one after its last, as parameters.
pub(crate) fn keys(session: SessionId, range: &Range<u32>) -> [i64; 2] {
    [
        Key::new(session, range.start).0,
        Key::new(session, range.end).0,
    ]
}
