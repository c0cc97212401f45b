//! Why a session could not do what it was asked.

use contexture_formats::FormatError;
use contexture_runtime::engines::OpenError;
use contexture_runtime::supervision::CallError;

use super::record::RecordError;
use super::report::CompactionReport;

/// What went wrong in a session in a way that the configuration does not smooth over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The engine failed and `context.on_failure` is `fail`.
    #[error(
        "{reason} (`context.on_failure` is `fail`, so the turn stops here; the conversation is unchanged)"
    )]
    EngineFailed {
        /// What happened.
        reason: String,
        /// The report of the compaction that failed, where there was one.
        report: Box<CompactionReport>,
    },
    /// An engine could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A call of the engine failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A request or an answer could not be read.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The session is open elsewhere.
    #[error(transparent)]
    InUse(RecordError),
    /// Whose session it is cannot be kept.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The request is of another conversation than the session.
    #[error(
        "the conversation has nothing in common with the session `{session}`, no message and no summary; nothing \
         was changed: take another session for it, or remove this one first (`contexture sessions delete`)"
    )]
    Unrelated {
        /// The session.
        session: String,
    },
    /// An answer came before any turn.
    #[error("an answer needs a turn that it answers: call `turn` first")]
    NoTurn,
}
