//! How texts are compared: what counts as a word, and which letters count as the same.
//!
//! - [`terms`] finds words and runs of scripts without spaces, in the same way for the index and
//!   for a search.
//! - [`fold`] brings letters to one form, so that case and accents can be ignored.

pub(crate) mod fold;
pub(crate) mod terms;
