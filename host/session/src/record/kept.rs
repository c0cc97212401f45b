//! What an embedder keeps with a session: texts by name, as durable as the session and gone with it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::tables::KEPT;
use super::{Record, RecordError};

/// The name under which it is kept whose a session is.
const TENANT: &str = "tenant";

impl Record {
    /// Keeps texts with a session, in place of what was kept by their names: all of them or none. The session need not
    /// exist yet.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&self, session: &str, texts: &[(&str, &str)]) -> Result<(), RecordError> {
        let mut connection = self.lock();
        let mut write = || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if !self.has_table(&transaction)? {
                transaction.execute_batch(KEPT)?;
            }
            let mut insert = transaction.prepare_cached(
                "INSERT OR REPLACE INTO kept (session, name, value) VALUES (?1, ?2, ?3)",
            )?;
            for (name, value) in texts {
                insert.execute(params![session, name, value])?;
            }
            drop(insert);
            transaction.commit()
        };
        write().map_err(|error| self.error(error.into()))?;
        drop(connection);
        self.checkpoints.note_write(&self.path);
        Ok(())
    }

    /// What is kept with a session, by name, in the order of the names.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError> {
        let connection = self.lock();
        let read = || {
            if !self.has_table(&connection)? {
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
            if !self.has_table(&connection)? {
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

    /// Whose session it is; none if it is nobody's in particular, or there is no such session.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tenant(&self, session: &str) -> Result<Option<String>, RecordError> {
        let kept = self.kept_as(TENANT, Some(session))?;
        Ok(kept.into_iter().next().map(|(_, tenant)| tenant))
    }

    /// The sessions that are somebody's, and whose.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tenants(&self) -> Result<HashMap<String, String>, RecordError> {
        Ok(self.kept_as(TENANT, None)?.into_iter().collect())
    }

    /// Says whose session it is, unless the record says so or knows the session.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_tenant(&self, session: &str, tenant: &str) -> Result<(), RecordError> {
        if self.tenant(session)?.is_some() || self.delivered(session)?.is_some() {
            return Ok(());
        }
        self.keep(session, &[(TENANT, tenant)])
    }

    pub(super) fn keep_nothing(&self, session: &str) -> Result<(), RecordError> {
        let connection = self.lock();
        let delete = || match self.has_table(&connection)? {
            true => connection.execute("DELETE FROM kept WHERE session = ?1", [session]),
            false => Ok(0),
        };
        let deleted = delete();
        deleted
            .map(|_| ())
            .map_err(|error| self.error(error.into()))
    }

    /// Nothing ever takes the table away.
    fn has_table(&self, connection: &Connection) -> rusqlite::Result<bool> {
        if self.has_kept.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let mut select = connection
            .prepare_cached("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'kept'")?;
        let found: Option<i64> = select.query_row([], |row| row.get(0)).optional()?;
        self.has_kept.store(found.is_some(), Ordering::Relaxed);
        Ok(found.is_some())
    }
}
