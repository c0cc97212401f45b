//! Deletes sessions, and releases free space of the file.
//!
//! Deleting is done in small transactions, because a large one would keep turns waiting. A session
//! is first marked as deleted, which hides it and frees its name. Its rows follow in slices. If the
//! process ends in between, [`Store::remove_deleted`] removes the rest later.
//!
//! Deleted rows leave free pages in the file, which later writes reuse. [`Store::shrink`] gives them
//! back to the file system. The transcript of a deleted session belongs to the host and is not
//! touched here.

use rusqlite::{Transaction, params};

use super::current_messages::keys;
use super::sessions::{info_in, unknown};
use super::{SessionId, Store, query_all};
use crate::error::StoreError;

/// How many rows are removed in one transaction, so that no turn waits long for the lock.
const SLICE: i64 = 1_000;

/// The same for rows with many dependent rows, such as summaries with their sources and segments
/// with their terms.
const HEAVY_SLICE: i64 = 16;

/// How many pages are released in one transaction, so that no turn waits long for the lock.
const SHRINK_PAGES: u32 = 512;

/// The statements that delete the rows of a session, in an order that respects references, each
/// with the number of rows at a time. Their parameters are the session, its first and last key, and
/// that number. Binding fails if a statement does not use them all, so each mentions all of them.
const REMOVALS: [(&str, i64); 7] = [
    ("DELETE FROM frontier WHERE session = ?1 AND ?2 + ?3 + ?4 NOT NULL", SLICE),
    (
        "DELETE FROM node_children WHERE (node, position) IN (SELECT node, position FROM node_children
             WHERE node BETWEEN ?2 AND ?3 LIMIT ?4) AND ?1 NOT NULL",
        SLICE,
    ),
    (
        "DELETE FROM nodes WHERE id IN
             (SELECT id FROM nodes WHERE session = ?1 LIMIT ?4) AND ?2 + ?3 NOT NULL",
        HEAVY_SLICE,
    ),
    (
        "DELETE FROM segments WHERE id IN
             (SELECT id FROM segments WHERE session = ?1 LIMIT ?4) AND ?2 + ?3 NOT NULL",
        HEAVY_SLICE,
    ),
    (
        // The newest first, because a revision refers to the message that it replaces.
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages
             WHERE id BETWEEN ?2 AND ?3 ORDER BY id DESC LIMIT ?4) AND ?1 NOT NULL",
        SLICE,
    ),
    (
        "DELETE FROM payloads WHERE id IN
             (SELECT id FROM payloads WHERE session = ?1 LIMIT ?4) AND ?2 + ?3 NOT NULL",
        HEAVY_SLICE,
    ),
    ("DELETE FROM sessions WHERE id = ?1 AND ?2 + ?3 + ?4 NOT NULL", SLICE),
];

impl Store {
    /// Deletes a session permanently. It disappears at once, and its rows are removed in small
    /// transactions after that. If this is interrupted, [`Store::remove_deleted`] completes it. The
    /// space is reused, and [`Store::shrink`] releases it.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if there is no such session, or an error of the store.
    pub fn delete_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.write(|transaction| mark_deleted(transaction, session))?;
        self.remove_deleted()
    }

    /// Gives a session a new number without rows, because its rows are not those of its transcript.
    /// Whoever still works with the old number, such as the index thread or a call that the host
    /// has given up, finds no rows under it. So nothing can be derived from the rows of one
    /// transcript and the texts of another.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if there is no such session, or an error of the store.
    pub(super) fn renumber(&self, session: SessionId) -> Result<SessionId, StoreError> {
        let new = self.write_in_call(|transaction| {
            let name = info_in(transaction, session)?.name;
            mark_deleted(transaction, session)?;
            transaction.execute("INSERT INTO sessions(name) VALUES(?1)", [name])?;
            Ok(SessionId(transaction.last_insert_rowid()))
        })?;
        self.remove_deleted()?;
        Ok(new)
    }

    /// Returns the bytes of the file that are free, which is what [`Store::shrink`] would release.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn free_bytes(&self) -> Result<u64, StoreError> {
        self.read(|connection| {
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            Ok((pragma("freelist_count")? * pragma("page_size")?).max(0) as u64)
        })
    }

    /// Releases the free space of the file, a little at a time, while the store stays in use.
    /// `progress` is called with the bytes that are done and the total.
    ///
    /// # Errors
    /// Returns an error if the store fails. Space that was released until then stays released.
    pub fn shrink(&self, mut progress: impl FnMut(u64, u64)) -> Result<(), StoreError> {
        let total = self.free_bytes()?;
        let mut left = total;
        while left > 0 {
            self.database().plainly(|writer| {
                let mut step =
                    writer.prepare(&format!("PRAGMA incremental_vacuum({SHRINK_PAGES})"))?;
                let mut pages = step.query([])?;
                while pages.next()?.is_some() {}
                Ok(())
            })?;
            let now = self.free_bytes()?;
            // Others may fill the pages as fast as they are released. The loop would never end then.
            if now >= left {
                break;
            }
            left = now;
            progress(total.saturating_sub(left), total);
        }
        (self.database())
            .plainly(|writer| writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())))
    }

    /// Removes the rows of all sessions that are marked as deleted. It also finds those of an
    /// earlier process that ended too soon.
    ///
    /// # Errors
    /// Returns an error if the store fails. What was removed until then stays removed.
    pub fn remove_deleted(&self) -> Result<(), StoreError> {
        let sql = "SELECT id FROM sessions WHERE deleted = 1";
        let deleted: Vec<SessionId> = self
            .read(|connection| query_all(connection, sql, [], |row| row.get(0).map(SessionId)))?;
        for session in deleted {
            let [first, last] = keys(session, &(0..u32::MAX));
            for (removal, slice) in REMOVALS {
                while self.write(|transaction| {
                    let numbers = params![session.0, first, last, slice];
                    Ok(transaction.prepare_cached(removal)?.execute(numbers)?)
                })? > 0
                {}
            }
        }
        Ok(())
    }
}

/// Hides a session and frees its name. Its row stays until its dependents are gone.
fn mark_deleted(transaction: &Transaction<'_>, session: SessionId) -> Result<(), StoreError> {
    // No host uses a name with a zero byte.
    let gone = transaction.execute(
        "UPDATE sessions SET deleted = 1, name = name || char(0) || id
         WHERE id = ?1 AND deleted = 0",
        [session.0],
    )?;
    match gone {
        0 => Err(unknown(session)),
        _ => Ok(()),
    }
}
