//! Why a document could not be read or written.

use super::Format;
use super::json::JsonError;

/// Why a document could not be read or written: what was expected, where, and the way out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The text is not valid JSON, or a line of a session log is none of its format.
    #[error(
        "line {line}, column {column}: {what}; the document is damaged or was cut off, repair it there"
    )]
    Json {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// The text does not begin as JSON does.
    #[error(
        "it is text, and not JSON: a conversation is a request body, a list of messages, JSON lines or a session log \
         ({names})", names = Format::names()
    )]
    NotJson,
    /// The document is not UTF-8 and not a session log. In a session log, only the affected line would be skipped.
    #[error("byte {at} is not UTF-8; unpack or convert the document first")]
    NotText {
        /// The offset of the byte, counted from 0.
        at: usize,
    },
    /// The document belongs to a program whose format is not supported.
    #[error(
        "this looks like {what}; supported: {names}; convert it to one of these, or name its format with --format if it \
         is one",
        names = Format::names()
    )]
    Foreign {
        /// What it looks like, with its article.
        what: &'static str,
    },
    /// A message is valid JSON but not a message of this format.
    #[error("message {index}: {what}")]
    Message {
        /// Which of the wire messages, from 0.
        index: usize,
        /// What was expected and what was found.
        what: String,
    },
    /// The document is not of the format it was said to be.
    #[error("this is not a document of the format `{format}`: {what}; leave out --format to have the format detected, or name one of {names}", names = Format::names())]
    NotThis {
        /// The format that was named.
        format: Format,
        /// What was expected and what was found.
        what: String,
    },
    /// No known format fits.
    #[error("the format of this document is not known: {}; convert it to one of these, or name its format with --format ({names})", tried.join("; "), names = Format::names())]
    Unrecognised {
        /// Each format that was tried, and why it does not fit.
        tried: Vec<String>,
    },
    /// A name that is no format's.
    #[error("`{0}` is not a format; --format and --to take one of {names}", names = Format::names())]
    UnknownName(String),
    /// A window that does not fit the conversation.
    #[error("the window does not fit the conversation: {0}")]
    Window(String),
    /// It holds what its provider compacted itself.
    #[error(
        "a conversation that its provider compacted cannot be written as `{0}`: nobody else can read that; leave out --to"
    )]
    OnlyItsProvider(Format),
    /// There is no writer for this format.
    #[error(
        "a conversation cannot be converted to `{0}`; choose one of openai, anthropic, responses, claude-code"
    )]
    NoWriter(Format),
}

impl FormatError {
    pub(super) fn json(document: &str, start: usize, error: JsonError) -> Self {
        Self::at(document, start + error.at, error.what)
    }

    /// An error at this byte of the document.
    pub(super) fn at(document: &str, at: usize, what: impl Into<String>) -> Self {
        let before = document.get(..at).unwrap_or(document);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self::Json {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
            what: what.into(),
        }
    }

    pub(super) fn message(index: usize, what: impl Into<String>) -> Self {
        Self::Message {
            index,
            what: what.into(),
        }
    }
}
