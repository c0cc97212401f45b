//! The factory: one store for all sessions of a data directory.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use contexture_engine_api::{
    About, ContextEngine, EngineDefinition, EngineError, EngineFactory, FactoryRequest, HostInfo,
    OpenRequest, StoreCommand, define_engine,
};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::error::StoreError;
use crate::maintenance::{self, Progress};
use crate::settings::Settings;
use crate::store::{FILE_NAME, Store, StoreSettings};

/// The engine, for a host that links it in.
pub const DEFINITION: EngineDefinition = define_engine!("lcm", factory Lcm);

/// The lossless engine: every message is kept, everything is found again, and the window stays small.
#[derive(Debug)]
pub struct Lcm {
    directory: PathBuf,
    settings: StoreSettings,
    /// None if it is damaged or cannot be written: opening is retried, and a repair stays possible.
    store: Mutex<Option<Store>>,
    progress: Progress,
}

impl Lcm {
    fn store(&self) -> Result<Store, StoreError> {
        let mut place = self.place();
        // One whose file was removed is of use to nobody.
        if let Some(store) = place.as_ref().filter(|store| store.path().exists()) {
            return Ok(store.clone());
        }
        let store = Store::open(&self.directory, self.settings.clone())?;
        *place = Some(store.clone());
        Ok(store)
    }

    /// The store to answer a command with: to read, one that cannot be written will do.
    fn store_for(&self, command: &StoreCommand) -> Result<Store, StoreError> {
        let only_reads = matches!(
            command,
            StoreCommand::List
                | StoreCommand::Show { .. }
                | StoreCommand::Export { .. }
                | StoreCommand::Verify
                | StoreCommand::Backup { .. }
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

    /// Answers a command where there is no store, and makes none for a question.
    fn answer_of_none(&self, command: &StoreCommand) -> Result<Value, EngineError> {
        let place = tempfile::tempdir().map_err(|cause| StoreError::File {
            path: std::env::temp_dir(),
            cause,
        })?;
        let store = Store::open(place.path(), self.settings.clone())?;
        let mut answer = match command {
            StoreCommand::Repair { dry_run: true } => {
                maintenance::repair(place.path(), Ok(store), true, &self.progress)?
            }
            StoreCommand::Repair { .. } => json!({
                "dry_run": false,
                "kept": null,
                "messages": 0,
                "messages_lost": 0,
                "summaries": 0,
                "summaries_lost": 0,
            }),
            command => maintenance::answer(&store, command, &self.progress)?,
        };
        if let Some(path) = answer.get_mut("store") {
            *path = json!(self.directory.join(FILE_NAME));
        }
        Ok(answer)
    }

    fn place(&self) -> MutexGuard<'_, Option<Store>> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EngineFactory for Lcm {
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        let settings = Settings::read(request.settings)?;
        let lcm = Self {
            directory: request.data_dir.to_owned(),
            settings: StoreSettings {
                large_tokens: settings.large_message_tokens,
                embedder: settings.open_embedder()?,
                ..StoreSettings::default()
            },
            store: Mutex::default(),
            progress: Progress::default(),
        };
        if !Store::is_in(&lcm.directory) {
            // It is made for the first session.
            return Ok(lcm);
        }
        match lcm.store() {
            // Those can be repaired, or read.
            Ok(_)
            | Err(StoreError::Damaged(_) | StoreError::ReadOnly(_) | StoreError::DiskFull(_)) => {
                Ok(lcm)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schemars::schema_for!(Settings).to_value()))
            .keeps_sessions(true)
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let settings = Settings::read(request.settings)?;
        let engine = Engine::new(self.store()?, settings, request)?;
        Ok(Box::new(engine))
    }

    fn manage(&self, command: &StoreCommand) -> Result<Value, EngineError> {
        match command {
            StoreCommand::Progress => Ok(self.progress.answer()),
            StoreCommand::Cancel => Ok(self.progress.cancel()),
            command if !Store::is_in(&self.directory) => self.answer_of_none(command),
            StoreCommand::Repair { dry_run } => {
                let opened = self.store();
                if !dry_run {
                    // The store must not be open anywhere, this process included.
                    *self.place() = None;
                }
                maintenance::repair(&self.directory, opened, *dry_run, &self.progress)
            }
            command => maintenance::answer(&self.store_for(command)?, command, &self.progress),
        }
    }
}
