//! The error type of this crate.
//!
//! [`FormatError`] says why a document could not be read or written: what was expected, at
//! which place, and what the user can do about it. Its messages are shown to users as they are,
//! so they name the options `--format` and `--to`.
//!
//! Errors at a place in the document are built with `FormatError::at`, which turns a byte
//! offset into a line and a column. Errors of the JSON scanner come in through
//! `FormatError::json`.

use super::Format;
use super::json::JsonError;

/// Why a document could not be read or written. Each message states what was expected, the
/// place, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// The text is not valid JSON, or a line of a session log does not fit the log's format.
    #[error(
        "line {line}, column {column}: {what}; the document is damaged or was cut off, repair it there"
    )]
    Json {
        /// The line of the document, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong at this place.
        what: String,
    },
    /// The text does not begin the way a JSON document does, so it is probably plain text.
    #[error(
        "it is text, not JSON: a conversation is a request body, a list of messages, JSON lines or a session log \
         ({names})", names = Format::names()
    )]
    NotJson,
    /// The document is neither UTF-8 nor a session log. In a session log, only the affected
    /// line would be skipped.
    #[error("byte {at} is not UTF-8; unpack or convert the document first")]
    NotText {
        /// The offset of the first invalid byte, counted from 0.
        at: usize,
    },
    /// The document is compressed or in another encoding than UTF-8, as its first bytes say.
    #[error("it is {what}, and a conversation is JSON in UTF-8: unpack or convert it first")]
    Encoded {
        /// What the document is, such as `UTF-16`.
        what: &'static str,
    },
    /// The document belongs to a program whose format is recognised but not supported.
    #[error(
        "this looks like {what}; supported: {names}; convert it to one of these, or name its format with --format if it \
         is one",
        names = Format::names()
    )]
    Foreign {
        /// What the document looks like, with its article.
        what: &'static str,
    },
    /// What a provider reported as usage has no figures of tokens.
    #[error("the usage: {0}")]
    Usage(String),
    /// A message is valid JSON but does not fit the format.
    #[error("message {index}: {what}")]
    Message {
        /// The index of the wire message, from 0.
        index: usize,
        /// What was expected and what was found.
        what: String,
    },
    /// The document does not have the format that the caller named.
    #[error("this is not a `{format}` document: {what}; omit --format to detect it, or use one of {names}", names = Format::names())]
    NotThis {
        /// The format that the caller named.
        format: Format,
        /// What was expected and what was found.
        what: String,
    },
    /// The document fits none of the supported formats.
    #[error("the format of this document was not recognised: {}; convert it to one of these, or name its format \
             with --format ({names})", tried.join("; "), names = Format::names())]
    Unrecognised {
        /// What was found, followed by what each format would have needed.
        tried: Vec<String>,
    },
    /// The given name does not belong to any format.
    #[error("`{0}` is not a format; --format and --to take one of {names}", names = Format::names())]
    UnknownName(String),
    /// The window does not fit the conversation, for example because it names a message that
    /// does not exist.
    #[error("the window does not fit the conversation: {0}")]
    Window(String),
    /// The conversation holds items that its provider compacted itself, and another format was
    /// requested.
    #[error(
        "a conversation that its provider compacted cannot be written as `{0}`: only the provider can read its \
         compaction; leave out --to"
    )]
    OnlyItsProvider(Format),
    /// No writer exists for this format.
    #[error(
        "a conversation cannot be converted to `{0}`; choose one of openai, anthropic, responses, gemini, claude-code"
    )]
    NoWriter(Format),
}

impl FormatError {
    /// Builds the error for a JSON error in the part of the document that starts at byte
    /// `start`.
    pub(super) fn json(document: &str, start: usize, error: JsonError) -> Self {
        Self::at(document, start + error.at, error.what)
    }

    /// Builds the error for byte `at` of the document, with its line and column.
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
