//! The reason why a request could not be managed.
//!
//! Every step on the way to the provider reports errors as a [`Failure`]. It holds a keyword for
//! the metrics and a text for people, because the request is passed on unchanged and the error
//! would otherwise be lost.

use contexture::session::{RecordError, SessionError};

/// Why a request could not be managed. It is then passed on unchanged, and the answer's headers and
/// the metrics say why.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A keyword for the metrics, from a small fixed set.
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
    /// Whether the store of sessions is the cause, whatever the reason is.
    pub(crate) is_of_store: bool,
}

/// The reason of a request that is read again.
const OVERTAKEN: &str = "overtaken";

impl Failure {
    /// Another request continued the session at the same time, so this one is to be read again.
    pub(crate) fn overtaken() -> Self {
        let detail = "another request continued the session at the same time";
        Self::new(OVERTAKEN, detail)
    }

    pub(crate) fn is_overtaken(&self) -> bool {
        self.reason == OVERTAKEN
    }

    pub(crate) fn new(reason: &'static str, detail: impl ToString) -> Self {
        Self {
            reason,
            detail: detail.to_string(),
            is_of_store: reason == "record",
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let reason = match error {
            _ if error.is_storage() => "storage",
            SessionError::InUse(RecordError::InUse { .. }) => "session_in_use",
            SessionError::InUse(_) | SessionError::Record(_) => "record",
            SessionError::Format(_) => "format",
            SessionError::Open(_) => "engine_not_open",
            _ => "engine",
        };
        Self::new(reason, error)
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        Self::new("record", error)
    }
}

/// The innermost cause of an error. The outer ones only say that something went wrong in a request
/// or in a body.
pub(crate) fn cause_of(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
