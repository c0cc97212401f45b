//! The engines of a process: found, loaded once, and opened for sessions under supervision.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use contexture_base::lock;
use contexture_base::private::{narrow, narrow_folder};
use contexture_compressor::Compressor;
use contexture_config::{Config, Isolation, Loaded, OnFailure, Schema};
use contexture_engine_api::{
    About, ContextEngine, CurrentCompaction, EngineDefinition, EngineError, EngineFactory,
    FactoryRequest, LoadError, OpenRequest, Plugin, Services, StoreCommand, Usage, WindowState,
    define_engine, end_watched, end_watched_after, linked_engines, make_private_folder,
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
use crate::supervision::{Allowance, CallState, Policy, Supervised, Supervisor, thrown};

pub use crate::supervision::{CallError, EngineHealth, HealthState};

/// Where an engine comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The compressor that is part of the host.
    Builtin,
    /// Linked into this process, or registered in it at run time.
    Registered,
    /// A library from a plugin folder.
    Plugin,
}

/// Why a session gets no engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is none of that name, or it cannot be loaded, and no fallback is allowed.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// It was found and could not be opened.
    #[error(transparent)]
    Call(CallError),
    /// Its settings are wrong. Nothing stands in for it, whatever the configuration says of failures.
    #[error("the settings of the engine `{engine}` are wrong:\n{problems}")]
    Settings {
        /// The engine.
        engine: String,
        /// What is wrong, a line each.
        problems: String,
    },
    /// Its data directory cannot be made.
    #[error("cannot make the data directory {}: {cause}", path.display())]
    DataDir {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// Its library does not return from being loaded. The process should end: the library holds a lock of the
    /// system's, without which threads neither begin nor end.
    #[error(
        "the library {library} did not return from being loaded within {deadline_ms} ms, and nothing can run beside \
         it: take the plugin away, or raise `context.supervision.call_deadline_ms` if it only needs more time"
    )]
    Hangs {
        /// The library.
        library: String,
        /// The deadline, in milliseconds.
        deadline_ms: u64,
    },
    /// It cannot be loaded, and no other engine has its stored data.
    #[error("{0}")]
    NotLoaded(String),
    /// It is to run in a process of its own, and cannot. It never runs in this one instead.
    #[error(
        "the engine `{engine}` cannot run in a process of its own (`context.isolation`): {reason}"
    )]
    NotIsolated {
        /// The engine.
        engine: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// The fallback to the built-in compressor failed.
    #[error("the built-in compressor is not open")]
    NoFallback,
}

impl From<CallError> for OpenError {
    fn from(error: CallError) -> Self {
        match error {
            // What no schema says, such as one setting that has to be above another.
            CallError::Failed {
                engine,
                error: EngineError::Settings(problems),
                ..
            } => Self::Settings { engine, problems },
            error => Self::Call(error),
        }
    }
}

/// A name that two engines claim.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "two engines are called `{name}`: {first} brings one and {second} another; an engine's name must be \
     its own, so rename one or leave one out"
)]
pub struct NameTaken {
    /// The name.
    pub name: String,
    /// The first owner.
    pub first: String,
    /// The second owner.
    pub second: String,
}

static REGISTERED: Mutex<Vec<EngineDefinition>> = Mutex::new(Vec::new());

/// Registers an engine at run time, as `register_engine!` does at link time. Registering the same engine
/// again changes nothing.
///
/// # Errors
/// Another engine has the name.
pub fn register_context_engine(definition: EngineDefinition) -> Result<(), NameTaken> {
    let mut all = registered_engines()?;
    if add(&mut all, definition)? {
        lock(&REGISTERED).push(definition);
    }
    Ok(())
}

static ENGINE_HOST_IN: OnceLock<PathBuf> = OnceLock::new();

/// Names the folder in which `contexture-engine-host` is looked for before all others, where the configuration does not
/// say: for a library that brings it along, in a program that is somebody else's. The first one counts.
pub fn look_for_engine_host_in(folder: PathBuf) {
    let _ = ENGINE_HOST_IN.set(folder);
}

