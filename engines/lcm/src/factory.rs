//! The factory: one store for all sessions of a data directory.
//!
//! [`Lcm`] is what a host creates from [`DEFINITION`]. It opens the store of its data directory
//! once and shares it between all sessions. Opening a session builds an [`Engine`] on that store.
//! If the store is damaged, it is deleted and built again from the host's record.
//!
//! The factory also answers the maintenance commands of the user. A command must work on a store
//! that cannot be written, and must not create a store only to report that it is empty. `shared`
//! finds the right store for each case, and the maintenance module does the work.

use std::sync::Arc;

use contexture_engine_api::{
    About, ContextEngine, EngineDefinition, EngineError, EngineFactory, FactoryRequest, HostInfo,
    OpenRequest, StoreCommand, define_engine,
};
use serde_json::Value;

use crate::engine::Engine;
use crate::error::StoreError;
use crate::maintenance::{self, Progress};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::store::StoreSettings;

/// The definition of this engine, for a host that links it in instead of loading it as a plugin.
pub const DEFINITION: EngineDefinition = define_engine!("lcm", factory Lcm);

/// The lossless engine: every message is found again, and the window stays small.
#[derive(Debug)]
pub struct Lcm {
    shared: Arc<Shared>,
    progress: Progress,
}

impl EngineFactory for Lcm {
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        let settings = Settings::read(request.settings)?;
        let store = StoreSettings {
            large_tokens: settings.large_message_tokens,
            embedder: settings.open_embedder()?,
            ..StoreSettings::default()
        };
        let shared = Arc::new(Shared::new(request.data_dir.to_owned(), store));
        let progress = Progress::default();
        let lcm = Self { shared, progress };
        if !lcm.shared.has_store() {
            // It is made for the first session.
            return Ok(lcm);
        }
        match lcm.shared.store() {
            // Those can be read.
            Ok(_) | Err(StoreError::ReadOnly(_) | StoreError::DiskFull(_)) => Ok(lcm),
            Err(error) => Err(error.into()),
        }
    }

    fn about(_host: &HostInfo) -> About {
        About::default()
            .settings(Some(schemars::schema_for!(Settings).to_value()))
            .reads_transcript(true)
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let settings = Settings::read(request.settings)?;
        let engine = Engine::new(&self.shared, settings, request)?;
        Ok(Box::new(engine))
    }

    fn manage(&self, command: &StoreCommand) -> Result<Value, EngineError> {
        match command {
            StoreCommand::Progress => Ok(self.progress.answer()),
            StoreCommand::Cancel => Ok(self.progress.cancel()),
            command if !self.shared.has_store() => {
                self.shared.answer_of_none(command, &self.progress)
            }
            command => {
                let store = self.shared.store_for(command)?;
                let session = match command {
                    StoreCommand::Index { session, .. } => session.as_deref(),
                    _ => None,
                };
                let source = self.shared.source_of(session.unwrap_or_default());
                let store = source.map_or(store.clone(), |source| store.over(source));
                maintenance::answer(&store, command, &self.progress)
            }
        }
    }
}
