//! Calls engines so that a faulty one cannot harm the agent.
//!
//! An engine is foreign code: it may panic, hang, or fail again and again. Every call therefore
//! runs on a worker thread, with a deadline, behind a panic guard. An engine that keeps failing is
//! put in quarantine (`health`). The built-in compressor is part of the host, and its short calls run
//! on the caller's thread, behind the panic guard alone.
//!
//! `Supervisor` makes the calls and is shared by all engines of a process. `Supervised` is one
//! session's engine. `Supervisor::run` is the function to read first: every other call ends up there.
//!
//! A deadline limits the time without progress. It grows with the messages that a call is given,
//! and starts again after each model call. The time that the host takes to read from the store of
//! sessions does not count. When a call misses it, its cancel flag is set. If it
//! does not return within a grace period, it is abandoned: its result is discarded, and its object
//! is not touched again unless the call returns after all. The worker thread owns everything that
//! the call borrows, so an abandoned call never reads freed memory.

mod health;
#[cfg(test)]
mod tests;
mod worker;

use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use contexture_base::lock;
use contexture_engine_api::{ContextEngine, EngineError, EngineFactory, panic_text, printable};
use contexture_secrets::mask_secrets;

pub use health::{EngineHealth, HealthState};

use health::{HealthBook, Verdict};
use worker::Workers;

/// Time limits of engine calls and the number of failures that is tolerated. The values come from
/// `context.supervision`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The deadline of a compaction.
    pub(crate) long_deadline: Duration,
    /// The deadline of every other call. A patient call may miss it several times, see
    /// [`PATIENCE`].
    pub(crate) short_deadline: Duration,
    /// The time between setting the cancel flag and abandoning the call.
    pub(crate) grace: Duration,
    /// The number of consecutive failures in a session that puts the engine in quarantine for this
    /// session. It is also the number of sessions in a row that must fail to put it in quarantine
    /// for all sessions, but at least two.
    pub(crate) failure_limit: u32,
    /// How long a quarantine lasts. One that follows soon after another lasts twice as long.
    pub(crate) quarantine: Duration,
    /// The number of sessions with abandoned threads that puts the engine in quarantine for all
    /// sessions.
    pub(crate) abandoned_limit: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            long_deadline: Duration::from_secs(120),
            short_deadline: Duration::from_secs(10),
            grace: Duration::from_millis(500),
            failure_limit: 3,
            quarantine: Duration::from_secs(300),
            abandoned_limit: 4,
        }
    }
}

/// Which deadline applies to a call, and what happens when the call misses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// A compaction. It has the long deadline, because it may summarize the whole window.
    Long,
    /// A call by which the engine follows the conversation. It gets `PATIENCE` times the short
    /// deadline, because an abandoned call would lose what the engine was told, and being late is
    /// not a failure.
    Extended,
    /// A call of one of the engine's tools. A model may ask for something that takes too long, so
    /// if the call stops at its deadline, that is an error of the call and does not count against
    /// the engine.
    Tool,
    /// Any other call. The conversation waits for it, so it has the short deadline.
    Short,
    /// The drop of an object of the engine. It waits at most `TEARDOWN`, because no result
    /// depends on it.
    Teardown,
}

/// How many times its deadline a patient call may take.
const PATIENCE: u32 = 4;

/// The longest time that the drop of an engine's object may take.
const TEARDOWN: Duration = Duration::from_secs(10);

/// How long a call may take to return after the host has killed the engine's process. It returns as
/// soon as it sees the closed connection.
const KILLED: Duration = Duration::from_secs(2);

/// How long a call may take: the deadline of its [`Deadline`], and additional time for the messages
/// that it is given. A plain `Deadline` converts into one without messages.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    kind: Deadline,
    work: Duration,
}

impl Deadline {
    /// Returns the time for a call that is given this many messages and tokens: one millisecond for
    /// each message and four microseconds for each token. That is ample for an engine that stores
    /// and indexes them: it takes a tenth of a millisecond for a message, and a slow disk writes 10
    /// MB a second.
    pub fn with(self, messages: usize, tokens: u64) -> Budget {
        let work = Duration::from_millis(messages as u64)
            .saturating_add(Duration::from_micros(tokens.saturating_mul(4)));
        Budget { kind: self, work }
    }
}

