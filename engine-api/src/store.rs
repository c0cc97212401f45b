//! What a person asks of an engine that keeps conversations, beside any one conversation.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A question about the store of an engine, or a command to it. Whatever removes something takes a dry
/// run, which answers the same figures and removes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[non_exhaustive]
pub enum StoreCommand {
    /// The sessions that are kept, with their sizes.
    List,
    /// One session: sizes, time span, what its window shows.
    Show {
        /// The session's id.
        session: String,
    },
    /// The conversation of a session in order, as it was on the wire: `messages`, each with its JSON (`message`) and
    /// the ids of the messages that the engine was shown of it (`ids`), and `next`, where this page ends if there
    /// are more. A host that lost its record goes on with it.
    Export {
        /// The session's id.
        session: String,
        /// Begin after the message of this id.
        after: Option<u64>,
        /// At most so many messages.
        limit: usize,
    },
    /// Mark a session as done with, or as in use again. It stays whole; so does what is in it.
    Archive {
        /// The session's id.
        session: String,
        /// Whether it is done with.
        archived: bool,
    },
    /// Remove sessions.
    Delete {
        /// This session; without it every session that `older_than_ms` names.
        session: Option<String>,
        /// Sessions in which nothing happened since, in milliseconds since the Unix epoch.
        older_than_ms: Option<i64>,
        /// Remove nothing, only say what would go.
        dry_run: bool,
    },
    /// Check everything that is kept.
    Verify,
    /// Save what can still be read of a damaged store, and keep the damaged one beside it. It works where no
    /// session can be opened.
    Repair {
        /// Mend nothing, only say what is wrong.
        dry_run: bool,
    },
    /// Copy everything that is kept, as of now, into a new file.
    Backup {
        /// The file; it must not exist.
        to: PathBuf,
    },
    /// Give back the room of what is no longer needed.
    Gc {
        /// Remove nothing, only say what would go.
        dry_run: bool,
    },
    /// Build what a search needs and what is otherwise built in the background between turns, such as vectors. The
    /// answer has `sessions`, each with its `session`, its `messages`, and how many of these are `indexed` and
    /// `embedded` (null without an embedder), and `missing`, the number of messages that still lack something.
    Index {
        /// The session's id. Without it, every session is indexed.
        session: Option<String>,
        /// Build nothing, only report what is missing.
        dry_run: bool,
    },
    /// Stop the command that another thread started, if it can be stopped: a check, the dry run of a repair, a backup
    /// or an index. The command soon fails with [`EngineError::Cancelled`](crate::EngineError::Cancelled) and leaves
    /// nothing behind.
    Cancel,
    /// How far the command is that another thread asked for: `done` of `total`, in steps of its own.
    Progress,
    /// One of a later version. An engine answers [`EngineError::Unsupported`](crate::EngineError::Unsupported).
    #[serde(other)]
    Unknown,
}
