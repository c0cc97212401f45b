//! Where engines play: the user's configuration, and a home that is thrown away.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use contexture_config::Loaded;
use contexture_providers::ModelClient;
use contexture_runtime::engines::{Engines, NameTaken};
use tempfile::TempDir;

use crate::Record;

/// The engines of a configuration over a data directory of their own, so that a replay neither finds
/// anything in the engines' stores nor leaves anything there. The directory goes when this is dropped.
#[derive(Debug)]
pub struct Stage {
    engines: Arc<Engines>,
    /// Opened when it is first asked for. None where the disk does not have it; the sessions then live in memory.
    record: OnceLock<Option<Arc<Record>>>,
    sessions: AtomicU64,
    _home: TempDir,
}

/// Why there is no stage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StageError {
    /// Two engines have the same name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The engines cannot have a data directory for the time of the replay.
    #[error(
        "cannot make a temporary directory for the engines' data: {0}; set TMPDIR to a place that can be written to"
    )]
    Home(std::io::Error),
}

impl Stage {
    /// A stage for the engines of this configuration.
    ///
    /// # Errors
    /// Two engines of the same name, or no temporary directory.
    pub fn new(mut loaded: Loaded, client: ModelClient) -> Result<Self, StageError> {
        let home = tempfile::Builder::new()
            .prefix("contexture-stage-")
            .tempdir()
            .map_err(StageError::Home)?;
        loaded.home = home.path().to_owned();
        Ok(Self {
            record: OnceLock::new(),
            engines: Engines::new(loaded, client)?,
            sessions: AtomicU64::new(0),
            _home: home,
        })
    }

    /// The engines.
    pub fn engines(&self) -> &Arc<Engines> {
        &self.engines
    }

    /// The record of the sessions that play here.
    pub fn record(&self) -> Option<&Arc<Record>> {
        let open = || Record::open(&self.engines.loaded().home).ok();
        self.record.get_or_init(open).as_ref()
    }

    /// A session id that no other session of this stage has.
    pub fn fresh_session(&self) -> String {
        format!(
            "replay-{}",
            self.sessions.fetch_add(1, Ordering::Relaxed) + 1
        )
    }
}
