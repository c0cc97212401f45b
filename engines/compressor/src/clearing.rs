//! Phase 1: which tool results may be cleared, and what a shortened one says.
//!
//! Tool results are the largest and least durable part of a conversation: a file that was read ten
//! turns ago can be read again. [`is_clearable`] decides whether a result may lose its text, and
//! [`preview`] builds a shorter form that keeps its beginning and its end. An answer of the user
//! that came in through a tool is never cleared, since it cannot be obtained again. Which results
//! are shortened, and in which order, is decided in `plan`.

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageView, SHORTENED_MARK};
use contexture_summaries::{asks_the_user, excerpt, tool_of};

/// A tool result is worth clearing if it has more characters than this. A shorter one costs little
/// more than the text that replaces it.
const CLEARED_FROM_CHARS: usize = 200;

/// Whether this tool result may be cleared: it has media or is long, it is not cleared already, and
/// it is not an answer of the user. `caller` is the message with its call, if it is known.
pub(crate) fn is_clearable<'a>(result: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> bool {
    result.role() == "tool"
        && (result.has_media() || is_long(result.text()))
        && result.text() != CLEARED_TOOL_OUTPUT
        && !asks_the_user(tool_of(result, caller))
}

fn is_long(text: &str) -> bool {
    // A character has one to four bytes, so the length in bytes decides most cases without counting
    // characters.
    text.len() > 4 * CLEARED_FROM_CHARS
        || (text.len() > CLEARED_FROM_CHARS && text.chars().count() > CLEARED_FROM_CHARS)
}

/// The shorter form of a tool result that is too long: a mark and an excerpt of about `chars`
/// characters.
pub(crate) fn preview(text: &str, chars: usize) -> String {
    format!("{SHORTENED_MARK}\n{}", excerpt(text, chars))
}

#[cfg(test)]
mod tests;
