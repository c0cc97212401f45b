//! The connections to the store's file: one that writes, and as many that read as are needed.
//!
//! [`Database`] is the type to read first. Its write connection is guarded by [`WriteConnection`] and is
//! lent to one thread at a time. Readers are kept in a pool, and each read runs in a transaction of
//! its own, so it sees one consistent state. The file is in WAL mode, in which readers and the
//! writer do not block each other.
//!
//! Reads can be cancelled: SQLite calls a progress handler every few hundred steps. Writes cannot,
//! since they are short. Errors get the path of the file here, because the code that runs the
//! queries does not know it. The tables are defined in the `schema` module.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contexture_engine_api::{has_sqlite_log, immutable_uri};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, Params, Row, Transaction, TransactionBehavior};

use super::writer::{ConnectionGuard, WriteConnection};
use super::{Snapshot, Source, StoreSettings, schema};
use crate::error::StoreError;

/// How long a write waits for other writers, in this process and in others together. It is shorter
/// than the time the host gives a turn. The host then sees the reason and delivers the messages
/// again with the next turn.
pub(super) const PATIENCE: Duration = Duration::from_millis(1_200);

/// How many steps SQLite runs between two checks for cancellation. They take well under a
/// millisecond, or a few milliseconds if pages must be read from the disk.
const STEPS_TO_ASK: i32 = 500;

/// A function that returns true once the caller has cancelled the read.
pub(super) type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// The open connections to one database file. It is shared by all clones of a store and by the
/// threads that build the index and the vectors.
pub(crate) struct Database {
    pub(super) path: PathBuf,
    pub(super) settings: StoreSettings,
    // Fields are dropped in order, so readers are closed before the writer. The last connection to
    // close checkpoints and deletes the write-ahead log, which a read-only one cannot do.
    readers: Mutex<Vec<Connection>>,
    /// Whether SQLite is told that nobody changes the file. It then ignores the log and takes no
    /// locks.
    immutable: bool,
    pub(super) writer: WriteConnection,
    indexing: Mutex<()>,
    embedding: Mutex<()>,
}

impl Database {
    /// Opens the existing file of a store for reading and writing, and sets it to WAL mode.
    pub(super) fn open(path: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        schema::check_file(path)?;
        let connection = connect(path, OpenFlags::empty())?;
        connection.execute_batch(
            "PRAGMA journal_mode = WAL;
             PRAGMA synchronous = NORMAL;
             PRAGMA foreign_keys = ON;
             PRAGMA cache_size = -4096;
             PRAGMA temp_store = MEMORY;
             PRAGMA wal_autocheckpoint = 16384;",
        )?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(Self::over(connection, path, settings, false))
    }

    /// Opens a file that cannot be written. Reads work as usual, and every write fails.
    pub(super) fn open_to_read(path: &Path, settings: StoreSettings) -> Result<Self, StoreError> {
        schema::check_file(path)?;
        let mut immutable = false;
        let mut connection = connect_to_read(path, immutable);
        // Without permission to create the index of the log, SQLite only reads a file that it is
        // told nobody changes. It then ignores the log, so this is safe only if the log is empty.
        if connection.is_err() && !has_sqlite_log(path) {
            immutable = true;
            connection = connect_to_read(path, immutable);
        }
        let connection = connection.map_err(unopened)?;
        Ok(Self::over(connection, path, settings, immutable))
    }

    fn over(writer: Connection, path: &Path, settings: StoreSettings, immutable: bool) -> Self {
        Self {
            path: path.to_owned(),
            settings,
            readers: Mutex::default(),
            immutable,
            writer: WriteConnection::new(writer),
            indexing: Mutex::default(),
            embedding: Mutex::default(),
        }
    }

