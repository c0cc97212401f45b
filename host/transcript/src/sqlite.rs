//! The store in one SQLite file, `sessions.sqlite3` in the home directory, in WAL mode.
//!
//! One connection serves all sessions of the process. A session that cannot use the file continues
//! in memory, so a broken disk never stops an agent.
//!
//! Start with [`SqliteStore`]. `tables` has the schema, `read` and `write` the rows, `checkpoint`
//! moves the log into the file, `damage` checks and repairs the file, and `backup` copies a home
//! directory.

mod backup;
mod checkpoint;
mod damage;
mod read;
mod tables;
mod write;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use contexture_base::private::narrow;
use contexture_base::{lock, now_ms};
use contexture_engine_api::{has_sqlite_log, immutable_uri, make_private_folder};
use contexture_formats::prompt_cache::Pauses;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};

use crate::error::RecordError;
use crate::hold::{Hold, Token};
use crate::sql;
use crate::store::{
    Commit, CompactionRow, Delivered, Dump, KeptChange, MessagePage, MessageRow, Packed, PageRange,
    Select, SessionKey, SessionSummary, Snapshot, Store, TextRow, Which,
};
pub(crate) use backup::back_up;
use checkpoint::Checkpoints;
pub use damage::RecordRepair;
pub(crate) use damage::{repair, verify};
use read::{
    IS_OUTDATED, compaction, dump_of, kept_with, key_of, messages_of, messages_sharing, page,
    rows_of, select, snapshot,
};
use tables::{SCHEMA_VERSION, prepare, version};
use write::{make_session, restore_session, run, write_commit};

/// The name of the file in the home directory.
const FILE: &str = "sessions.sqlite3";

/// The path of a store that has no file. SQLite uses the same name for its databases in memory.
const IN_MEMORY: &str = ":memory:";

/// The path of the file in the home directory `home`.
pub(crate) fn file_in(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// The store in a file, or in memory. The path is that of the file, also if the store in memory
/// stands for a damaged one.
#[derive(Debug)]
pub(crate) struct SqliteStore {
    path: PathBuf,
    connection: Arc<Mutex<Connection>>,
    checkpoints: Checkpoints,
}

/// A transaction. Dropping it rolls back. Unlike that of `rusqlite`, it does not compile its
/// statements anew each time, which took 4 % of the time of a short request.
struct Transaction<'c>(&'c Connection);

impl<'c> Transaction<'c> {
    /// Begins one that only reads. All statements in it see one state, and the file is locked once
    /// for all of them.
    fn to_read(connection: &'c Connection) -> rusqlite::Result<Self> {
        Self::begin(connection, "BEGIN")
    }

    /// Begins one that writes. A deferred one would take its lock only at the first write and fail
    /// there if another process writes.
    fn to_write(connection: &'c Connection) -> rusqlite::Result<Self> {
        Self::begin(connection, "BEGIN IMMEDIATE")
    }

    fn begin(connection: &'c Connection, begin: &str) -> rusqlite::Result<Self> {
        connection.prepare_cached(begin)?.execute([])?;
        Ok(Self(connection))
    }

    fn commit(self) -> rusqlite::Result<()> {
        self.0.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // Some errors end the transaction, as a commit does.
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
    }
}

impl SqliteStore {
    /// Opens the store in the home directory `home`. If there is none, it is created, with access
    /// for its owner only.
    pub(crate) fn open(home: &Path) -> Result<Self, RecordError> {
        make_private_folder(home).map_err(|cause| RecordError::Directory {
            path: home.to_owned(),
            cause,
        })?;
        let path = home.join(FILE);
        create(home, &path);
        for suffix in ["", "-wal", "-shm"] {
            // Files that exist already may be readable by others, and they hold parts of
            // conversations.
            narrow(&home.join(format!("{FILE}{suffix}")));
        }
        let fail = |source| RecordError::of(&path, source);
        let mut connection = Connection::open(&path).map_err(fail)?;
        let found = prepare(&mut connection).map_err(fail)?;
        refuse_newer(&path, found)?;
        Ok(Self::of(path, connection))
    }

    fn of(path: PathBuf, connection: Connection) -> Self {
        Self {
            path,
            connection: Arc::new(Mutex::new(connection)),
            checkpoints: Checkpoints::default(),
        }
    }

