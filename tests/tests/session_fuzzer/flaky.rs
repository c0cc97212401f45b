//! The lossless engine, failing on schedule.

use std::collections::HashMap;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use contexture::engines::register_context_engine;
use contexture_engine_api::{
    About, Committed, CompressRequest, ContextEngine, Decision, Delivery, EngineError,
    EngineFactory, FactoryRequest, HostInfo, OpenRequest, Outcome, StoreCommand, ToolCall,
    ToolSpec, Usage, WindowState, define_engine,
};
use serde::{Deserialize, Serialize};

use crate::play::is_default;

/// The engine's name.
pub(crate) const FLAKY: &str = "flaky";

/// How long a call may take in the sessions of this engine, in milliseconds, and how long one hangs. Calls by which
/// an engine follows the conversation are given up after four times their deadline.
pub(crate) const DEADLINE_MS: u64 = 500;
const HANGS: Duration = Duration::from_millis(650);
const HANGS_LATE: Duration = Duration::from_millis(2_600);

/// The methods that can fail. Deliveries with a cut or a revision are told apart from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    Observe,
    ShouldCompress,
    Compress,
    Committed,
    Cut,
    Revision,
    TurnComplete,
    Open,
    End,
}

/// How often each is drawn.
pub(crate) const METHODS: [Method; 12] = [
    Method::Observe,
    Method::Observe,
    Method::Observe,
    Method::ShouldCompress,
    Method::Compress,
    Method::Compress,
    Method::Committed,
    Method::Cut,
    Method::Revision,
    Method::TurnComplete,
    Method::Open,
    Method::End,
];

/// What goes wrong in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Failure {
    /// An error, or a panic where the method has no errors.
    Error,
    Panic,
    /// It does not return in time.
    Hang,
}

/// A failure that is due at the next call of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    pub(crate) method: Method,
    pub(crate) failure: Failure,
    /// The call does its work: before it fails, or after all when nobody waits for it any more.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) works: bool,
}

/// The faults of one home directory.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    due: Vec<Fault>,
    fired: usize,
    hanging: usize,
}

type Shared = Arc<Mutex<Schedule>>;

static SCHEDULES: Mutex<Option<HashMap<PathBuf, Shared>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The schedule of a home directory.
pub(crate) fn schedule(home: &Path) -> Faults {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        register_context_engine(define_engine!("flaky", factory Flaky)).unwrap();
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !panic.to_string().contains("on purpose") {
                tell(panic);
            }
        }));
    });
    let mut all = lock(&SCHEDULES);
    Faults(Arc::clone(
        all.get_or_insert_default()
            .entry(home.to_owned())
            .or_default(),
    ))
}

/// The faults of one home directory, for whoever makes them and for the engine.
#[derive(Debug, Clone)]
pub(crate) struct Faults(Shared);

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        lock(&self.0).due.push(fault);
    }

    /// How many came since this was asked last.
    pub(crate) fn fired(&self) -> usize {
        std::mem::take(&mut lock(&self.0).fired)
    }

    /// No more come.
    pub(crate) fn clear(&self) {
        lock(&self.0).due.clear();
    }

    /// Waits until the calls that hang are over.
    pub(crate) fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while lock(&self.0).hanging > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A call of a method, with the failure that is due. Where it does no work, it is as if it never came.
    fn call<T>(
        &self,
        method: Method,
        work: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let fault = {
            let mut schedule = lock(&self.0);
            let at = schedule.due.iter().position(|fault| fault.method == method);
            let fault = at.map(|at| schedule.due.remove(at));
            schedule.fired += usize::from(fault.is_some());
            schedule.hanging +=
                usize::from(fault.is_some_and(|fault| fault.failure == Failure::Hang));
            fault
        };
        let Some(fault) = fault else { return work() };
        let broken = EngineError::Storage(format!("on purpose, in {method:?}"));
        match fault.failure {
            Failure::Hang => {
                std::thread::sleep(match method {
                    Method::Compress | Method::Open | Method::End => HANGS,
                    _ => HANGS_LATE,
                });
                let done = if fault.works { work() } else { Err(broken) };
                lock(&self.0).hanging -= 1;
                done
            }
            failure => {
                if fault.works {
                    work()?;
                }
                match failure {
                    Failure::Panic => panic!("on purpose, in {method:?}"),
                    _ => Err(broken),
                }
            }
        }
    }

    /// The same, for a method without errors.
    fn tell<T>(&self, method: Method, work: impl FnOnce() -> T) -> T {
        self.call(method, || Ok(work()))
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

struct Flaky {
    factory: Box<dyn EngineFactory>,
    faults: Faults,
}

impl EngineFactory for Flaky {
    fn about(host: &HostInfo) -> About {
        contexture_lcm::DEFINITION.describe(host).about
    }

    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        let home = request.data_dir.ancestors().nth(2).unwrap();
        Ok(Self {
            factory: contexture_lcm::DEFINITION.create(request)?,
            faults: schedule(home),
        })
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        // Its own compactions are this one's.
        let compaction = request.compaction.map(|current| {
            current.clone().engine(if current.engine == FLAKY {
                "lcm".to_owned()
            } else {
                current.engine.clone()
            })
        });
        let request = OpenRequest::new(
            request.session,
            request.settings,
            request.data_dir,
            request.services.clone(),
            request.window,
        )
        .compaction(compaction.as_ref());
        let engine = self
            .faults
            .call(Method::Open, || self.factory.open(&request))?;
        Ok(Box::new(Failing {
            engine,
            faults: self.faults.clone(),
        }))
    }

    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        self.factory.manage(command)
    }
}

struct Failing {
    engine: Box<dyn ContextEngine>,
    faults: Faults,
}

impl ContextEngine for Failing {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.faults.tell(Method::ShouldCompress, || {
            self.engine.should_compress(window)
        })
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.faults
            .call(Method::Compress, || self.engine.compress(request))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let method = match delivery {
            Delivery { cut: Some(_), .. } => Method::Cut,
            Delivery {
                revisions: [_, ..], ..
            } => Method::Revision,
            _ => Method::Observe,
        };
        self.faults.call(method, || self.engine.observe(delivery))
    }

    fn update_usage(&mut self, usage: &Usage) {
        self.engine.update_usage(usage);
    }

    fn committed(&mut self, committed: &Committed) {
        self.faults
            .tell(Method::Committed, || self.engine.committed(committed));
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        self.engine.discarded(compaction, reason);
    }

    fn tools(&self) -> Vec<ToolSpec> {
        self.engine.tools()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.engine.call_tool(call)
    }

    fn turn_complete(&mut self) {
        self.faults
            .tell(Method::TurnComplete, || self.engine.turn_complete());
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.engine.model_changed(window);
    }

    fn end(&mut self) {
        self.faults.tell(Method::End, || self.engine.end());
    }

    fn status(&self) -> serde_json::Value {
        self.engine.status()
    }
}
