//! What an engine derives from sessions, for commands that only read.
//!
//! An engine may derive data from the record of sessions, for example a search index. [`list`]
//! tells whether it derives anything, and [`Vectors`] counts the vectors of one session. Neither of
//! them builds or changes anything. The commands that do are in [`crate::sessions`].

use contexture::engines::{CallError, Engines, OpenError};
use contexture_engine_api::{EngineError, StoreCommand};
use serde_json::Value;

use crate::error::CliError;

/// Asks an engine what it derives from all sessions. Returns `None` if the engine derives nothing,
/// and an error if it cannot answer.
pub(crate) fn list(engines: &Engines, engine: &str) -> Result<Option<Value>, CliError> {
    match engines.manage(Some(engine), &StoreCommand::List) {
        Err(OpenError::Call(CallError::Failed {
            error: EngineError::Unsupported(_),
            ..
        })) => Ok(None),
        list => list.map(Some).map_err(CliError::of_keeper),
    }
}

/// How many messages of a session have vectors, and how many could have one but do not. Vectors let
/// a question find text by its meaning.
pub(crate) struct Vectors {
    pub(crate) made: u64,
    pub(crate) missing: u64,
}

impl Vectors {
    /// Reads the counts for one session from an answer to [`StoreCommand::Index`]. `None` if the
    /// engine makes no vectors.
    pub(crate) fn of(index: &Value) -> Option<Self> {
        Some(Self {
            made: index["sessions"][0]["embedded"].as_u64()?,
            missing: index["missing"].as_u64()?,
        })
    }

    /// Asks the engine for the counts, without building anything. `None` if it makes no vectors or
    /// cannot answer.
    pub(crate) fn by(engines: &Engines, engine: &str, session: &str) -> Option<Self> {
        // A dry run of the index counts what is missing and builds nothing.
        let command = StoreCommand::Index {
            session: Some(session.to_owned()),
            dry_run: true,
        };
        Self::of(&engines.manage(Some(engine), &command).ok()?)
    }
}
