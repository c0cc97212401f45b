//! The errors of the history.

use std::path::PathBuf;

/// An error of reading or writing the history. If a log cannot be read, that is no error: the log
/// is skipped, and [`ImportReport`](crate::ImportReport) says why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistoryError {
    /// The database cannot be read or written, for example because the disk is full. The
    /// transaction that was open is undone. What an import committed before is kept, and the next
    /// import goes on there.
    #[error("the history in {} cannot be used; nothing in the logs was changed", path.display())]
    Database {
        /// The file of the history.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// A folder or file of the home directory cannot be created.
    #[error("{} cannot be created", path.display())]
    Create {
        /// What could not be created.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// Another process is importing into the same history. The system releases the lock when that
    /// process ends, even if it was killed.
    #[error(
        "another import is writing to the history in {}; wait for it to end, or stop the one that watches",
        path.display()
    )]
    Busy {
        /// The file of the history.
        path: PathBuf,
    },
    /// The database was written by another version. It is left as it is, because this version does
    /// not know what the tables mean.
    #[error(
        "the history in {} was written by another version of this program; use that one, or delete the file and \
         import again",
        path.display()
    )]
    OtherVersion {
        /// The file of the history.
        path: PathBuf,
    },
    /// The question has no word that could be searched for, for example if it is punctuation alone.
    #[error("`{0}` contains nothing to search for: give at least one word or number")]
    NoWords(String),
    /// No project or agent of the history has this name. It is an error and not an empty answer,
    /// because a misspelt name would look as if nothing had been said.
    #[error("the history has no {what} `{name}`; it has {known}")]
    Unknown {
        /// What was named: `project` or `agent`.
        what: &'static str,
        /// The name in the question.
        name: String,
        /// Names that exist.
        known: String,
    },
}
