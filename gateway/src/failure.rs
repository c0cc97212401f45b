//! Why a request could not be managed.

use contexture::session::SessionError;

/// Why a request leaves as it came.
#[derive(Debug)]
pub(crate) struct Failure {
    /// In a word, for the metrics.
    pub(crate) reason: &'static str,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(reason: &'static str, detail: impl ToString) -> Self {
        Self {
            reason,
            detail: detail.to_string(),
        }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let reason = match error {
            SessionError::InUse(_) => "session_in_use",
            SessionError::Format(_) => "format",
            SessionError::Open(_) => "engine_not_open",
            _ => "engine",
        };
        Self::new(reason, error)
    }
}