    /// Runs `work` on a snapshot that no write changes or delays.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read_until(None, work)
    }

    /// Like [`Database::read`], with the transcripts of `source`, so that `work` can also read the
    /// texts of messages.
    pub(crate) fn read_over<T>(
        &self,
        source: &Source,
        work: impl FnOnce(&Snapshot<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.read(|connection| {
            let source = Some(source);
            work(&Snapshot { connection, source })
        })
    }

    /// Like [`Database::read`], but ends with [`StoreError::Cancelled`] soon after `cancelled`
    /// returns true.
    pub(super) fn read_until<T>(
        &self,
        cancelled: Option<&Cancelled>,
        work: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let read = || {
            let pooled = lock(&self.readers).pop();
            let mut connection = pooled.map_or_else(|| self.open_reader(), Ok)?;
            if let Some(cancelled) = cancelled {
                let cancelled = Arc::clone(cancelled);
                connection.progress_handler(STEPS_TO_ASK, Some(move || cancelled()))?;
            }
            let result = work(&*connection.transaction()?);
            if cancelled.is_some() {
                connection.progress_handler(STEPS_TO_ASK, None::<fn() -> bool>)?;
            }
            // An interrupted connection may still be in its transaction. It is closed instead of
            // pooled.
            if connection.is_autocommit() {
                lock(&self.readers).push(connection);
            }
            result
        };
        read().map_err(|error: StoreError| error.at(&self.path))
    }

    /// Runs `work` in a write transaction and commits it. If `work` returns an error, the
    /// transaction is rolled back.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.done(self.writer.take().and_then(|writer| write(writer, work)))
    }

    /// Like [`Database::write`], for background work. Turns that wait go first.
    pub(crate) fn write_behind<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.done((self.writer.take_behind()).and_then(|writer| write(writer, work)))
    }

    /// Runs `work` on the write connection, outside of a transaction. Some pragmas do not work
    /// inside one.
    pub(super) fn plainly<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        let done = self.writer.take().and_then(|writer| Ok(work(&writer)?));
        done.map_err(|error| error.at(&self.path))
    }

    /// Adds the path to the error of a write, and turns a success into [`StoreError::Gone`] if the
    /// file was removed meanwhile. The data was then written to a file that nobody can open again.
    fn done<T>(&self, written: Result<T, StoreError>) -> Result<T, StoreError> {
        match written.map_err(|error| error.at(&self.path)) {
            Ok(_) if !self.path.exists() => Err(StoreError::Gone(self.path.clone())),
            written => written,
        }
    }

    /// Waits until no other thread of this process is indexing, and holds them off until the guard
    /// is dropped. Two threads would do the same work.
    pub(crate) fn index_alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.indexing)
    }

    /// Waits until no other thread of this process is computing vectors, and holds them off until
    /// the guard is dropped.
    pub(crate) fn embed_alone(&self) -> MutexGuard<'_, ()> {
        lock(&self.embedding)
    }

    /// Opens a connection for checkpoints. A checkpoint waits for the disk, so the index thread
    /// does it and no turn has to.
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

/// Opens a connection that can write. SQLite opens a file without write permission for reading, so
/// that case is turned into [`StoreError::ReadOnly`].
pub(super) fn connect(path: &Path, more: OpenFlags) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags | more).map_err(unopened)?;
    settle(&connection)?;
    match connection.is_readonly(rusqlite::MAIN_DB)? {
        true => Err(StoreError::ReadOnly(path.to_owned())),
        false => Ok(connection),
    }
}

/// Opens a connection that only reads. It reads something at once, because SQLite reports a missing
/// permission only with the first query.
fn connect_to_read(path: &Path, immutable: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match immutable {
        true => {
            Connection::open_with_flags(immutable_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?
        }
        false => Connection::open_with_flags(path, flags)?,
    };
    settle(&connection)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn settle(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(PATIENCE)?;
    // Otherwise some statements are compiled again for each value bound to them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// Converts the error of opening a file that exists. SQLite reports missing permissions as a
/// general failure to open.
fn unopened(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen) => StoreError::ReadOnly(PathBuf::new()),
        _ => error.into(),
    }
}

fn write<T>(
    mut connection: ConnectionGuard<'_>,
    work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let result = work(&transaction)?;
    transaction.commit()?;
    Ok(result)
}

/// Runs a query and collects what `read` makes of its rows.
pub(crate) fn query_all<T, All: FromIterator<T>>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<All, StoreError> {
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, read)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Locks a mutex and ignores poisoning, since a panic leaves none of the guarded values half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
