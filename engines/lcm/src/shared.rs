//! What the sessions of a data directory share: the store, and the transcripts of the open sessions.
//!
//! Start with [`Shared`]. The store holds only derived data. If it is damaged, it is removed and built again from the
//! host's record when a session is opened.
//!
//! Texts of messages can only be read through an open session. Commands about all sessions have no transcript of their
//! own, so each open session lends its transcript here ([`Shared::lend`]) until it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use contexture_engine_api::{EngineError, LogLevel, OpenRequest, StoreCommand};
use serde_json::{Value, json};

use crate::error::StoreError;
use crate::maintenance::{self, Progress};
use crate::session_state::SessionState;
use crate::store::{FILE_NAME, Source, Store, StoreSettings, lock};

/// The store of a data directory and the transcripts that are open.
#[derive(Debug)]
pub(crate) struct Shared {
    directory: PathBuf,
    settings: StoreSettings,
    /// None until the store is first used, and again after it was removed. Opening it is tried at
    /// each use, since a full disk or missing permissions may have been fixed.
    store: Mutex<Option<Store>>,
    /// The transcripts of the sessions that are open, by a number that is unique in this factory.
    open: Mutex<BTreeMap<u64, Source>>,
    opened: AtomicU64,
}

impl Shared {
    pub(crate) fn new(directory: PathBuf, settings: StoreSettings) -> Self {
        Self {
            directory,
            settings,
            store: Mutex::default(),
            open: Mutex::default(),
            opened: AtomicU64::default(),
        }
    }

    /// Whether there is a store.
    pub(crate) fn has_store(&self) -> bool {
        Store::is_in(&self.directory)
    }

    pub(crate) fn store(&self) -> Result<Store, StoreError> {
        let mut place = lock(&self.store);
        // If the file was removed, the open handle writes to a file that nobody can find any more.
        // A new store is opened instead.
        if let Some(store) = place.as_ref().filter(|store| store.path().exists()) {
            return Ok(store.clone());
        }
        let store = Store::open(&self.directory, self.settings.clone())?;
        *place = Some(store.clone());
        Ok(store)
    }

    /// Returns the store to answer a command with. If the store cannot be written and the command
    /// only reads, the store is opened for reading only.
    pub(crate) fn store_for(&self, command: &StoreCommand) -> Result<Store, StoreError> {
        let only_reads = matches!(
            command,
            StoreCommand::List
                | StoreCommand::Show { .. }
                | StoreCommand::Verify
                | StoreCommand::Index { dry_run: true, .. }
        );
        match self.store() {
            Err(StoreError::ReadOnly(_) | StoreError::DiskFull(_))
                if only_reads && self.directory.join(FILE_NAME).exists() =>
            {
                Store::open_to_read(&self.directory, self.settings.clone())
            }
            store => store,
        }
    }

    /// Answers a command if there is no store yet. It uses an empty store in a temporary directory,
    /// so that the question does not create one. The answer names the path that the store would
    /// have.
    pub(crate) fn answer_of_none(
        &self,
        command: &StoreCommand,
        progress: &Progress,
    ) -> Result<Value, EngineError> {
        let place = tempfile::tempdir().map_err(|cause| StoreError::File {
            path: std::env::temp_dir(),
            cause,
        })?;
        let store = Store::open(place.path(), self.settings.clone())?;
        let mut answer = maintenance::answer(&store, command, progress)?;
        if let Some(store) = answer.get_mut("store") {
            *store = json!(self.directory.join(FILE_NAME));
        }
        Ok(answer)
    }

    /// Deletes the store. It is created again at its next use, and each session is then filled from
    /// its transcript.
    pub(crate) fn remove_store(&self) {
        *lock(&self.store) = None;
        Store::remove_from(&self.directory);
    }

    /// Opens the state of a session. If the store turns out to be damaged, it is deleted and the
    /// session is opened once more. A second failure is returned.
    pub(crate) fn session(
        &self,
        redacts: bool,
        request: &OpenRequest<'_>,
    ) -> Result<SessionState, StoreError> {
        let open = || SessionState::open(&self.store()?, redacts, request);
        match open() {
            Err(error @ StoreError::Damaged(_)) => {
                let what = format!("{error}; rebuilding it now");
                request.services.log(LogLevel::Warn, &what);
                self.remove_store();
                open()
            }
            opened => opened,
        }
    }

    /// Lends a transcript to commands until the returned guard is dropped.
    pub(crate) fn lend(self: &Arc<Self>, source: Source) -> SourceGuard {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        lock(&self.open).insert(number, source);
        SourceGuard(Arc::clone(self), number)
    }

    /// Returns a transcript to answer a command about a session with. If the session is open, it is
    /// its own. If not, it is that of another open session, which may be allowed to read it. None
    /// if no session is open.
    pub(crate) fn source_of(&self, session: &str) -> Option<Source> {
        let open = lock(&self.open);
        let own = open.values().find(|source| source.is_of(session));
        own.or_else(|| open.values().next()).cloned()
    }
}

/// A transcript that is lent to commands until this is dropped.
#[derive(Debug)]
pub(crate) struct SourceGuard(Arc<Shared>, u64);

impl Drop for SourceGuard {
    fn drop(&mut self) {
        lock(&self.0.open).remove(&self.1);
    }
}
