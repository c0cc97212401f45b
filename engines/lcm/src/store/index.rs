//! The search index: which messages, and which summaries, hold which terms.
//!
//! - [`corpus`]: the two things that are indexed, messages and summaries;
//! - [`list`]: which texts hold a term, and where a pair stands in them, compressed;
//! - [`segment`]: reading segments: sorted terms and their lists, in chunks that are rows of SQLite;
//!   [`chunks`]: writing them during a conversation;
//! - [`build`]: building segments from texts and merging small ones;
//! - [`need`]: what must be in a text for it to match, and which texts have it;
//! - [`vocabulary`]: a segment's terms in memory, for questions, which look up many;
//! - [`worker`]: the background thread that indexes;
//! - [`upkeep`]: the store's operations on its index: updating, checking and rebuilding it.
//!
//! The index alone answers queries for whole words and stretches of spaceless scripts; otherwise it narrows
//! down the candidates, and the text decides. Parts of words are found by scanning the vocabulary, which is
//! far smaller than the text, so no trigrams are stored.

pub(crate) mod build;
pub(crate) mod chunks;
pub(crate) mod corpus;
pub(crate) mod list;
pub(crate) mod need;
pub(crate) mod segment;
pub(crate) mod upkeep;
pub(crate) mod vocabulary;
pub(crate) mod worker;