impl From<Deadline> for Budget {
    fn from(kind: Deadline) -> Self {
        kind.with(0, 0)
    }
}

/// The separate process of an engine, which runs one or more of its sessions.
pub(crate) trait EngineProcess: std::fmt::Debug + Send + Sync {
    /// Returns the number of the running process, or `None` if it has ended. A session compares it
    /// with the number at its opening to learn that its process was replaced.
    fn current(&self) -> Option<u64>;

    /// Kills the running process, because a call in it has missed its deadline. All sessions in it
    /// lose their process.
    fn kill(&self);
}

/// State that a call shares with the services that the host lends to the engine. The services use
/// it to learn that the call was cancelled, and to report model calls as progress.
#[derive(Debug, Default)]
pub struct CallState {
    /// Whether the call in progress is asked to stop. Services check it, and return early if it is
    /// set.
    pub cancel: AtomicBool,
    /// The number of model calls that have ended. Each one is progress and restarts the deadline.
    model_calls: AtomicU64,
    /// The number of model calls in progress. While there is one, the deadline does not run,
    /// because each has its own time limit.
    at_model: AtomicU64,
    /// The time in the store of sessions, which does not count against a deadline, because the
    /// engine is not to blame for it. Unlike a model call, it is no progress.
    at_store: Mutex<StoreTime>,
    /// The engine's process, if it has one. Unlike a thread, it can be killed.
    isolated: Option<Arc<dyn EngineProcess>>,
}

/// The time in which at least one access to the store of sessions was in progress.
#[derive(Debug, Default)]
struct StoreTime {
    /// The time up to the beginning of the accesses that are in progress.
    spent: Duration,
    in_progress: u32,
    since: Option<Instant>,
}

impl CallState {
    /// Creates the state for an engine that may run in a separate process.
    pub(crate) fn of(isolated: Option<Arc<dyn EngineProcess>>) -> Self {
        Self {
            isolated,
            ..Self::default()
        }
    }

    /// Asks the call in progress to stop. The flag is cleared when the next call begins.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Release);
    }

    /// Marks the beginning of a model call. The call counts as in progress until the returned guard
    /// is dropped, and as progress from then on.
    pub fn call_model(&self) -> impl Drop {
        struct AtModel<'a>(&'a CallState);
        impl Drop for AtModel<'_> {
            fn drop(&mut self) {
                self.0.model_calls.fetch_add(1, Ordering::AcqRel);
                self.0.at_model.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.at_model.fetch_add(1, Ordering::AcqRel);
        AtModel(self)
    }

    /// Marks the beginning of an access to the store of sessions, for as long as the returned guard
    /// lives.
    pub fn use_store(&self) -> impl Drop {
        struct InStore<'a>(&'a CallState);
        impl Drop for InStore<'_> {
            fn drop(&mut self) {
                let mut time = lock(&self.0.at_store);
                time.in_progress -= 1;
                if time.in_progress == 0
                    && let Some(since) = time.since.take()
                {
                    time.spent += since.elapsed();
                }
            }
        }
        let mut time = lock(&self.at_store);
        time.in_progress += 1;
        time.since.get_or_insert_with(Instant::now);
        drop(time);
        InStore(self)
    }

    /// The time in the store of sessions since this was created.
    fn store_time(&self) -> Duration {
        let time = lock(&self.at_store);
        time.spent + time.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Why a call of an engine failed. An error that the engine returned is shown with its secrets
/// masked and its length limited. [`Opened::failures`](crate::engines::Opened::failures) counts
/// only those for which the engine is to blame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The engine returned an error. The session keeps calling it, unless its process has ended.
    /// The refusal of a tool call is the engine's answer to the caller, so it has no other words.
    #[error("{}{error}", failed_in(.engine, .method, .error))]
    Failed {
        /// Name of the engine that failed.
        engine: String,
        /// The method that was called, or a step such as `load`, `create`, `open` or `drop`.
        method: &'static str,
        /// The error that the engine returned, prepared to be shown.
        error: EngineError,
    },
    /// The engine panicked. The session no longer calls it, because its state is unknown.
    #[error(
        "engine `{engine}` panicked in {method} ({message}). This session continues without the engine. \
         Report the panic to the engine's author."
    )]
    Panicked {
        /// Name of the engine that panicked.
        engine: String,
        /// The method that was called, or a step such as `load`, `create`, `open` or `drop`.
        method: &'static str,
        /// The text that the panic was raised with.
        message: String,
    },
    /// The engine did not return in time, and its thread was abandoned. The session no longer calls
    /// it, unless a [patient](Deadline::Extended) call returns after all.
    #[error(
        "engine `{engine}` did not return from {method} within {deadline_ms} ms and ignored the request \
         to stop; its thread was abandoned and this session is closed to it. Raise \
         `context.supervision` deadlines if it only needs more time."
    )]
    TimedOut {
        /// Name of the engine that did not return.
        engine: String,
        /// The method that was called, or a step such as `load`, `create`, `open` or `drop`.
        method: &'static str,
        /// The deadline that passed, in milliseconds, without the grace period.
        deadline_ms: u64,
    },
    /// The engine reached its deadline, was told to stop, and did. The session keeps calling it.
    #[error(
        "engine `{engine}` was stopped in {method} after {deadline_ms} ms, because the request takes too long: \
         ask for less, or raise the deadlines in `context.supervision`"
    )]
    Stopped {
        /// Name of the engine that stopped.
        engine: String,
        /// The method that was called, or a step such as `load`, `create`, `open` or `drop`.
        method: &'static str,
        /// The deadline that passed, in milliseconds, without the grace period.
        deadline_ms: u64,
    },
    /// The engine was not called, because the session was closed to it after an earlier failure, or
    /// because it was never opened.
    #[error("engine `{engine}` is not called again in this session: {reason}")]
    Closed {
        /// Name of the engine that is no longer called.
        engine: String,
        /// The message of the earlier failure, or of the quarantine that kept the engine from being
        /// opened.
        reason: String,
    },
    /// The engine was not called, because it is in quarantine for this session or for all. It will
    /// be called again by itself.
    #[error("engine `{engine}` is in quarantine: {reason}")]
    Quarantined {
        /// Name of the engine that is not called for now.
        engine: String,
        /// Why it is in quarantine, and for how many more seconds.
        reason: String,
    },
    /// The engine was not called, because the operating system could not start a thread.
    #[error("no thread for engine `{engine}`: {cause}")]
    NoThread {
        /// Name of the engine that was to be called.
        engine: String,
        /// The error that the operating system reported.
        cause: String,
    },
}

