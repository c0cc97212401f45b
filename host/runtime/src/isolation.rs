//! Runs an engine in a separate process.
//!
//! A plugin in this process can take the whole agent down: by a memory fault, by `exit`, or by
//! using up the memory. If `context.isolation` is `process`, the host starts the program
//! `contexture-engine-host` and talks to the engine over a socket. Whatever ends that process costs
//! the calls that are in progress in it, and nothing else.
//!
//! One process runs one engine with all of its sessions. After a process has ended, the next
//! session that is opened starts a new one.
//!
//! Read [`Isolated`] first, which owns the process of one engine. `process` starts and ends a
//! process and carries its calls, `factory` offers it to the rest of the host as an
//! [`EngineFactory`](contexture_engine_api::EngineFactory), and `sent` avoids sending messages
//! twice. Deadlines are left to [`supervision`](crate::supervision), which kills a process that
//! misses one.

mod factory;
mod process;
mod sent;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_base::lock;
use contexture_base::trust;
use contexture_engine_api::EngineDescription;

use crate::catalog::Library;
use crate::supervision::EngineProcess;
use process::Process;

pub(crate) use factory::IsolatedFactory;

/// File name of the program that runs an engine, without the platform's extension.
const PROGRAM: &str = "contexture-engine-host";

/// Finds the program that runs engines. If `configured` is set, only that path is tried. Otherwise
/// it is searched in the folder that the embedding program `named`, next to the running program,
/// and on the PATH, in this order.
///
/// # Errors
/// Returns a message that lists the searched folders and says what to do. If the configured file
/// could have been written by another user, the message says so.
pub(crate) fn find_program(
    configured: Option<&Path>,
    named: Option<&Path>,
) -> Result<PathBuf, String> {
    if let Some(path) = configured {
        return match trust::open(path) {
            Ok(_) => Ok(path.to_owned()),
            Err(problem) => Err(format!("`context.engine_host`: {problem}")),
        };
    }
    let name = format!("{PROGRAM}{}", std::env::consts::EXE_SUFFIX);
    // Installed next to the command line tool, it is found even if neither is on the PATH.
    let beside = std::env::current_exe().ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = named
        .map(Path::to_owned)
        .into_iter()
        .chain(beside)
        .collect();
    let places = folders.iter().cloned().chain(std::env::split_paths(&path));
    let mut programs = places.map(|place| place.join(&name));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        let folders: String = (folders.iter())
            .map(|place| format!("in {} nor ", place.display()))
            .collect();
        format!("`{name}` is neither {folders}on the PATH: install it, or set `context.engine_host` to its path")
    })
}

/// How the processes of one engine are started.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) library: Library,
    /// The name that the manifest gives the engine. The process must report the same.
    pub(crate) engine: String,
    /// The most address space that the process may use, in bytes. `None` for no limit.
    pub(crate) memory: Option<u64>,
    /// The longest time that the process may take to load the library, and to end.
    pub(crate) deadline: Duration,
}

/// An engine that runs in a separate process, over all processes that it has had.
pub(crate) struct Isolated {
    launch: Launch,
    /// The process that was started last. It may have ended.
    running: Mutex<Option<Arc<Process>>>,
    /// How many processes were started. The number identifies the one that runs.
    started: AtomicU64,
}

impl std::fmt::Debug for Isolated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Isolated")
            .field(&self.launch.engine)
            .finish()
    }
}

impl Isolated {
    pub(crate) fn new(launch: Launch) -> Arc<Self> {
        Arc::new(Self {
            launch,
            running: Mutex::default(),
            started: AtomicU64::new(0),
        })
    }

    /// Returns what the engine declares about itself. Starts its process if none runs.
    ///
    /// # Errors
    /// Returns a message if the process cannot be started or cannot load the library.
    pub(crate) fn description(&self) -> Result<EngineDescription, String> {
        Ok(self.process()?.description.clone())
    }

    /// Returns the running process, or starts a new one.
    fn process(&self) -> Result<Arc<Process>, String> {
        // Locked during the start, so that two sessions that open at once share one process.
        let mut running = lock(&self.running);
        if let Some(process) = running.as_ref().filter(|process| !process.has_ended()) {
            return Ok(Arc::clone(process));
        }
        let process = Arc::new(Process::start(&self.launch)?);
        *running = Some(Arc::clone(&process));
        self.started.fetch_add(1, Ordering::Release);
        Ok(process)
    }
}

impl EngineProcess for Isolated {
    fn current(&self) -> Option<u64> {
        let running = lock(&self.running);
        let number = self.started.load(Ordering::Acquire);
        let runs = |process: &Arc<Process>| !process.has_ended();
        running.as_ref().is_some_and(runs).then_some(number)
    }

    fn kill(&self) {
        if let Some(process) = lock(&self.running).as_ref() {
            process.kill("it did not return in time and was killed");
        }
    }
}
