//! Sessions: made on first use, listed, archived.

use rusqlite::{Connection, OptionalExtension, params};

use super::{SessionId, Store};
use crate::error::StoreError;

/// A session's entry in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Its number in this store.
    pub id: SessionId,
    /// The host's name for it.
    pub name: String,
    /// When it was first seen, in ms since the Unix epoch.
    pub created_at: i64,
    /// The time of its last delivery, in ms since the Unix epoch; 0 for never.
    pub touched_at: i64,
    /// When it was archived, in ms since the Unix epoch.
    pub archived_at: Option<i64>,
    /// The latest time of a message, in ms since the Unix epoch; 0 where none has a time.
    pub last_at: i64,
    /// The number of messages, including those left behind by cuts.
    pub messages: u32,
}

/// How many ordinals of a session were assigned. It is in the session's row and follows from its last
/// message; if damage made one of them huge, the other limits the work.
pub(super) const ARRIVED: &str = "min(next_ordinal, coalesce(((SELECT max(m.id) FROM messages m
    WHERE m.id BETWEEN sessions.id << 32 AND (sessions.id << 32) + 4294967295) & 4294967295) + 1, 0))";

fn select(rest: &str) -> String {
    format!(
        "SELECT id, name, created_at, touched_at, archived_at, order_at, {ARRIVED} FROM sessions {rest}"
    )
}

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
    /// The session of this name, created if missing at the time `now_ms`, in ms since the Unix epoch.
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

    /// The session of this name, if it exists.
    ///
    /// # Errors
    /// A store that failed.
    pub fn find_session(&self, name: &str) -> Result<Option<SessionId>, StoreError> {
        self.read(|connection| id_of(connection, name))
    }

    /// All sessions, in order of creation.
    ///
    /// # Errors
    /// A store that failed.
    pub fn sessions(&self) -> Result<Vec<SessionInfo>, StoreError> {
        self.read(sessions_in)
    }

    /// The entry of one session.
    ///
    /// # Errors
    /// No such session; a store that failed.
    pub fn session_info(&self, session: SessionId) -> Result<SessionInfo, StoreError> {
        self.read(|connection| info_in(connection, session))
    }

    /// Marks a session as archived at `at_ms` (ms since the Unix epoch), or as in use again; so does the
    /// next delivery.
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
    let mut statement = connection.prepare_cached(&select("WHERE deleted = 0 ORDER BY id"))?;
    let rows = statement.query_map([], info)?;
    Ok(rows.collect::<Result<_, _>>()?)
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

/// The error for a missing session, which was deleted after its number was assigned.
pub(super) fn unknown(session: SessionId) -> StoreError {
    StoreError::SessionDeleted(session.0)
}
