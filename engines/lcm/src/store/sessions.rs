//! Sessions: made on first use, listed, archived.

use rusqlite::{Connection, OptionalExtension, params};

use super::{SessionId, Store};
use crate::error::StoreError;

/// A session, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number in this store.
    pub id: SessionId,
    /// The host's name for it.
    pub name: String,
    /// When it was first seen, in ms since the Unix epoch.
    pub created_at: i64,
    /// When something was last delivered to it, in ms since the Unix epoch; 0 for never.
    pub touched_at: i64,
    /// When it was archived, in ms since the Unix epoch.
    pub archived_at: Option<i64>,
    /// The latest time of a message, in ms since the Unix epoch; 0 where none has a time.
    pub last_at: i64,
    /// Messages, those that a cut left behind included.
    pub messages: u32,
}

const COLUMNS: &str = "id, name, created_at, touched_at, archived_at, order_at, next_ordinal";

fn info(row: &rusqlite::Row<'_>) -> rusqlite::Result<SessionInfo> {
    Ok(SessionInfo {
        id: SessionId(row.get(0)?),
        name: row.get(1)?,
        created_at: row.get(2)?,
        touched_at: row.get(3)?,
        archived_at: row.get(4)?,
        last_at: row.get(5)?,
        messages: row.get(6)?,
    })
}

impl Store {
    /// The session of this name, made where there is none. `now_ms` is when, in ms since the Unix epoch.
    ///
    /// # Errors
    /// A store that failed.
    pub fn open_session(&self, name: &str, now_ms: i64) -> Result<SessionId, StoreError> {
        if let Some(id) = self.find_session(name)? {
            return Ok(id);
        }
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO sessions(name, created_at, touched_at) VALUES(?1, ?2, 0)
                 ON CONFLICT(name) DO NOTHING",
                params![name, now_ms],
            )?;
            let id = id_of(transaction, name)?
                .ok_or_else(|| StoreError::UnknownSession(name.to_owned()))?;
            transaction.execute(
                "INSERT INTO live(session, first, end)
                 SELECT ?1, 0, NULL WHERE NOT EXISTS(SELECT 1 FROM live WHERE session = ?1)",
                [id.0],
            )?;
            Ok(id)
        })
    }

    /// The session of this name, where there is one.
    ///
    /// # Errors
    /// A store that failed.
    pub fn find_session(&self, name: &str) -> Result<Option<SessionId>, StoreError> {
        self.read(|connection| id_of(connection, name))
    }

    /// All sessions, in the order in which they were made.
    ///
    /// # Errors
    /// A store that failed.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        self.read(sessions_in)
    }

    /// What is known of one session.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn session_info(&self, session: SessionId) -> Result<SessionInfo, StoreError> {
        self.read(|connection| info_in(connection, session))
    }

    /// Marks a session as archived at `at_ms` (ms since the Unix epoch), or as in use again, as the next
    /// delivery does.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn set_archived(&self, session: SessionId, at_ms: Option<i64>) -> Result<(), StoreError> {
        let changed = self.write(|transaction| {
            Ok(transaction.execute(
                "UPDATE sessions SET archived_at = ?2 WHERE id = ?1",
                params![session.0, at_ms],
            )?)
        })?;
        if changed == 0 {
            return Err(unknown(session));
        }
        Ok(())
    }
}

pub(crate) fn sessions_in(connection: &Connection) -> Result<Vec<SessionInfo>, StoreError> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM sessions WHERE deleted = 0 ORDER BY id"
    ))?;
    let rows = statement.query_map([], info)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(crate) fn info_in(
    connection: &Connection,
    session: SessionId,
) -> Result<SessionInfo, StoreError> {
    connection
        .prepare_cached(&format!(
            "SELECT {COLUMNS} FROM sessions WHERE id = ?1 AND deleted = 0"
        ))?
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

/// A number that was given out names a session, unless that was deleted since.
pub(super) fn unknown(session: SessionId) -> StoreError {
    StoreError::SessionDeleted(session.0)
}