impl CallError {
    /// Whether the engine's store failed, as on a full disk.
    pub fn is_storage(&self) -> bool {
        matches!(
            self,
            Self::Failed {
                error: EngineError::Storage(_),
                ..
            }
        )
    }

    /// Whether the engine is to blame. It is not if it rejected the arguments of a tool call, if it
    /// stopped a tool when it was told to, or if it was not called.
    pub(crate) fn is_fault(&self) -> bool {
        match self {
            Self::Failed { error, .. } => !is_refusal(error),
            Self::Stopped { method, .. } => *method != "call_tool",
            Self::Closed { .. } | Self::Quarantined { .. } | Self::NoThread { .. } => false,
            Self::Panicked { .. } | Self::TimedOut { .. } => true,
        }
    }
}

/// Whether an engine refused what it was given or asked for.
fn is_refusal(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::InvalidInput(_) | EngineError::Unsupported(_)
    )
}

fn failed_in(engine: &str, method: &str, error: &EngineError) -> String {
    match method == "call_tool" && is_refusal(error) {
        true => String::new(),
        false => format!("engine `{engine}` failed in {method}: "),
    }
}

/// The supervision that all engines of a process share: the policy, the health of each engine, and
/// the worker threads.
#[derive(Debug)]
pub(crate) struct Supervisor {
    policy: Policy,
    health: Arc<HealthBook>,
    workers: Workers,
}

/// The session name of calls that belong to no session, such as loading a library.
const NO_SESSION: &str = "";

/// Whether the caller still waits for a call. The caller and the worker decide under one lock, so
/// that a result is either received or discarded, never both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Awaited,
    Returned,
    Abandoned,
}

/// A session's engine. An abandoned call keeps its own reference to it.
type EngineCell = Arc<Mutex<Box<dyn ContextEngine>>>;

