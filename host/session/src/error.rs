//! Errors of a session.
//!
//! Most failures of an engine or of the record are not errors: the session works around them and
//! adds a warning. [`SessionError`] is for what is left.

use contexture_engine_api::EngineError;
use contexture_formats::FormatError;
use contexture_runtime::engines::OpenError;
use contexture_runtime::supervision::CallError;

use contexture_transcript::RecordError;

use super::report::CompactionReport;

/// What went wrong in a session and could not be worked around. If the engine failed, that is an
/// error only if `context.on_failure` is `fail` or if the call cannot be done without the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The engine failed and `context.on_failure` is `fail`.
    #[error(
        "{reason} (`context.on_failure` is `fail`, so the turn stops here; the conversation is unchanged)"
    )]
    EngineFailed {
        /// What happened, in one sentence.
        reason: String,
        /// The report of the compaction that failed.
        report: Box<CompactionReport>,
    },
    /// The engine of the session, or the fallback, could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A call of the engine failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A tool of the host refused a call.
    #[error("{error}")]
    HostTool {
        /// The name of the tool.
        tool: String,
        /// Why, for the caller.
        error: EngineError,
    },
    /// A request or an answer could not be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The session is open elsewhere, or its lock cannot be used.
    #[error(transparent)]
    InUse(RecordError),
    /// The record could not be read or written although the operation needs it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The request has nothing in common with the session's conversation, and the options refuse
    /// such requests.
    #[error(
        "the conversation shares no message or summary with the session `{session}`. Nothing was changed. \
         Use a different session, or delete this one first (`contexture sessions delete`)"
    )]
    Unrelated {
        /// The id of the session.
        session: String,
    },
    /// An answer was given before any turn.
    #[error("no turn is waiting for an answer: call `turn` first")]
    NoTurn,
}

impl SessionError {
    /// Whether the cause is the store of the engine, as on a full disk.
    pub fn is_storage(&self) -> bool {
        match self {
            Self::Open(OpenError::Call(error)) | Self::Call(error) => error.is_storage(),
            _ => false,
        }
    }
}
