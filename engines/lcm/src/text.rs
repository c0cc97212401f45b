//! How texts are compared: what counts as a word, and which letters count as the same.
//!
//! - [`terms`]: words and stretches of scripts without spaces, as the index and a search find them;
//! - [`fold`]: one case for every letter, so that case can be ignored.

pub(crate) mod fold;
pub(crate) mod terms;
