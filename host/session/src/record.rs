//! What survives a restart of a session: hashes and ids of its messages, how far its engine was shown
//! them, and the compaction in force. The text of the conversation is not among it: the client has that.
//!
//! One small SQLite file for all sessions of a home directory, `sessions.sqlite3`, in WAL mode.

mod backup;
mod checkpoint;
mod damage;
mod kept;
mod load;
mod placed;
mod save;
mod tables;
mod texts;
mod units;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contexture_base::private::narrow;
use contexture_engine_api::{MessageId, make_private_folder};
use contexture_formats::prompt_cache::Pauses;
use rusqlite::{Connection, OpenFlags};

use super::align::Mark;
use super::hold::Hold;
use super::window::SavedWindow;
use checkpoint::Checkpoints;
pub use damage::RecordRepair;
pub(super) use load::Saved;
use load::{read_pauses, read_session};
pub use placed::Placed;
pub(super) use save::{SessionChange, StoredSession};
use tables::{SCHEMA_VERSION, prepare};
pub(super) use texts::{NewArtifact, NewText, StoredMessage};

/// The name of the file.
const FILE: &str = "sessions.sqlite3";

/// The path of a store that is no file.
const IN_MEMORY: &str = ":memory:";

/// Why the store of sessions cannot be used. A session goes on without it, in memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory cannot be made.
    #[error("cannot make {}: {cause}; set CONTEXTURE_HOME to a directory that can be written", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file is of a later version of this program.
    #[error(
        "{} has the schema version {found}, and this program knows {SCHEMA_VERSION}: it is of a newer Contexture. \
         Update this one, or set CONTEXTURE_HOME to another directory", path.display()
    )]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
    },
    /// SQLite failed: the file is damaged, locked, read-only, or the disk is full.
    #[error("{}: {cause}; {}", path.display(), way_out(cause))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
    /// The session is open elsewhere.
    #[error(
        "the session `{session}` is in use: {by} has it open, and {} seconds of waiting changed nothing; let that \
         end first, or take another session", waited.as_secs()
    )]
    InUse {
        /// The session.
        session: String,
        /// Who has it open.
        by: String,
        /// How long it was waited.
        waited: Duration,
    },
    /// A session is open, and none may be.
    #[error("{by} has a session open, and none may be: let that end first")]
    Open {
        /// Who has it open.
        by: String,
    },
    /// The file that says who has a session open cannot be had.
    #[error("{}: {cause}; check that the file and its directory can be written", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The system cannot read the file.
    #[error(
        "{}: {cause}; the disk failed or is out of reach, and the file may be whole: see to the disk (the system's \
         log says more), then try again", path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file was removed while it was in use.
    #[error("{} was removed while it was in use, and what was written with it", path.display())]
    Gone {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("{}: {cause}; {}", path.display(), way_to_write(cause))]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// What is stored makes no sense.
    #[error("{}: {what}; {MEND}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The way out of damage. The file may hold what is nowhere else, such as the state that an engine keeps with messages.
const MEND: &str =
    "`contexture sessions repair` keeps a copy of the file and saves what can be read of it";

fn way_to_write(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => "the disk is full: make room on it",
        _ => "check the permissions of the file and its directory",
    }
}

fn way_out(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process holds it, end that one"
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => MEND,
        Some(ErrorCode::DiskFull) => "the disk is full: make room on it",
        // The log's index could not be given its size.
        Some(ErrorCode::SystemIoFailure) if is_shm_size(error) => {
            "the disk is full: make room on it"
        }
        Some(ErrorCode::SystemIoFailure) => {
            "the disk failed or is out of reach, and the file may be whole: see to the disk"
        }
        _ => "check the permissions of the file and its directory",
    }
}

fn is_shm_size(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

impl RecordError {
    /// What SQLite said of this file. It calls damaged what the system cannot read.
    fn of(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        let path = path.to_owned();
        let may_be_unreadable = matches!(
            source.sqlite_error_code(),
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt | ErrorCode::SystemIoFailure)
        );
        match may_be_unreadable.then(|| read_through(&path)) {
            Some(Err(cause)) => Self::Io { path, cause },
            _ => Self::Sqlite {
                path,
                cause: source,
            },
        }
    }
}

/// Reads a file to its end.
fn read_through(path: &Path) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    std::io::copy(&mut file, &mut std::io::sink())
}

/// The store of all sessions of a home directory. Cheap to share.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    connection: Mutex<Connection>,
    checkpoints: Checkpoints,
    /// Whether it is known to have the table of what embedders keep.
    has_kept: AtomicBool,
    /// What is wrong with the file, where this is one in memory that stands in for it.
    stands_in: Option<String>,
}

/// What was delivered of a session to its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The session.
    pub session: String,
    /// The engine.
    pub engine: String,
    /// The last message.
    pub last: Option<MessageId>,
    /// How many messages.
    pub messages: u64,
}

