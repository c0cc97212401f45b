//! The engines of a process: found, loaded once, and opened for sessions under supervision.
//!
//! A session needs one engine, and the configuration names it. This module turns the name into a
//! running engine. It resolves the name in the [`catalog`](crate::catalog), checks the settings,
//! loads the library into this process, has a separate process load it or starts a program, creates
//! one factory per engine, and opens the engine for the session. `registry` knows the engines that
//! need no loading, `loading` loads the others, and `opened` is the engine of one session.
//!
//! Read [`Engines`] first: it is built once per configuration and shared by all sessions.
//! [`Engines::open`] returns an [`Opened`], which is what a session calls. If an engine cannot be
//! loaded or opened, the built-in compressor takes its place when the configuration allows a
//! fallback.
//!
//! Deadlines, panic guards and quarantine are left to [`supervision`](crate::supervision).

mod loading;
mod opened;
mod registry;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use contexture_base::lock;
use contexture_base::private::{narrow, narrow_folder};
use contexture_compressor::Compressor;
use contexture_config::{Config, Isolation, Loaded, OnFailure, Schema};
use contexture_engine_api::{
    About, CurrentCompaction, EngineDefinition, EngineError, EngineFactory, FactoryRequest,
    OpenRequest, Plugin, Services, StoreCommand, WindowState, define_engine, make_private_folder,
};
use contexture_formats::prompt_cache::Pauses;
use contexture_providers::ModelClient;
use serde::{Deserialize, Serialize};

use crate::HOST;
use crate::catalog::{
    BUILT_IN, Catalog, Choice, Manifest, PluginFiles, Resolution, ResolveError, resolve,
};
use crate::isolation::{Isolated, IsolatedFactory, Launch, find_program};
use crate::stdio::{StdioFactory, StdioProcess};
use crate::supervision::{CallState, EngineProcess, Policy, Supervisor};

pub use self::loading::{LoadedPlugin, open_plugin};
pub use self::opened::Opened;
pub use self::registry::{
    NameTaken, RegisterError, catalog, register_context_engine, registered_engines,
};
pub use crate::supervision::{CallError, EngineHealth, HealthState};

pub(crate) use self::loading::load_plugin;

use self::loading::{check_asks, launch_of, load, memory_of, not_loaded, read_library, watch_load};
use self::registry::{about, listed, schema_of};

/// Where the code of an engine comes from. Reports and logs print it in lower case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The compressor that is part of the host. It is always available and needs no loading.
    #[default]
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
        "the engine `{engine}` cannot run in a separate process (`context.isolation`): {reason}"
    )]
    NotIsolated {
        /// Name of the engine that was to be isolated.
        engine: String,
        /// Why isolation fails, and how to fix it.
        reason: String,
    },
}

