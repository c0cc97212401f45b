//! What can go wrong with the files.

use std::path::PathBuf;

use contexture_engine_api::EngineError;

/// Why files cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("{path} cannot be {tried}: {cause}; see to the disk and to who owns the folder")]
    Io {
        path: PathBuf,
        tried: &'static str,
        cause: std::io::Error,
    },
    #[error(
        "{path} is of the session `{found}`, and not of `{session}`; move the folder away, and what is in it is \
         forgotten"
    )]
    OfAnother {
        path: PathBuf,
        found: String,
        session: String,
    },
    #[error(
        "{path} was removed while the session was open; what the conversation still holds is kept anew from the next \
         turn on"
    )]
    Removed { path: PathBuf },
}

impl From<FolderError> for EngineError {
    fn from(error: FolderError) -> Self {
        Self::Storage(error.to_string())
    }
}
