//! What most commands begin with: the configuration, the model provider, the engines.

use std::path::Path;
use std::sync::Arc;

use super::error::CliError;
use super::{Global, terminal};
use crate::config::{Config, ConfigError, DocumentError, Loaded};
use crate::engines::Engines;
use crate::providers::{
    ProviderError, Resolved, configured_agent, configured_client, resolve_configured,
};
use crate::session::Store;

/// Reads the configuration, and says on stderr what is doubtful in it.
pub(super) fn load_config(global: &Global) -> Result<Loaded, CliError> {
    let loaded = read_config(global).map_err(CliError::Config)?;
    for warning in &loaded.warnings {
        terminal::say(&format!("{}\n", terminal::warning(&warning.to_string())));
    }
    Ok(loaded)
}

/// Reads the configuration.
pub(super) fn read_config(global: &Global) -> Result<Loaded, ConfigError> {
    Config::load(global.config.as_deref(), &|name| std::env::var_os(name))
}

/// The config file that an error is about.
pub(super) fn file_of(error: &ConfigError) -> Option<&Path> {
    match error {
        ConfigError::Document(
            DocumentError::Read { file, .. }
            | DocumentError::TooLarge { file }
            | DocumentError::NotUtf8 { file, .. }
            | DocumentError::Syntax { file, .. }
            | DocumentError::DuplicateKey { file, .. },
        ) => Some(file),
        ConfigError::Invalid(findings) => Some(&findings.first()?.file),
        ConfigError::NoHome | ConfigError::Path { .. } => None,
    }
}

/// The engines of a configuration, with the model provider that it names.
pub(super) fn open_engines(
    loaded: Loaded,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<Arc<Engines>, CliError> {
    let resolved =
        resolve_model(&loaded.config, offline, agent_model).map_err(CliError::Provider)?;
    let client = configured_client(&loaded.config, resolved);
    Engines::new(loaded, client).map_err(CliError::NameTaken)
}

/// The store of the sessions of the home directory.
pub(super) fn open_store(engines: &Engines) -> Result<Arc<Store>, CliError> {
    Store::open(&engines.loaded().home).map_err(CliError::Sessions)
}

/// The engine that a session was kept by; none where it is not known.
pub(super) fn engine_of(store: &Store, session: &str) -> Result<Option<String>, CliError> {
    let delivered = store.delivered(session).map_err(CliError::Sessions)?;
    Ok(delivered.map(|delivered| delivered.engine))
}

/// Which model writes summaries. The agent is the one that the configuration names: here none is
/// running.
pub(super) fn resolve_model(
    config: &Config,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<Resolved, ProviderError> {
    let agent = configured_agent(config, agent_model)?;
    resolve_configured(config, agent.as_ref(), offline, &|name| {
        std::env::var(name).ok()
    })
}
