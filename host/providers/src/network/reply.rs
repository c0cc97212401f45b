//! Judges whether a server's answer is usable.
//!
//! A response with status 200 may still be no answer: it may be cut off, declined, empty, or ask
//! for a tool that was not offered. [`Reply`] is an answer that an engine can use, and [`Unusable`]
//! says why one is not.
//!
//! [`answer_text`] is the function to read first. It removes the reasoning that some servers leave
//! in the text. The two formats (`openai`, `anthropic`) find the text and the stop reason, and
//! `failure` turns an unusable answer into a failure with advice.

use contexture_engine_api::FailureKind;

/// The text of a complete answer, and the model that the server says has written it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) text: String,
    pub(super) model: Option<String>,
}

/// An answer that cannot be used, with the kind of failure and a description of what happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unusable {
    pub(super) kind: FailureKind,
    pub(super) what: String,
}

impl Unusable {
    pub(super) fn new(kind: FailureKind, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
        }
    }

    /// Returns the error for an answer that reached its token limit. Half a summary is worse than
    /// none, so the text is not used.
    pub(super) fn cut_off() -> Self {
        Self::new(
            FailureKind::CutOff,
            "the answer was cut off at its token limit; ask for less or allow more tokens",
        )
    }

    /// Returns the error for an answer that asks for a tool. None was offered, so the model has not
    /// answered.
    pub(super) fn tool_call() -> Self {
        Self::new(
            FailureKind::Empty,
            "the model asked for a tool instead of answering in text",
        )
    }
}

/// Returns the actual answer: without leading reasoning and surrounding space.
///
/// # Errors
/// Returns [`Unusable`] if nothing is left.
pub(super) fn answer_text(text: &str) -> Result<String, Unusable> {
    let answer = without_reasoning(text).trim();
    if answer.is_empty() {
        return Err(Unusable::new(
            FailureKind::Empty,
            "the answer holds no text",
        ));
    }
    Ok(answer.to_owned())
}

/// Removes leading `<think>…</think>` blocks. Later blocks are kept, because a summary may mention
/// the tags. Some chat templates drop the opening tag, so a closing tag on a line of its own also
/// ends the reasoning. If a block is not closed, nothing is left.
fn without_reasoning(text: &str) -> &str {
    const OPEN: &str = "<think>";
    const CLOSE: &str = "</think>";
    let mut rest = text.trim_start();
    if !rest.starts_with(OPEN) {
        // A closing tag after an opening one belongs to that one, and both are part of the answer.
        let opened = rest.find(OPEN).unwrap_or(rest.len());
        let mut offset = 0;
        for line in rest.split_inclusive('\n') {
            if offset >= opened {
                break;
            }
            offset += line.len();
            if line.trim() == CLOSE {
                rest = rest[offset..].trim_start();
                break;
            }
        }
    }
    while let Some(thought) = rest.strip_prefix(OPEN) {
        // Reasoning without an end is not an answer.
        let Some(end) = thought.find(CLOSE) else {
            return "";
        };
        rest = thought[end + CLOSE.len()..].trim_start();
    }
    rest
}

#[cfg(test)]
mod tests;
