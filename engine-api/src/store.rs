//! Commands about the data that an engine derives from conversations.
//!
//! The host owns the conversations. It lists, exports, archives, deletes and backs them up without
//! an engine. An engine may derive data from them that it can build again, such as a search index.
//! A [`StoreCommand`] lets a user inspect, check, build and delete this data.
//!
//! Commands reach the engine outside of any session, through
//! [`EngineFactory::manage`](crate::EngineFactory::manage). An engine that derives nothing needs
//! none of this and answers every command with
//! [`EngineError::Unsupported`](crate::EngineError::Unsupported).

use serde::{Deserialize, Serialize};

/// A question about the data that an engine derives, or a command to change it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "command")]
#[non_exhaustive]
pub enum StoreCommand {
    /// List the sessions that the engine derives something from. The answer has the list `sessions`
    /// and the path of the engine's file as `store`.
    List,
    /// Show what the engine derives from one session: sizes, how much of it is indexed, and what
    /// its window shows.
    Show {
        /// The id of the session. If the engine derives nothing from it, the command fails.
        session: String,
    },
    /// Delete the data that the engine derives from a session. The conversation itself stays.
    Delete {
        /// The id of the session. If the engine derives nothing from it, the command fails.
        session: String,
    },
    /// Check all derived data, as far as this is possible without the text of a message.
    Verify,
    /// Reclaim disk space that is no longer needed.
    Gc {
        /// Reclaim nothing and only report what would be reclaimed. A dry run returns the same
        /// figures.
        dry_run: bool,
    },
    /// Build what a search needs, such as vectors. Without this command, an engine builds it in the
    /// background between turns. The host keeps each session open meanwhile, because the engine
    /// reads the texts of messages through an open session.
    ///
    /// The answer has `sessions` and `missing`. Each session has its id as `session`, the number of
    /// its `messages`, and how many of them are `indexed` and `embedded`. The latter is null
    /// without an embedder. `missing` is the number of messages that still lack something.
    Index {
        /// The id of the session. Without it, every session is indexed.
        session: Option<String>,
        /// Build nothing and only report what is missing.
        dry_run: bool,
    },
    /// Stop the command that another thread started, if it can be stopped: a check or an index. The
    /// command soon fails with [`EngineError::Cancelled`](crate::EngineError::Cancelled) and leaves
    /// no partial result.
    Cancel,
    /// Report the progress of the command that another thread started, as `done` of `total`. The
    /// unit depends on the command.
    Progress,
    /// A command of a later version. An engine answers
    /// [`EngineError::Unsupported`](crate::EngineError::Unsupported).
    #[serde(other)]
    Unknown,
}
