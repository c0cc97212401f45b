//! The search index: which messages, and which summaries, hold which terms.
//!
//! - [`corpus`]: the two things that are indexed, messages and summaries;
//! - [`fold`]: one case for letters, so that case can be ignored;
//! - [`terms`]: what a text is indexed under: words whole, scripts without spaces by the character and
//!   the pair of neighbours;
//! - [`list`]: which texts hold a term, and where a pair stands in them, compressed;
//! - [`segment`]: sorted terms and their lists, in chunks that are rows of SQLite; [`chunks`]: how they are
//!   written while the conversation goes on;
//! - [`build`]: making segments from texts and joining small ones to larger;
//! - [`need`]: what must be in a text for it to match, and which texts have it;
//! - [`vocabulary`]: a segment's terms in memory, for questions, which ask for many;
//! - [`worker`]: the thread that keeps up.
//!
//! The index only narrows, or answers where a whole word or a stretch of a spaceless script is asked for;
//! anything else is decided on the text itself. A part of a word is found by going through the vocabulary,
//! which is far smaller than the text, so no list of trigrams is kept.

pub(crate) mod build;
pub(crate) mod chunks;
pub(crate) mod corpus;
pub(crate) mod fold;
pub(crate) mod list;
pub(crate) mod need;
pub(crate) mod segment;
pub(crate) mod terms;
pub(crate) mod vocabulary;
pub(crate) mod worker;
