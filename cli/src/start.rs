//! The first steps of most commands: the configuration, the model client, the engines and the
//! record of sessions.
//!
//! [`open_engines`] combines them. It takes a configuration from [`load_config`], resolves the
//! model that writes summaries, checks the settings of every engine, and returns the engines.
//! Commands that need only a part call the smaller functions.
//!
//! The command line has more patience than an agent, see [`patient`]. It also goes on without a
//! damaged record of sessions, see [`leave_the_record_aside`], as far as the command does not need
//! it. What the sections of a configuration mean is left to `contexture::config`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::CliError;
use crate::{Global, terminal};
use contexture::catalog::Catalog;
use contexture::config::{Config, ConfigError, Loaded, Supervision};
use contexture::engines::{Engines, catalog};
use contexture::providers::{
    ModelClient, ProviderError, Resolved, configured_agent, configured_client, resolve_configured,
};
use contexture::session::{Record, RecordError, open_record, open_record_to_read};

/// The deadline in milliseconds of an engine's call if none is configured. A user at a terminal
/// would rather wait than get another engine.
const PATIENCE_MS: u64 = 60_000;

/// Reads the configuration and prints its warnings to stderr. Fails if it cannot be used.
pub(crate) fn load_config(global: &Global) -> Result<Loaded, CliError> {
    let loaded = read_config(global).map_err(CliError::config)?;
    for warning in &loaded.warnings {
        terminal::warn(&warning.to_string());
    }
    Ok(loaded)
}

/// Reads the configuration with the variables of the process, and prints nothing.
pub(crate) fn read_config(global: &Global) -> Result<Loaded, ConfigError> {
    Config::load(global.config.as_deref(), &|name| std::env::var_os(name))
}

/// Returns the configuration with a longer deadline for calls of an engine, unless the user
/// configured one.
pub(crate) fn patient(mut loaded: Loaded) -> Loaded {
    let deadline = &mut loaded.config.context.supervision.call_deadline_ms;
    // A value that the user wrote counts. If it is the default, the two cannot be told apart, and a
    // longer deadline does no harm.
    if *deadline == Supervision::default().call_deadline_ms {
        *deadline = PATIENCE_MS;
    }
    loaded
}

/// Returns how long loading a library may take in a command that inspects a plugin. Such a command
/// does not need the configuration, so an unreadable one is not an error here.
pub(crate) fn loading_deadline(global: &Global) -> Duration {
    let configured = read_config(global).map(|loaded| patient(loaded).config.context.supervision);
    Duration::from_millis(configured.map_or(PATIENCE_MS, |configured| configured.call_deadline_ms))
}

/// Returns the engines that a configuration gives access to. Fails if two linked crates register
/// the same name. Broken plugins are no error, they are part of the result.
pub(crate) fn scan(loaded: &Loaded) -> Result<Catalog, CliError> {
    catalog(loaded).map_err(CliError::NameTaken)
}

/// Opens the engines of a configuration with the model client that it names. `agent_model` is the
/// model that the user named for the agent. Fails if the settings of any engine are wrong.
pub(crate) fn open_engines(
    loaded: Loaded,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<Arc<Engines>, CliError> {
    let client = model_client(&loaded.config, offline, agent_model)?;
    let engines = Engines::new(patient(loaded), client).map_err(CliError::NameTaken)?;
    check_settings(&engines)?;
    Ok(engines)
}

/// Checks the settings of all engines, even of those that do not run. The error lists every problem
/// with its position.
pub(crate) fn check_settings(engines: &Engines) -> Result<(), CliError> {
    let wrong = engines.catalog().wrong_settings(engines.loaded());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(CliError::config(ConfigError::Invalid(wrong))),
    }
}

/// Returns the client of the model that writes summaries. If the configuration asks for a model and
/// there is none, a warning on stderr says why.
pub(super) fn model_client(
    config: &Config,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<ModelClient, CliError> {
    let resolved = resolve_model(config, offline, agent_model).map_err(CliError::Provider)?;
    if let Resolved::NoModel(reason) = &resolved
        // Most commands work without a model, so only a model that the configuration asks for is
        // missed.
        && reason.is_unexpected()
    {
        terminal::warn(&reason.to_string());
    }
    Ok(configured_client(config, resolved))
}

/// The damage of the record. It is set once a command continues without the record. From then on,
/// everything that opens the record gets an empty one.
static DAMAGE: Mutex<Option<String>> = Mutex::new(None);

/// Makes the rest of the command continue without a damaged record, and warns the user. Returns
/// false if the command does so already, or if the error is something other than damage.
pub(crate) fn leave_the_record_aside(error: &RecordError) -> bool {
    let mut damage = DAMAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if damage.is_some() || !error.is_damage() {
        return false;
    }
    let said = format!("the record of sessions is not used: {error}");
    terminal::warn(&said);
    *damage = Some(error.to_string());
    true
}

/// Opens the record of sessions that the configuration names, and creates a file that does not exist.
pub(crate) fn open_store(engines: &Engines) -> Result<Arc<Record>, CliError> {
    store(engines.loaded(), open_record)
}

/// Opens the record of sessions for reading. It may be on a read-only file system, and if there is
/// none, an empty one is returned.
pub(crate) fn open_store_to_read(engines: &Engines) -> Result<Arc<Record>, CliError> {
    store(engines.loaded(), open_record_to_read)
}

/// Opens the record with `open`. If a damaged record was left aside before, returns an empty one in
/// its place.
fn store(
    loaded: &Loaded,
    open: fn(&Loaded) -> Result<Arc<Record>, RecordError>,
) -> Result<Arc<Record>, CliError> {
    let damage = DAMAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let store = match &*damage {
        Some(damage) => Record::standing_in(&loaded.home, damage),
        None => open(loaded),
    };
    store.map_err(CliError::Sessions)
}

/// Returns the engine that has a session according to the record. None if the record does not know
/// the session.
pub(crate) fn engine_of(store: &Record, session: &str) -> Result<Option<String>, CliError> {
    let delivered = store.delivered(session)?;
    Ok(delivered.map(|delivered| delivered.engine))
}

/// Returns which model writes summaries. The agent's own provider is the one that the configuration
/// names, because no agent runs here that could tell it.
pub(crate) fn resolve_model(
    config: &Config,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<Resolved, ProviderError> {
    let agent = configured_agent(config, agent_model)?;
    resolve_configured(
        config,
        agent.as_ref(),
        offline,
        &contexture::secret_if_readable,
    )
}
