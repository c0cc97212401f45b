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
        self.read(|connection| {
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
        })
    }

    /// Cuts the conversation back: everything after `last` (all of it, for none) is no longer part of it.
    /// The messages stay stored and can be found. Cutting at the end changes nothing.
    ///
    /// # Errors
    /// `last` is not part of the conversation; a store that failed.
    pub fn cut(&self, session: SessionId, last: Option<MessageId>) -> Result<(), StoreError> {
        self.write(|transaction| cut_in(transaction, session, last))
    }

    /// The ordinals of the live messages: disjoint runs, in order.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn live(&self, session: SessionId) -> Result<Vec<Range<u32>>, StoreError> {
        self.read(|connection| live_ranges(connection, session))
    }
}

/// [`Store::cut`], as a part of a larger transaction.
pub(crate) fn cut_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    last: Option<MessageId>,
) -> Result<(), StoreError> {
    let end = match last {
        None => 0,
        Some(id) => {
            live_ordinal(transaction, session, id)?
                .ok_or_else(|| StoreError::Unknown(format!("message {id} to cut after")))?
                + 1
        }
    };
    let live = live_ranges(transaction, session)?;
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use contexture_engine_api::MessageView;

    use super::*;
    use crate::StoreSettings;
    use crate::dag::NodeId;
    use crate::store::nodes;

    #[test]
    fn a_cut_whose_frontier_cannot_be_written_cuts_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path(), StoreSettings::default()).unwrap();
        let session = store.open_session("s", 0).unwrap();
        let views = [1, 2].map(|id| MessageView::new(MessageId(id), "user").with_text("x"));
        store.ingest(session, &views, 2).unwrap();
        let cut = |before: &[NodeId], after: &[NodeId]| {
            nodes::cut(&store, session, Some(MessageId(1)), 1, before, after)
        };
        let missing = [NodeId(9)];
        assert!(cut(&[], &missing).is_err());
        assert!(matches!(cut(&missing, &[]), Err(StoreError::FrontierMoved)));
        assert_eq!(store.live(session).unwrap(), std::slice::from_ref(&(0..2)));
        cut(&[], &[]).unwrap();
        assert_eq!(store.live(session).unwrap(), std::slice::from_ref(&(0..1)));
    }
}
