//! What an embedder keeps with a session: texts by name, as durable as the session and gone with it.

use rusqlite::{OptionalExtension, params};

use super::tables::KEPT;
use super::{Record, RecordError};

impl Record {
    /// Keeps a text with a session, in place of what was kept by that name. The session need not exist yet.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, session: &str, name: &str, value: &str) -> Result<(), RecordError> {
        let connection = self.lock();
        let write = || {
            connection.execute_batch(KEPT)?;
            let mut insert = connection.prepare_cached(
                "INSERT OR REPLACE INTO kept (session, name, value) VALUES (?1, ?2, ?3)",
            )?;
            insert.execute(params![session, name, value]).map(|_| ())
        };
        write().map_err(|error| self.error(error.into()))
    }

    /// What is kept with a session, by name, in the order of the names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError> {
        let connection = self.lock();
        let read = || {
            if !has_table(&connection)? {
                return Ok(Vec::new());
            }
            let mut select = connection
                .prepare_cached("SELECT name, value FROM kept WHERE session = ?1 ORDER BY name")?;
            let rows = select.query_map([session], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        read().map_err(|error: rusqlite::Error| self.error(error.into()))
    }

    /// What is kept by this name with all sessions, or with one: the sessions, and the texts.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept_as(
        &self,
        name: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, String)>, RecordError> {
        let connection = self.lock();
        let read = || {
            if !has_table(&connection)? {
                return Ok(Vec::new());
            }
            let mut select = connection.prepare_cached(match session {
                Some(_) => "SELECT session, value FROM kept WHERE name = ?1 AND session = ?2",
                None => "SELECT session, value FROM kept WHERE name = ?1 AND ?2 IS NULL ORDER BY session",
            })?;
            let rows =
                select.query_map(params![name, session], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect()
        };
        read().map_err(|error: rusqlite::Error| self.error(error.into()))
    }

    pub(super) fn keep_nothing(&self, session: &str) -> Result<(), RecordError> {
        let connection = self.lock();
        let delete = || match has_table(&connection)? {
            true => connection.execute("DELETE FROM kept WHERE session = ?1", [session]),
            false => Ok(0),
        };
        let deleted = delete();
        deleted
            .map(|_| ())
            .map_err(|error| self.error(error.into()))
    }
}

fn has_table(connection: &rusqlite::Connection) -> rusqlite::Result<bool> {
    let mut select = connection
        .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'kept'")?;
    let found: Option<i64> = select.query_row([], |row| row.get(0)).optional()?;
    Ok(found.is_some())
}
