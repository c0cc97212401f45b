//! The search index: which messages and which summaries contain which terms.
//!
//! - [`corpus`]: the two kinds of texts that are indexed, messages and summaries.
//! - [`list`]: the compressed list of the texts that contain a term, with positions if they are
//!   needed.
//! - [`segment`]: reads segments, which are sorted terms with their lists, in chunks that are rows
//!   of SQLite. [`chunks`] writes them during a conversation.
//! - [`build`]: builds segments from texts and merges small ones.
//! - [`need`]: what a text must contain in order to match a pattern, and which texts contain it.
//! - [`vocabulary`]: the terms of a segment in memory, for questions, which look up many.
//! - [`worker`]: the background thread that indexes.
//! - [`upkeep`]: updates, checks and rebuilds the index of a session.
//!
//! If a query consists of whole words, or of runs of a script without spaces, the index alone
//! answers it. Otherwise the index finds candidates and their texts decide. Parts of words are
//! found by scanning all terms, which are far smaller than the texts, so no trigrams are stored.

pub(crate) mod build;
pub(crate) mod chunks;
pub(crate) mod corpus;
pub(crate) mod list;
pub(crate) mod need;
pub(crate) mod segment;
pub(crate) mod upkeep;
pub(crate) mod vocabulary;
pub(crate) mod worker;