/// A message that an engine is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) id: MessageId,
    pub(super) mark: Mark,
    /// The chain hash up to it.
    pub(super) chain: u64,
    /// The earlier form of the same message, which is in the log too.
    pub(super) replaces: Option<MessageId>,
}

/// The compaction in force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct InForce {
    /// Its number within the session.
    pub(super) number: u64,
    /// Who made it.
    pub(super) engine: String,
    /// The window that it left.
    pub(super) window: SavedWindow,
}

impl Record {
    /// Opens the store in the home directory `home`, or makes it.
    ///
    /// # Errors
    /// The file cannot be had, is damaged, or is of a newer version.
    pub fn open(home: &Path) -> Result<Arc<Self>, RecordError> {
        make_private_folder(home).map_err(|cause| RecordError::Directory {
            path: home.to_owned(),
            cause,
        })?;
        let path = home.join(FILE);
        make_empty(home, &path);
        for suffix in ["", "-wal", "-shm"] {
            narrow(&home.join(format!("{FILE}{suffix}")));
        }
        let fail = |source| RecordError::of(&path, source);
        let mut connection = Connection::open(&path).map_err(fail)?;
        let found = prepare(&mut connection).map_err(fail)?;
        if found > SCHEMA_VERSION {
            return Err(RecordError::TooNew { path, found });
        }
        Ok(Self::over(path, connection))
    }

    fn over(path: PathBuf, connection: Connection) -> Arc<Self> {
        Arc::new(Self::of(path, connection))
    }

    fn of(path: PathBuf, connection: Connection) -> Self {
        Self {
            path,
            connection: Mutex::new(connection),
            checkpoints: Checkpoints::default(),
            has_kept: AtomicBool::new(false),
            stands_in: None,
        }
    }

    /// Opens the store in the home directory `home` where that may not be written: what is written fails then.
    /// Where there is none, it is empty, and none is made.
    ///
    /// # Errors
    /// As [`Record::open`]; a log that cannot be read without writing.
    pub fn open_to_read(home: &Path) -> Result<Arc<Self>, RecordError> {
        let path = home.join(FILE);
        let fail = |source| RecordError::of(&path, source);
        if !path.exists() {
            return Self::empty(&path).map_err(fail);
        }
        match Self::open(home) {
            Err(RecordError::Sqlite { cause, .. }) if is_unwritable(&cause) => {}
            opened => return opened,
        }
        let (connection, found) = read_only(&path).map_err(fail)?;
        match found {
            SCHEMA_VERSION => Ok(Self::over(path, connection)),
            newer if newer > SCHEMA_VERSION => Err(RecordError::TooNew { path, found }),
            // Drafts of the tables are never read.
            _ => Self::empty(&path).map_err(fail),
        }
    }

    /// A store with nothing in it, in memory.
    fn empty(path: &Path) -> rusqlite::Result<Arc<Self>> {
        let mut connection = Connection::open_in_memory()?;
        prepare(&mut connection)?;
        Ok(Self::over(path.to_owned(), connection))
    }

    /// A store in memory, for a session that is not stored but whose engine reads the transcript.
    ///
    /// # Errors
    /// SQLite has no memory.
    pub(super) fn in_memory() -> Result<Arc<Self>, RecordError> {
        let path = Path::new(IN_MEMORY);
        Self::empty(path).map_err(|cause| RecordError::of(path, cause))
    }

    fn is_in_memory(&self) -> bool {
        self.path.as_os_str() == IN_MEMORY
    }

    /// Whether there is one in the home directory `home`.
    pub fn is_in(home: &Path) -> bool {
        home.join(FILE).exists()
    }

    /// Where its file lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the session is open nowhere else, and locks it until the [`Hold`] is dropped.
    ///
    /// # Errors
    /// It stays open elsewhere, or its lock file cannot be used.
    pub fn hold(&self, id: &str, wait: Duration) -> Result<Hold, RecordError> {
        let home = self.path.parent().unwrap_or(Path::new("."));
        Hold::take(home, id, wait)
    }

    /// The session of this id; a new one where there is none.
    pub(super) fn load(self: &Arc<Self>, id: &str) -> Result<(StoredSession, Saved), RecordError> {
        self.is_itself()?;
        let mut connection = self.lock();
        let (key, saved) = read_session(&mut connection, id).map_err(|error| self.error(error))?;
        drop(connection);
        let stored = StoredSession {
            record: Arc::clone(self),
            key,
            engine: saved.engine.clone(),
            redacts: false,
        };
        Ok((stored, saved))
    }

    /// The pauses of all sessions; none where they cannot be read, for they only make a guess better.
    pub(crate) fn pauses(&self) -> Pauses {
        read_pauses(&self.lock()).unwrap_or_default()
    }

