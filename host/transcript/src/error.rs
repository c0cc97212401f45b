//! Why the record or the lock of a session cannot be used, with the way out.
//!
//! Every message of a [`RecordError`] names the file or the server, gives the cause, and ends with
//! what the user can do. So callers show it as it is.
//!
//! The difference that matters most is between damage and everything else. If the file is damaged
//! ([`RecordError::is_damage`]), a repair helps, and sessions go on with an empty store in memory.
//! If the disk is full or cannot be reached, the file may be whole, and a repair could only lose
//! something. SQLite does not always know the difference, so `RecordError::of` reads the file
//! itself to find out.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why the store of sessions cannot be used. A session that cannot use it continues in memory,
/// unless it is in use elsewhere.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The home directory cannot be created.
    #[error("cannot make {}: {cause}; set CONTEXTURE_HOME to a directory that can be written", path.display())]
    Directory {
        /// The home directory that was to hold the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The file was written by a later version of this program, so this one does not open it.
    #[error(
        "{} has the schema version {found}, but this program knows {known}: a newer Contexture wrote \
         it. Update this program, or set CONTEXTURE_HOME to another directory", path.display()
    )]
    TooNew {
        /// The path of the file.
        path: PathBuf,
        /// The schema version in the file.
        found: i64,
        /// The latest schema version that this program can read.
        known: i64,
    },
    /// SQLite failed. The file is damaged, locked or read-only, or the disk is full. The message
    /// says which of these it is and what to do about it. If only a repair helps,
    /// [`is_damage`](Self::is_damage) is true.
    #[error("{}: {cause}; {}", path.display(), way_out(cause))]
    Sqlite {
        /// The path of the file.
        path: PathBuf,
        /// The error that SQLite reported.
        cause: rusqlite::Error,
    },
    /// The session is still open elsewhere after the wait. Only one process can have it open at a
    /// time.
    #[error(
        "the session `{session}` is in use: {by} has it open, and did not close it within {} seconds; end that \
         first, or use another session", waited.as_secs()
    )]
    InUse {
        /// The id of the session.
        session: String,
        /// The process that has it open, in words for the message.
        by: String,
        /// How long this process waited for it.
        waited: Duration,
    },
    /// A session is open although the operation concerns the whole record and needs all of them
    /// closed. A repair is such an operation: what an open session writes meanwhile would go into
    /// the old file and be lost.
    #[error("{by} has a session open: close it first")]
    Open {
        /// The process that has it open, in words for the message.
        by: String,
    },
    /// The operating system cannot read the file. SQLite calls such a file damaged although it may
    /// be whole. A repair would then carry over only what the failing disk returned, so this does
    /// not count as damage.
    #[error(
        "{}: {cause}; the disk failed or cannot be reached, and the file may be intact: check the disk (the \
         system's log says more), then try again", path.display()
    )]
    Io {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The file was removed while it was in use. What was written since went into the removed file
    /// and is lost. SQLite itself reports success, because an open file can be written after its
    /// name is gone.
    #[error("{} was removed while in use, and data written to it is lost", path.display())]
    Gone {
        /// The path of the file.
        path: PathBuf,
    },
    /// A file could not be written, as in a backup or a repair, or on a read-only file system, or the
    /// lock file of a session cannot be opened, read or locked.
    #[error("{}: {cause}; {}", path.display(), way_to_write(cause))]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        cause: std::io::Error,
    },
    /// The configuration asks for a database, and its URL is not set or this program was built without
    /// the client of PostgreSQL. It does not fall back to the file, because the session would then begin
    /// anew beside the one in the database.
    #[error("{0}")]
    NoDatabase(String),
    /// The database cannot be reached, or it refused a statement.
    #[error(
        "the database {server}: {cause}; check that it runs and that this user may write to it \
         (`contexture store status`)"
    )]
    Server {
        /// The server and the database, without a password.
        server: String,
        /// The error of the client or of the server.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The tables of the database are of another version than this program knows. They are never
    /// migrated on opening, since other machines with an earlier program may be using them.
    #[error(
        "the database {server} has the schema version {found}, but this program needs {known}: {}",
        way_to_migrate(*found, *known)
    )]
    Schema {
        /// The server and the database, without a password.
        server: String,
        /// The schema version of the database. Zero if it has no tables.
        found: i64,
        /// The schema version of this program.
        known: i64,
    },
    /// The lock on a session was lost, because this process did not renew it in time. Another
    /// process may have written the session since, so this one does not. The same error is returned
    /// if the session was deleted meanwhile.
    #[error(
        "the session `{session}` was taken over by another process or deleted, so nothing more is stored from here; \
         send the request again"
    )]
    TakenOver {
        /// The id of the session.
        session: String,
    },
    /// The file can be read, but what is stored in it is not valid. The check is made by this
    /// crate, as with a chain of hashes that is broken or a window that is not valid JSON.
    #[error("{}: {what}; {MEND}", path.display())]
    Damaged {
        /// The path of the file.
        path: PathBuf,
        /// What is wrong, for the user.
        what: String,
    },
}

/// What to do about damage. Deleting the file is not advised: it may hold what is nowhere else,
/// such as the state that an engine stores with messages.
const MEND: &str =
    "`contexture sessions repair` keeps a copy of the file and recovers what can be read";

/// What the user can do if the tables of a database have another version. An older version can be
/// migrated. A newer one can only be read by a newer program.
fn way_to_migrate(found: i64, known: i64) -> &'static str {
    match found < known {
        true => "run `contexture store migrate`",
        false => "a newer Contexture migrated it, so update this program",
    }
}

