//! Engines in processes of their own: what ends such a process (a fault, an exit, a deadline, its limit of memory) costs
//! the calls that are under way in it, and nothing else. One process runs one engine, with all of its sessions; one that
//! ended is started again when the next session is opened.

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
use process::Process;

pub(crate) use factory::IsolatedFactory;

/// The program that runs an engine.
const PROGRAM: &str = "contexture-engine-host";

/// Where the program is looked for that runs engines: as configured, else in the folder that the embedding program
/// named, beside the running program, and on the PATH.
///
/// # Errors
/// The places where it is not.
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
        format!("`{name}` is neither {folders}on the PATH: install it, or say in `context.engine_host` where it is")
    })
}

/// How an engine's processes are started.
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) library: Library,
    /// The name that the manifest gives the engine.
    pub(crate) engine: String,
    /// The most address space of the process, in bytes; none for any.
    pub(crate) memory: Option<u64>,
    /// How long loading the library, and ending, may take.
    pub(crate) deadline: Duration,
}

/// An engine that runs in a process of its own.
pub(crate) struct Isolated {
    launch: Launch,
    running: Mutex<Option<Arc<Process>>>,
    /// How many processes were started.
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

    /// What the engine says of itself.
    ///
    /// # Errors
    /// Its process cannot be started, or its library cannot be loaded there.
    pub(crate) fn description(&self) -> Result<EngineDescription, String> {
        Ok(self.process()?.description.clone())
    }

    /// The process that runs now, or a new one.
    fn process(&self) -> Result<Arc<Process>, String> {
        let mut running = lock(&self.running);
        if let Some(process) = running.as_ref().filter(|process| !process.has_ended()) {
            return Ok(Arc::clone(process));
        }
        let process = Arc::new(Process::start(&self.launch)?);
        *running = Some(Arc::clone(&process));
        self.started.fetch_add(1, Ordering::Release);
        Ok(process)
    }

    /// Which process runs now, by its number; none where it has ended.
    pub(crate) fn current(&self) -> Option<u64> {
        let running = lock(&self.running);
        let number = self.started.load(Ordering::Acquire);
        let runs = |process: &Arc<Process>| !process.has_ended();
        running.as_ref().is_some_and(runs).then_some(number)
    }

    /// Ends the process that runs now, for nobody waits for it any longer.
    pub(crate) fn kill(&self) {
        if let Some(process) = lock(&self.running).as_ref() {
            process.kill("it did not return in time, and was ended");
        }
    }
}
