//! The current conversation: the messages that were neither cut off nor replaced by a revision.
//!
//! The host decides what is current. Each row has a flag that repeats what the host said: messages
//! of a delivery are current, and messages after a cut and earlier forms of a revised message are
//! not. Rows are never deleted for that, since everything can still be found by search, and a later
//! cut can make an earlier form current again.
//!
//! [`Store::outdated`] returns the others, which are few in most conversations.

use std::collections::HashSet;
use std::ops::Range;

use contexture_engine_api::MessageId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::{Key, SessionId, Store, query_all};
use crate::error::StoreError;

impl Store {
    /// Returns the messages of a session that are not part of its current conversation.
    pub(crate) fn outdated(&self, session: SessionId) -> Result<HashSet<Key>, StoreError> {
        let sql = "SELECT id FROM messages WHERE session = ?1 AND NOT is_current";
        let key = |row: &Row<'_>| row.get(0).map(Key);
        self.read(|connection| query_all(connection, sql, [session.0], key))
    }
}

/// Cuts the conversation back to the message `last`, or to nothing if that is None. Later messages
/// can still be found. If a later form of a message is cut off, the earlier form is current again.
pub(super) fn cut_in(
    transaction: &Transaction<'_>,
    session: SessionId,
    last: Option<MessageId>,
) -> Result<(), StoreError> {
    let last = last.map_or(-1, |last| last.0.cast_signed());
    let cut = params![session.0, last];
    transaction
        .prepare_cached(
            "WITH RECURSIVE earlier(id) AS (
                 SELECT replaces FROM messages WHERE session = ?1 AND host > ?2 AND replaces NOT NULL
                 UNION SELECT m.replaces FROM messages m JOIN earlier USING(id) WHERE m.replaces NOT NULL)
             UPDATE messages SET is_current = 1
             WHERE id IN (SELECT id FROM earlier) AND host <= ?2
                 AND NOT EXISTS(SELECT 1 FROM messages r WHERE r.replaces = messages.id AND r.host <= ?2)",
        )?
        .execute(cut)?;
    transaction
        .prepare_cached(
            "UPDATE messages SET is_current = 0, replaces = NULL
             WHERE session = ?1 AND host > ?2",
        )?
        .execute(cut)?;
    Ok(())
}

/// Returns the key of the message with this host id, or None if it is not stored.
pub(super) fn key_in(
    connection: &Connection,
    session: SessionId,
    id: MessageId,
) -> Result<Option<Key>, StoreError> {
    let key = connection
        .prepare_cached("SELECT id FROM messages WHERE session = ?1 AND host = ?2")?
        .query_row([session.0, id.0.cast_signed()], |row| row.get(0).map(Key));
    Ok(key.optional()?)
}

/// Returns the keys of a run of ordinals as SQL parameters: the first key, and one past the last.
pub(crate) fn keys(session: SessionId, range: &Range<u32>) -> [i64; 2] {
    [
        Key::new(session, range.start).0,
        Key::new(session, range.end).0,
    ]
}

#[cfg(test)]
mod tests;
