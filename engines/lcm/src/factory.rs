//! The factory: one store for all sessions of a data directory.

use contexture_engine_api::{
    ContextEngine, EngineDefinition, EngineError, EngineFactory, FactoryRequest, OpenRequest,
    StoreCommand, define_engine,
};
use serde_json::Value;

use crate::engine::Engine;
use crate::manage;
use crate::settings::Settings;
use crate::store::{Store, StoreSettings};

/// The engine, for a host that links it in.
pub const DEFINITION: EngineDefinition = define_engine!("lcm", factory Lcm);

/// The lossless engine: every message is kept, everything is found again, and the window stays small.
#[derive(Debug)]
pub struct Lcm {
    store: Store,
}

impl EngineFactory for Lcm {
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        let settings = Settings::read(request.settings)?;
        let store = Store::open(
            request.data_dir,
            StoreSettings {
                large_tokens: settings.large_message_tokens,
                ..StoreSettings::default()
            },
        )?;
        Ok(Self { store })
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let settings = Settings::read(request.settings)?;
        let engine = Engine::new(self.store.clone(), settings, request)?;
        Ok(Box::new(engine))
    }

    fn manage(&self, command: &StoreCommand) -> Result<Value, EngineError> {
        manage::answer(&self.store, command)
    }
}