    /// What was delivered of a session, and to which engine; none where there is no such session, or none
    /// of it was delivered yet.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered(&self, id: &str) -> Result<Option<Delivered>, RecordError> {
        let mut all = self.delivered_where("id = ?1", id)?;
        Ok(all.pop())
    }

    /// What was delivered to an engine, of all its sessions.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn delivered_to(&self, engine: &str) -> Result<Vec<Delivered>, RecordError> {
        self.delivered_where("engine = ?1", engine)
    }

    /// What was delivered of all sessions.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn all_delivered(&self) -> Result<Vec<Delivered>, RecordError> {
        self.delivered_where("id >= ?1", "")
    }

    fn delivered_where(&self, rule: &str, value: &str) -> Result<Vec<Delivered>, RecordError> {
        let connection = self.lock();
        let read = || {
            let mut statement = connection.prepare(&format!(
                "SELECT id, engine, shown_last, (SELECT count(*) FROM messages
                    WHERE session = sessions.key AND messages.id <= shown_last AND NOT cut)
                 FROM sessions WHERE engine <> '' AND {rule} ORDER BY key"
            ))?;
            let rows = statement.query_map([value], |row| {
                Ok(Delivered {
                    session: row.get(0)?,
                    engine: row.get(1)?,
                    last: row.get::<_, Option<i64>>(2)?.map(message_id),
                    messages: row.get::<_, i64>(3)?.cast_unsigned(),
                })
            })?;
            rows.collect::<Result<_, _>>()
        };
        read().map_err(|error: rusqlite::Error| self.error(error.into()))
    }

    /// Copies it into another home directory, which has none yet.
    ///
    /// # Errors
    /// It cannot be read, or not be written there.
    pub fn copy_to(&self, home: &Path) -> Result<(), RecordError> {
        let to = home.join(FILE);
        self.lock()
            .execute("VACUUM INTO ?1", [to.display().to_string()])
            .map(|_| ())
            .map_err(|error| self.error(error.into()))
    }

    /// Forgets a session.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&self, id: &str) -> Result<(), RecordError> {
        self.is_itself()?;
        self.lock()
            .execute("DELETE FROM sessions WHERE id = ?1", [id])
            .map_err(|error| self.error(error.into()))?;
        self.keep_nothing(id)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, error: ReadError) -> RecordError {
        let path = self.path.clone();
        match error {
            ReadError::Sqlite(source) => RecordError::of(&path, source),
            ReadError::Damaged(what) => RecordError::Damaged { path, what },
        }
    }
}

/// Makes the file, where none is, as its owner's alone; SQLite gives its log the same mode. Where that fails,
/// SQLite says why. The file gets its name when it is closed: closing it under its name would take away the locks
/// that other threads of this process have on it.
fn make_empty(home: &Path, path: &Path) {
    if !path.exists()
        && let Ok(file) = tempfile::NamedTempFile::new_in(home)
    {
        let _ = file.into_temp_path().persist_noclobber(path);
    }
}

/// Whether it may be that a file can be read and not be written.
fn is_unwritable(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{CannotOpen, DiskFull, PermissionDenied, ReadOnly, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(CannotOpen | DiskFull | PermissionDenied | ReadOnly | SystemIoFailure)
    )
}

/// A connection that only reads, and the version of the tables.
fn read_only(path: &Path) -> rusqlite::Result<(Connection, i64)> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read = |connection: Connection| {
        let found = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        Ok((connection, found))
    };
    let log = path.with_file_name(format!("{FILE}-wal"));
    let has_log = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    match Connection::open_with_flags(path, flags).and_then(read) {
        // Without the right to make the log's index, SQLite reads only a file that it is told nobody changes. It
        // then leaves the log out, so that there must be none.
        Err(_) if !has_log => {
            let uri = contexture_engine_api::immutable_uri(path);
            Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).and_then(read)
        }
        read => read,
    }
}

enum ReadError {
    Sqlite(rusqlite::Error),
    Damaged(String),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// Which of the two forms of a history.
#[derive(Debug, Clone, Copy)]
enum Form {
    Sent = 0,
    Handed = 1,
}

fn message_id(id: i64) -> MessageId {
    MessageId(id.cast_unsigned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_the_system_cannot_read_is_not_called_damaged() {
        let corrupt = || {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
            rusqlite::Error::SqliteFailure(code, None)
        };
        // Nothing is mapped at its beginning, so that reading it is an I/O error.
        let unreadable = RecordError::of(Path::new("/proc/self/mem"), corrupt()).to_string();
        assert!(unreadable.contains("Input/output error"), "{unreadable}");
        assert!(!unreadable.contains("move"), "{unreadable}");
        let damaged = RecordError::of(Path::new("/proc/self/maps"), corrupt()).to_string();
        assert!(damaged.contains("sessions repair"), "{damaged}");
    }
}
