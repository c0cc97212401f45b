//! The engines of a process: found, loaded once, and opened for sessions under supervision.
//!
//! A session needs one engine, and the configuration names it. This module turns the name into a
//! running engine. It resolves the name in the [`catalog`](crate::catalog), checks the settings,
//! loads the library into this process, has a separate process load it or starts a program, creates one factory per
//! engine, and opens the engine for the session.
//!
//! Read [`Engines`] first: it is built once per configuration and shared by all sessions.
//! [`Engines::open`] returns an [`Opened`], which is what a session calls. If an engine cannot be
//! loaded or opened, the built-in compressor takes its place when the configuration allows a
//! fallback.
//!
//! Deadlines, panic guards and quarantine are left to [`supervision`](crate::supervision).

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use contexture_base::lock;
use contexture_base::private::{narrow, narrow_folder};
use contexture_compressor::Compressor;
use contexture_config::{Config, Isolation, Loaded, OnFailure, Schema};
use contexture_engine_api::{
    About, ContextEngine, CurrentCompaction, EngineDefinition, EngineDescription, EngineError,
    EngineFactory, FactoryRequest, LoadError, OpenRequest, Plugin, Services, StoreCommand, Usage,
    WindowState, define_engine, end_watched, end_watched_after, linked_engines,
    make_private_folder,
};
use contexture_formats::prompt_cache::Pauses;
use contexture_providers::ModelClient;
use serde::Serialize;

use crate::HOST;
use crate::catalog::{
    BUILT_IN, Catalog, Choice, Library, Manifest, PluginFiles, RegisteredEngine, Resolution,
    ResolveError, asks_of, resolve,
};
use crate::isolation::{Isolated, IsolatedFactory, Launch, find_program};
use crate::stdio::{StdioFactory, StdioLaunch, StdioProcess};
use crate::supervision::{
    Budget, CallState, EngineProcess, Policy, Supervised, Supervisor, thrown,
};

pub use crate::supervision::{CallError, EngineHealth, HealthState};

/// Where the code of an engine comes from. Reports and logs print it in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The compressor that is part of the host. It is always available and needs no loading.
    Builtin,
    /// Linked into this process with `register_engine!`, or registered at run time with
    /// [`register_context_engine`].
    Registered,
    /// Loaded from a library in a plugin folder, into this process or into a separate one.
    Plugin,
}

/// An engine in a list for a user. See [`Engines::list`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EngineEntry {
    /// The name by which the configuration chooses it.
    pub name: String,
    /// Where its code comes from. If a plugin and a registered engine have the same name, it is the
    /// plugin, which comes first.
    pub source: Source,
    /// What it does, in one line, if it is linked in or registered. None for a plugin.
    pub description: Option<String>,
    /// Whether the configuration chooses it.
    pub chosen: bool,
}

/// Why a session gets no engine. The message of each variant names the engine or file and says what
/// to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No engine has this name, or it cannot be loaded, and the configuration allows no fallback.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The engine was found, but creating or opening it failed. The error of the call says how.
    #[error(transparent)]
    Call(CallError),
    /// The engine rejects its settings. This never falls back to the built-in compressor, even if
    /// `on_failure` says so, because the user can fix the settings and would not notice a fallback.
    #[error("the settings of the engine `{engine}` are wrong:\n{problems}")]
    Settings {
        /// Name of the engine, which is the key under `context.engines`.
        engine: String,
        /// What is wrong, one line for each setting.
        problems: String,
    },
    /// The engine's data directory cannot be created, so the engine has no place for its store.
    #[error("cannot make the data directory {}: {cause}", path.display())]
    DataDir {
        /// The directory that was to be created, below the home directory.
        path: PathBuf,
        /// The error that the operating system reported.
        cause: std::io::Error,
    },
    /// The library did not return from being loaded within its deadline. The process should end:
    /// the loading thread holds the lock of the dynamic linker, and without that lock other threads
    /// can neither start nor exit.
    #[error(
        "loading the library {library} did not end within {deadline_ms} ms, and nothing else can run meanwhile: \
         remove the plugin, or raise `context.supervision.call_deadline_ms` if it only needs more time"
    )]
    Hangs {
        /// Path of the library that hangs, as messages name it.
        library: String,
        /// The deadline that passed, in milliseconds.
        deadline_ms: u64,
    },
    /// A store command needs this engine, but its plugin cannot be loaded. There is no fallback,
    /// because no other engine can read the data it stored.
    #[error("{0}")]
    NotLoaded(String),
    /// The engine is configured to run in a separate process and cannot. It never runs in this
    /// process instead, because the user asked for the isolation.
    #[error(
        "the engine `{engine}` cannot run in a process of its own (`context.isolation`): {reason}"
    )]
    NotIsolated {
        /// Name of the engine that was to be isolated.
        engine: String,
        /// Why isolation fails, and how to fix it.
        reason: String,
    },
}

impl From<CallError> for OpenError {
    fn from(error: CallError) -> Self {
        match error {
            // An engine checks what a schema cannot express, such as one setting that must exceed
            // another. Such an error is about the settings, not about the call.
            CallError::Failed {
                engine,
                error: EngineError::Settings(problems),
                ..
            } => Self::Settings { engine, problems },
            error => Self::Call(error),
        }
    }
}

/// Two registered engines have the same name. Names identify engines in the configuration and on
/// disk, so neither of the two can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "two engines are called `{name}`, one from {first} and one from {second}: names must be unique, so rename or \
     remove one"
)]
#[non_exhaustive]
pub struct NameTaken {
    /// The name that both engines use. One of them has to be renamed or left out.
    pub name: String,
    /// Crate and version of the engine that was registered first.
    pub first: String,
    /// Crate and version of the engine that was registered second.
    pub second: String,
}

