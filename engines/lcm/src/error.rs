//! What can go wrong with the store, and the way out of it.

use std::path::{Path, PathBuf};

use contexture_engine_api::{EngineError, MessageId};
use contexture_pattern::{PatternError, Stop};

use crate::store::create::with_suffix;

/// Why a call of the store or a search failed. The store is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process held the database for longer than the time limit.
    #[error("{} is locked by another process; try again, or close that process", .0.display())]
    Busy(PathBuf),
    /// The file or its directory cannot be written.
    #[error("{} cannot be opened or written; check the permissions of the file and its directory", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full.
    #[error(
        "the disk is full, so that {} cannot be written; free some space, then try again: nothing was lost",
        .0.display()
    )]
    DiskFull(PathBuf),
    /// The system cannot read or write the file.
    #[error(
        "{}: {cause}; the disk failed or is out of reach, and the file may be whole: see to the disk (the system's \
         log says more), then try again", path.display()
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What SQLite or the system said.
        cause: String,
    },
    /// The file was removed while it was in use.
    #[error(
        "{} was removed while it was in use, and what was written with it; put a backup back \
         (`contexture sessions backup --help`), or begin anew", .0.display()
    )]
    Gone(PathBuf),
    /// The file is damaged.
    #[error(
        "{} is damaged ({}); `contexture sessions repair` keeps a copy of the file, carries over \
         what can still be read and says what cannot", .0.path.display(), .0.what
    )]
    Damaged(Damage),
    /// A repair found nothing to recover.
    #[error(
        "nothing of the tables in {} can be found, so that no repair helps; put a backup back \
         (`contexture sessions backup --help`), or set CONTEXTURE_HOME to another directory to begin anew; the file \
         stays as it is", .0.display()
    )]
    NothingLeft(PathBuf),
    /// The file was written by a newer version.
    #[error(
        "{} has schema version {found}, this program knows versions up to {known}; \
         use the newer program, or another data directory", path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// The version of the file.
        found: i64,
        /// The newest version that this program knows.
        known: i64,
    },
    /// The file is another program's database.
    #[error("{} is a database, but not a store of this engine; choose another data directory", .0.display())]
    Foreign(PathBuf),
    /// There is no such session.
    #[error("there is no session `{0}`")]
    UnknownSession(String),
    /// A session was deleted while it was open.
    #[error(
        "session number {0} was deleted from the store while it was open; open it anew to have it kept again"
    )]
    SessionDeleted(i64),
    /// A session has reached the maximum number of messages.
    #[error("the session holds more than four billion messages; begin another")]
    SessionFull,
    /// There is no such message, file or summary.
    #[error("there is no {0}")]
    Unknown(String),
    /// A message id came again with another content, or out of order.
    #[error(
        "message {0} was stored with another content; an edited message needs a new id, and a cut has \
         to be told first"
    )]
    IdReused(MessageId),
    /// A regular expression that cannot be compiled; the text shows where.
    #[error("{0}")]
    Pattern(String),
    /// Any other invalid part of a query.
    #[error("{0}")]
    Query(String),
    /// The summaries in the window changed since the change was prepared.
    #[error(
        "another engine has compacted this session since; its summaries are taken over with the next compaction"
    )]
    FrontierMoved,
    /// The conversation was stored further, or cut, since the caller looked.
    #[error(
        "this session was gone on with elsewhere since it was last asked here, so that nothing was stored; what is \
         missing is stored once it is shown again"
    )]
    WentOn,
    /// The caller asked to stop.
    #[error("cancelled")]
    Cancelled,
    /// A copy would overwrite a file.
    #[error("{} exists, and a backup overwrites nothing; name another file", .0.display())]
    Exists(PathBuf),
    /// A file beside the database (a backup, an export) could not be written or read.
    #[error("{path}: {cause}", path = .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// Anything else that SQLite reports.
    #[error("{}: {cause}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        cause: rusqlite::Error,
    },
}

/// What is damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// The part of it.
    pub what: String,
}

impl<T: Into<String>> From<T> for Damage {
    fn from(what: T) -> Self {
        Self {
            path: PathBuf::new(),
            what: what.into(),
        }
    }
}

impl StoreError {
    /// The same error of this file, if it names none yet: whoever reads a row does not know the file. SQLite calls
    /// damaged what the system cannot read.
    pub(crate) fn at(mut self, file: &Path) -> Self {
        if let Self::Damaged(_) = self
            && let Err(unreadable) = read_through(file)
        {
            return unreadable;
        }
        if let Self::Busy(path)
        | Self::ReadOnly(path)
        | Self::DiskFull(path)
        | Self::NothingLeft(path)
        | Self::Io { path, .. }
        | Self::Damaged(Damage { path, .. })
        | Self::Sqlite { path, .. } = &mut self
            && path.as_os_str().is_empty()
        {
            file.clone_into(path);
        }
        self
    }
}

/// Reads a database's file and its log to their ends.
///
/// # Errors
/// [`StoreError::Io`] if the system cannot read all of them, however sound they are.
pub(crate) fn read_through(file: &Path) -> Result<(), StoreError> {
    for path in [file.to_owned(), with_suffix(file, "-wal")] {
        let read = std::fs::File::open(&path)
            .and_then(|mut file| std::io::copy(&mut file, &mut std::io::sink()));
        match read {
            Ok(_) => {}
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(cause) => {
                let cause = cause.to_string();
                return Err(StoreError::Io { path, cause });
            }
        }
    }
    Ok(())
}

/// Whether the log's index could not be given its size, which SQLite does not tell from other failures.
fn is_full(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        // A value of an unexpected type, a missing row, or an unexpected schema.
        if let rusqlite::Error::QueryReturnedNoRows
        | rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::InvalidColumnType(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::SqlInputError { .. }
        | rusqlite::Error::IntegralValueOutOfRange(..) = error
        {
            return Self::Damaged(error.to_string().into());
        }
        match error.sqlite_error_code() {
            Some(Code::DatabaseBusy | Code::DatabaseLocked) => Self::Busy(PathBuf::new()),
            Some(Code::ReadOnly | Code::PermissionDenied) => Self::ReadOnly(PathBuf::new()),
            Some(Code::DiskFull) => Self::DiskFull(PathBuf::new()),
            Some(Code::SystemIoFailure) if is_full(&error) => Self::DiskFull(PathBuf::new()),
            Some(Code::SystemIoFailure) => Self::Io {
                path: PathBuf::new(),
                cause: error.to_string(),
            },
            Some(Code::OperationInterrupted) => Self::Cancelled,
            // The description of a table is damaged: every statement is right for one that is not.
            Some(Code::Unknown) if error.to_string().contains("foreign key mismatch") => {
                Self::Damaged(error.to_string().into())
            }
            // Nothing too big is ever written, so a length must be damaged.
            Some(Code::DatabaseCorrupt | Code::NotADatabase | Code::TooBig) => {
                Self::Damaged(error.to_string().into())
            }
            _ => Self::Sqlite {
                path: PathBuf::new(),
                cause: error,
            },
        }
    }
}

impl From<PatternError> for StoreError {
    fn from(error: PatternError) -> Self {
        Self::Pattern(error.to_string())
    }
}

impl From<Stop> for StoreError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Cancelled => Self::Cancelled,
            stop => Self::Pattern(stop.to_string()),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Pattern(_)
            | StoreError::Query(_)
            | StoreError::Unknown(_)
            | StoreError::Exists(_)
            | StoreError::UnknownSession(_) => Self::InvalidInput(error.to_string()),
            StoreError::Cancelled => Self::Cancelled,
            _ => Self::Storage(error.to_string()),
        }
    }
}
