//! The history that a user already has: the logs that agents keep on this machine, in one place
//! that can be searched.
//!
//! [`Importer`] finds the logs, reads what is new in them and stores it in `history.sqlite3` in the
//! home directory. The logs are only read, never written. [`History`] answers: [`History::search`]
//! finds messages, and [`History::read`] shows one with its neighbours.
//!
//! - `entry`: what a log is read into. A message is stored part by part: a text, a tool call, a
//!   result, thinking.
//! - `readers`: one file for each format, which says where the agent keeps its logs and what is in
//!   them. A new format is a file and a row in `readers::FORMATS`.
//! - `import`: which logs have to be read, and how far they were read before.
//! - `conversations`: a log as conversations that can be played.
//! - `writer`: the database. `search`: questions to it. `words`: what a word is, for both.

mod conversations;
mod entry;
mod error;
mod import;
mod output;
mod places;
mod readers;
mod search;
mod sources;
mod words;
mod writer;

pub use conversations::{is_log, read_conversations};
pub use entry::Kind;
pub use error::HistoryError;
pub use import::{AgentReport, ImportReport, Importer, Progress};
pub use places::Places;
pub use readers::{agents, logs_of};
pub use search::{Excerpt, Found, History, Hit, Message, Query, parse_since};
pub use sources::Skipped;

/// The name of the database in the home directory.
pub const FILE_NAME: &str = "history.sqlite3";

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
