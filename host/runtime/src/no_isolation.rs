//! Replaces the module `isolation` on systems without it: engines never run in separate processes.
//!
//! The types have the same names and methods as on Unix, so that the rest of the crate compiles
//! unchanged. None of their values can exist: [`find_program`] always fails, so no [`Launch`] is
//! ever started and [`Isolated`] has no variants.
//!
//! If the configuration asks for `context.isolation: process`, opening the engine fails with the
//! message of [`find_program`]. It never runs in this process instead.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::{
    ContextEngine, EngineDescription, EngineError, EngineFactory, FactoryRequest, OpenRequest,
};

use crate::catalog::Library;
use crate::supervision::EngineProcess;

/// Always fails, because this system has no support for engines in separate processes.
pub(crate) fn find_program(
    _configured: Option<&Path>,
    _named: Option<&Path>,
) -> Result<PathBuf, String> {
    Err("this system is not supported".to_owned())
}

// As on Unix, so that the caller is the same.
#[allow(dead_code)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) library: Library,
    pub(crate) engine: String,
    pub(crate) memory: Option<u64>,
    pub(crate) deadline: Duration,
}

#[derive(Debug)]
pub(crate) enum Isolated {}

impl Isolated {
    pub(crate) fn new(launch: Launch) -> Arc<Self> {
        unreachable!("{} is never found", launch.program.display())
    }

    pub(crate) fn description(&self) -> Result<EngineDescription, String> {
        match *self {}
    }
}

impl EngineProcess for Isolated {
    fn current(&self) -> Option<u64> {
        match *self {}
    }

    fn kill(&self) {
        match *self {}
    }
}

pub(crate) enum IsolatedFactory {}

impl IsolatedFactory {
    pub(crate) fn new(engine: Arc<Isolated>, _request: &FactoryRequest<'_>) -> Self {
        match *engine {}
    }
}

impl EngineFactory for IsolatedFactory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported("isolation".to_owned()))
    }

    fn open(&self, _request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        match *self {}
    }
}
