//! The sessions of a store: created on first use, found by name, and listed.
//!
//! The host knows a session by its name. Inside the store it has a number, which is part of the
//! keys of its messages and summaries. Numbers are never reused, so an engine that still has the
//! number of a deleted session gets an error and does not read another session by mistake.
//!
//! Start with [`Store::open_session`]. Deleting is part of the `delete` module, and the content of
//! a session is read by the `read` and `nodes` modules.

use rusqlite::{Connection, OptionalExtension};

use super::{SessionId, Store, query_all};
use crate::error::StoreError;

/// A session as it appears in a list: its name and its size in messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// The number of the session in this store.
    pub id: SessionId,
    /// The name by which the host knows the session.
    pub name: String,
    /// The number of messages, including those that cuts removed from the conversation.
    pub messages: u32,
}

/// SQL for the number of ordinals that a session has used. It is stored in the row of the session
/// and also follows from the last message. The smaller one counts, so that a damaged value cannot
/// cause endless work.
pub(super) const ARRIVED: &str = "min(next_ordinal, coalesce(((SELECT max(m.id) FROM messages m
    WHERE m.id BETWEEN sessions.id << 32 AND (sessions.id << 32) + 4294967295) & 4294967295) + 1, 0))";

fn select(rest: &str) -> String {
    format!("SELECT id, name, {ARRIVED} FROM sessions {rest}")
}

fn info(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionInfo> {
    Ok(SessionInfo {
        id: SessionId(row.get(0)?),
        name: row.get(1)?,
        messages: row.get(2)?,
    })
}

impl Store {
    /// Returns the session of this name and creates it if there is none.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read, or if a new session cannot be written.
    pub fn open_session(&self, name: &str) -> Result<SessionId, StoreError> {
        if let Some(id) = self.find_session(name)? {
            return Ok(id);
        }
        self.write(|transaction| {
            // Another process may create the session between the look-up and this transaction.
            transaction.execute(
                "INSERT INTO sessions(name) VALUES(?1) ON CONFLICT(name) DO NOTHING",
                [name],
            )?;
            id_of(transaction, name)?
                .ok_or_else(|| StoreError::Unknown(format!("session `{name}`")))
        })
    }

    /// Returns the session of this name, or None if the store has never seen it.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn find_session(&self, name: &str) -> Result<Option<SessionId>, StoreError> {
        self.read(|connection| id_of(connection, name))
    }

    /// Returns the session whose transcript this store reads, or None if the store does not have it.
    pub(crate) fn find_own_session(&self) -> Result<Option<SessionId>, StoreError> {
        self.find_session(self.source()?.session())
    }

    /// Returns all sessions, in the order in which they were created. Deleted sessions are not
    /// included.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        self.read(|connection| sessions_in(connection))
    }

    /// Returns the entry of one session.
    ///
    /// # Errors
    /// Returns [`StoreError::SessionDeleted`] if there is no such session, or an error of the
    /// store.
    pub fn session_info(&self, session: SessionId) -> Result<SessionInfo, StoreError> {
        self.read(|connection| info_in(connection, session))
    }
}

pub(crate) fn sessions_in(connection: &Connection) -> Result<Vec<SessionInfo>, StoreError> {
    query_all(
        connection,
        &select("WHERE deleted = 0 ORDER BY id"),
        [],
        info,
    )
}

pub(crate) fn info_in(
    connection: &Connection,
    session: SessionId,
) -> Result<SessionInfo, StoreError> {
    connection
        .prepare_cached(&select("WHERE id = ?1 AND deleted = 0"))?
        .query_row([session.0], info)
        .optional()?
        .ok_or_else(|| unknown(session))
}

fn id_of(connection: &Connection, name: &str) -> Result<Option<SessionId>, StoreError> {
    Ok(connection
        .prepare_cached("SELECT id FROM sessions WHERE name = ?1 AND deleted = 0")?
        .query_row([name], |row| row.get(0).map(SessionId))
        .optional()?)
}

/// Creates the error for a session that does not exist. Its number was valid once, so it must have
/// been deleted.
pub(super) fn unknown(session: SessionId) -> StoreError {
    StoreError::SessionDeleted(session.0)
}