/// Engines registered at run time. Engines registered at link time are not in this list.
static REGISTERED: Mutex<Vec<EngineDefinition>> = Mutex::new(Vec::new());

/// Registers an engine at run time, as `register_engine!` does at link time. Use it if an embedding
/// program decides at startup which engines it offers. Nothing changes if the same engine, with the
/// same owner and version, is registered already.
///
/// # Errors
/// Returns [`NameTaken`] if a different engine has the name.
pub fn register_context_engine(definition: EngineDefinition) -> Result<(), NameTaken> {
    let mut all = registered_engines()?;
    if add(&mut all, definition)? {
        lock(&REGISTERED).push(definition);
    }
    Ok(())
}

static ENGINE_HOST_IN: OnceLock<PathBuf> = OnceLock::new();

/// Sets the first folder that is searched for the program `contexture-engine-host`. A library that
/// ships this program calls it, because the program it is embedded in may be installed anywhere
/// else. The configuration (`context.engine_host`) takes precedence. Only the first call has an
/// effect.
pub fn look_for_engine_host_in(folder: PathBuf) {
    let _ = ENGINE_HOST_IN.set(folder);
}

/// Returns the engines registered in this process, at link time and at run time. An engine that is
/// registered twice appears once.
///
/// # Errors
/// Returns [`NameTaken`] if two different engines have the same name.
pub fn registered_engines() -> Result<Vec<EngineDefinition>, NameTaken> {
    let mut all = Vec::new();
    // Referenced by name, because a linker drops a crate that nothing refers to, and its
    // registration with it.
    #[cfg(feature = "lcm")]
    add(&mut all, contexture_lcm::DEFINITION)?;
    for definition in linked_engines() {
        add(&mut all, *definition)?;
    }
    for definition in lock(&REGISTERED).clone() {
        add(&mut all, definition)?;
    }
    Ok(all)
}

/// Adds an engine to the list. Returns false if the same engine is in it already.
///
/// # Errors
/// Returns [`NameTaken`] if a different engine in the list has the name.
fn add(all: &mut Vec<EngineDefinition>, new: EngineDefinition) -> Result<bool, NameTaken> {
    match all.iter().find(|other| other.name == new.name) {
        None => {
            all.push(new);
            Ok(true)
        }
        Some(other) if same(other, &new) => Ok(false),
        Some(other) => Err(name_taken(other, &new)),
    }
}

/// Returns the engines that a configuration gives access to, without running any code of a plugin.
/// Use it to list or check engines. To open one, create [`Engines`], which has its own catalog.
///
/// # Errors
/// Returns [`NameTaken`] if two registered engines have the same name.
pub fn catalog(loaded: &Loaded) -> Result<Catalog, NameTaken> {
    let registered = registered_engines()?;
    Ok(Catalog::scan(&loaded.plugin_dirs, listed(&registered)))
}

/// Converts registered engines to catalog entries. This asks each engine for its description, which
/// is data and needs no factory.
fn listed(registered: &[EngineDefinition]) -> Vec<RegisteredEngine> {
    let registered = registered
        .iter()
        .map(|definition| (definition, about(definition)));
    registered
        .map(|(definition, about)| RegisteredEngine {
            settings: schema_of(definition.name, &about),
            declared_settings: (about.settings)
                .and_then(|schema| schema.get("properties").cloned()),
            name: definition.name.to_owned(),
            version: definition.version.to_owned(),
            description: definition.description.to_owned(),
            owner: definition.owner.to_owned(),
        })
        .collect()
}

/// Returns what a linked engine declares about itself: its settings and its flags.
fn about(definition: &EngineDefinition) -> About {
    definition.describe(&HOST).about
}

/// Returns the schema of the settings that an engine declares. If it declares none, or the host
/// cannot read its schema, every setting is valid. The second case is logged as a warning.
fn schema_of(name: &str, about: &About) -> Schema {
    let declared = about.settings.clone().unwrap_or(true.into());
    Schema::parse(&declared).unwrap_or_else(|error| {
        tracing::warn!("the settings of the engine `{name}` are not checked: {error}");
        Schema::default()
    })
}

/// Whether two definitions are the same engine registered twice. Their names are known to be equal.
fn same(one: &EngineDefinition, other: &EngineDefinition) -> bool {
    (one.owner, one.version) == (other.owner, other.version)
}

fn name_taken(first: &EngineDefinition, second: &EngineDefinition) -> NameTaken {
    let owner =
        |definition: &EngineDefinition| format!("{} {}", definition.owner, definition.version);
    NameTaken {
        name: first.name.to_owned(),
        first: owner(first),
        second: owner(second),
    }
}

type Factory = Arc<dyn EngineFactory>;

/// The engines that one configuration gives access to. Create it once and share it between all
/// sessions: it holds the loaded plugins, their factories, the running engine processes and the
/// health of every engine.
///
/// It does not notice changes of the plugin folders. Ask
/// [`has_other_plugins`](Self::has_other_plugins) and create a new one if that returns true.
pub struct Engines {
    loaded: Loaded,
    catalog: Catalog,
    registered: Vec<EngineDefinition>,
    client: ModelClient,
    supervisor: Arc<Supervisor>,
    /// One factory per engine, created when first needed. There is never a second factory for a
    /// name, so that two instances of an engine never open the same files.
    factories: Mutex<HashMap<(Source, String), Factory>>,
    /// Engines that run in separate processes, by name. An entry appears once the process has
    /// described itself.
    isolated: Mutex<HashMap<String, Arc<Isolated>>>,
    /// Pauses between requests over all sessions. `None` until a record has been asked for the
    /// earlier ones.
    pauses: Mutex<Option<Pauses>>,
    /// Fingerprint of the plugin folders from just before they were searched.
    plugin_files: PluginFiles,
}