    /// Opens the store in the home directory `home` even if nothing may be written there. If there
    /// is none, an empty one in memory is returned.
    pub(crate) fn open_to_read(home: &Path) -> Result<Self, RecordError> {
        let path = home.join(FILE);
        let fail = |source| RecordError::of(&path, source);
        if !path.exists() {
            return Self::empty(&path);
        }
        match Self::open(home) {
            Err(RecordError::Write { .. }) => {}
            Err(RecordError::Sqlite { cause, .. }) if is_unwritable(&cause) => {}
            opened => return opened,
        }
        let (connection, found) = read_only(&path).map_err(fail)?;
        refuse_newer(&path, found)?;
        match found {
            SCHEMA_VERSION => Ok(Self::of(path, connection)),
            // Earlier versions of the tables were drafts that were never released, so they are
            // never read.
            _ => Self::empty(&path),
        }
    }

    /// An empty store in memory. `path` is the path that its errors name.
    pub(crate) fn empty(path: &Path) -> Result<Self, RecordError> {
        let open = || {
            let mut connection = Connection::open_in_memory()?;
            prepare(&mut connection)?;
            Ok(connection)
        };
        let connection = open().map_err(|cause| RecordError::Sqlite {
            path: path.to_owned(),
            cause,
        })?;
        Ok(Self::of(path.to_owned(), connection))
    }

    /// A store that is in memory and stands for no file.
    pub(crate) fn in_memory() -> Result<Self, RecordError> {
        Self::empty(Path::new(IN_MEMORY))
    }

    /// The path of the file, or `:memory:` if the store stands for no file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The connection. A panic in another thread leaves it usable, because a transaction is rolled
    /// back when it is dropped.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// Reads from the file in one transaction, so from one state.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        self.run(|connection| {
            let transaction = Transaction::to_read(connection)?;
            let found = read(connection)?;
            transaction.commit()?;
            Ok(found)
        })
    }

    /// Runs statements, each as a transaction of its own. An error gets the path of the file.
    fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        let connection = self.lock();
        work(&connection).map_err(|error| self.failed(&connection, error))
    }

    /// Runs `work` in a transaction, and counts the write for the next checkpoint. Nothing is written
    /// if a newer program has changed the tables since the file was opened.
    fn write<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RecordError> {
        let connection = self.lock();
        let failed = |error| self.failed(&connection, error);
        let transaction = Transaction::to_write(&connection).map_err(failed)?;
        refuse_newer(&self.path, version(&connection).map_err(failed)?)?;
        let done = work(&connection).map_err(failed)?;
        transaction.commit().map_err(failed)?;
        drop(connection);
        if !self.is_in_memory() {
            self.checkpoints.note_write(&self.path, &self.connection);
        }
        Ok(done)
    }

    /// The error of a statement. Its reason may be that a newer program has changed the tables. Such a
    /// file is not damaged.
    fn failed(&self, connection: &Connection, error: rusqlite::Error) -> RecordError {
        let newer = refuse_newer(&self.path, version(connection).unwrap_or_default());
        newer
            .err()
            .unwrap_or_else(|| RecordError::of(&self.path, error))
    }

    /// Makes changes of embedders' texts within a transaction. They stay in the list, because the
    /// transaction may fail.
    fn make_changes(
        &self,
        transaction: &Connection,
        changes: &mut [KeptChange<'_>],
    ) -> rusqlite::Result<()> {
        for change in changes {
            let (session, name) = (&change.session, &change.name);
            let text = transaction
                .prepare_cached("SELECT value FROM kept WHERE session = ?1 AND name = ?2")?
                .query_row([session, name], |row| row.get(0))
                .optional()?;
            let texts = change.texts(text);
            run(transaction, &*change.session, sql::of_kept(&texts))?;
        }
        Ok(())
    }
}

/// Refuses a file whose tables a newer program wrote. `found` is their version.
fn refuse_newer(path: &Path, found: i64) -> Result<(), RecordError> {
    match found > SCHEMA_VERSION {
        true => Err(RecordError::TooNew {
            path: path.to_owned(),
            found,
            known: SCHEMA_VERSION,
        }),
        false => Ok(()),
    }
}

