//! The connections to the store's file: one that writes, and as many that read as are needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::compression::Compressors;
use super::create::{holds_something, with_suffix};
use super::writer::{Lent, Writer};
use super::{StoreSettings, schema};
use crate::error::StoreError;

/// How long to wait for other writers in all, in this process and in others. It is less than the host gives
/// a turn, so that the host sees the reason and delivers the messages again with the next turn.
pub(super) const PATIENCE: Duration = Duration::from_millis(1_200);

/// How many steps of SQLite are run between two checks for cancellation: well under a millisecond, or a few
/// when reading pages.
const STEPS_TO_ASK: i32 = 500;

/// Whether the reader has cancelled.
pub(super) type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// The connections to one file.
pub(crate) struct Database {
    pub(super) path: PathBuf,
    pub(super) settings: StoreSettings,
    // Closed before the writer: the last connection to close checkpoints and deletes the write-ahead log,
    // which a read-only one cannot.
    readers: Mutex<Vec<Connection>>,
    /// Whether the file is read as one that nobody changes, without its log and locks.
    immutable: bool,
    pub(super) writer: Writer,
    pub(super) compressors: Compressors,
    indexing: Mutex<()>,
    embedding: Mutex<()>,
}

impl Database {
    /// Opens the store's existing file, migrating it if needed.
    pub(super) fn open(path: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        schema::check_file(path)?;
        let mut connection = connect(path, OpenFlags::empty())?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             PRAGMA foreign_keys = ON;
             PRAGMA cache_size = -4096;
             PRAGMA temp_store = MEMORY;
             PRAGMA wal_autocheckpoint = 16384;",
        )?;
        connection.set_prepared_statement_cache_capacity(64);
        schema::migrate(&mut connection, path)?;
        Ok(Self {
            path: path.to_owned(),
            settings,
            readers: Mutex::default(),
            immutable: false,
            writer: Writer::new(connection),
            compressors: Compressors::default(),
            indexing: Mutex::default(),
            embedding: Mutex::default(),
        })
    }

    /// Opens the file where it cannot be written. What is written fails.
    pub(super) fn open_to_read(path: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        schema::check_file(path)?;
        let mut immutable = false;
        let mut connection = connect_to_read(path, immutable);
        // Without the right to make the log's index, SQLite reads only a file that it is told nobody changes. It
        // then leaves the log out, so that there must be none.
        if connection.is_err() && !holds_something(&with_suffix(path, "-wal")) {
            immutable = true;
            connection = connect_to_read(path, immutable);
        }
        let mut connection = connection.map_err(unopened)?;
        schema::migrate(&mut connection, path)?;
        Ok(Self {
            path: path.to_owned(),
            settings,
            readers: Mutex::default(),
            immutable,
            writer: Writer::new(connection),
            compressors: Compressors::default(),
            indexing: Mutex::default(),
            embedding: Mutex::default(),
        })
    }

    /// Runs `work` on a snapshot that no write changes or delays.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read_until(None, work)
    }

    /// As [`Database::read`]; ends with [`StoreError::Cancelled`] soon after `cancelled` returns true.
    pub(super) fn read_until<T>(
        &self,
        cancelled: Option<&Cancelled>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read_named(cancelled, work)
            .map_err(|error| error.at(&self.path))
    }

    fn read_named<T>(
        &self,
        cancelled: Option<&Cancelled>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let pooled = lock(&self.readers).pop();
        let mut connection = match pooled {
            Some(connection) => connection,
            None => self.open_reader()?,
        };
        if let Some(cancelled) = cancelled {
            let cancelled = Arc::clone(cancelled);
            connection.progress_handler(STEPS_TO_ASK, Some(move || cancelled()))?;
        }
        let result = {
            let snapshot = connection.transaction()?;
            work(&snapshot)
        };
        if cancelled.is_some() {
            connection.progress_handler(STEPS_TO_ASK, None::<fn() -> bool>)?;
        }
        // An interrupted connection may still be in its transaction.
        if connection.is_autocommit() {
            lock(&self.readers).push(connection);
        }
        result
    }

    /// Runs `work` in a write transaction; an error rolls it back.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.done(self.writer.take().and_then(|writer| write(writer, work)))
    }

    /// As [`Database::write`], for background work: turns go first.
    pub(crate) fn write_behind<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.done((self.writer.take_behind()).and_then(|writer| write(writer, work)))
    }

    /// Runs `work` on the connection that writes, outside of a transaction.
    pub(super) fn plainly<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let done = self.writer.take().and_then(|writer| Ok(work(&writer)?));
        done.map_err(|error| error.at(&self.path))
    }

    /// What came of a write. One into a file that was removed is gone with it.
    fn done<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        match written.map_err(|error| error.at(&self.path)) {
            Ok(_) if !self.path.exists() => Err(StoreError::Gone(self.path.clone())),
            written => written,
        }
    }

    /// Waits until no other thread of this process is indexing; two would do the same work.
    pub(crate) fn index_alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.indexing)
    }

    /// Waits until no other thread of this process is making vectors.
    pub(crate) fn embed_alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.embedding)
    }

    /// A connection for checkpoints, which wait for the disk and so are done off the turn's path.
    pub(crate) fn open_checkpointer(&self) -> Result<Connection, StoreError> {
        let connection = Connection::open_with_flags(
            &self.path,
            OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        connection.execute_batch("PRAGMA synchronous = NORMAL;")?;
        Ok(connection)
    }

    fn open_reader(&self) -> Result<Connection, StoreError> {
        let connection = connect_to_read(&self.path, self.immutable)?;
        connection.execute_batch("PRAGMA cache_size = -4096;")?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }
}

/// A connection that may write.
pub(super) fn connect(path: &Path, more: OpenFlags) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags | more).map_err(unopened)?;
    settle(&connection)?;
    match connection.is_readonly(rusqlite::MAIN_DB)? {
        true => Err(StoreError::ReadOnly(path.to_owned())),
        false => Ok(connection),
    }
}

/// A connection that only reads, and has read something.
fn connect_to_read(path: &Path, immutable: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match immutable {
        true => Connection::open_with_flags(
            contexture_engine_api::immutable_uri(path),
            flags | OpenFlags::SQLITE_OPEN_URI,
        )?,
        false => Connection::open_with_flags(path, flags)?,
    };
    settle(&connection)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // Otherwise some statements are compiled anew for each value bound to them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Why a file cannot be opened that is there.
fn unopened(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::ReadOnly(PathBuf::new()),
        _ => error.into(),
    }
}

fn write<T>(
    mut connection: Lent<'_>,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = work(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
