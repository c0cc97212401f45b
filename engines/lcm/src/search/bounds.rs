//! How much a query may ask for.
//!
//! A query may contain a whole pasted file. Limits on the size of a query keep its cost bounded
//! without capping the results. A pattern above the limit is an error, because a cut one would have
//! other matches. A question is cut to its first words, since a ranking still makes sense with
//! fewer.

use contexture_pattern::MAX_BYTES;

use super::{Ask, Query};
use crate::error::StoreError;
use crate::text::fold::fold;
use crate::text::terms::runs;

/// The maximum number of sessions of a query. Each has its own index, and its own place in a
/// cursor.
pub(crate) const MAX_SESSIONS: usize = 100;

/// The size of the part of a question that is read, in bytes. A question normally has a few
/// sentences.
const QUESTION_BYTES: usize = 8_192;

/// Returns the query as it is run, which is shortened if it is a long question, and the number of
/// words that this leaves out.
///
/// # Errors
/// Returns an error if the pattern is too long or the query names too many sessions.
pub(super) fn bounded(query: &Query) -> Result<(Query, u64), StoreError> {
    if query.sessions.len() > MAX_SESSIONS {
        return Err(StoreError::Query(format!(
            "{} sessions are named, but a search may have {MAX_SESSIONS}; search fewer at a time",
            query.sessions.len()
        )));
    }
    let mut query = query.clone();
    let mut left_out = 0;
    match &mut query.ask {
        Ask::Pattern(pattern) if pattern.text.len() > MAX_BYTES => {
            return Err(StoreError::Query(format!(
                "the pattern has {} bytes, and may have {MAX_BYTES}: search for its most telling part, or ask a \
                 `question` to rank by many words",
                pattern.text.len()
            )));
        }
        Ask::Pattern(_) => {}
        Ask::Question(text) => {
            let (cut, words) = cut_question(text);
            (*text, left_out) = (cut.to_owned(), words);
        }
    }
    Ok((query, left_out))
}

/// Returns the part of a question that is read, and the number of words after it. The cut is at a
/// space if there is one in the second half.
pub(crate) fn cut_question(text: &str) -> (&str, u64) {
    if text.len() <= QUESTION_BYTES {
        return (text, 0);
    }
    let end = text.floor_char_boundary(QUESTION_BYTES);
    let word = text[..end].rfind(char::is_whitespace);
    // A text in a script without spaces can be cut between any two characters.
    let end = word.filter(|at| *at > QUESTION_BYTES / 2).unwrap_or(end);
    let left_out = runs(&fold(&text[end..])).count();
    (&text[..end], left_out as u64)
}