/// What the user can do if a process may use no more memory.
const MORE_MEMORY: &str = "give the process more memory";

/// What the user can do if a file cannot be written.
fn way_to_write(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error.kind() {
        StorageFull | QuotaExceeded => "the disk is full: free some space",
        ReadOnlyFilesystem => {
            "make it writable, or set CONTEXTURE_HOME to a directory that can be written"
        }
        OutOfMemory => MORE_MEMORY,
        _ if is_out_of_files(error) => "raise the limit of open files (`ulimit -n`)",
        _ => "check the permissions of the file and its directory",
    }
}

/// Whether this process or the system has as many open files as it may have.
fn is_out_of_files(error: &std::io::Error) -> bool {
    // ENFILE and EMFILE are the same numbers on all Unix systems.
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

/// What the user can do about an error of SQLite. If the error says nothing that helps, the advice
/// is to check the permissions, which is the usual cause of what is left.
fn way_out(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another process has it open: end that process"
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => MEND,
        _ if makes_no_sense(error) => MEND,
        Some(ErrorCode::DiskFull) => "the disk is full: free some space",
        Some(ErrorCode::OutOfMemory) => MORE_MEMORY,
        // SQLite maps the index of its log into memory. If that file cannot grow, the disk is full.
        Some(ErrorCode::SystemIoFailure) if is_shm_size(error) => {
            "the disk is full: free some space"
        }
        Some(ErrorCode::SystemIoFailure) => {
            "the disk failed or cannot be reached, and the file may be intact: check the disk"
        }
        _ => "check the permissions of the file and its directory",
    }
}

/// Whether SQLite failed to set the size of its log's index. It maps that file into memory, and
/// reports an I/O error if the disk is full when the file has to grow.
fn is_shm_size(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE)
}

impl RecordError {
    /// Whether the file is damaged, so that [`Record::repair`](crate::Record::repair) helps. A file that cannot be
    /// reached, or whose disk is full, is not damaged. Nor is a file that a newer program wrote:
    /// repairing it would drop what this program does not know.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, TooBig};
        match self {
            Self::Damaged { .. } => true,
            Self::Sqlite { cause, .. } => {
                let code = cause.sqlite_error_code();
                makes_no_sense(cause)
                    || matches!(code, Some(DatabaseCorrupt | NotADatabase | TooBig))
                    || cause.to_string().contains("malformed")
            }
            _ => false,
        }
    }

    /// Whether a write that failed with this error may succeed later as it is, as on a disk that was
    /// full. False if only a repair, another program or opening the session again helps.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Sqlite { .. } => !self.is_damage(),
            Self::Directory { .. }
            | Self::InUse { .. }
            | Self::Open { .. }
            | Self::Io { .. }
            | Self::Write { .. }
            | Self::Server { .. } => true,
            Self::TooNew { .. }
            | Self::Gone { .. }
            | Self::NoDatabase(_)
            | Self::Schema { .. }
            | Self::TakenOver { .. }
            | Self::Damaged { .. } => false,
        }
    }

    /// Wraps an error of SQLite about this file. SQLite reports a file that the operating system
    /// cannot read as damaged, so the file is read once to tell the two apart. Nor does SQLite say why
    /// it cannot open a file to write it, so the operating system is asked.
    pub(crate) fn of(path: &Path, cause: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{
            CannotOpen, DatabaseCorrupt, NotADatabase, ReadOnly, SystemIoFailure,
        };
        let path = path.to_owned();
        let of_system = match cause.sqlite_error_code() {
            // Only an error of the read itself tells. A file that can be read to its end keeps the
            // verdict of SQLite.
            Some(NotADatabase | DatabaseCorrupt | SystemIoFailure) => {
                read_through(&path).err().map(|cause| Self::Io {
                    path: path.clone(),
                    cause,
                })
            }
            Some(CannotOpen | ReadOnly) => why_not_writable(&path).map(|cause| Self::Write {
                path: path.clone(),
                cause,
            }),
            _ => None,
        };
        of_system.unwrap_or(Self::Sqlite { path, cause })
    }
}

/// Why no file can be written beside this one, if it is not for want of permissions.
fn why_not_writable(path: &Path) -> Option<std::io::Error> {
    let error = tempfile::tempfile_in(path.parent()?).err()?;
    let is_known =
        error.kind() == std::io::ErrorKind::ReadOnlyFilesystem || is_out_of_files(&error);
    is_known.then_some(error)
}

/// Reads a file to its end and throws the content away. Returns its length in bytes, or the error
/// of the operating system at the first place that cannot be read.
fn read_through(path: &Path) -> std::io::Result<u64> {
    let mut file = std::fs::File::open(path)?;
    std::io::copy(&mut file, &mut std::io::sink())
}

/// Whether the tables of a file do not have the form that this program writes: tables or columns
/// are missing, or values have the wrong type. SQLite itself finds nothing wrong with such a file.
fn makes_no_sense(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::InvalidColumnType(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::Utf8Error(..)
            | rusqlite::Error::SqlInputError { .. }
            // A row that this program always writes is missing.
            | rusqlite::Error::QueryReturnedNoRows
    )
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
        // No page is mapped at address zero, so reading this file is an I/O error.
        let unreadable = RecordError::of(Path::new("/proc/self/mem"), corrupt()).to_string();
        assert!(unreadable.contains("Input/output error"), "{unreadable}");
        assert!(!unreadable.contains("move"), "{unreadable}");
        let damaged = RecordError::of(Path::new("/proc/self/maps"), corrupt()).to_string();
        assert!(damaged.contains("sessions repair"), "{damaged}");
    }
}
