//! Loads the library of a plugin into this process, or prepares to start its program.
//!
//! [`load`] serves sessions, and loads the same bytes only once. [`open_plugin`] serves commands that
//! look at a plugin outside of any session. A library that hangs while it is loaded blocks the whole
//! process, see [`OpenError::Hangs`].

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_base::lock;
use contexture_config::Config;
use contexture_engine_api::{
    About, EngineDescription, EngineError, EngineFactory, FactoryRequest, LoadError, Plugin,
    end_watched, end_watched_after,
};

use super::{Failure, OpenError, Slot, get_or_make};
use crate::HOST;
use crate::catalog::{Library, Manifest, asks_of};
use crate::stdio::{StdioFactory, StdioLaunch, StdioProcess};
use crate::supervision::{CallError, Policy, Supervisor};

/// Converts the error of a load. A missed deadline allows no fallback, because a library that hangs
/// in the dynamic linker holds a lock that every new thread needs, so that no other engine could
/// run either.
pub(super) fn not_loaded(error: CallError, library: &str) -> Failure {
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
    let loaded = supervisor.load(&name, move || Ok(Plugin::load(&path, &HOST)));
    match loaded.map_err(|error| not_loaded(error, &name)) {
        Ok(loaded) => loaded.map_err(|error| error.to_string()),
        Err(Failure::Load(why)) => Err(why),
        Err(Failure::Start(error)) => Err(error.to_string()),
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
pub(super) fn launch_of(
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
pub(super) fn memory_of(config: &Config) -> Option<u64> {
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
pub(super) fn watch_load(library: &str, deadline: Duration) -> impl Drop + use<> {
    /// Extra time, so that the waiting thread can report the missed deadline first if it still
    /// runs.
    const LATER: Duration = Duration::from_secs(1);
    let (_, message) = hanging(library, deadline);
    end_watched_after(deadline + LATER, message)
}

/// Reads the library of a plugin and checks it.
///
/// # Errors
/// Others can write the file, or it does not match its pin.
pub(super) fn read_library(manifest: &Manifest, library: &Path) -> Result<Library, Failure> {
    let read = manifest.read_library(library);
    read.map_err(|problem| Failure::Load(problem.to_string()))
}

/// The libraries loaded in this process, by the hash of their bytes. Each is loaded only once,
/// because two copies of an engine would open the same files. None is ever unloaded.
static LIBRARIES: Mutex<Vec<(u128, Slot<Plugin>)>> = Mutex::new(Vec::new());

/// Loads a plugin's library and checks that its engine has the name in the manifest. If the same
/// bytes were loaded before, the plugin from that time is returned.
///
/// # Errors
/// Returns a message if no private copy can be made, the library does not fit this host, or the
/// names differ.
pub(super) fn load(library: &Library, name: &str) -> Result<Arc<Plugin>, String> {
    let hash = library.hash();
    // The list is locked only to find the slot, so that other libraries are not held up.
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
    let plugin = get_or_make(&slot, || {
        let loaded = library
            .with_copy(|copy| Plugin::load_copy(&library.path, copy, &HOST))
            .map_err(|error| format!("{} cannot be copied: {error}", library.path.display()))?;
        let plugin = loaded.map_err(|error| {
            if let LoadError::Layout { report, .. } = &error {
                tracing::debug!("{report}");
            }
            error.to_string()
        })?;
        Ok::<_, String>(Arc::new(plugin))
    })?;
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
pub(super) fn check_asks(manifest: &Manifest, about: &About) -> Result<(), String> {
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