impl std::fmt::Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engines")
            .field("catalog", &self.catalog)
            .finish_non_exhaustive()
    }
}

/// An engine that is opened for one session, with counters for its time and its failures. Every
/// call goes through [`call`](Self::call), which adds the deadline and the panic guard.
#[derive(Debug)]
pub struct Opened {
    source: Source,
    origin: String,
    about: About,
    supervised: Supervised,
    busy: Duration,
    failures: u64,
    /// Whether the last of the failures was one of the engine's store.
    failed_in_store: bool,
    /// Usage reported by the provider that the engine has not received yet.
    untold: Vec<Usage>,
    /// Why this engine was opened instead of the configured one. `None` if it is the configured
    /// one.
    stands_in: Option<String>,
}

impl Opened {
    /// Returns the name of the engine, as the configuration uses it.
    pub fn name(&self) -> &str {
        self.supervised.engine()
    }

    /// Returns where the code of the engine comes from: this host, a crate linked into the process,
    /// or a plugin.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns the path of the library, or the crate and version that registered the engine. For an
    /// isolated engine the text also says so. It is meant for people, not for opening the file.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns what the engine declared about itself when it was loaded: its settings and flags.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Whether it is the built-in compressor, either because it is configured or because it
    /// replaces another engine.
    pub fn is_builtin(&self) -> bool {
        self.source == Source::Builtin
    }

    /// Returns why the configured engine does not serve this session: this one was opened instead,
    /// or it is [closed](Self::is_closed), or it is in [quarantine](Self::quarantine). Returns
    /// `None` if the configured engine works.
    pub fn stands_in(&self) -> Option<String> {
        let closed = || (self.is_closed()).then(|| self.supervised.closed().to_owned());
        (self.stands_in.clone())
            .or_else(closed)
            .or_else(|| self.quarantine())
    }

    /// Returns why the engine is not called for now: it kept failing, in this session or in
    /// several. Returns `None` if it may be called. It is called again when the time of the
    /// quarantine is up.
    pub fn quarantine(&self) -> Option<String> {
        self.supervised.quarantine()
    }

    /// Whether the session no longer calls the engine because it panicked. An engine whose call was
    /// abandoned is [stalled](Self::is_stalled) instead.
    pub fn is_closed(&self) -> bool {
        self.supervised.is_closed() && !self.is_stalled()
    }

    /// Whether the session cannot call the engine now, but may again: a call was abandoned, its
    /// process ended, or it was in quarantine when the session opened. [Take it
    /// back](Self::take_back) if possible, and otherwise open a new one.
    pub fn is_stalled(&self) -> bool {
        self.supervised.is_stalled()
    }

    /// Makes the engine callable again if its abandoned call has returned in the meantime. Returns
    /// false if it has not. See `Supervised::take_back`.
    pub fn take_back(&mut self) -> bool {
        self.supervised.take_back()
    }

    /// Returns the total time of all calls. The time it took to open the engine is not included.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns how often the engine failed: calls that returned an error of its own, and proposals
    /// or views that broke the contract.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether the last failure was one of the engine's store, as on a full disk.
    pub fn failed_in_store(&self) -> bool {
        self.failed_in_store
    }

    /// Counts a proposal or view that broke the contract as a failure. The session checks these,
    /// because the call itself succeeded.
    pub fn broke_the_contract(&mut self) {
        self.failures += 1;
        self.failed_in_store = false;
    }

    /// Replaces this engine by another instance and keeps adding to the same counters of time and
    /// failures. Use it when a stalled engine is opened anew.
    pub fn replace(&mut self, anew: Self) {
        let (busy, failures) = (self.busy, self.failures);
        *self = anew;
        self.busy += busy;
        self.failures += failures;
    }

    /// Queues usage that the provider reported. The engine receives it at the start of the next
    /// call, which saves a hop to another thread for each report.
    pub fn update_usage(&mut self, usage: Usage) {
        self.untold.push(usage);
    }

    /// Calls the engine on a worker thread and waits for the result. The built-in compressor is
    /// called on this thread, unless it compacts. Usage that was queued with
    /// [`update_usage`](Self::update_usage) is delivered first. See `Supervised::call`.
    ///
    /// # Errors
    /// Returns [`CallError`] if the engine fails, panics, misses its deadline, or is not to be
    /// called.
    pub fn call<T: Send + 'static>(
        &mut self,
        method: &'static str,
        budget: impl Into<Budget>,
        code: impl FnOnce(&mut dyn ContextEngine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        let untold = std::mem::take(&mut self.untold);
        let answer = self.supervised.call(method, budget, move |engine| {
            tell_usage(engine, &untold)?;
            code(engine)
        });
        self.busy += began.elapsed();
        if let Err(error) = &answer
            && error.is_fault()
        {
            self.failures += 1;
            self.failed_in_store = error.is_storage();
        }
        answer
    }
}

/// Delivers queued usage to the engine. A panic in here is not a panic of the call that follows, so
/// the message names the method in which it happened.
fn tell_usage(engine: &mut dyn ContextEngine, untold: &[Usage]) -> Result<(), EngineError> {
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        untold.iter().for_each(|usage| engine.update_usage(usage));
    }));
    told.map_err(|panic| match thrown(panic) {
        EngineError::Panicked(message) => EngineError::Panicked(format!("update_usage: {message}")),
        error => error,
    })
}

/// What a session provides to open its engine. The same values serve for a fallback if the first
/// engine cannot be opened.
pub struct Occasion<'a> {
    /// The session's id, which the engine receives when it is opened.
    pub session: &'a str,
    /// The window of the agent's model, without messages. It names the model and gives its size and
    /// its reserve in tokens.
    pub window: &'a WindowState,
    /// Creates the services that the session lends to the engine of this name. They share the given
    /// state with the calls, so that a model call counts as progress.
    pub services: &'a dyn Fn(&str, &Arc<CallState>) -> Services,
    /// The compaction in force, if the session has one. The engine continues from it.
    pub compaction: Option<&'a CurrentCompaction>,
}