/// The engines registered in this process, at link time and at run time.
///
/// # Errors
/// Two of them have the same name.
pub fn registered_engines() -> Result<Vec<EngineDefinition>, NameTaken> {
    let mut all = Vec::new();
    // Named here, because a linker drops a crate that nothing names, with its registration.
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

/// Adds an engine unless it is already registered; returns whether it did.
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

/// The engines that a configuration gives access to, found without running any of their code.
///
/// # Errors
/// Two registered engines have the same name.
pub fn catalog(loaded: &Loaded) -> Result<Catalog, NameTaken> {
    let registered = registered_engines()?;
    Ok(Catalog::scan(&loaded.plugin_dirs, listed(&registered)))
}

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

fn about(definition: &EngineDefinition) -> About {
    definition.describe(&HOST).about
}

/// The settings that an engine declares; any where the host cannot read that.
fn schema_of(name: &str, about: &About) -> Schema {
    let declared = about.settings.clone().unwrap_or(true.into());
    Schema::parse(&declared).unwrap_or_else(|error| {
        tracing::warn!("the settings of the engine `{name}` are not checked: {error}");
        Schema::default()
    })
}

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

/// The engines that one configuration gives access to. Made once and shared by all sessions.
pub struct Engines {
    loaded: Loaded,
    catalog: Catalog,
    registered: Vec<EngineDefinition>,
    client: ModelClient,
    supervisor: Arc<Supervisor>,
    /// Each engine's factory, made when first needed. There is one per name in a process, so that two
    /// copies of an engine never open the same files.
    factories: Mutex<HashMap<(Source, String), Factory>>,
    /// The engines that run in processes of their own.
    isolated: Mutex<HashMap<String, Arc<Isolated>>>,
    /// The pauses of all sessions, once a record was asked for them.
    pauses: Mutex<Option<Pauses>>,
    /// The state of the plugin folders when they were searched.
    plugin_files: PluginFiles,
}

impl std::fmt::Debug for Engines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engines")
            .field("catalog", &self.catalog)
            .finish_non_exhaustive()
    }
}

/// An engine opened for a session.
#[derive(Debug)]
pub struct Opened {
    source: Source,
    /// The library or the crate.
    origin: String,
    /// What it says of itself.
    about: About,
    supervised: Supervised,
    busy: Duration,
    failures: u64,
    /// Reported usage that was not passed on yet.
    untold: Vec<Usage>,
    /// Why this engine was opened in place of the configured one.
    stands_in: Option<String>,
}

impl Opened {
    /// Its name.
    pub fn name(&self) -> &str {
        self.supervised.engine()
    }

    /// Where it comes from.
    pub fn source(&self) -> Source {
        self.source
    }

    /// The library file, or the crate that registered it.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Whether it is the built-in compressor.
    pub fn is_builtin(&self) -> bool {
        self.source == Source::Builtin
    }

    /// Why this is not the engine that should run: it was opened in place of another one, it is
    /// [closed](Self::is_closed), or it is in [quarantine](Self::quarantine).
    pub fn stands_in(&self) -> Option<String> {
        let closed = || (self.is_closed()).then(|| self.supervised.closed().to_owned());
        (self.stands_in.clone())
            .or_else(closed)
            .or_else(|| self.quarantine())
    }

    /// Why it is not called for now: it kept failing, in this session or in several. It is called again once its time is up.
    pub fn quarantine(&self) -> Option<String> {
        self.supervised.quarantine()
    }

    /// Whether the engine is no longer called because it panicked.
    pub fn is_closed(&self) -> bool {
        self.supervised.is_closed() && !self.is_stalled()
    }

    /// Whether a call of it was given up, so that it has to be [taken back](Self::take_back) or opened anew.
    pub fn is_stalled(&self) -> bool {
        self.supervised.is_stalled()
    }

    /// Goes on with it where the call that was given up has returned after all, see [`Supervised::take_back`].
    pub fn take_back(&mut self) -> bool {
        self.supervised.take_back()
    }

    /// The total time of its calls, without opening it.
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// How many of its calls failed, and how many of its proposals and views broke the contract.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Counts a proposal or a view of it that broke the contract.
    pub fn broke_the_contract(&mut self) {
        self.failures += 1;
    }

