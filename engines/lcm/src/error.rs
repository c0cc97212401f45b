//! The errors of the store, and what the user can do about each of them.
//!
//! [`StoreError`] is the error type of this crate. Its messages name the file, what happened to it
//! and the next step, because they are shown to users as they are. [`Damage`] says which part of a
//! file is damaged.
//!
//! SQLite reports many conditions with the same code. The conversion from [`rusqlite::Error`] sorts
//! them into the cases that a user can act on: a full disk, a lock, missing permissions, a damaged
//! file. Most code does not know the path of the database, so errors are made without one, and
//! `StoreError::at` adds it at the border of the store.

use std::path::{Path, PathBuf};

use contexture_engine_api::{EngineError, MessageId, sqlite_file};
use contexture_pattern::{PatternError, Stop};

/// The reason why a call of the store or a search failed. A call that returns an error has left the
/// store unchanged, so it can be repeated once the cause is removed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process held the lock on the database for longer than the time limit. Trying again
    /// helps if the other process is about to finish.
    #[error("{} is locked by another process; try again, or close that process", .0.display())]
    Busy(PathBuf),
    /// The file or its directory cannot be written, usually because of permissions. Commands that
    /// only read still work.
    #[error("{} cannot be opened or written; check the permissions of the file and its directory", .0.display())]
    ReadOnly(PathBuf),
    /// The disk is full. Nothing was lost, and the same call succeeds when space is free again.
    #[error(
        "the disk is full, so {} cannot be written; free some space, then try again: nothing was lost",
        .0.display()
    )]
    DiskFull(PathBuf),
    /// The operating system cannot read or write the file. The disk failed or cannot be reached, so
    /// the file itself may be intact. Building it again is not the first step.
    #[error(
        "{}: {cause}; the disk failed or cannot be reached, and the file may be intact: check the disk (the \
         system's log says more), then try again", path.display()
    )]
    Io {
        /// The file that could not be read or written.
        path: PathBuf,
        /// The message of SQLite or of the operating system.
        cause: String,
    },
    /// The file was removed while it was in use.
    #[error("{} was removed while it was in use; it is rebuilt when the session is opened again", .0.display())]
    Gone(PathBuf),
    /// The content of the file is damaged. Returned when a hash does not match, when a row has an
    /// unexpected form, and when SQLite reports corruption.
    #[error(
        "{} is damaged ({}); it is rebuilt from the host's record when a session is next opened",
        .0.path.display(), .0.what
    )]
    Damaged(Damage),
    /// Returned when the text of a message is needed and no transcript can be read, because no
    /// session is open.
    #[error("the texts of messages are read from an open session, and none is open")]
    NoTranscript,
    /// The transcript does not have the text of a message, although the store has its row.
    #[error(
        "the text of message {0} is not in the record of the session; `contexture sessions verify` says what is \
         damaged there"
    )]
    NoText(MessageId),
    /// The window shows a message that the store has no row of.
    #[error(
        "message {0} was never shown to this engine, so it cannot be kept; nothing was compacted"
    )]
    NotShown(MessageId),
    /// The host could not read the transcript, or could not read or store an artifact.
    #[error("{0}")]
    Transcript(EngineError),
    /// The file is an SQLite database of another program, so it is neither read nor changed.
    #[error("{} is a database, but not a store of this engine; choose another data directory", .0.display())]
    Foreign(PathBuf),
    /// A session was deleted from the store while it was open. Opening it again rebuilds it.
    #[error(
        "session number {0} was deleted from the store while it was open; open it again to rebuild it"
    )]
    SessionDeleted(i64),
    /// A session has reached the maximum number of messages, which is limited by 32-bit ordinals.
    #[error("the session has more than four billion messages; start a new one")]
    SessionFull,
    /// The store has no session of the given name, or no message, file or summary with the given id.
    /// The text names it.
    #[error("there is no {0}")]
    Unknown(String),
    /// A message came with the id of a stored message but with other content, or out of order.
    /// Stored messages are immutable, so an edited message needs a new id.
    #[error(
        "message {0} was stored with other content; an edited message needs a new id, and a cut must be reported \
         first"
    )]
    IdReused(MessageId),
    /// A part of a query is invalid, such as a regular expression that cannot be compiled or exceeds
    /// its limits. The text explains it, and shows the position of the error if there is one.
    #[error("{0}")]
    Query(String),
    /// The frontier changed since the caller read it, because another engine object compacted the
    /// same session. The caller has to read the frontier again.
    #[error(
        "another engine has compacted this session since; its summaries are taken over with the next compaction"
    )]
    FrontierMoved,
    /// The caller cancelled the operation before it was complete.
    #[error("cancelled")]
    Cancelled,
    /// A file beside the database could not be written or read.
    #[error("{path}: {cause}", path = .path.display())]
    File {
        /// The file that could not be written or read.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// Any other error that SQLite reports. It is not known to need a reaction of its own.
    #[error("{}: {cause}", path.display())]
    Sqlite {
        /// The database in which the error occurred.
        path: PathBuf,
        /// The error as SQLite reported it.
        cause: rusqlite::Error,
    },
}