/// Whether the foreign keys refused rows, because their session was deleted.
fn is_of_deleted(error: &RecordError) -> bool {
    let RecordError::Sqlite { cause, .. } = error else {
        return false;
    };
    let error = cause.sqlite_error();
    error.is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY)
}

impl Store for SqliteStore {
    fn is_in_memory(&self) -> bool {
        self.path.as_os_str() == IN_MEMORY
    }

    fn check_exists(&self) -> Result<(), RecordError> {
        match self.is_in_memory() || self.path.exists() {
            true => Ok(()),
            false => Err(RecordError::Gone {
                path: self.path.clone(),
            }),
        }
    }

    fn damaged(&self, what: String) -> RecordError {
        RecordError::Damaged {
            path: self.path.clone(),
            what,
        }
    }

    fn hold(
        &self,
        session: &str,
        wait: Duration,
        before: Option<&Token>,
    ) -> Result<Hold, RecordError> {
        let home = self.path.parent().unwrap_or(Path::new("."));
        Hold::take(home, session, wait, before)
    }

    fn open(&self, session: &str) -> Result<(SessionKey, Snapshot), RecordError> {
        // Two processes may open the same new session at once.
        let (row, snapshot) = self.write(|transaction| {
            make_session(transaction, session, now_ms())?;
            snapshot(transaction, session)
        })?;
        let key = SessionKey {
            session: session.to_owned(),
            row,
            #[cfg(feature = "postgres")]
            fence: None,
            #[cfg(feature = "postgres")]
            commits: std::sync::atomic::AtomicI64::default(),
        };
        Ok((key, snapshot))
    }

    fn commit(
        &self,
        key: &SessionKey,
        commit: &Arc<Commit>,
        changes: &mut Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        let written = self.write(|transaction| {
            write_commit(transaction, key.row, commit)?;
            self.make_changes(transaction, changes)
        });
        written.map_err(|error| match is_of_deleted(&error) {
            true => RecordError::TakenOver {
                session: key.session.clone(),
            },
            false => error,
        })?;
        changes.clear();
        self.check_exists()
    }

    fn joins_changes(&self) -> bool {
        true
    }

