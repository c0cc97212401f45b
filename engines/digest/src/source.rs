//! One text of the span that a digest covers.

use std::borrow::Cow;

/// The origin of a text. It decides how much a fact in it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    User,
    /// Text of the assistant, or of anyone except a user and a tool.
    Assistant,
    Argument(usize),
    Result(usize),
}

/// One text of the span, with its secrets masked. `error` is the byte of the first word that
/// reports an error, and `outcome` that of the last word that reports the result of a test run.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    pub(crate) message: usize,
    pub(crate) origin: Origin,
    pub(crate) key: Cow<'a, str>,
    pub(crate) text: Cow<'a, str>,
    pub(crate) error: Option<usize>,
    pub(crate) outcome: Option<usize>,
}
