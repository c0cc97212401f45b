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
        "{path} is of the session `{found}`, and not of `{session}`; it was copied or renamed, and is left as it is: \
         give the folder its name back"
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