/// The engine of one session, under supervision. After a panic or an abandoned call it is closed:
/// further calls return [`CallError::Closed`] and the object is never touched again.
pub(crate) struct Supervised {
    engine: String,
    session: String,
    supervisor: Arc<Supervisor>,
    /// The engine. `None` if the session is closed to it.
    cell: Option<EngineCell>,
    closed: String,
    /// Whether the engine could not be opened when the session was.
    is_absent: bool,
    /// The abandoned call, if that is why the session is closed to the engine.
    given_up: Option<GivenUp>,
    /// The number of the engine's process when it was opened, if it has one. `None` after the
    /// process ended during a call.
    process: Option<u64>,
    /// Whether calls other than compactions run on the caller's thread, see [`Supervisor::open`].
    is_here: bool,
    state: Arc<CallState>,
}

/// An abandoned call, kept until it returns.
struct GivenUp {
    /// The engine that the call runs on. Never dropped, because the destructor of an object in an
    /// unknown state could hang or crash.
    cell: ManuallyDrop<EngineCell>,
    /// Whether the call has returned in the meantime, so that the session can use the engine again.
    returned: Arc<AtomicBool>,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            let names = (self.engine.as_str(), self.session.as_str());
            self.supervisor.let_go(names, self.is_here, cell);
        }
    }
}