/// Describes which part of which file is damaged. It converts from a text, in which case the path
/// is empty until the store adds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The damaged file. It is empty if the code that found the damage does not know the path.
    pub path: PathBuf,
    /// The part of the file that is damaged and how, as a phrase that fits into parentheses.
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
    /// Adds the path of the database if the error does not have one yet, because code that reads a
    /// row does not know the path. SQLite also reports a failing disk as corruption. If the file
    /// cannot be read through, a [`Self::Damaged`] error therefore becomes a [`Self::Io`] error.
    pub(crate) fn at(mut self, file: &Path) -> Self {
        if let Self::Damaged(_) = self
            && let Err(unreadable) = read_through(file)
        {
            return unreadable;
        }
        if let Self::Busy(path)
        | Self::ReadOnly(path)
        | Self::DiskFull(path)
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

/// Reads a database file and its write-ahead log to their ends, to find out whether the disk can
/// still be read. Missing files are not an error.
///
/// # Errors
/// [`StoreError::Io`] if the system cannot read one of them. The content is not checked.
pub(crate) fn read_through(file: &Path) -> Result<(), StoreError> {
    // SQLite leaves the log next to the database, and recent messages may be in it alone.
    for path in [file.to_owned(), sqlite_file(file, "-wal")] {
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

/// Whether SQLite reported this extended result code.
fn has_extended(error: &rusqlite::Error, code: std::ffi::c_int) -> bool {
    (error.sqlite_error()).is_some_and(|error| error.extended_code == code)
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode as Code;
        // Our queries match our schema, so a value of an unexpected type, a missing row or an
        // unknown column means that the content of the file is damaged.
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
            // The shared-memory file of the log cannot be enlarged if the disk is full.
            Some(Code::SystemIoFailure)
                if has_extended(&error, rusqlite::ffi::SQLITE_IOERR_SHMSIZE) =>
            {
                Self::DiskFull(PathBuf::new())
            }
            Some(Code::SystemIoFailure) => Self::Io {
                path: PathBuf::new(),
                cause: error.to_string(),
            },
            Some(Code::OperationInterrupted) => Self::Cancelled,
            // All statements are correct for an intact schema, and what they write agrees with
            // intact rows. So a missing table, or a row that refers to a missing one, is damage. The
            // schema has no triggers, so one that refuses a write was added on purpose.
            Some(Code::Unknown | Code::ConstraintViolation)
                if !has_extended(&error, rusqlite::ffi::SQLITE_CONSTRAINT_TRIGGER) =>
            {
                Self::Damaged(error.to_string().into())
            }
            // The store never writes a value that is too big for SQLite, so a stored length must be
            // damaged.
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

impl From<EngineError> for StoreError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Cancelled => Self::Cancelled,
            error => Self::Transcript(error),
        }
    }
}

impl From<PatternError> for StoreError {
    fn from(error: PatternError) -> Self {
        Self::Query(error.to_string())
    }
}

impl From<Stop> for StoreError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Cancelled => Self::Cancelled,
            stop => Self::Query(stop.to_string()),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Query(_) | StoreError::Unknown(_) => Self::InvalidInput(error.to_string()),
            StoreError::Cancelled => Self::Cancelled,
            StoreError::Transcript(error) => error,
            _ => Self::Storage(error.to_string()),
        }
    }
}