impl Engines {
    /// Searches the plugin folders and prepares the engines of a configuration. No code of any
    /// plugin runs before an engine is opened.
    ///
    /// # Errors
    /// Returns [`NameTaken`] if two registered engines have the same name.
    pub fn new(loaded: Loaded, client: ModelClient) -> Result<Arc<Self>, NameTaken> {
        let registered = registered_engines()?;
        // Taken before the search. If a plugin changes during the search, the fingerprint differs
        // and leads to another search.
        let plugin_files = PluginFiles::of(&loaded.plugin_dirs);
        let catalog = Catalog::scan(&loaded.plugin_dirs, listed(&registered));
        let supervision = &loaded.config.context.supervision;
        let milliseconds = std::time::Duration::from_millis;
        let policy = Policy {
            long_deadline: milliseconds(supervision.compress_deadline_ms),
            short_deadline: milliseconds(supervision.call_deadline_ms),
            grace: milliseconds(supervision.grace_ms),
            failure_limit: supervision.failures_before_quarantine,
            quarantine: milliseconds(supervision.quarantine_ms),
            abandoned_limit: supervision.abandoned_threads,
        };
        Ok(Arc::new(Self {
            catalog,
            registered,
            client,
            supervisor: Supervisor::new(policy),
            factories: Mutex::default(),
            isolated: Mutex::default(),
            pauses: Mutex::default(),
            plugin_files,
            loaded,
        }))
    }

    /// Returns the pauses between requests of all sessions, from which the cheaper lifetime of the
    /// prompt cache follows. They are empty if nothing was recorded yet.
    pub fn pauses(&self) -> Pauses {
        lock(&self.pauses).unwrap_or_default()
    }

    /// Sets the pauses that a record holds from earlier runs. `recorded` runs only for the first
    /// call, because reading the record takes time and later pauses are [noted](Self::note_pause)
    /// as they happen.
    pub fn know_pauses(&self, recorded: impl FnOnce() -> Pauses) {
        lock(&self.pauses).get_or_insert_with(recorded);
    }

    /// Adds the pause before a session's latest request. It is kept in memory only: recording it is
    /// left to the session.
    pub fn note_pause(&self, pause: Pauses) {
        lock(&self.pauses).get_or_insert_default().add(pause);
    }

    /// Whether a plugin was installed, built or removed since the folders were searched. If it
    /// returns true, a long-running program can create new [`Engines`].
    pub fn has_other_plugins(&self) -> bool {
        PluginFiles::of(&self.loaded.plugin_dirs) != self.plugin_files
    }

    /// Returns the configuration that these engines were created with. It does not change
    /// afterwards.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// Returns the configuration and the files it came from, with the plugin folders and the home
    /// directory.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// Returns the engines that were found when this was created, usable or not.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Lists the engines that were found, the built-in one first. If none can be chosen, because the
    /// configured one is missing, no entry is chosen.
    pub fn list(&self) -> Vec<EngineEntry> {
        let resolution = resolve(&self.catalog, self.config(), None).ok();
        let chosen = resolution.map(|resolution| match resolution.engine {
            Choice::BuiltIn => BUILT_IN.to_owned(),
            _ => resolution.requested,
        });
        let entry = |name: &str| {
            let mut registered = self.catalog.registered.iter();
            let registered = registered.find(|engine| engine.name == name);
            let is_plugin = self
                .catalog
                .plugins
                .iter()
                .any(|plugin| plugin.name == name);
            EngineEntry {
                name: name.to_owned(),
                source: match is_plugin {
                    _ if name == BUILT_IN => Source::Builtin,
                    true => Source::Plugin,
                    false => Source::Registered,
                },
                description: registered.map(|engine| engine.description.clone()),
                chosen: chosen.as_deref() == Some(name),
            }
        };
        self.catalog.names().into_iter().map(entry).collect()
    }

    /// Returns the client that makes model calls for the engines. If no model answers, its calls
    /// fail with the reason.
    pub fn client(&self) -> &ModelClient {
        &self.client
    }

    /// Returns the health of every engine that was called in this process, sorted by name.
    pub fn health(&self) -> Vec<EngineHealth> {
        self.supervisor.health()
    }

