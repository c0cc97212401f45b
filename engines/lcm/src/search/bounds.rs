//! How much a query may ask for.

use std::borrow::Cow;

use contexture_pattern::MAX_BYTES;

use super::{Ask, Query};
use crate::error::StoreError;
use crate::text::fold::fold;
use crate::text::terms::runs;

/// The most sessions of a query: each has its own index, and its place in a cursor.
pub(crate) const MAX_SESSIONS: usize = 100;

/// The part of a question that is read, in bytes. A question has a few sentences.
const QUESTION_BYTES: usize = 8_192;

/// The query as it is run: of a long question the first part. Also returns how many words that leaves out.
///
/// # Errors
/// A pattern that is too long, or too many sessions.
pub(super) fn bounded(query: &Query) -> Result<(Cow<'_, Query>, u64), StoreError> {
    if query.sessions.len() > MAX_SESSIONS {
        return Err(StoreError::Query(format!(
            "{} sessions are named, and a search may have {MAX_SESSIONS}: search some of them at a time",
            query.sessions.len()
        )));
    }
    match &query.ask {
        Ask::Pattern(pattern) if pattern.text.len() > MAX_BYTES => Err(StoreError::Query(format!(
            "the pattern has {} bytes, and may have {MAX_BYTES}: search for its most telling part, or ask a \
                 `question` to rank by many words",
            pattern.text.len()
        ))),
        Ask::Question(text) if text.len() > QUESTION_BYTES => {
            let (cut, left_out) = cut_question(text);
            let ask = Ask::Question(cut.to_owned());
            let query = Query {
                ask,
                ..query.clone()
            };
            Ok((Cow::Owned(query), left_out))
        }
        _ => Ok((Cow::Borrowed(query), 0)),
    }
}

/// The part of a question that is read, and how many words are left out.
pub(crate) fn cut_question(text: &str) -> (&str, u64) {
    if text.len() <= QUESTION_BYTES {
        return (text, 0);
    }
    let end = text.floor_char_boundary(QUESTION_BYTES);
    let word = text[..end].rfind(char::is_whitespace);
    // A script without blanks is cut anywhere.
    let end = word.filter(|at| *at > QUESTION_BYTES / 2).unwrap_or(end);
    let left_out = runs(&fold(&text[end..])).count();
    (&text[..end], left_out as u64)
}
