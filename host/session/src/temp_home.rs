//! A temporary home for engines, used to try out a configuration.
//!
//! A replay runs the user's engines with the user's configuration, but it must not find anything in
//! their stores or leave anything there. [`TempHome`] therefore gives them an empty data directory
//! that is deleted afterwards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use contexture_config::Loaded;
use contexture_providers::ModelClient;
use contexture_runtime::engines::{Engines, NameTaken};
use contexture_transcript::Record;
use tempfile::TempDir;

/// The engines of a configuration with a data directory of their own, so that a replay neither
/// finds anything in the engines' stores nor leaves anything there. The directory is deleted when
/// this is dropped.
#[derive(Debug)]
pub struct TempHome {
    engines: Arc<Engines>,
    /// Opened on first use. None if it cannot be opened, and the sessions then live in memory.
    record: OnceLock<Option<Arc<Record>>>,
    sessions: AtomicU64,
    _home: TempDir,
}

/// Why the engines cannot get a temporary home.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TempHomeError {
    /// Two engines of the configuration have the same name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The temporary data directory cannot be created.
    #[error(
        "cannot make a temporary directory for the engines' data: {0}; set TMPDIR to a place that can be written to"
    )]
    Home(std::io::Error),
}

impl TempHome {
    /// Creates a temporary home for the engines of this configuration. `client` answers their model
    /// calls.
    ///
    /// # Errors
    /// Two engines have the same name, or there is no place for a temporary directory.
    pub fn new(mut loaded: Loaded, client: ModelClient) -> Result<Self, TempHomeError> {
        let home = tempfile::Builder::new()
            .prefix("contexture-home-")
            .tempdir()
            .map_err(TempHomeError::Home)?;
        loaded.home = home.path().to_owned();
        Ok(Self {
            record: OnceLock::new(),
            engines: Engines::new(loaded, client)?,
            sessions: AtomicU64::new(0),
            _home: home,
        })
    }

    /// The engines, with the temporary home as their data directory.
    pub fn engines(&self) -> &Arc<Engines> {
        &self.engines
    }

    /// The record of the sessions that run here. It is in the temporary home too. None if it cannot
    /// be opened.
    pub fn record(&self) -> Option<&Arc<Record>> {
        let open = || Record::open(&self.engines.loaded().home).ok();
        self.record.get_or_init(open).as_ref()
    }

    /// Returns a session id that no other session here has.
    pub fn fresh_session(&self) -> String {
        format!(
            "replay-{}",
            self.sessions.fetch_add(1, Ordering::Relaxed) + 1
        )
    }
}