impl OpenError {
    /// Returns the engine's words if it refused a store command, because it derives nothing, or
    /// nothing from this session. Such a refusal is not a failure.
    pub fn refusal(&self) -> Option<&EngineError> {
        match self {
            Self::Call(CallError::Failed {
                error: error @ (EngineError::InvalidInput(_) | EngineError::Unsupported(_)),
                ..
            }) => Some(error),
            _ => None,
        }
    }
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

static ENGINE_HOST_IN: OnceLock<PathBuf> = OnceLock::new();

/// Sets the first folder that is searched for the program `contexture-engine-host`. A library that
/// ships this program calls it, because the program it is embedded in may be installed anywhere
/// else. The configuration (`context.engine_host`) takes precedence. Only the first call has an
/// effect.
pub fn look_for_engine_host_in(folder: PathBuf) {
    let _ = ENGINE_HOST_IN.set(folder);
}

/// A place for one shared value, empty until the value was made.
type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// Returns the value in a slot, and makes it on first use. The slot stays locked meanwhile, so that
/// two sessions that open at once do not both make one. An error leaves the slot empty.
fn get_or_make<T: ?Sized, E>(
    slot: &Slot<T>,
    make: impl FnOnce() -> Result<Arc<T>, E>,
) -> Result<Arc<T>, E> {
    let mut slot = lock(slot);
    match &*slot {
        Some(value) => Ok(Arc::clone(value)),
        None => Ok(Arc::clone(slot.insert(make()?))),
    }
}

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
    /// The libraries of plugins, by name, each empty until it was loaded. A library is read once, and
    /// all sessions get the code that was checked then.
    plugins: Mutex<HashMap<String, Slot<Plugin>>>,
    /// One factory per engine, empty until it was created. There is never a second factory for a
    /// name in one configuration, so that two instances of an engine do not open the same files.
    factories: Mutex<HashMap<(Source, String), Slot<dyn EngineFactory>>>,
    /// Engines that run in separate processes, by name. The factory, the sessions, and those that
    /// open one keep them. After a failed start nobody does, and the program is searched for again.
    isolated: Mutex<HashMap<String, Weak<Isolated>>>,
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
            plugins: Mutex::default(),
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
    /// If the configured engine fails to open or is in quarantine, and a fallback is allowed, the
    /// result is an engine that is [stalled](Opened::is_stalled), and the built-in compressor serves
    /// the session until a later turn can open it. If its process does not start, nothing is known of
    /// the engine, so the session has to be opened again
    /// ([`may_start_configured`](Opened::may_start_configured)). A plugin that is missing or does not
    /// fit this host is tried again only by new [`Engines`].
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
        let mut unstarted = None;
        loop {
            match self.open_choice(&resolution, occasion, may_wait) {
                Ok(mut opened) => {
                    for note in &resolution.notes {
                        tracing::info!("{note}");
                    }
                    if resolution.engine == Choice::BuiltIn && resolution.requested != BUILT_IN {
                        opened.stands_in = resolution.warnings.last().cloned();
                        opened.unstarted = unstarted;
                    }
                    warnings.append(&mut resolution.warnings);
                    if let Some(reason) = opened.supervised.absence() {
                        warnings.push(format!("the built-in {BUILT_IN} runs for now: {reason}"));
                    }
                    return Ok(opened);
                }
                Err(Failure::Load(reason)) => {
                    resolution = resolution.after_load_failure(&reason)?;
                }
                Err(Failure::Start(error)) => {
                    resolution = resolution.after_load_failure(&error.to_string())?;
                    unstarted = Some(resolution.requested.clone());
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
        let found = self.find(&resolution.engine).map_err(|failure| {
            let reason = match failure {
                Failure::Open(error) => return error,
                Failure::Start(error) => error.to_string(),
                Failure::Load(reason) => reason,
            };
            match resolution.after_load_failure(&reason) {
                Ok(_) => OpenError::NotLoaded(reason),
                Err(error) => error.into(),
            }
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
            session: session.to_owned(),
        };
        match self.manage(Some(engine), &command) {
            Err(error) if error.refusal().is_some() => Ok(()),
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
                if self.config().isolation_of(&manifest.name) == Isolation::Process {
                    return self.find_isolated(manifest, library, settings);
                }
                let slot = Arc::clone(
                    lock(&self.plugins)
                        .entry(manifest.name.clone())
                        .or_default(),
                );
                let plugin = get_or_make(&slot, || self.load(manifest, library))?;
                Ok(ChosenEngine {
                    settings,
                    isolated: None,
                    is_shared: true,
                    about: plugin.description().about.clone(),
                    name: manifest.name.clone(),
                    source: Source::Plugin,
                    origin: library.display().to_string(),
                    create: Box::new(move |request| plugin.create(request)),
                })
            }
        }
    }

    /// Reads, checks and loads the library of a plugin.
    fn load(&self, manifest: &Manifest, library: &Path) -> Result<Arc<Plugin>, Failure> {
        let read = read_library(manifest, library)?;
        let (origin, name) = (library.display().to_string(), manifest.name.clone());
        let deadline = self.config().context.supervision.call_deadline_ms;
        // Armed before the load: if the library hangs in the dynamic linker, the waiting thread may
        // hang as well and could not report it.
        let _watch = watch_load(&origin, Duration::from_millis(deadline));
        let loaded = self
            .supervisor
            // A library that does not fit would not fit later either, so that is no failure.
            .load(&manifest.name, move || Ok(load(&read, &name)))
            .map_err(|error| not_loaded(error, &origin))?;
        let plugin = loaded.map_err(Failure::Load)?;
        check_asks(manifest, &plugin.description().about).map_err(Failure::Load)?;
        Ok(plugin)
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
            .map_err(Failure::Start)?;
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
        manifest: &Manifest,
        library: &Path,
        settings: String,
    ) -> Result<ChosenEngine, Failure> {
        let name = manifest.name.as_str();
        let isolated = self.isolated(manifest, library)?;
        let started = Arc::clone(&isolated);
        let description = (self.supervisor)
            .load(name, move || started.description())
            .map_err(Failure::Start)?;
        let engine = Arc::clone(&isolated);
        Ok(ChosenEngine {
            name: name.to_owned(),
            settings,
            isolated: Some(isolated),
            is_shared: true,
            about: description.about,
            source: Source::Plugin,
            origin: format!("{}, in a process of its own", library.display()),
            create: Box::new(move |request| Ok(Box::new(IsolatedFactory::new(engine, request)))),
        })
    }

    /// Returns the engine that runs in a separate process, or prepares one. Two sessions that open at
    /// once get the same. No process is started yet.
    ///
    /// # Errors
    /// Returns an error if the library cannot be used, or if the program that runs engines is not
    /// found.
    fn isolated(&self, manifest: &Manifest, library: &Path) -> Result<Arc<Isolated>, Failure> {
        let name = manifest.name.as_str();
        let mut all = lock(&self.isolated);
        if let Some(isolated) = all.get(name).and_then(Weak::upgrade) {
            return Ok(isolated);
        }
        let library = read_library(manifest, library)?;
        let context = &self.config().context;
        let program = find_program(
            context.engine_host.as_deref(),
            ENGINE_HOST_IN.get().map(PathBuf::as_path),
        );
        let program = program.map_err(|reason| OpenError::NotIsolated {
            engine: name.to_owned(),
            reason,
        })?;
        let isolated = Isolated::new(Launch {
            program,
            library,
            engine: name.to_owned(),
            memory: memory_of(self.config()),
            deadline: Duration::from_millis(context.supervision.call_deadline_ms),
        });
        all.insert(name.to_owned(), Arc::downgrade(&isolated));
        Ok(isolated)
    }

    /// Opens a prepared engine for a session. If `may_wait` is set and the engine fails or is in
    /// quarantine, the result is an engine that is not open yet, and another one serves the session
    /// until it is.
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
            Err(OpenError::Call(error)) if may_wait => {
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
            unstarted: None,
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
    ) -> Result<Arc<dyn EngineFactory>, OpenError> {
        let name = key.1.clone();
        let make = || {
            data_dir.parent().map(narrow);
            narrow_folder(data_dir);
            let (settings, data_dir) = (settings.to_owned(), data_dir.to_owned());
            let made = self.supervisor.create(&name, move || {
                create(&FactoryRequest::new(&settings, &data_dir, &HOST))
            })?;
            Ok(Arc::from(made))
        };
        if !is_shared {
            return make();
        }
        let slot = Arc::clone(lock(&self.factories).entry(key).or_default());
        get_or_make(&slot, make)
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
        // The destructor of a factory is code of the engine, so it runs under a deadline like every
        // other call.
        for ((_, name), slot) in lock(&self.factories).drain() {
            if let Some(factory) = lock(&slot).take() {
                self.supervisor.let_go((&name, ""), false, factory);
            }
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

/// Why a chosen engine is not open. Only the first two kinds may lead to a fallback by
/// `on_load_failure`.
enum Failure {
    /// Its plugin cannot be loaded, with the reason.
    Load(String),
    /// Its process does not start, which may pass.
    Start(CallError),
    /// It was loaded and cannot be opened, or nothing may replace it.
    Open(OpenError),
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}