    /// Opens an engine for a session. `named` comes from a command line and allows no fallback. If
    /// it is `None`, the configuration chooses the engine and decides what happens when it cannot
    /// be opened. Everything that the user should know about the choice is added to `warnings`.
    ///
    /// If the configured engine is in quarantine and a fallback is allowed, the result is an engine
    /// that is [stalled](Opened::is_stalled), and the built-in compressor serves the session until
    /// a later turn can open it.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the engine cannot be opened and no fallback is allowed, or if its
    /// settings are wrong.
    pub fn open(
        &self,
        named: Option<&str>,
        occasion: &Occasion<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Opened, OpenError> {
        let mut resolution = resolve(&self.catalog, self.config(), named)?;
        let falls_back = self.config().context.on_failure == OnFailure::Fallback;
        let may_wait = named.is_none() && falls_back;
        loop {
            match self.open_choice(&resolution, occasion, may_wait) {
                Ok(mut opened) => {
                    for note in &resolution.notes {
                        tracing::info!("{note}");
                    }
                    if resolution.engine == Choice::BuiltIn && resolution.requested != BUILT_IN {
                        opened.stands_in = resolution.warnings.last().cloned();
                    }
                    warnings.append(&mut resolution.warnings);
                    if let Some(reason) = opened.quarantine() {
                        warnings.push(format!("the built-in {BUILT_IN} runs for now: {reason}"));
                    }
                    return Ok(opened);
                }
                Err(Failure::Load(reason)) => {
                    resolution = resolution.after_load_failure(&reason)?;
                }
                // An engine that fails to open is treated like one that fails in its first call.
                Err(Failure::Open(OpenError::Call(error)))
                    if may_wait && resolution.engine != Choice::BuiltIn =>
                {
                    let warning = format!("the built-in {BUILT_IN} runs instead: {error}");
                    resolution.warnings.push(warning);
                    resolution.engine = Choice::BuiltIn;
                }
                Err(Failure::Open(error)) => return Err(error),
            }
        }
    }

    /// Sends a store command to the engine that `named` or the configuration chooses, and returns
    /// its answer. No session is opened. The command has no deadline, because checking or copying a
    /// store can take long.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the engine is not available, keeps no store, or fails. There is no
    /// fallback, because another engine has other data.
    pub fn manage(
        &self,
        named: Option<&str>,
        command: &StoreCommand,
    ) -> Result<serde_json::Value, OpenError> {
        let resolution = resolve(&self.catalog, self.config(), named)?;
        let found = self
            .find(&resolution.engine)
            .map_err(|failure| match failure {
                Failure::Open(error) => error,
                Failure::Load(reason) => match resolution.after_load_failure(&reason) {
                    Ok(_) => OpenError::NotLoaded(reason),
                    Err(error) => error.into(),
                },
            })?;
        // The directory is not created here: a store command only reads or repairs what exists.
        // Opening a session creates it.
        let data_dir = self.data_dir(&found.name);
        let name = found.name.clone();
        let key = (found.source, found.name);
        let is_shared = found.is_shared;
        let factory = self.factory(key, is_shared, &found.settings, &data_dir, found.create)?;
        let command = command.clone();
        let manage = move || factory.manage(&command);
        Ok(self.supervisor.manage(&name, manage)?)
    }

    /// Has an engine delete what it derived from a session, such as a search index. Does nothing if
    /// the engine derives nothing, or nothing from this session, or if `engine` is empty because no
    /// engine has the session.
    ///
    /// # Errors
    /// Returns [`OpenError`] if the engine is not available or fails.
    pub fn forget(&self, engine: &str, session: &str) -> Result<(), OpenError> {
        if engine.is_empty() {
            return Ok(());
        }
        let command = StoreCommand::Delete {
            session: Some(session.to_owned()),
            older_than_ms: None,
            dry_run: false,
        };
        match self.manage(Some(engine), &command) {
            Err(OpenError::Call(CallError::Failed {
                error: EngineError::InvalidInput(_) | EngineError::Unsupported(_),
                ..
            })) => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Opens the built-in compressor for a session. Use it when the session's own engine has failed
    /// and a fallback is allowed.
    ///
    /// # Errors
    /// Returns [`OpenError`] if its data directory cannot be created or its settings are invalid.
    pub fn open_builtin(&self, occasion: &Occasion<'_>) -> Result<Opened, OpenError> {
        self.open_made(self.built_in(), occasion, false)
    }

    /// Finds and opens the engine that was resolved. `may_wait` has no effect on the built-in
    /// compressor, because nothing could replace it in the meantime.
    fn open_choice(
        &self,
        resolution: &Resolution,
        occasion: &Occasion<'_>,
        may_wait: bool,
    ) -> Result<Opened, Failure> {
        let found = self.find(&resolution.engine)?;
        let may_wait = may_wait && found.source != Source::Builtin;
        Ok(self.open_made(found, occasion, may_wait)?)
    }

    /// Prepares the chosen engine to be created: checks its settings and loads its library if it is
    /// a plugin. An engine that is configured to run in a separate process is started there.
    ///
    /// # Errors
    /// Returns [`Failure::Load`] if a fallback may replace the engine, and [`Failure::Open`] if
    /// not.
    fn find(&self, choice: &Choice) -> Result<ChosenEngine, Failure> {
        match choice {
            Choice::BuiltIn => Ok(self.built_in()),
            Choice::Registered(name) => {
                let definition = self
                    .registered
                    .iter()
                    .find(|definition| definition.name == name)
                    .copied()
                    .ok_or_else(|| Failure::Load(format!("`{name}` is not registered")))?;
                if self.config().isolation_of(name) == Isolation::Process {
                    return Err(Failure::Open(OpenError::NotIsolated {
                        engine: name.clone(),
                        reason: "it is linked into this program: install it as a plugin".to_owned(),
                    }));
                }
                let about = about(&definition);
                Ok(ChosenEngine {
                    isolated: None,
                    is_shared: true,
                    settings: self.settings(name, &schema_of(name, &about))?,
                    about,
                    name: name.clone(),
                    source: Source::Registered,
                    origin: format!("{} {}", definition.owner, definition.version),
                    create: Box::new(move |request| definition.create(request)),
                })
            }
            Choice::Plugin { manifest, library } => {
                // Checked against the manifest before the library is loaded, so that wrong settings
                // are reported without running any code of the plugin.
                let settings = self.settings(&manifest.name, &manifest.settings)?;
                if manifest.command.is_some() {
                    return self.find_program(manifest, library, settings);
                }
                let library = manifest
                    .read_library(library)
                    .map_err(|problem| Failure::Load(problem.to_string()))?;
                let origin = library.path.display().to_string();
                if self.config().isolation_of(&manifest.name) == Isolation::Process {
                    return self.find_isolated(&manifest.name, settings, library);
                }
                let name = manifest.name.clone();
                let deadline = self.config().context.supervision.call_deadline_ms;
                // Armed before the load: if the library hangs in the dynamic linker, the waiting
                // thread may hang as well and could not report it.
                let _watch = watch_load(&origin, Duration::from_millis(deadline));
                let loaded = self
                    .supervisor
                    .load(&manifest.name, move || load(&library, &name))
                    .map_err(|error| not_loaded(error, &origin))?;
                let plugin = loaded.map_err(Failure::Load)?;
                check_asks(manifest, &plugin.description().about).map_err(Failure::Load)?;
                Ok(ChosenEngine {
                    settings,
                    isolated: None,
                    is_shared: true,
                    about: plugin.description().about.clone(),
                    name: manifest.name.clone(),
                    source: Source::Plugin,
                    origin,
                    create: Box::new(move |request| plugin.create(request)),
                })
            }
        }
    }

    /// Starts the program of a plugin for one session and prepares the engine to be opened in it. It
    /// always runs in a process of its own, whatever `isolation` says.
    ///
    /// # Errors
    /// Returns an error if the plugin's files are not as they should be, or if the program cannot be
    /// started or does not describe its engine.
    fn find_program(
        &self,
        manifest: &Manifest,
        file: &Path,
        settings: String,
    ) -> Result<ChosenEngine, Failure> {
        let supervision = &self.config().context.supervision;
        let deadline = Duration::from_millis(supervision.call_deadline_ms);
        let launch = launch_of(manifest, file, memory_of(self.config()), deadline);
        let launch = launch.map_err(Failure::Load)?;
        let starting = launch.clone();
        let process = (self.supervisor)
            .load(&manifest.name, move || StdioProcess::start(&starting))
            .map_err(|error| error.to_string())
            .and_then(|started| started)
            .map_err(Failure::Load)?;
        let about = process.description().about.clone();
        check_asks(manifest, &about).map_err(Failure::Load)?;
        let described = Arc::clone(&process);
        Ok(ChosenEngine {
            name: manifest.name.clone(),
            settings,
            isolated: Some(process),
            is_shared: false,
            about,
            source: Source::Plugin,
            origin: format!("{}, in a process of its own", file.display()),
            create: Box::new(move |request| {
                Ok(Box::new(StdioFactory::new(
                    launch,
                    Some(described),
                    request,
                )))
            }),
        })
    }

    /// Starts a separate process that loads the library, or uses the one that runs, and prepares
    /// the engine to be created in it.
    ///
    /// # Errors
    /// Returns an error if the program that runs engines is not found, or if the process cannot be
    /// started or cannot load the library.
    fn find_isolated(
        &self,
        name: &str,
        settings: String,
        library: Library,
    ) -> Result<ChosenEngine, Failure> {
        let context = &self.config().context;
        let origin = format!("{}, in a process of its own", library.path.display());
        let isolated = match lock(&self.isolated).get(name) {
            Some(isolated) => Arc::clone(isolated),
            None => {
                let program = find_program(
                    context.engine_host.as_deref(),
                    ENGINE_HOST_IN.get().map(PathBuf::as_path),
                );
                let program = program.map_err(|reason| OpenError::NotIsolated {
                    engine: name.to_owned(),
                    reason,
                })?;
                Isolated::new(Launch {
                    program,
                    library,
                    engine: name.to_owned(),
                    memory: memory_of(self.config()),
                    deadline: Duration::from_millis(context.supervision.call_deadline_ms),
                })
            }
        };
        let started = Arc::clone(&isolated);
        let description = (self.supervisor)
            .load(name, move || started.description())
            .map_err(|error| error.to_string())
            .and_then(|described| described)
            .map_err(Failure::Load)?;
        // Kept only after the process has described itself, so that after a failed start the
        // program is searched for again.
        lock(&self.isolated).insert(name.to_owned(), Arc::clone(&isolated));
        let engine = Arc::clone(&isolated);
        Ok(ChosenEngine {
            name: name.to_owned(),
            settings,
            isolated: Some(isolated),
            is_shared: true,
            about: description.about,
            source: Source::Plugin,
            origin,
            create: Box::new(move |request| Ok(Box::new(IsolatedFactory::new(engine, request)))),
        })
    }

    /// Opens a prepared engine for a session. If `may_wait` is set and the engine is in quarantine,
    /// the result is an engine that is not open yet, and another one serves the session until it
    /// is.
    fn open_made(
        &self,
        found: ChosenEngine,
        occasion: &Occasion<'_>,
        may_wait: bool,
    ) -> Result<Opened, OpenError> {
        let name = found.name.as_str();
        let data_dir = self.make_data_dir(name)?;
        let settings = found.settings;
        let state = Arc::new(CallState::of(found.isolated));
        let services = (occasion.services)(name, &state);
        let key = (found.source, name.to_owned());
        // Apart from compactions, the built-in compressor only computes.
        let is_here = found.source == Source::Builtin;
        let open = || {
            let factory = self.factory(key, found.is_shared, &settings, &data_dir, found.create)?;
            let (settings, data_dir) = (settings.clone(), data_dir.clone());
            let session = occasion.session.to_owned();
            let window = occasion.window.clone();
            let compaction = occasion.compaction.cloned();
            let state = Arc::clone(&state);
            let opened =
                self.supervisor
                    .open(name, occasion.session, state, is_here, move || {
                        factory.open(
                            &OpenRequest::new(&session, &settings, &data_dir, services, &window)
                                .compaction(compaction.as_ref()),
                        )
                    })?;
            Ok(opened)
        };
        let supervised = match open() {
            Err(OpenError::Call(error @ CallError::Quarantined { .. })) if may_wait => {
                let reason = error.to_string();
                (self.supervisor).absent(name, occasion.session, Arc::clone(&state), reason)
            }
            opened => opened?,
        };
        Ok(Opened {
            source: found.source,
            origin: found.origin,
            about: found.about,
            supervised,
            busy: Duration::ZERO,
            failures: 0,
            failed_in_store: false,
            untold: Vec::new(),
            stands_in: None,
        })
    }

    /// Returns the engine's factory, and creates it on first use. One that is not shared is created
    /// each time. The files in the data directory are made private to this user before the engine
    /// opens any of them.
    fn factory(
        &self,
        key: (Source, String),
        is_shared: bool,
        settings: &str,
        data_dir: &Path,
        create: Create,
    ) -> Result<Factory, OpenError> {
        let known = lock(&self.factories).get(&key).map(Arc::clone);
        if let Some(factory) = known.filter(|_| is_shared) {
            return Ok(factory);
        }
        data_dir.parent().map(narrow);
        narrow_folder(data_dir);
        let (settings, data_dir) = (settings.to_owned(), data_dir.to_owned());
        let made = self.supervisor.create(&key.1, move || {
            create(&FactoryRequest::new(&settings, &data_dir, &HOST))
        })?;
        let made: Factory = Arc::from(made);
        if !is_shared {
            return Ok(made);
        }
        // Two sessions may have created a factory at the same time. Both use the one that was
        // stored first.
        Ok(Arc::clone(lock(&self.factories).entry(key).or_insert(made)))
    }

    /// Prepares the built-in compressor, which needs no loading and never runs in a separate
    /// process.
    fn built_in(&self) -> ChosenEngine {
        const COMPRESSOR: EngineDefinition = define_engine!("compressor", Compressor);
        ChosenEngine {
            name: BUILT_IN.to_owned(),
            settings: self.config().engine_settings(BUILT_IN).to_string(),
            isolated: None,
            is_shared: true,
            about: about(&COMPRESSOR),
            source: Source::Builtin,
            origin: "built in".to_owned(),
            create: Box::new(|request| COMPRESSOR.create(request)),
        }
    }

    /// Returns the checked settings of an engine as JSON text.
    ///
    /// # Errors
    /// Returns [`OpenError::Settings`] with one line for each problem.
    fn settings(&self, name: &str, schema: &Schema) -> Result<String, OpenError> {
        let checked = self.loaded.engine_settings(name, schema);
        let settings = checked.map_err(|wrong| OpenError::Settings {
            engine: name.to_owned(),
            problems: wrong
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n"),
        })?;
        Ok(settings.to_string())
    }

    /// Returns the engine's data directory. It may not exist.
    fn data_dir(&self, name: &str) -> PathBuf {
        self.loaded.home.join("engines").join(name)
    }

    /// Creates the engine's data directory, readable only by this user, if it does not exist.
    fn make_data_dir(&self, name: &str) -> Result<PathBuf, OpenError> {
        let path = self.data_dir(name);
        make_private_folder(&path).map_err(|cause| OpenError::DataDir {
            path: path.clone(),
            cause,
        })?;
        Ok(path)
    }
}

impl Drop for Engines {
    fn drop(&mut self) {
        let factories = self
            .factories
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        // The destructor of a factory is code of the engine, so it runs under a deadline like every
        // other call.
        for ((_, name), factory) in factories.drain() {
            self.supervisor.let_go((&name, ""), false, factory);
        }
    }
}

type Create =
    Box<dyn FnOnce(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send>;

/// A chosen engine that is loaded and ready to be created.
struct ChosenEngine {
    name: String,
    /// Its settings as JSON text, checked against its schema.
    settings: String,
    about: About,
    source: Source,
    origin: String,
    create: Create,
    /// The process that runs the engine, if it does not run in this one.
    isolated: Option<Arc<dyn EngineProcess>>,
    /// Whether all sessions share one factory. If not, this one is for a single session, with a
    /// process of its own.
    is_shared: bool,
}

/// Why a chosen engine is not open. Only the first kind may lead to a fallback by
/// `on_load_failure`.
enum Failure {
    /// Its plugin cannot be loaded, with the reason.
    Load(String),
    /// It was loaded and cannot be opened, or nothing may replace it.
    Open(OpenError),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// Converts the error of a load. A missed deadline allows no fallback, because a library that hangs
/// in the dynamic linker holds a lock that every new thread needs, so that no other engine could
/// run either.
fn not_loaded(error: CallError, library: &str) -> Failure {
    match error {
        CallError::TimedOut { deadline_ms, .. } => {
            Failure::Open(hangs(library, Duration::from_millis(deadline_ms)))
        }
        error => Failure::Load(error.to_string()),
    }
}

/// Loads a plugin's library outside of any session. Only the load has a deadline. Calls of the
/// returned plugin run on the caller's thread and have none.
///
/// # Errors
/// Returns a message if the library is not a plugin that this host can use, or if the load misses
/// `deadline`. In the second case the process should end, see [`OpenError::Hangs`].
pub(crate) fn load_plugin(library: &Path, deadline: Duration) -> Result<Plugin, String> {
    let supervisor = Supervisor::new(Policy {
        short_deadline: deadline,
        ..Policy::default()
    });
    let (path, name) = (library.to_owned(), library.display().to_string());
    let _watch = watch_load(&name, deadline);
    let loaded = supervisor.load(&name, move || Plugin::load(&path, &HOST));
    match loaded.map_err(|error| not_loaded(error, &name)) {
        Ok(loaded) => loaded.map_err(|error| error.to_string()),
        Err(Failure::Load(why)) => Err(why),
        Err(Failure::Open(error)) => Err(error.to_string()),
    }
}

/// A plugin that was loaded or started outside of any session.
pub struct LoadedPlugin {
    description: EngineDescription,
    create: Box<SharedCreate>,
}

type SharedCreate =
    dyn Fn(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send + Sync;

impl LoadedPlugin {
    /// Returns what the engine says about itself.
    pub fn description(&self) -> &EngineDescription {
        &self.description
    }

    /// Makes a factory of the engine, on the caller's thread and without a deadline.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn create(
        &self,
        request: &FactoryRequest<'_>,
    ) -> Result<Box<dyn EngineFactory>, EngineError> {
        (self.create)(request)
    }
}

/// Loads the library of a plugin, or starts its program, outside of any session. `library` is the
/// path that the catalog gives. The files are [verified](Manifest::verify) first. Commands that check
/// a plugin use it.
///
/// # Errors
/// Returns a message if a file can be written by others or does not match its pin, if the library is
/// not a plugin that this host can use, or if the program does not describe its engine within
/// `deadline`. If a library misses it, the process should end, see [`OpenError::Hangs`].
pub fn open_plugin(
    manifest: &Manifest,
    library: &Path,
    deadline: Duration,
) -> Result<LoadedPlugin, String> {
    if manifest.command.is_none() {
        manifest
            .verify(library)
            .map_err(|problem| problem.to_string())?;
        let plugin = load_plugin(library, deadline)?;
        return Ok(LoadedPlugin {
            description: plugin.description().clone(),
            create: Box::new(move |request| plugin.create(request)),
        });
    }
    let launch = launch_of(manifest, library, None, deadline)?;
    let description = StdioProcess::start(&launch)?.description().clone();
    Ok(LoadedPlugin {
        description,
        create: Box::new(move |request| {
            Ok(Box::new(StdioFactory::new(launch.clone(), None, request)))
        }),
    })
}

/// Checks all files of a plugin that is a program, and prepares to start it.
fn launch_of(
    manifest: &Manifest,
    file: &Path,
    memory: Option<u64>,
    deadline: Duration,
) -> Result<StdioLaunch, String> {
    manifest
        .verify(file)
        .map_err(|problem| problem.to_string())?;
    StdioLaunch::of(manifest, memory, deadline)?
        .ok_or_else(|| format!("{} names no command", manifest.path.display()))
}

/// Returns the most address space of an engine's own process in bytes, or `None` for no limit.
fn memory_of(config: &Config) -> Option<u64> {
    let megabytes = config.context.supervision.memory_mb;
    (megabytes > 0).then_some(megabytes << 20)
}

/// Reports a library that does not return from being loaded. A command that watches its own exit
/// ends here with the message on stderr. Any other program gets the error back.
fn hangs(library: &str, deadline: Duration) -> OpenError {
    let (hangs, message) = hanging(library, deadline);
    end_watched(&message);
    hangs
}

/// Builds the error for a library that does not return from being loaded, and the text that a
/// command prints for it.
fn hanging(library: &str, deadline: Duration) -> (OpenError, String) {
    let hangs = OpenError::Hangs {
        library: library.to_owned(),
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
    };
    let message = format!("error: {hangs}\n");
    (hangs, message)
}

/// Ends the command some time after the deadline of a load, unless the returned guard is dropped
/// before. This is for the case in which the thread that waits for the load is blocked as well.
fn watch_load(library: &str, deadline: Duration) -> impl Drop + use<> {
    /// Extra time, so that the waiting thread can report the missed deadline first if it still
    /// runs.
    const LATER: Duration = Duration::from_secs(1);
    let (_, message) = hanging(library, deadline);
    end_watched_after(deadline + LATER, message)
}

/// The libraries loaded in this process, by the hash of their bytes. Each is loaded only once,
/// because two copies of an engine would open the same files. None is ever unloaded.
static LIBRARIES: Mutex<Vec<(u128, Slot)>> = Mutex::new(Vec::new());

/// The place of one library, empty until the load has succeeded.
type Slot = Arc<Mutex<Option<Arc<Plugin>>>>;

/// Loads a plugin's library and checks that its engine has the name in the manifest. If the same
/// bytes were loaded before, the plugin from that time is returned.
///
/// # Errors
/// Returns a message if no private copy can be made, the library does not fit this host, or the
/// names differ.
fn load(library: &Library, name: &str) -> Result<Arc<Plugin>, String> {
    let hash = library.hash();
    // The list is locked only to find the slot. The slot stays locked during the load, so that two
    // sessions do not load one library twice and other libraries are not held up.
    let slot = {
        let mut libraries = lock(&LIBRARIES);
        match libraries.iter().find(|(other, _)| *other == hash) {
            Some((_, slot)) => Arc::clone(slot),
            None => {
                let slot = Slot::default();
                libraries.push((hash, Arc::clone(&slot)));
                slot
            }
        }
    };
    let mut slot = lock(&slot);
    let plugin = match &*slot {
        Some(plugin) => Arc::clone(plugin),
        None => {
            let loaded = library
                .with_copy(|copy| Plugin::load_copy(&library.path, copy, &HOST))
                .map_err(|error| format!("{} cannot be copied: {error}", library.path.display()))?;
            let plugin = Arc::new(loaded.map_err(|error| {
                if let LoadError::Layout { report, .. } = &error {
                    tracing::debug!("{report}");
                }
                error.to_string()
            })?);
            Arc::clone(slot.insert(plugin))
        }
    };
    let own = &plugin.description().name;
    if own == name {
        Ok(plugin)
    } else {
        Err(format!(
            "{} calls its engine `{own}`, but its plugin.yaml says `{name}`: make the two the same",
            library.path.display()
        ))
    }
}

/// Refuses a plugin whose library sets flags that `asks` in its manifest does not list. The user
/// allowed the plugin by its manifest, and a new build of the library must not gain rights
/// unnoticed.
fn check_asks(manifest: &Manifest, about: &About) -> Result<(), String> {
    let Some(said) = &manifest.asks else {
        return Ok(());
    };
    let more: Vec<_> = asks_of(about)
        .into_iter()
        .filter(|flag| !said.contains(flag))
        .collect();
    match more.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "the engine `{}` asks for {}, which `asks` in {} does not list: add it there if you allow it, or \
             rebuild the plugin with `contexture plugins build`",
            manifest.name,
            more.join(", "),
            manifest.path.display()
        )),
    }
}