    /// Takes its place, and goes on with its figures.
    pub fn replace(&mut self, anew: Self) {
        let (busy, failures) = (self.busy, self.failures);
        *self = anew;
        self.busy += busy;
        self.failures += failures;
    }

    /// Passes on the usage that the provider reported, together with the next call, which saves a thread
    /// hop.
    pub fn update_usage(&mut self, usage: Usage) {
        self.untold.push(usage);
    }

    /// Calls it, see [`Supervised::call`].
    ///
    /// # Errors
    /// As there.
    pub fn call<T: Send + 'static>(
        &mut self,
        method: &'static str,
        allowance: impl Into<Allowance>,
        code: impl FnOnce(&mut dyn ContextEngine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        let began = Instant::now();
        let untold = std::mem::take(&mut self.untold);
        let answer = self.supervised.call(method, allowance, move |engine| {
            tell_usage(engine, &untold)?;
            code(engine)
        });
        self.busy += began.elapsed();
        self.failures += u64::from(answer.as_ref().is_err_and(CallError::is_fault));
        answer
    }
}

/// A panic here is not a panic of the call that follows, so its message says where it happened.
fn tell_usage(engine: &mut dyn ContextEngine, untold: &[Usage]) -> Result<(), EngineError> {
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        untold.iter().for_each(|usage| engine.update_usage(usage));
    }));
    told.map_err(|panic| match thrown(panic) {
        EngineError::Panicked(message) => EngineError::Panicked(format!("update_usage: {message}")),
        error => error,
    })
}

/// What a session provides to open its engine.
pub struct Occasion<'a> {
    /// The session's id.
    pub session: &'a str,
    /// The window of the agent's model, without messages.
    pub window: &'a WindowState,
    /// What the session lends to the engine of this name, whose calls have this state.
    pub services: &'a dyn Fn(&str, &Arc<CallState>) -> Services,
    /// The session's current compaction, if any.
    pub compaction: Option<&'a CurrentCompaction>,
}

impl Engines {
    /// The engines of a configuration. Searches the plugin folders; runs no engine's code.
    ///
    /// # Errors
    /// Two registered engines have the same name.
    pub fn new(loaded: Loaded, client: ModelClient) -> Result<Arc<Self>, NameTaken> {
        let registered = registered_engines()?;
        // Taken before the search, so that a change during the search leads to another search.
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

    /// The pauses of all sessions, as far as the lifetime of the prompt cache is to be chosen by them.
    pub fn pauses(&self) -> Pauses {
        lock(&self.pauses).unwrap_or_default()
    }

    /// Takes in the pauses that a record has, at the first time.
    pub fn know_pauses(&self, recorded: impl FnOnce() -> Pauses) {
        lock(&self.pauses).get_or_insert_with(recorded);
    }

    /// Adds a pause of a session.
    pub fn note_pause(&self, pause: Pauses) {
        lock(&self.pauses).get_or_insert_default().add(pause);
    }

    /// Whether a plugin was installed, built or taken away since the folders were searched.
    pub fn has_other_plugins(&self) -> bool {
        PluginFiles::of(&self.loaded.plugin_dirs) != self.plugin_files
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// The configuration and where it came from.
    pub fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// The engines that exist.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The client that makes model calls.
    pub fn client(&self) -> &ModelClient {
        &self.client
    }

    /// The health of every engine that was called in this process.
    pub fn health(&self) -> Vec<EngineHealth> {
        self.supervisor.health()
    }

    /// Opens the engine that `named` (from a command line: it runs or the call fails) or the configuration
    /// chooses. Anything that the user should know about the choice is added to `warnings`.
    ///
    /// # Errors
    /// The engine cannot be opened, and the configuration allows no fallback.
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
                        warnings.push(format!(
                            "the built-in {BUILT_IN} stands in for now: {reason}"
                        ));
                    }
                    return Ok(opened);
                }
                Err(Failure::Load(reason)) => {
                    resolution = resolution.after_load_failure(&reason)?;
                }
                // Failing to open counts as failing at the first call.
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

