//! The live messages of a conversation, and cuts.
//!
//! The live messages are runs of ordinals, in order; the last run has no end and grows. A cut shortens and
//! removes runs and begins a new one after everything that ever arrived. A message that the host delivers
//! again after a cut is not stored again: its ordinal becomes live again.

use std::ops::Range;

use contexture_engine_api::{MessageId, Observed};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::sessions::{ARRIVED, unknown};
use super::{Key, SessionId, Store};
use crate::error::StoreError;

impl Store {
    /// How far the session has been delivered: the last live message at which a delivery ended, with
    /// the host's chain hash after it. None before the first.
    ///
    /// After a cut into the middle of a delivery this is an earlier message than the last live one;
    /// messages that the host then delivers again are recognised by their ids.
    ///
    /// # Errors
    /// A store that failed.
    pub fn observed(&self, session: SessionId) -> Result<Option<Observed>, StoreError> {
        self.read(|connection| observed_in(connection, session))
    }

    /// The ordinals of the live messages: disjoint runs, in order.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn live(&self, session: SessionId) -> Result<Vec<Range<u32>>, StoreError> {
        self.read(|connection| live_ranges(connection, session))
    }
}

/// [`Store::observed`] by this connection.
pub(super) fn observed_in(
    connection: &Connection,
    session: SessionId,
) -> Result<Option<Observed>, StoreError> {
    let mut runs = connection.prepare_cached(
        "SELECT first, coalesce(end, 4294967295) FROM live
         WHERE session = ?1 ORDER BY first DESC",
    )?;
    let mut runs = runs.query([session.0])?;
    while let Some(run) = runs.next()? {
        let found = connection
            .prepare_cached(
                "SELECT host, chain FROM messages
                 WHERE id >= ?1 AND id < ?2 AND chain IS NOT NULL ORDER BY id DESC LIMIT 1",
            )?
            .query_row(keys(session, &(run.get(0)?..run.get(1)?)), |row| {
                let last = MessageId(row.get::<_, i64>(0)? as u64);
                Ok(Observed::through(last, row.get::<_, i64>(1)? as u64))
            })
            .optional()?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Cuts the conversation back: everything after `last` (all of it, for none) is no longer part of it. The messages
/// stay stored and can be found. Cutting at the end changes nothing.
pub(super) fn cut_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    last: Option<MessageId>,
) -> Result<(), StoreError> {
    let live = live_ranges(transaction, session)?;
    // The last one that stays may have been revised, and removed by an earlier cut: the rest ends before it.
    let mut end = 0;
    for run in live.iter().rev() {
        let last_of_run: Option<i64> = transaction
            .prepare_cached(
                "SELECT id FROM messages WHERE id >= ?1 AND id < ?2 AND host <= ?3 ORDER BY id DESC LIMIT 1",
            )?
            .query_row(
                params![
                    Key::new(session, run.start).0,
                    Key::new(session, run.end).0,
                    last.map(|last| last.0 as i64)
                ],
                |row| row.get(0),
            )
            .optional()?;
        if let Some(key) = last_of_run {
            end = Key(key).ordinal() + 1;
            break;
        }
    }
    if live.last().is_none_or(|range| range.end <= end) {
        return Ok(());
    }
    for statement in [
        "DELETE FROM live WHERE session = ?1 AND first >= ?2",
        "UPDATE live SET end = ?2 WHERE session = ?1 AND (end IS NULL OR end > ?2)",
    ] {
        transaction.execute(statement, params![session.0, end])?;
    }
    transaction.execute(
        "INSERT INTO live(session, first, end) SELECT id, next_ordinal, NULL FROM sessions WHERE id = ?1",
        [session.0],
    )?;
    transaction.execute(
        "UPDATE sessions SET last_host = ?2 WHERE id = ?1",
        params![session.0, last.map(|id| id.0 as i64)],
    )?;
    Ok(())
}

/// Makes a message left behind by a cut live again. It must be after every live one.
pub(super) fn revive(
    transaction: &Transaction<'_>,
    session: SessionId,
    ordinal: u32,
) -> Result<(), StoreError> {
    let grown = transaction
        .prepare_cached("UPDATE live SET end = ?2 + 1 WHERE session = ?1 AND end = ?2")?
        .execute(params![session.0, ordinal])?;
    if grown == 0 {
        transaction
            .prepare_cached("INSERT INTO live(session, first, end) VALUES(?1, ?2, ?2 + 1)")?
            .execute(params![session.0, ordinal])?;
    }
    Ok(())
}

/// The runs of live ordinals, in order.
pub(crate) fn live_ranges(
    connection: &Connection,
    session: SessionId,
) -> Result<Vec<Range<u32>>, StoreError> {
    let next: u32 = connection
        .prepare_cached(&format!(
            "SELECT {ARRIVED} FROM sessions WHERE id = ?1 AND deleted = 0"
        ))?
        .query_row([session.0], |row| row.get(0))
        .optional()?
        .ok_or_else(|| unknown(session))?;
    let mut ranges = connection
        .prepare_cached(
            "SELECT first, min(coalesce(end, ?2), ?2) FROM live WHERE session = ?1 ORDER BY first",
        )?
        .query_map(params![session.0, next], |row| Ok(row.get(0)?..row.get(1)?))?
        .collect::<Result<Vec<Range<u32>>, _>>()?;
    ranges.retain(|range| !range.is_empty());
    Ok(ranges)
}

/// Whether a message of the session is live.
pub(super) fn is_live(connection: &Connection, key: Key) -> Result<bool, StoreError> {
    let end: Option<Option<u32>> = connection
        .prepare_cached(
            "SELECT end FROM live WHERE session = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1",
        )?
        .query_row(params![key.session().0, key.ordinal()], |row| row.get(0))
        .optional()?;
    Ok(end.is_some_and(|end| end.is_none_or(|end| key.ordinal() < end)))
}

/// The ordinal of the live message with this host id.
pub(super) fn live_ordinal(
    connection: &Connection,
    session: SessionId,
    id: MessageId,
) -> Result<Option<u32>, StoreError> {
    for key in keys_of(connection, session, id)? {
        if is_live(connection, key)? {
            return Ok(Some(key.ordinal()));
        }
    }
    Ok(None)
}

/// The messages with this host id, newest first. There are several if a host lost its state and restarted
/// its numbering.
pub(super) fn keys_of(
    connection: &Connection,
    session: SessionId,
    id: MessageId,
) -> Result<Vec<Key>, StoreError> {
    let keys = connection
        .prepare_cached(
            "SELECT id FROM messages WHERE session = ?1 AND host = ?2 ORDER BY id DESC",
        )?
        .query_map(params![session.0, id.0 as i64], |row| row.get(0).map(Key))?
        .collect::<Result<_, _>>()?;
    Ok(keys)
}

/// The first key of a run of ordinals and one past the last, as SQL parameters.
pub(crate) fn keys(session: SessionId, range: &Range<u32>) -> [i64; 2] {
    [
        Key::new(session, range.start).0,
        Key::new(session, range.end).0,
    ]
}