impl std::fmt::Debug for Supervised {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervised")
            .field("engine", &self.engine)
            .field("closed", &self.closed)
            .finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Creates the supervision under this policy. No thread is started before the first call.
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            health: Arc::new(HealthBook::new(policy.clone())),
            workers: Workers::default(),
            policy,
        })
    }

    /// Returns the health of every engine that was called, sorted by name.
    pub(crate) fn health(&self) -> Vec<EngineHealth> {
        self.health.all()
    }

    /// Creates an engine's factory. The call has the short deadline and belongs to no session.
    ///
    /// # Errors
    /// Returns [`CallError`] if the engine fails to create it or is in quarantine.
    pub(crate) fn create(
        &self,
        engine: &str,
        create: impl FnOnce() -> Result<Box<dyn EngineFactory>, EngineError> + Send + 'static,
    ) -> Result<Box<dyn EngineFactory>, CallError> {
        let engine = (engine, NO_SESSION);
        self.run(engine, "create", Deadline::Short, &Arc::default(), create)
    }

    /// Loads a plugin's library or starts its process. This is a supervised call, because both run
    /// code of the plugin. A message that `load` returns counts as a failure, so it is for what may
    /// pass, such as a process that does not start while there is no memory.
    ///
    /// # Errors
    /// Returns [`CallError`] if the load fails, panics, hangs, or the engine is in quarantine.
    pub(crate) fn load<T: Send + 'static>(
        &self,
        engine: &str,
        load: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, CallError> {
        let engine = (engine, NO_SESSION);
        self.run(engine, "load", Deadline::Short, &Arc::default(), || {
            load().map_err(EngineError::Other)
        })
    }

    /// Whether the process of an engine would be started now. It is not while the engine is in
    /// quarantine for failed starts.
    pub(crate) fn may_start(&self, engine: &str) -> bool {
        self.health.refusal(engine, NO_SESSION).is_none()
    }

    /// Drops an object of an engine. This is a supervised call, because the destructor is code of
    /// the engine. If the destructor does not return in time, the object is leaked with its thread.
    /// Failures are only logged. If `is_here` is set, the destructor runs on this thread.
    pub(crate) fn let_go<T: Send + 'static>(&self, names: (&str, &str), is_here: bool, object: T) {
        // If no thread can be started, the closure is dropped on this one. Without this wrapper
        // that would run the destructor here, without a deadline.
        let object = ManuallyDrop::new(object);
        let tear_down = move || {
            drop(ManuallyDrop::into_inner(object));
            Ok(())
        };
        let (method, state) = ("drop", Arc::default());
        let dropped = match is_here {
            true => self.run_here(names, method, &state, tear_down),
            false => self.run(names, method, Deadline::Teardown, &state, tear_down),
        };
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = dropped {
            tracing::warn!("{error}");
        }
    }

    /// Sends a store command to a factory, on the caller's thread. There is no deadline, because
    /// checking or copying a store can take long and the user can interrupt the command.
    ///
    /// # Errors
    /// Returns [`CallError::Failed`] with the engine's error, or [`CallError::Panicked`].
    pub(crate) fn manage(
        &self,
        engine: &str,
        manage: impl FnOnce() -> Result<serde_json::Value, EngineError> + Send + 'static,
    ) -> Result<serde_json::Value, CallError> {
        const METHOD: &str = "manage";
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(manage));
        answer
            .unwrap_or_else(|panic| Err(EngineError::Panicked(panic_text(panic))))
            .map_err(|error| match shown(error) {
                EngineError::Panicked(message) => panicked(engine, METHOD, message),
                error => CallError::Failed {
                    engine: engine.to_owned(),
                    method: METHOD,
                    error,
                },
            })
    }

    /// Opens an engine for a session. `state` is shared with the services that are lent to the
    /// engine.
    ///
    /// If `is_here` is set, all calls run on the caller's thread, except for compactions, which may
    /// call a model. It saves two switches of threads for each call. The host must know the engine's
    /// code: if a call hangs, nobody takes over.
    ///
    /// # Errors
    /// Returns [`CallError`] if the engine fails to open or is in quarantine.
    pub(crate) fn open(
        self: &Arc<Self>,
        engine: &str,
        session: &str,
        state: Arc<CallState>,
        is_here: bool,
        open: impl FnOnce() -> Result<Box<dyn ContextEngine>, EngineError> + Send + 'static,
    ) -> Result<Supervised, CallError> {
        let (names, method) = ((engine, session), "open");
        let cell = match is_here {
            true => self.run_here(names, method, &state, open),
            false => self.run(names, method, Deadline::Short, &state, open),
        }?;
        let process = state
            .isolated
            .as_ref()
            .and_then(|isolated| isolated.current());
        Ok(Supervised {
            engine: engine.to_owned(),
            session: session.to_owned(),
            supervisor: Arc::clone(self),
            cell: Some(Arc::new(Mutex::new(cell))),
            closed: String::new(),
            is_absent: false,
            given_up: None,
            process,
            is_here,
            state,
        })
    }

    /// Creates the placeholder for an engine that failed to open, or was in quarantine. It behaves
    /// like an engine whose call was abandoned: it is stalled, and the session's next turn tries to
    /// open it.
    pub(crate) fn absent(
        self: &Arc<Self>,
        engine: &str,
        session: &str,
        state: Arc<CallState>,
        reason: String,
    ) -> Supervised {
        Supervised {
            engine: engine.to_owned(),
            session: session.to_owned(),
            supervisor: Arc::clone(self),
            cell: None,
            closed: reason,
            is_absent: true,
            given_up: None,
            process: None,
            is_here: false,
            state,
        }
    }

    /// Runs one piece of an engine's code on a worker thread and waits for it. Records the outcome
    /// in the engine's health.
    ///
    /// # Errors
    /// Returns [`CallError`]. If the call was abandoned, it may still run.
    fn run<T: Send + 'static>(
        &self,
        (engine, session): (&str, &str),
        method: &'static str,
        budget: impl Into<Budget>,
        state: &Arc<CallState>,
        code: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        // From here on every path must end in `health.ended`, because a call that was let through
        // to probe an engine blocks all others until its outcome is known.
        self.health.admit(engine, session)?;
        let span = call_span(engine, method);
        let _waiting = span.clone().entered();
        state.cancel.store(false, Ordering::Relaxed);
        let (answer_to, answer) = sync_channel(1);
        let fate = Arc::new(Mutex::new(Fate::Awaited));
        let own_fate = Arc::clone(&fate);
        let (health, names) = (
            Arc::clone(&self.health),
            (engine.to_owned(), session.to_owned()),
        );
        let job = Box::new(move || {
            let code = || span.in_scope(code);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(code));
            let mut fate = lock(&own_fate);
            if *fate == Fate::Abandoned {
                // The result is leaked, not dropped: its destructor could hang as the call did.
                std::mem::forget(result);
                health.came_back(&names.0, &names.1);
                return;
            }
            *fate = Fate::Returned;
            // The receiver is gone. The result is leaked for the same reason.
            if let Err(unheard) = answer_to.send(result) {
                std::mem::forget(unheard);
            }
        });
        let ticket = self.workers.start(engine, job).map_err(|error| {
            self.health
                .ended((engine, session), method, Verdict::Nothing, None);
            CallError::NoThread {
                engine: engine.to_owned(),
                cause: error.to_string(),
            }
        })?;
        let Budget { kind, work } = budget.into();
        let deadline = match kind {
            Deadline::Long => work.saturating_add(self.policy.long_deadline),
            Deadline::Extended => {
                (work.saturating_add(self.policy.short_deadline)).saturating_mul(PATIENCE)
            }
            Deadline::Short | Deadline::Tool => work.saturating_add(self.policy.short_deadline),
            Deadline::Teardown => self.policy.short_deadline.min(TEARDOWN),
        };
        let mut is_late = false;
        let received = match wait(&answer, deadline, state, engine, method) {
            Err(RecvTimeoutError::Timeout) => {
                is_late = true;
                state.cancel.store(true, Ordering::Release);
                // A thread cannot be stopped from outside, but a process can. Killing it closes the
                // connection, so the call returns at once.
                match (answer.recv_timeout(self.policy.grace), &state.isolated) {
                    (Err(RecvTimeoutError::Timeout), Some(isolated)) => {
                        isolated.kill();
                        answer.recv_timeout(KILLED)
                    }
                    (received, _) => received,
                }
            }
            received => received,
        };
        let received = received.or_else(|_| {
            let mut fate = lock(&fate);
            if *fate == Fate::Returned {
                // It returned between the timeout and this lock.
                return answer.try_recv().map_err(|_| ());
            }
            *fate = Fate::Abandoned;
            Err(())
        });
        let deadline_ms = deadline.as_millis() as u64;
        let Ok(answer) = received else {
            // The worker is not reused: it still runs the call.
            self.workers.abandon(ticket);
            let error = CallError::TimedOut {
                engine: engine.to_owned(),
                method,
                deadline_ms,
            };
            self.health
                .ended((engine, session), method, Verdict::Stuck, Some(&error));
            return Err(error);
        };
        self.workers.finish(engine, ticket);
        let missed = is_late.then_some((kind, deadline_ms));
        self.ended((engine, session), method, state, answer, missed)
    }

    /// Runs one piece of an engine's code on this thread, behind the panic guard but without a
    /// deadline. Records the outcome in the engine's health.
    ///
    /// # Errors
    /// Returns [`CallError`], but never [`CallError::TimedOut`].
    fn run_here<T>(
        &self,
        (engine, session): (&str, &str),
        method: &'static str,
        state: &CallState,
        code: impl FnOnce() -> Result<T, EngineError>,
    ) -> Result<T, CallError> {
        self.health.admit(engine, session)?;
        let _span = call_span(engine, method).entered();
        state.cancel.store(false, Ordering::Relaxed);
        let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(code));
        self.ended((engine, session), method, state, answer, None)
    }

    /// Records the outcome of a call that has returned. `missed` is the deadline that it missed, if
    /// it did, with its length in milliseconds.
    ///
    /// # Errors
    /// The call returned an error or panicked.
    fn ended<T>(
        &self,
        (engine, session): (&str, &str),
        method: &'static str,
        state: &CallState,
        answer: std::thread::Result<Result<T, EngineError>>,
        missed: Option<(Deadline, u64)>,
    ) -> Result<T, CallError> {
        let error = match answer.unwrap_or_else(|panic| Err(thrown(panic))) {
            Ok(value) => {
                self.health
                    .ended((engine, session), method, Verdict::Works, None);
                return Ok(value);
            }
            Err(error) => error,
        };
        let verdict = match &error {
            // A model may call a tool with wrong arguments, or one that does not exist. The engine
            // is not at fault if it says so.
            error if is_refusal(error) => Verdict::Works,
            EngineError::Panicked(_) => Verdict::Failed,
            _ if missed.is_some_and(|(kind, _)| kind == Deadline::Tool) => Verdict::Nothing,
            _ if missed.is_some() => Verdict::Slow,
            EngineError::Cancelled if state.cancel.load(Ordering::Acquire) => Verdict::Nothing,
            EngineError::Storage(_) => Verdict::Storage,
            _ => Verdict::Failed,
        };
        let error = match (shown(error), missed) {
            (EngineError::Panicked(message), _) => panicked(engine, method, message),
            (EngineError::Cancelled, Some((_, deadline_ms))) => CallError::Stopped {
                engine: engine.to_owned(),
                method,
                deadline_ms,
            },
            (error, _) => CallError::Failed {
                engine: engine.to_owned(),
                method,
                error,
            },
        };
        self.health
            .ended((engine, session), method, verdict, Some(&error));
        Err(error)
    }
}

