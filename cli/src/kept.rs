//! What an engine derives from sessions, for commands that only read.
//!
//! An engine may derive data from the record of sessions, for example a search index. [`list`]
//! tells whether it derives anything, and [`Vectors`] counts the vectors of one session. Neither of
//! them builds or changes anything. The commands that do are in [`crate::sessions`].
//!
//! Engines answer in JSON. The types here have what commands read of it, by the names that
//! [`StoreCommand`] documents. What an engine does not say has its default.

use std::path::PathBuf;

use contexture::engines::Engines;
use contexture_engine_api::{EngineError, StoreCommand};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use crate::error::CliError;

/// The sessions from which an engine derives something, and the path of its file.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DerivedList {
    pub(crate) store: Option<PathBuf>,
    pub(crate) sessions: Vec<IgnoredAny>,
}

/// How much of each session is indexed, and how many messages still lack something.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DerivedIndex {
    pub(crate) sessions: Vec<IndexedSession>,
    pub(crate) missing: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct IndexedSession {
    pub(crate) embedded: Option<u64>,
}

/// How far a command is that another thread started. `total` is 0 if that is not known yet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CommandProgress {
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// Reads an answer of an engine.
pub(crate) fn read<T: DeserializeOwned + Default>(answer: Value) -> T {
    serde_json::from_value(answer).unwrap_or_default()
}

/// Asks an engine what it derives from all sessions. Returns `None` if the engine derives nothing,
/// and an error if it cannot answer.
pub(crate) fn list(engines: &Engines, engine: &str) -> Result<Option<DerivedList>, CliError> {
    match engines.manage(Some(engine), &StoreCommand::List) {
        Err(error) if matches!(error.refusal(), Some(EngineError::Unsupported(_))) => Ok(None),
        list => list
            .map(|list| Some(read(list)))
            .map_err(CliError::of_keeper),
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
    pub(crate) fn of(index: &DerivedIndex) -> Option<Self> {
        Some(Self {
            made: index.sessions.first()?.embedded?,
            missing: index.missing?,
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
        Self::of(&read(engines.manage(Some(engine), &command).ok()?))
    }
}
