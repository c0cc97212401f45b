//! What most commands begin with: the configuration, the model provider, the engines.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::error::CliError;
use crate::{Global, terminal};
use contexture::config::{Config, ConfigError, Loaded, Supervision};
use contexture::engines::Engines;
use contexture::providers::{
    ModelClient, ProviderError, Resolved, configured_agent, configured_client, resolve_configured,
};
use contexture::session::{Record, RecordError};

/// The deadline of an engine's call where none is configured: who waits at a terminal would rather wait than have
/// another engine.
const PATIENCE_MS: u64 = 60_000;

/// Reads the configuration, and says on stderr what is doubtful in it.
pub(crate) fn load_config(global: &Global) -> Result<Loaded, CliError> {
    let loaded = read_config(global).map_err(CliError::config)?;
    for warning in &loaded.warnings {
        terminal::say(&format!("{}\n", terminal::warning(&warning.to_string())));
    }
    Ok(loaded)
}

/// Reads the configuration.
pub(crate) fn read_config(global: &Global) -> Result<Loaded, ConfigError> {
    Config::load(global.config.as_deref(), &|name| std::env::var_os(name))
}

/// A configuration with the command line's patience.
pub(crate) fn patient(mut loaded: Loaded) -> Loaded {
    let deadline = &mut loaded.config.context.supervision.call_deadline_ms;
    if *deadline == Supervision::default().call_deadline_ms {
        *deadline = PATIENCE_MS;
    }
    loaded
}

/// How long loading a library may take in a command that inspects a plugin. Such a command does not need the
/// configuration, so an unreadable one is not an error here.
pub(crate) fn loading_deadline(global: &Global) -> Duration {
    let configured = read_config(global).map(|loaded| patient(loaded).config.context.supervision);
    Duration::from_millis(configured.map_or(PATIENCE_MS, |configured| configured.call_deadline_ms))
}

/// The engines of a configuration, with the model provider that it names.
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

/// Whether the settings of all engines are good, of those that do not run too.
pub(crate) fn check_settings(engines: &Engines) -> Result<(), CliError> {
    let wrong = engines.catalog().wrong_settings(engines.loaded());
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(CliError::config(ConfigError::Invalid(wrong))),
    }
}

/// The client of the model that writes summaries. Says on stderr where one was asked for and there is
/// none.
pub(super) fn model_client(
    config: &Config,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<ModelClient, CliError> {
    let resolved = resolve_model(config, offline, agent_model).map_err(CliError::Provider)?;
    if let Resolved::NoModel(reason) = &resolved
        && reason.is_unexpected()
    {
        terminal::say(&format!("{}\n", terminal::warning(&reason.to_string())));
    }
    Ok(configured_client(config, resolved))
}

/// The damage of the record, once a command goes on without it.
static DAMAGE: Mutex<Option<String>> = Mutex::new(None);

/// Has the rest of the command go on without a damaged record, and says so. False if it does already, or if the record
/// is not damaged.
pub(crate) fn leave_the_record_aside(error: &RecordError) -> bool {
    let mut damage = DAMAGE.lock().unwrap_or_else(PoisonError::into_inner);
    if damage.is_some() || !error.is_damage() {
        return false;
    }
    let said = format!("the record of sessions is left aside: {error}");
    terminal::say(&format!("{}\n", terminal::warning(&said)));
    *damage = Some(error.to_string());
    true
}

/// The store of the sessions of the home directory.
pub(crate) fn open_store(engines: &Engines) -> Result<Arc<Record>, CliError> {
    store(&engines.loaded().home, Record::open)
}

/// The same to read from, where it may not be written or is not there.
pub(crate) fn open_store_to_read(engines: &Engines) -> Result<Arc<Record>, CliError> {
    store(&engines.loaded().home, Record::open_to_read)
}

fn store(
    home: &Path,
    open: fn(&Path) -> Result<Arc<Record>, RecordError>,
) -> Result<Arc<Record>, CliError> {
    let damage = DAMAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let store = match &*damage {
        Some(damage) => Record::standing_in(home, damage),
        None => open(home),
    };
    store.map_err(CliError::Sessions)
}

/// The engine that a session was kept by; none where it is not known.
pub(crate) fn engine_of(store: &Record, session: &str) -> Result<Option<String>, CliError> {
    let delivered = store.delivered(session).map_err(CliError::Sessions)?;
    Ok(delivered.map(|delivered| delivered.engine))
}

/// Which model writes summaries. The agent is the one that the configuration names: here none is
/// running.
pub(crate) fn resolve_model(
    config: &Config,
    offline: bool,
    agent_model: Option<&str>,
) -> Result<Resolved, ProviderError> {
    let agent = configured_agent(config, agent_model)?;
    resolve_configured(config, agent.as_ref(), offline, &|name| {
        std::env::var(name).ok()
    })
}