/// The span of a call.
fn call_span(engine: &str, method: &'static str) -> tracing::Span {
    tracing::info_span!(
        "engine",
        otel.name = format!("engine {method}"),
        contexture.engine = engine,
        contexture.engine.method = method,
    )
}

/// How long a caller polls for the result before it sleeps. Most calls take less time than waking a
/// thread.
const LOOK: Duration = Duration::from_micros(50);

/// How long a caller waits before it logs that it waits. The deadline is counted in steps of this
/// length: if the whole process is suspended, only one step passes, so the time is not held against
/// the engine.
const SILENT: Duration = Duration::from_secs(2);

/// Waits for the result until a full deadline has passed without progress. A model call in progress
/// stops the clock, and a finished one restarts it. An access to the store of sessions only stops it.
fn wait<T>(
    answer: &Receiver<T>,
    deadline: Duration,
    state: &CallState,
    engine: &str,
    method: &'static str,
) -> Result<T, RecvTimeoutError> {
    let began = Instant::now();
    while began.elapsed() < LOOK {
        match answer.try_recv() {
            Ok(received) => return Ok(received),
            Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
            // The worker may need this core.
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    let at_model = || state.at_model.load(Ordering::Acquire) > 0;
    let mut told = false;
    let mut waits = deadline;
    let mut model_calls = state.model_calls.load(Ordering::Acquire);
    let mut store_time = state.store_time();
    loop {
        // The remaining time is reduced by steps instead of read from a clock, see `SILENT`.
        let step = waits.min(SILENT);
        match answer.recv_timeout(step) {
            Err(RecvTimeoutError::Timeout) => {}
            received => return received,
        }
        let before = std::mem::replace(&mut store_time, state.store_time());
        let in_store = store_time.saturating_sub(before);
        if in_store >= step {
            continue;
        }
        waits -= step - in_store;
        let now = state.model_calls.load(Ordering::Acquire);
        if at_model() || now != model_calls {
            model_calls = now;
            waits = deadline;
        } else if waits.is_zero() {
            return Err(RecvTimeoutError::Timeout);
        } else if !told {
            tracing::warn!(
                "waiting for engine `{engine}` to return from {method}, for {} s more at most",
                waits.as_secs() + 1
            );
            told = true;
        }
    }
}

/// The most characters of an engine's error that are shown or stored.
const ERROR_TEXT: usize = 4_000;

/// Prepares an engine's error to be shown: masks secrets, escapes control characters and limits its
/// length. The text comes from foreign code and may quote the conversation.
fn shown(error: EngineError) -> EngineError {
    let shown = |text: String| printable(&mask_secrets(&text), ERROR_TEXT).into_owned();
    match error {
        EngineError::Settings(text) => EngineError::Settings(shown(text)),
        EngineError::Storage(text) => EngineError::Storage(shown(text)),
        EngineError::Unsupported(text) => EngineError::Unsupported(shown(text)),
        EngineError::InvalidInput(text) => EngineError::InvalidInput(shown(text)),
        EngineError::Panicked(text) => EngineError::Panicked(shown(text)),
        EngineError::Protocol(text) => EngineError::Protocol(shown(text)),
        EngineError::Gone(text) => EngineError::Gone(shown(text)),
        EngineError::Other(text) => EngineError::Other(shown(text)),
        other => other,
    }
}

/// Converts a caught panic to an error. Methods without a `Result` report the end of the engine's
/// process by panicking with [`EngineError::Gone`], which is returned as it is.
pub(crate) fn thrown(panic: Box<dyn std::any::Any + Send>) -> EngineError {
    match panic.downcast::<EngineError>() {
        Ok(error) if matches!(*error, EngineError::Gone(_)) => *error,
        Ok(error) => EngineError::Panicked(panic_text(error)),
        Err(panic) => EngineError::Panicked(panic_text(panic)),
    }
}

fn panicked(engine: &str, method: &'static str, message: String) -> CallError {
    CallError::Panicked {
        engine: engine.to_owned(),
        method,
        message,
    }
}

impl Supervised {
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// Whether calls return [`CallError::Closed`] without reaching the engine. A quarantine closes
    /// it only if it prevented the engine from being opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.cell.is_none()
    }

    /// Returns the failure that closed the session to the engine. Empty if the engine is still
    /// called.
    pub(crate) fn closed(&self) -> &str {
        &self.closed
    }

    /// Returns why the engine is in quarantine now, for this session or for all. `None` if it may be
    /// called.
    pub(crate) fn quarantine(&self) -> Option<String> {
        let refusal = self.supervisor.health.refusal(&self.engine, &self.session);
        let refusal = refusal.map(|reason| CallError::Quarantined {
            engine: self.engine.clone(),
            reason,
        });
        refusal.map(|error| error.to_string())
    }

    /// Returns why the engine is not open, if it could not be opened yet.
    pub(crate) fn absence(&self) -> Option<String> {
        self.is_absent.then(|| self.closed.clone())
    }

    /// Whether the process of another engine could be started now, see [`Supervisor::may_start`].
    pub(crate) fn may_start(&self, engine: &str) -> bool {
        self.supervisor.may_start(engine)
    }

    /// Whether the session cannot call the engine, but a later turn may: a call was abandoned, the
    /// engine's process ended, or the engine could not be opened. A panic does not count.
    pub(crate) fn is_stalled(&self) -> bool {
        let isolated = self.state.isolated.as_ref();
        let has_ended = |isolated: &Arc<dyn EngineProcess>| {
            self.process.is_none() || isolated.current() != self.process
        };
        self.given_up.is_some() || self.is_absent || isolated.is_some_and(has_ended)
    }

    /// Makes the engine callable again if its abandoned [`Patient`](Deadline::Extended) call has
    /// returned in the meantime. Returns false if it has not. In that case the session may open
    /// another instance, and this one is never touched again.
    pub(crate) fn take_back(&mut self) -> bool {
        let has_returned = |call: &mut GivenUp| call.returned.load(Ordering::Acquire);
        let Some(call) = self.given_up.take_if(has_returned) else {
            return false;
        };
        self.cell = Some(ManuallyDrop::into_inner(call.cell));
        self.closed.clear();
        true
    }

    /// Makes one call, or several in one hop: `code` runs on a worker thread and owns everything it
    /// needs. `method` names the call in errors. See [`Supervisor::open`] for the calls that run on this
    /// thread.
    ///
    /// # Errors
    /// Returns [`CallError`]. After a panic, an abandoned call, or the end of the engine's process,
    /// the session no longer calls the engine.
    pub(crate) fn call<T: Send + 'static>(
        &mut self,
        method: &'static str,
        budget: impl Into<Budget>,
        code: impl FnOnce(&mut dyn ContextEngine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        let Some(cell) = self.cell.clone() else {
            return Err(CallError::Closed {
                engine: self.engine.clone(),
                reason: self.closed.clone(),
            });
        };
        let budget = budget.into();
        let returned = Arc::new(AtomicBool::new(false));
        let returns = Arc::clone(&returned);
        let names = (self.engine.as_str(), self.session.as_str());
        let code = move || {
            // If `code` panics, this poisons the lock. That has no effect, because a panicked
            // engine is never locked again.
            let mut engine = lock(&cell);
            let result = code(engine.as_mut());
            drop(engine);
            // Only a patient call may be taken back. The late proposal of a compaction was
            // discarded, so the session cannot go on with an engine that made it.
            let goes_on = budget.kind == Deadline::Extended
                && !matches!(result, Err(EngineError::Panicked(_)));
            returns.store(goes_on, Ordering::Release);
            result
        };
        let (supervisor, state) = (&self.supervisor, &self.state);
        let result = match self.is_here && budget.kind != Deadline::Long {
            true => supervisor.run_here(names, method, state, code),
            false => supervisor.run(names, method, budget, state, code),
        };
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = &result {
            self.closed = error.to_string();
            // The state of the object is unknown, so not even its destructor may run.
            let cell = self.cell.take().map(ManuallyDrop::new);
            if let (CallError::TimedOut { .. }, Some(cell)) = (error, cell) {
                self.given_up = Some(GivenUp { cell, returned });
            }
        }
        if let Err(error) = &result
            && matches!(
                error,
                CallError::Failed {
                    error: EngineError::Gone(_),
                    ..
                }
            )
        {
            self.closed = error.to_string();
            self.process = None;
            // The object is only the host's side of a connection to an ended process. No state of
            // the engine is left in it, so it can be dropped.
            self.cell = None;
        }
        result
    }
}
