//! Deletes sessions and unreachable summaries, and releases free space of the file.
//!
//! Deleting is done in small transactions, because a large one would keep turns waiting. A session
//! is first marked as deleted, which hides it and frees its name. Its rows follow in slices. If the
//! process ends in between, [`Store::sweep`] removes the rest later.
//!
//! [`Store::sweep`] also removes summaries that the window cannot reach any more. Deleted rows
//! leave free pages in the file, which later writes reuse. [`Store::shrink`] gives them back to the
//! file system. The transcript of a deleted session belongs to the host and is not touched here.

use rusqlite::{Connection, Transaction, params};

use super::current_messages::keys;
use super::sessions::{info_in, unknown};
use super::{SessionId, SessionInfo, Store, query_all};
use crate::error::StoreError;

/// How many rows are removed in one transaction, so that no turn waits long for the lock.
const SLICE: i64 = 1_000;

/// The same for rows with many dependent rows, such as summaries with their sources and segments
/// with their terms.
const HEAVY_SLICE: i64 = 16;

/// How many pages are released in one transaction, so that no turn waits long for the lock.
const SHRINK_PAGES: u32 = 512;

/// The size of one or more sessions in the store. It does not include their transcripts, which the
/// host keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// The number of messages, including those that cuts removed from the conversation.
    pub messages: u64,
    /// The number of summaries at all depths, whether the window shows them or not.
    pub summaries: u64,
    /// The number of large texts that are shown as files. Their content is in the transcript.
    pub files: u64,
    /// An estimate of the bytes in the file. Most of them are the search index.
    pub bytes: u64,
}

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

/// Selects the summaries that the window cannot reach. They belong to discarded proposals, cover
/// messages that were cut off, or were replaced by their children. A summary that is newer than
/// every one in the window is kept, because it may belong to an open proposal.
const UNREACHED: &str = "WITH RECURSIVE reached(node) AS (
        SELECT node FROM frontier
        UNION SELECT c.child FROM node_children c JOIN reached USING(node))
    SELECT n.id FROM nodes n WHERE n.id NOT IN (SELECT node FROM reached)
        AND n.id < (SELECT max(node) FROM frontier f WHERE f.session = n.session)";

impl Store {
    /// Returns the size of these sessions together, which is about what deleting them would free.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn size(&self, sessions: &[SessionId]) -> Result<Size, StoreError> {
        self.read(|connection| {
            let mut sum = Size::default();
            for session in sessions {
                let size = size_of(connection, *session)?;
                sum.messages += size.messages;
                sum.summaries += size.summaries;
                sum.files += size.files;
                sum.bytes += size.bytes;
            }
            Ok(sum)
        })
    }

    /// Deletes sessions permanently. They disappear at once, and their rows are removed in small
    /// transactions after that. If this is interrupted, [`Store::sweep`] completes it. The space is
    /// reused, and [`Store::shrink`] releases it.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if one of the sessions does not exist. Nothing is
    /// deleted then. Other errors come from the store.
    pub fn delete_sessions(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        self.write(|transaction| {
            sessions
                .iter()
                .try_for_each(|session| mark_deleted(transaction, *session))
        })?;
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
            let SessionInfo {
                name,
                created_at,
                touched_at,
                ..
            } = info_in(transaction, session)?;
            mark_deleted(transaction, session)?;
            transaction.execute(
                "INSERT INTO sessions(name, created_at, touched_at) VALUES(?1, ?2, ?3)",
                params![name, created_at, touched_at],
            )?;
            Ok(SessionId(transaction.last_insert_rowid()))
        })?;
        self.remove_deleted()?;
        Ok(new)
    }

    /// Removes what nothing refers to: the remaining rows of deleted sessions, and summaries that
    /// the window cannot reach. Returns the number of these summaries. If `dry_run` is set, they
    /// are only counted.
    ///
    /// # Errors
    /// Returns an error if the store fails. What was removed until then stays removed.
    pub fn sweep(&self, dry_run: bool) -> Result<u64, StoreError> {
        if !dry_run {
            self.remove_deleted()?;
        }
        // Parents have higher numbers and are removed before their children.
        let sql = format!("{UNREACHED} ORDER BY n.id DESC");
        let unreached: Vec<i64> =
            self.read(|connection| query_all(connection, &sql, [], |row| row.get(0)))?;
        if !dry_run {
            for slice in unreached.chunks(SLICE as usize) {
                self.write(|transaction| {
                    // Checked again, because another process may have moved its frontier meanwhile.
                    let mut delete = transaction.prepare(&format!(
                        "DELETE FROM nodes WHERE id = ?1 AND id IN ({UNREACHED})
                             AND NOT EXISTS(SELECT 1 FROM node_children WHERE child = ?1)"
                    ))?;
                    for node in slice {
                        delete.execute([node])?;
                    }
                    Ok(())
                })?;
            }
        }
        Ok(unreached.len() as u64)
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
    fn remove_deleted(&self) -> Result<(), StoreError> {
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

fn size_of(connection: &Connection, session: SessionId) -> Result<Size, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let [first, last] = keys(session, &(0..u32::MAX));
        let value: i64 = connection
            .prepare_cached(sql)?
            .query_row([session.0, first, last], |row| row.get(0))?;
        Ok(value.max(0) as u64)
    };
    let bytes = [
        // A row and its entry in the index by host id, on average.
        "SELECT count(*) * 70 FROM messages WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3",
        "SELECT coalesce(sum(length(data)), 0) FROM nodes WHERE session = ?1 AND ?2 <= ?3",
        "SELECT coalesce(sum(length(t.terms) + length(l.lists) + coalesce(length(l.places), 0)), 0)
         FROM segments s
         JOIN term_chunks t ON t.segment = s.id JOIN posting_chunks l ON l.id = t.id
         WHERE s.session = ?1 AND ?2 <= ?3",
        "SELECT coalesce(sum(length(data) + 16), 0) FROM vectors WHERE ?1 = ?1 AND message BETWEEN ?2 AND ?3",
    ];
    Ok(Size {
        messages: count("SELECT count(*) FROM messages WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3")?,
        summaries: count("SELECT count(*) FROM nodes WHERE session = ?1 AND ?2 <= ?3")?,
        files: count("SELECT count(*) FROM payloads WHERE session = ?1 AND ?2 <= ?3")?,
        bytes: bytes.iter().map(|sql| count(sql)).sum::<Result<u64, _>>()?,
    })
}