    fn forget(&self, session: &str) -> Result<(), RecordError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM sessions WHERE id = ?1", [session])?;
            transaction.execute("DELETE FROM kept WHERE session = ?1", [session])?;
            Ok(())
        })
    }

    fn archive(&self, session: &str, at_ms: Option<i64>) -> Result<bool, RecordError> {
        let changed = self.write(|transaction| {
            transaction.execute(
                "UPDATE sessions SET archived_ms = ?2 WHERE id = ?1",
                params![session, at_ms],
            )
        })?;
        Ok(changed > 0)
    }

    fn summaries(&self, session: Option<&str>) -> Result<Vec<SessionSummary>, RecordError> {
        self.read(|connection| {
            let sql = format!(
                "SELECT id, engine, created_ms, coalesce(used_ms, created_ms), archived_ms,
                     (SELECT count(*) FROM messages WHERE session = key),
                     (SELECT count(*) FROM messages WHERE session = key AND NOT {IS_OUTDATED}),
                     (SELECT coalesce(sum(length(data)), 0) FROM texts WHERE session = key)
                         + (SELECT coalesce(sum(length(data)), 0) FROM artifacts WHERE session = key),
                     (SELECT max(said_ms) FROM messages WHERE session = key)
                 FROM sessions WHERE ?1 IS NULL OR id = ?1 ORDER BY key",
            );
            select(connection, &sql, [session], |row| sql::summary(row))
        })
    }

    fn delivered(&self, which: Which<'_>) -> Result<Vec<Delivered>, RecordError> {
        // Every id is at or after the empty text, so all three rules have one parameter.
        let (rule, value) = match which {
            Which::All => ("id >= ?1", ""),
            Which::Session(session) => ("id = ?1", session),
            Which::Engine(engine) => ("engine = ?1", engine),
        };
        self.read(|connection| {
            let sql = format!(
                "SELECT id, engine, shown_last, (SELECT count(*) FROM messages
                    WHERE session = sessions.key AND messages.id <= shown_last AND NOT cut)
                 FROM sessions WHERE engine <> '' AND {rule} ORDER BY key"
            );
            select(connection, &sql, [value], |row| sql::delivered(row))
        })
    }

    fn pauses(&self) -> Result<Pauses, RecordError> {
        // SQLite's `total` is a float, so it does not overflow.
        let sql = "SELECT total(pauses_more), total(pauses_saved) FROM sessions";
        self.read(|connection| {
            connection.query_row(sql, [], |row| {
                let (more, saved) = (row.get::<_, f64>(0)?, row.get::<_, f64>(1)?);
                Ok(Pauses::stored(more as i64, saved as i64))
            })
        })
    }

    fn messages(
        &self,
        session: &str,
        select: Select<'_>,
    ) -> Result<Option<Vec<MessageRow>>, RecordError> {
        self.read(|connection| {
            let Some(key) = key_of(connection, session)? else {
                return Ok(None);
            };
            let all = |sql| rows_of(connection, sql, key, |row| sql::message(row));
            let found = match select {
                Select::All => all(&sql::MESSAGES),
                Select::Log => all(&sql::MESSAGES_OF_LOG),
                Select::WithoutText => all(&sql::MESSAGES_WITHOUT_TEXT),
                Select::Ids(ids) => messages_of(connection, key, ids),
                Select::SharingWire(ids) => messages_sharing(connection, key, ids),
            };
            found.map(Some)
        })
    }

    fn page(&self, session: &str, range: PageRange) -> Result<Option<MessagePage>, RecordError> {
        self.read(|connection| {
            let Some(key) = key_of(connection, session)? else {
                return Ok(None);
            };
            page(connection, key, range).map(Some)
        })
    }

    fn texts(&self, session: &str, numbers: &[i64]) -> Result<Vec<TextRow>, RecordError> {
        self.read(|connection| {
            let Some(key) = key_of(connection, session)? else {
                return Ok(Vec::new());
            };
            let mut select = connection.prepare_cached(
                "SELECT number, format, tools, reading, bytes, checksum, data FROM texts
                 WHERE session = ?1 AND number = ?2",
            )?;
            let mut texts = Vec::with_capacity(numbers.len());
            for number in numbers {
                let found = select.query_row([key, *number], |row| sql::text(row));
                texts.extend(found.optional()?);
            }
            Ok(texts)
        })
    }

    fn compaction(&self, session: &str) -> Result<Option<CompactionRow>, RecordError> {
        self.read(|connection| {
            let key = key_of(connection, session)?;
            key.map_or(Ok(None), |key| compaction(connection, key))
        })
    }

    fn set_entries(&self, session: &str, entries: String) -> Result<(), RecordError> {
        self.write(|transaction| {
            transaction.execute(
                "UPDATE compactions SET entries = ?2
                 WHERE session = (SELECT key FROM sessions WHERE id = ?1)",
                params![session, entries],
            )
        })?;
        Ok(())
    }

    fn artifact(
        &self,
        session: &str,
        engine: &str,
        name: &str,
    ) -> Result<Option<Packed>, RecordError> {
        self.read(|connection| {
            let mut select = connection.prepare_cached(
                "SELECT bytes, checksum, data FROM artifacts JOIN sessions ON sessions.key = artifacts.session
                 WHERE sessions.id = ?1 AND artifacts.engine = ?2 AND name = ?3",
            )?;
            let found = select.query_row([session, engine, name], |row| sql::packed(row, 0));
            found.optional()
        })
    }

    fn artifact_names(
        &self,
        session: &str,
        engine: &str,
        prefix: &str,
    ) -> Result<Vec<String>, RecordError> {
        self.read(|connection| {
            // `LIKE` would ignore case, and a prefix may contain its wildcards.
            let sql =
                "SELECT name FROM artifacts JOIN sessions ON sessions.key = artifacts.session
                 WHERE sessions.id = ?1 AND artifacts.engine = ?2 AND substr(name, 1, length(?3)) = ?3
                 ORDER BY name";
            select(connection, sql, [session, engine, prefix], |row| row.get(0))
        })
    }

    fn keep(&self, session: &str, texts: &[(&str, &str)]) -> Result<(), RecordError> {
        self.write(|transaction| run(transaction, session, sql::of_kept(texts)))
    }

    fn change_kept(&self, changes: &mut Vec<KeptChange<'_>>) -> Result<(), RecordError> {
        self.write(|transaction| self.make_changes(transaction, changes))?;
        changes.clear();
        Ok(())
    }

    fn kept(&self, session: &str) -> Result<Vec<(String, String)>, RecordError> {
        self.read(|connection| kept_with(connection, session))
    }

    fn kept_as(
        &self,
        name: &str,
        session: Option<&str>,
    ) -> Result<Vec<(String, String)>, RecordError> {
        self.read(|connection| {
            let sql = match session {
                Some(_) => "SELECT session, value FROM kept WHERE name = ?1 AND session = ?2",
                None => {
                    "SELECT session, value FROM kept WHERE name = ?1 AND ?2 IS NULL ORDER BY session"
                }
            };
            select(connection, sql, params![name, session], |row| sql::pair(row))
        })
    }

    fn names(&self) -> Result<Vec<String>, RecordError> {
        self.read(|connection| {
            let sql = "SELECT id FROM sessions UNION SELECT session FROM kept ORDER BY 1";
            select(connection, sql, [], |row| row.get(0))
        })
    }

    fn dump(&self, session: &str) -> Result<Option<Dump>, RecordError> {
        self.read(|connection| {
            let dump = Dump {
                session: dump_of(connection, session).optional()?,
                kept: kept_with(connection, session)?,
            };
            let is_there = dump.session.is_some() || !dump.kept.is_empty();
            Ok(is_there.then_some(dump))
        })
    }

    fn restore(&self, session: &str, dump: Dump) -> Result<(), RecordError> {
        self.write(|transaction| {
            transaction.execute("DELETE FROM sessions WHERE id = ?1", [session])?;
            transaction.execute("DELETE FROM kept WHERE session = ?1", [session])?;
            run(transaction, session, sql::of_kept(&dump.kept))?;
            match &dump.session {
                Some(dump) => restore_session(transaction, session, dump),
                None => Ok(()),
            }
        })
    }

    fn problems(&self) -> Result<Vec<String>, RecordError> {
        self.damage()
    }

    fn copy_to(&self, home: &Path, _session: &str) -> Result<(), RecordError> {
        let to = home.join(FILE).display().to_string();
        // A copy of the file alone would lack what is still in the log.
        self.run(|connection| connection.execute("VACUUM INTO ?1", [to]))?;
        Ok(())
    }

    fn shrink(&self, dry_run: bool) -> Result<u64, RecordError> {
        let free = self.run(|connection| {
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            let free = pragma("freelist_count")? * pragma("page_size")?;
            // `VACUUM` writes the whole file again, which is not worth it if nothing is free.
            if !dry_run && free > 0 {
                connection.execute_batch("VACUUM")?;
            }
            Ok(free)
        })?;
        Ok(free.max(0).cast_unsigned())
    }
}

