//! On this system engines have no processes of their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use contexture_engine_api::{
    ContextEngine, EngineDescription, EngineError, EngineFactory, FactoryRequest, OpenRequest,
};

use crate::catalog::Library;

pub(crate) fn find_program(
    _configured: Option<&Path>,
    _named: Option<&Path>,
) -> Result<PathBuf, String> {
    Err("this system is not supported".to_owned())
}

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

    pub(crate) fn current(&self) -> Option<u64> {
        match *self {}
    }

    pub(crate) fn kill(&self) {
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