    /// Sends a store command to the engine that `named` or the configuration chooses.
    ///
    /// # Errors
    /// The engine is not available, keeps no store, or the command failed.
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
        // Made when a session is opened; a question makes nothing.
        let data_dir = self.data_dir(&found.name);
        let name = found.name.clone();
        let key = (found.source, found.name);
        let factory = self.factory(key, &found.settings, &data_dir, found.create)?;
        let command = command.clone();
        let manage = move || factory.manage(&command);
        Ok(self.supervisor.manage(&name, manage)?)
    }

    /// Opens the built-in compressor.
    ///
    /// # Errors
    /// Its data directory cannot be made, or its settings are invalid.
    pub fn open_builtin(&self, occasion: &Occasion<'_>) -> Result<Opened, OpenError> {
        self.open_made(self.built_in(), occasion, false)
    }

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

    /// The chosen engine, with its library loaded.
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
                    settings: self.settings(name, &schema_of(name, &about))?,
                    about,
                    name: name.clone(),
                    source: Source::Registered,
                    origin: format!("{} {}", definition.owner, definition.version),
                    create: Box::new(move |request| definition.create(request)),
                })
            }
            Choice::Plugin { manifest, library } => {
                let settings = self.settings(&manifest.name, &manifest.settings)?;
                let library = manifest
                    .read_library(library)
                    .map_err(|problem| Failure::Load(problem.to_string()))?;
                let origin = library.path.display().to_string();
                if self.config().isolation_of(&manifest.name) == Isolation::Process {
                    return self.find_isolated(&manifest.name, settings, library);
                }
                let name = manifest.name.clone();
                let deadline = self.config().context.supervision.call_deadline_ms;
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
                    about: plugin.description().about.clone(),
                    name: manifest.name.clone(),
                    source: Source::Plugin,
                    origin,
                    create: Box::new(move |request| plugin.create(request)),
                })
            }
        }
    }

    /// The engine of a library that a process of its own loads.
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
                    memory: (context.supervision.memory_mb > 0)
                        .then_some(context.supervision.memory_mb << 20),
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
        lock(&self.isolated).insert(name.to_owned(), Arc::clone(&isolated));
        let engine = Arc::clone(&isolated);
        Ok(ChosenEngine {
            name: name.to_owned(),
            settings,
            isolated: Some(isolated),
            about: description.about,
            source: Source::Plugin,
            origin,
            create: Box::new(move |request| Ok(Box::new(IsolatedFactory::new(engine, request)))),
        })
    }

    /// Opens an engine for a session. If it `may_wait`, one in quarantine is not opened yet, and something else stands in
    /// for it until it is.
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
        let open = || {
            let factory = self.factory(key, &settings, &data_dir, found.create)?;
            let (settings, data_dir) = (settings.clone(), data_dir.clone());
            let session = occasion.session.to_owned();
            let window = occasion.window.clone();
            let compaction = occasion.compaction.cloned();
            let state = Arc::clone(&state);
            let opened = self
                .supervisor
                .open(name, occasion.session, state, move || {
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
            untold: Vec::new(),
            stands_in: None,
        })
    }

    fn factory(
        &self,
        key: (Source, String),
        settings: &str,
        data_dir: &Path,
        create: Create,
    ) -> Result<Factory, OpenError> {
        if let Some(factory) = lock(&self.factories).get(&key) {
            return Ok(Arc::clone(factory));
        }
        data_dir.parent().map(narrow);
        narrow_folder(data_dir);
        let (settings, data_dir) = (settings.to_owned(), data_dir.to_owned());
        let made = self.supervisor.create(&key.1, move || {
            create(&FactoryRequest::new(&settings, &data_dir, &HOST))
        })?;
        let made: Factory = Arc::from(made);
        // Two sessions may have made one at the same time; both use the first.
        Ok(Arc::clone(lock(&self.factories).entry(key).or_insert(made)))
    }

    fn built_in(&self) -> ChosenEngine {
        const COMPRESSOR: EngineDefinition = define_engine!("compressor", Compressor);
        ChosenEngine {
            name: BUILT_IN.to_owned(),
            settings: self.config().engine_settings(BUILT_IN).to_string(),
            isolated: None,
            about: about(&COMPRESSOR),
            source: Source::Builtin,
            origin: "built in".to_owned(),
            create: Box::new(|request| COMPRESSOR.create(request)),
        }
    }

    /// The settings of an engine as it is given them.
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

    fn data_dir(&self, name: &str) -> PathBuf {
        self.loaded.home.join("engines").join(name)
    }

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
        for ((_, name), factory) in factories.drain() {
            self.supervisor.let_go(&name, "", factory);
        }
    }
}

