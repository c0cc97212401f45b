//! The stored conversations: what survives a restart of a session.
//!
//! A conversation is stored once, by the host. The crate keeps the ids and hashes of its messages,
//! their text if the engine reads it or the user asks for it, the compaction in force, what the host
//! wrote, what last crossed the wire, and the artifacts of engines. Each turn is one transaction.
//!
//! Start with [`Record`], the store of all sessions. A session opens its part with
//! [`StoredSession::open`], which returns what is [`Saved`], and writes what changed with
//! [`StoredSession::save`]. A [`Hold`] keeps it open only once.
//!
//! Below the record is the backend that stores the rows: one file of SQLite, or with the feature
//! `postgres` a database that several machines share.
//!
//! The crate knows nothing of engines and wire formats apart from the types in which messages are
//! read. What the values mean to a conversation is decided by the session.

mod error;
mod hold;
mod host_text;
mod ids;
mod message_log;
mod packed;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
mod rows;
mod saved_window;
mod sql;
mod sqlite;
mod store;
mod wire_entries;
mod wire_log;

pub use error::RecordError;
pub use hold::{Hold, PATIENCE, Token};
pub use host_text::{HostText, HostTexts, IdSet};
pub use ids::{IdHasher, IdMap, Ids};
pub use message_log::{Fingerprint, Known, Logged, branch_of, chain_link};
#[cfg(feature = "postgres")]
pub use postgres::PostgresOptions;
pub use record::{
    CopyOutcome, InForce, NewArtifact, NewText, Placed, Record, Saved, SessionChange, SessionFacts,
    StoredMessage, StoredSession, WireMessage,
};
pub use saved_window::{BY_AGENT, EntryContent, SavedWindow};
pub use sqlite::RecordRepair;
pub use store::{Delivered, KeptChange, KeptContent, SessionSummary};
pub use wire_log::{Origin, WireEntry, WireLog};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