/// Creates the store for its owner only, if there is none. SQLite gives the same mode to its log.
/// If this fails, SQLite reports the reason when it opens the file.
fn create(home: &Path, path: &Path) {
    if !path.exists()
        && let Ok(file) = tempfile::NamedTempFile::new_in(home)
        // The file gets its name with its tables. If several processes created them in one file,
        // all but the first would fail: SQLite does not wait for the lock that WAL mode needs.
        && Connection::open(file.path()).is_ok_and(|mut new| prepare(&mut new).is_ok())
    {
        // It is closed before it gets its name. Closing a file under its name would release the
        // locks that other threads of this process hold on it.
        let _ = file.into_temp_path().persist_noclobber(path);
    }
}

/// Whether the error may come from a file that can be read but not written.
fn is_unwritable(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(CannotOpen | DiskFull | PermissionDenied | ReadOnly | SystemIoFailure)
    )
}

/// Opens a connection that only reads. Returns it with the schema version of the file. The file may
/// be on a file system that cannot be written.
fn read_only(path: &Path) -> rusqlite::Result<(Connection, i64)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = |connection: Connection| {
        let found = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((connection, found))
    };
    match Connection::open_with_flags(path, flags).and_then(read) {
        // If SQLite may not create the index of its log, it reads only a file that is declared
        // immutable. It then ignores the log, so this is correct only if there is no log.
        Err(_) if !has_sqlite_log(path) => {
            let uri = immutable_uri(path);
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).and_then(read)
        }
        read => read,
    }
}
