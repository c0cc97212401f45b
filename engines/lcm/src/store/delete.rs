//! Permanent deletion: of sessions, and of unreachable summaries.

use rusqlite::{Connection, params};

use super::live::keys;
use super::sessions::unknown;
use super::{SessionId, Store};
use crate::error::StoreError;

/// How many rows are removed in one transaction, so that no turn waits for long.
const SLICE: i64 = 1_000;

/// The same for rows with many dependent rows: summaries and their sources, files and their chunks,
/// segments and their terms.
const HEAVY_SLICE: i64 = 16;

/// The size of one or more sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Messages.
    pub messages: u64,
    /// Summaries.
    pub summaries: u64,
    /// Texts kept aside.
    pub files: u64,
    /// Bytes in the file: content, compressed, and index.
    pub bytes: u64,
}

/// Deletes the rows of a session, in an order that respects references. The parameters are the session, its
/// first and last keys, and the number of rows at a time.
const REMOVALS: [(&str, i64); 8] = [
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
        // The newest first, because a revision refers to the message it replaces.
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages
             WHERE id BETWEEN ?2 AND ?3 ORDER BY id DESC LIMIT ?4) AND ?1 NOT NULL",
        SLICE,
    ),
    (
        "DELETE FROM blocks WHERE id IN
             (SELECT id FROM blocks WHERE id BETWEEN ?2 AND ?3 LIMIT ?4) AND ?1 NOT NULL",
        SLICE,
    ),
    (
        "DELETE FROM payloads WHERE id IN
             (SELECT id FROM payloads WHERE session = ?1 LIMIT ?4) AND ?2 + ?3 NOT NULL",
        HEAVY_SLICE,
    ),
    ("DELETE FROM sessions WHERE id = ?1 AND ?2 + ?3 + ?4 NOT NULL", SLICE),
];

/// Summaries that are unreachable from the window: of discarded proposals, over messages that were cut off,
/// or replaced by their children. Summaries newer than all of the window are kept, because they may belong
/// to an open proposal.
const UNREACHED: &str = "WITH RECURSIVE reached(node) AS (
        SELECT node FROM frontier
        UNION SELECT c.child FROM node_children c JOIN reached USING(node))
    SELECT n.id FROM nodes n WHERE n.id NOT IN (SELECT node FROM reached)
        AND n.id < (SELECT max(node) FROM frontier f WHERE f.session = n.session)";

impl Store {
    /// The size of these sessions: the space in the file that deleting them would free.
    ///
    /// # Errors
    /// A store that failed.
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

    /// Deletes sessions permanently. They disappear at once; their rows follow in small transactions, which
    /// [`Store::sweep`] completes after an interruption. The space is reused; [`Store::shrink`] releases
    /// it.
    ///
    /// # Errors
    /// No such session: nothing is deleted then. A store that failed.
    pub fn delete_sessions(&self, sessions: &[SessionId]) -> Result<(), StoreError> {
        self.write(|transaction| {
            for session in sessions {
                // The name is free again from now on; no host uses one with a zero byte.
                let gone = transaction.execute(
                    "UPDATE sessions SET deleted = 1, name = name || char(0) || id
                     WHERE id = ?1 AND deleted = 0",
                    [session.0],
                )?;
                if gone == 0 {
                    return Err(unknown(*session));
                }
            }
            Ok(())
        })?;
        self.remove_deleted()
    }

    /// Removes unreachable data: the rest of deleted sessions, and summaries that are not under the window.
    /// Returns the number of these summaries; with `dry_run` they stay.
    ///
    /// # Errors
    /// A store that failed.
    pub fn sweep(&self, dry_run: bool) -> Result<u64, StoreError> {
        if !dry_run {
            self.remove_deleted()?;
        }
        let unreached = self.read(|connection| {
            let nodes = connection
                // Parents are removed before their children.
                .prepare(&format!("{UNREACHED} ORDER BY n.id DESC"))?
                .query_map([], |row| row.get(0))?
                .collect::<Result<Vec<i64>, _>>()?;
            Ok(nodes)
        })?;
        if !dry_run {
            for slice in unreached.chunks(SLICE as usize) {
                self.write(|transaction| {
                    // Checked again, because another process may have moved its window meanwhile.
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

    fn remove_deleted(&self) -> Result<(), StoreError> {
        let deleted = self.read(|connection| {
            let sessions = connection
                .prepare("SELECT id FROM sessions WHERE deleted = 1")?
                .query_map([], |row| row.get(0).map(SessionId))?
                .collect::<Result<Vec<_>, _>>()?;
            Ok(sessions)
        })?;
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

fn size_of(connection: &Connection, session: SessionId) -> Result<Size, StoreError> {
    let count = |sql: &str| -> Result<u64, StoreError> {
        let [first, last] = keys(session, &(0..u32::MAX));
        let value: i64 = connection
            .prepare_cached(sql)?
            .query_row([session.0, first, last], |row| row.get(0))?;
        Ok(value.max(0) as u64)
    };
    let bytes = [
        "SELECT coalesce(sum(length(data)), 0) FROM blocks WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3",
        // A row and its entry in the index by host id.
        "SELECT count(*) * 70 FROM messages WHERE ?1 = ?1 AND id BETWEEN ?2 AND ?3",
        "SELECT coalesce(sum(length(c.data)), 0) FROM payload_chunks c
         JOIN payloads p ON p.id = c.payload WHERE p.session = ?1 AND ?2 <= ?3",
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