type Create =
    Box<dyn FnOnce(&FactoryRequest<'_>) -> Result<Box<dyn EngineFactory>, EngineError> + Send>;

/// A chosen engine, ready to be created.
struct ChosenEngine {
    name: String,
    /// Its settings as JSON, checked.
    settings: String,
    /// What it says of itself.
    about: About,
    source: Source,
    /// The library or the crate.
    origin: String,
    create: Create,
    /// Where it runs in a process of its own.
    isolated: Option<Arc<Isolated>>,
}

/// Why a chosen engine is not open.
enum Failure {
    /// Its plugin cannot be loaded.
    Load(String),
    /// It was loaded and cannot be opened.
    Open(OpenError),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

/// A library that does not return from being loaded holds a lock of the system's, without which no thread begins or
/// ends. So no other engine can stand in.
fn not_loaded(error: CallError, library: &str) -> Failure {
    match error {
        CallError::TimedOut { deadline_ms, .. } => {
            Failure::Open(hangs(library, Duration::from_millis(deadline_ms)))
        }
        error => Failure::Load(error.to_string()),
    }
}

/// Loads a plugin's library outside of any session, for commands that look at a plugin. Only the loading has a
/// deadline. Calls of the plugin have none.
///
/// # Errors
/// The library does not fit, or loading it does not return within `deadline`. After that the process should end, as the
/// command does; see [`OpenError::Hangs`].
pub fn load_plugin(library: &Path, deadline: Duration) -> Result<Plugin, String> {
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

/// A library that does not return from being loaded ends the command.
fn hangs(library: &str, deadline: Duration) -> OpenError {
    let (hangs, message) = hanging(library, deadline);
    end_watched(&message);
    hangs
}

/// The error of a library that does not return from being loaded, and what the command says of it.
fn hanging(library: &str, deadline: Duration) -> (OpenError, String) {
    let hangs = OpenError::Hangs {
        library: library.to_owned(),
        deadline_ms: u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX),
    };
    let message = format!("error: {hangs}\n");
    (hangs, message)
}

/// Ends the command some time after the deadline of a load, should whoever waits for the load not do so.
fn watch_load(library: &str, deadline: Duration) -> impl Drop + use<> {
    /// Those who wait come first.
    const LATER: Duration = Duration::from_secs(1);
    let (_, message) = hanging(library, deadline);
    end_watched_after(deadline + LATER, message)
}

/// The libraries of this process, by their hashes. Each is loaded once, for two copies of an engine would open
/// the same files, and never unloaded.
static LIBRARIES: Mutex<Vec<(u128, Slot)>> = Mutex::new(Vec::new());

type Slot = Arc<Mutex<Option<Arc<Plugin>>>>;

/// Loads a plugin's library and checks that the engine's name matches the manifest.
fn load(library: &Library, name: &str) -> Result<Arc<Plugin>, String> {
    let hash = library.hash();
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
                .map_err(|error| {
                    format!(
                        "{}: no copy of it can be made: {error}",
                        library.path.display()
                    )
                })?;
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
            "{} calls its engine `{own}`, and its plugin.yaml says `{name}`: make the two the same",
            library.path.display()
        ))
    }
}

/// Refuses a plugin that asks for what its manifest, by which it was allowed, does not say.
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
            "the engine `{}` asks for {}, which `asks` in {} does not say: put it there if you allow it, or build the \
             plugin anew with `contexture plugins build`",
            manifest.name,
            more.join(", "),
            manifest.path.display()
        )),
    }
}
