//! Keeps engines honest: every call runs on one of the host's threads, with a deadline, behind a panic
//! guard, and an engine that keeps failing is put in quarantine, for the session in which it fails or, if it fails in
//! several, for all ([`health`]).
//!
//! Deadlines are on progress: they grow with the messages that a call is given, and a call that waits for a
//! model, which has a time limit of its own, begins anew after it. Calls by which an engine follows the
//! conversation may be late: they are given up after several times their deadline.
//!
//! When a call misses its deadline, its cancel flag is set. After a grace period the call is abandoned: its
//! result is discarded, and its object is not touched again unless the call returns after all. Everything the
//! call borrowed is owned by its thread and lives until the call returns.

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

use crate::isolation::Isolated;
use health::{HealthBook, Verdict};
use worker::Workers;

/// How long engines may take and how often they may fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The deadline of a compaction.
    pub(crate) long_deadline: Duration,
    /// The deadline of every other call; of a patient one, a part of it, see [`PATIENCE`].
    pub(crate) short_deadline: Duration,
    /// The time between setting the cancel flag and abandoning the call.
    pub(crate) grace: Duration,
    /// The number of consecutive failures of a session that puts the engine in quarantine for it, and the number of
    /// sessions in a row in which it fails that does so for all.
    pub(crate) failure_limit: u32,
    /// How long a quarantine lasts; one that follows soon after another is twice as long.
    pub(crate) quarantine: Duration,
    /// The number of sessions with abandoned threads that puts the engine in quarantine for all.
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

/// Which deadline applies to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A compaction.
    Long,
    /// A call by which the engine follows the conversation. To be late is not to fail: what it was told would be
    /// lost to it, so it is waited for [`PATIENCE`] times as long.
    Patient,
    /// The call of a tool. What a model asks may take too long, so if it stops at its deadline, that is an error of the
    /// call and not held against the engine.
    Tool,
    /// Any other call.
    Short,
    /// The end of an engine, for which nobody waits longer than [`TEARDOWN`]: its work is done.
    Teardown,
}

/// How many of its deadlines a late call is waited for.
const PATIENCE: u32 = 4;

/// The longest that an engine may take to end.
const TEARDOWN: Duration = Duration::from_secs(10);

/// How long a call of a process that was ended may take to say so.
const KILLED: Duration = Duration::from_secs(2);

/// How long a call may take: its deadline, and time for the messages that it is given.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    pace: Pace,
    work: Duration,
}

impl Pace {
    /// For a call that is given so many messages with so many tokens: an engine that stores and indexes them
    /// takes a tenth of a millisecond for each message, and a disk 10 MB a second at its worst.
    pub fn with(self, messages: usize, tokens: u64) -> Allowance {
        let work = Duration::from_millis(messages as u64)
            .saturating_add(Duration::from_micros(tokens.saturating_mul(4)));
        Allowance { pace: self, work }
    }
}

impl From<Pace> for Allowance {
    fn from(pace: Pace) -> Self {
        pace.with(0, 0)
    }
}

/// What a call shares with the services that the host lends it.
#[derive(Debug, Default)]
pub struct CallState {
    /// Whether it is asked to stop.
    pub cancel: AtomicBool,
    /// Model calls that ended, each of which is progress.
    model_calls: AtomicU64,
    /// Model calls that are under way; each has a time limit of its own.
    at_model: AtomicU64,
    /// Where the engine runs in a process of its own, which can be ended.
    isolated: Option<Arc<Isolated>>,
}

impl CallState {
    /// For an engine that may run in a process of its own.
    pub(crate) fn of(isolated: Option<Arc<Isolated>>) -> Self {
        Self {
            isolated,
            ..Self::default()
        }
    }

    /// Asks the call in progress to stop.
    pub fn cancel(&self) {
        self.cancel.store(true, Ordering::Release);
    }

    /// A model call begins, and is under way until the answer is dropped.
    pub fn call_model(&self) -> impl Drop {
        struct Underway<'a>(&'a CallState);
        impl Drop for Underway<'_> {
            fn drop(&mut self) {
                self.0.model_calls.fetch_add(1, Ordering::AcqRel);
                self.0.at_model.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.at_model.fetch_add(1, Ordering::AcqRel);
        Underway(self)
    }
}

/// Why a call of an engine failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The engine returned an error.
    #[error("engine `{engine}` failed in {method}: {error}")]
    Failed {
        /// The engine.
        engine: String,
        /// The method.
        method: &'static str,
        /// The error.
        error: EngineError,
    },
    /// The engine panicked; the session no longer calls it.
    #[error(
        "engine `{engine}` panicked in {method} ({message}); this session is closed to it and goes on \
         without it. Report it to the engine's author."
    )]
    Panicked {
        /// The engine.
        engine: String,
        /// The method.
        method: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The engine did not return in time; the session no longer calls it.
    #[error(
        "engine `{engine}` did not return from {method} within {deadline_ms} ms and ignored the request \
         to stop; its thread was abandoned and this session is closed to it. Raise \
         `context.supervision` deadlines if it only needs more time."
    )]
    TimedOut {
        /// The engine.
        engine: String,
        /// The method.
        method: &'static str,
        /// The deadline, in milliseconds.
        deadline_ms: u64,
    },
    /// The engine was told at its deadline to stop, and stopped. The session goes on with it.
    #[error(
        "engine `{engine}` was stopped in {method} after {deadline_ms} ms: what it was asked takes too long; ask for less, \
         or raise the deadlines in `context.supervision`"
    )]
    Stopped {
        /// The engine.
        engine: String,
        /// The method.
        method: &'static str,
        /// The deadline, in milliseconds.
        deadline_ms: u64,
    },
    /// The session no longer calls this engine, after an earlier failure.
    #[error("this session is closed to engine `{engine}`: {reason}")]
    Closed {
        /// The engine.
        engine: String,
        /// The earlier failure.
        reason: String,
    },
    /// The engine is in quarantine.
    #[error("engine `{engine}` is in quarantine: {reason}")]
    Quarantined {
        /// The engine.
        engine: String,
        /// Why, and until when.
        reason: String,
    },
    /// No thread could be started for the call.
    #[error("no thread for engine `{engine}`: {cause}")]
    NoThread {
        /// The engine.
        engine: String,
        /// What the system said.
        cause: String,
    },
}

impl CallError {
    /// Whether the engine did wrong. It did not if it refused what a model asked of a tool, stopped a tool when it was told
    /// to, or was not called at all.
    pub(crate) fn is_fault(&self) -> bool {
        match self {
            Self::Failed { error, .. } => !matches!(
                error,
                EngineError::InvalidInput(_) | EngineError::Unsupported(_)
            ),
            Self::Stopped { method, .. } => *method != "call_tool",
            Self::Quarantined { .. } => false,
            _ => true,
        }
    }
}

/// The supervision that all engines of a process share.
#[derive(Debug)]
pub(crate) struct Supervisor {
    policy: Policy,
    health: Arc<HealthBook>,
    workers: Workers,
}

/// The session of what belongs to no session.
const NO_SESSION: &str = "";

/// Whether somebody still waits for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Awaited,
    Returned,
    Abandoned,
}

type EngineCell = Arc<Mutex<Box<dyn ContextEngine>>>;

/// The engine of one session, under supervision.
pub(crate) struct Supervised {
    engine: String,
    session: String,
    supervisor: Arc<Supervisor>,
    cell: Option<EngineCell>,
    closed: String,
    /// Whether it was in quarantine when it was to be opened.
    is_absent: bool,
    /// Where it was closed because a call was given up.
    given_up: Option<GivenUp>,
    /// The engine's own process, by its number, where it has one; none where that ended in a call.
    process: Option<u64>,
    state: Arc<CallState>,
}

/// A call that was given up.
struct GivenUp {
    /// What it runs on. Never dropped: the state of the object is unknown.
    cell: ManuallyDrop<EngineCell>,
    /// Whether it has returned since, so that the session can go on with the object.
    returned: Arc<AtomicBool>,
}

impl Drop for Supervised {
    fn drop(&mut self) {
        if let Some(cell) = self.cell.take() {
            self.supervisor.let_go(&self.engine, &self.session, cell);
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
    /// Supervision under this policy.
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            health: Arc::new(HealthBook::new(policy.clone())),
            workers: Workers::default(),
            policy,
        })
    }

    /// The health of every engine that was called.
    pub(crate) fn health(&self) -> Vec<EngineHealth> {
        self.health.all()
    }

    /// Makes an engine's factory.
    ///
    /// # Errors
    /// Any failure to make it, quarantine included.
    pub(crate) fn create(
        &self,
        engine: &str,
        create: impl FnOnce() -> Result<Box<dyn EngineFactory>, EngineError> + Send + 'static,
    ) -> Result<Box<dyn EngineFactory>, CallError> {
        let engine = (engine, NO_SESSION);
        self.run(engine, "create", Pace::Short, &Arc::default(), create)
    }

    /// Loads a plugin's library, whose constructors are its code, too.
    ///
    /// # Errors
    /// Any failure, quarantine included.
    pub(crate) fn load<T: Send + 'static>(
        &self,
        engine: &str,
        load: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, CallError> {
        let engine = (engine, NO_SESSION);
        self.run(engine, "load", Pace::Short, &Arc::default(), || Ok(load()))
    }

    /// Drops an object of an engine, of a session's or of none, as any call of it is made, for its destructor is the engine's code. One that
    /// cannot be dropped in time is left.
    pub(crate) fn let_go<T: Send + 'static>(&self, engine: &str, session: &str, object: T) {
        // Where no thread runs it, it is not to be dropped on this one.
        let object = ManuallyDrop::new(object);
        let engine = (engine, session);
        let dropped = self.run(engine, "drop", Pace::Teardown, &Arc::default(), move || {
            drop(ManuallyDrop::into_inner(object));
            Ok(())
        });
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = dropped {
            tracing::warn!("{error}");
        }
    }

    /// Sends a store command to a factory. Checking or copying a store can take long, so there is no
    /// deadline: the user can interrupt it.
    ///
    /// # Errors
    /// The engine's error; a panic.
    pub(crate) fn manage(
        &self,
        engine: &str,
        manage: impl FnOnce() -> Result<serde_json::Value, EngineError> + Send + 'static,
    ) -> Result<serde_json::Value, CallError> {
        const METHOD: &str = "manage";
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(manage)) {
            Ok(answer) => answer.map_err(|error| CallError::Failed {
                engine: engine.to_owned(),
                method: METHOD,
                error,
            }),
            Err(panic) => Err(panicked(engine, METHOD, panic_text(panic))),
        }
    }

    /// Opens a session's engine. `state` is what it shares with its services.
    ///
    /// # Errors
    /// Any failure to open it, quarantine included.
    pub(crate) fn open(
        self: &Arc<Self>,
        engine: &str,
        session: &str,
        state: Arc<CallState>,
        open: impl FnOnce() -> Result<Box<dyn ContextEngine>, EngineError> + Send + 'static,
    ) -> Result<Supervised, CallError> {
        let cell = self.run((engine, session), "open", Pace::Short, &state, open)?;
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
            state,
        })
    }

    /// The engine of a session that is in quarantine, so that it is not opened yet. It is as one whose call was given up:
    /// the session's next turn tries to open it.
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
            state,
        }
    }

    /// Runs one piece of the code of an engine, in a session, on a worker and waits for it.
    fn run<T: Send + 'static>(
        &self,
        (engine, session): (&str, &str),
        method: &'static str,
        allowance: impl Into<Allowance>,
        state: &Arc<CallState>,
        code: impl FnOnce() -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        self.health.admit(engine, session)?;
        state.cancel.store(false, Ordering::Relaxed);
        let (answer_to, answer) = sync_channel(1);
        let fate = Arc::new(Mutex::new(Fate::Awaited));
        let own_fate = Arc::clone(&fate);
        let (health, names) = (
            Arc::clone(&self.health),
            (engine.to_owned(), session.to_owned()),
        );
        let job = Box::new(move || {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(code));
            let mut fate = lock(&own_fate);
            if *fate == Fate::Abandoned {
                // Its result is leaked, not dropped: its destructor could hang as the call did.
                std::mem::forget(result);
                health.came_back(&names.0, &names.1);
                return;
            }
            *fate = Fate::Returned;
            if let Err(unheard) = answer_to.send(result) {
                std::mem::forget(unheard);
            }
        });
        let ticket = self.workers.start(engine, job).map_err(|error| {
            self.health.ended(engine, session, Verdict::Nothing, None);
            CallError::NoThread {
                engine: engine.to_owned(),
                cause: error.to_string(),
            }
        })?;
        let Allowance { pace, work } = allowance.into();
        let deadline = match pace {
            Pace::Long => work.saturating_add(self.policy.long_deadline),
            Pace::Patient => {
                (work.saturating_add(self.policy.short_deadline)).saturating_mul(PATIENCE)
            }
            Pace::Short | Pace::Tool => work.saturating_add(self.policy.short_deadline),
            Pace::Teardown => self.policy.short_deadline.min(TEARDOWN),
        };
        let mut is_late = false;
        let received = match wait(&answer, deadline, state, engine, method) {
            Err(RecvTimeoutError::Timeout) => {
                is_late = true;
                state.cancel.store(true, Ordering::Release);
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
                // Just now.
                return answer.try_recv().map_err(|_| ());
            }
            *fate = Fate::Abandoned;
            Err(())
        });
        let Ok(answer) = received else {
            self.workers.abandon(ticket);
            let error = CallError::TimedOut {
                engine: engine.to_owned(),
                method,
                deadline_ms: deadline.as_millis() as u64,
            };
            self.health
                .ended(engine, session, Verdict::Stuck, Some(&error));
            return Err(error);
        };
        self.workers.finish(engine, ticket);
        let error = match answer.unwrap_or_else(|panic| Err(thrown(panic))) {
            Ok(value) => {
                self.health.ended(engine, session, Verdict::Works, None);
                return Ok(value);
            }
            Err(error) => error,
        };
        let verdict = match &error {
            // Wrong arguments of a model's tool call and a missing tool are not the engine's fault.
            EngineError::InvalidInput(_) | EngineError::Unsupported(_) => Verdict::Works,
            EngineError::Panicked(_) => Verdict::Failed,
            _ if is_late && pace == Pace::Tool => Verdict::Nothing,
            _ if is_late => Verdict::Slow,
            EngineError::Cancelled if state.cancel.load(Ordering::Acquire) => Verdict::Nothing,
            _ => Verdict::Failed,
        };
        let error = match error {
            EngineError::Panicked(message) => panicked(engine, method, message),
            EngineError::Cancelled if is_late => CallError::Stopped {
                engine: engine.to_owned(),
                method,
                deadline_ms: deadline.as_millis() as u64,
            },
            error => CallError::Failed {
                engine: engine.to_owned(),
                method,
                error: shown(error),
            },
        };
        self.health.ended(engine, session, verdict, Some(&error));
        Err(error)
    }
}

/// How long a caller polls for its answer before it sleeps. Most calls take less time than waking a thread.
const LOOK: Duration = Duration::from_micros(50);

/// How long a caller waits before it says so. It looks as often whether the time is up: where the whole process
/// had no time to run, that is not held against the engine.
const SILENT: Duration = Duration::from_secs(2);

/// Waits for an answer until nothing has happened for the length of the deadline.
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
            // The worker may need this very core.
            Err(TryRecvError::Empty) => std::thread::yield_now(),
        }
    }
    let at_model = || state.at_model.load(Ordering::Acquire) > 0;
    let mut told = false;
    let mut waits = deadline;
    let mut model_calls = state.model_calls.load(Ordering::Acquire);
    loop {
        let step = waits.min(SILENT);
        match answer.recv_timeout(step) {
            Err(RecvTimeoutError::Timeout) => waits -= step,
            received => return received,
        }
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

/// The most characters of an engine's error that are shown.
const ERROR_TEXT: usize = 4_000;

/// An error of an engine as it may be shown.
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

/// What a panic was about: the end of the engine's process, where a method has no other way to say so, or a panic.
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
    /// The engine's name.
    pub(crate) fn engine(&self) -> &str {
        &self.engine
    }

    /// Whether the engine is no longer called.
    pub(crate) fn is_closed(&self) -> bool {
        self.cell.is_none()
    }

    /// Why the engine is no longer called; empty if it still is.
    pub(crate) fn closed(&self) -> &str {
        &self.closed
    }

    /// Why the engine is not called for now, though it is not closed.
    pub(crate) fn quarantine(&self) -> Option<String> {
        let refusal = self.supervisor.health.refusal(&self.engine, &self.session);
        let refusal = refusal.map(|reason| CallError::Quarantined {
            engine: self.engine.clone(),
            reason,
        });
        let absent = self.is_absent.then(|| self.closed.clone());
        refusal.map(|error| error.to_string()).or(absent)
    }

    /// Whether a call was given up, the engine's process ended, or it is in quarantine and was not opened, so that the
    /// session is closed to the engine.
    pub(crate) fn is_stalled(&self) -> bool {
        let isolated = self.state.isolated.as_ref();
        let has_ended =
            |isolated: &Arc<Isolated>| self.process.is_none() || isolated.current() != self.process;
        self.given_up.is_some() || self.is_absent || isolated.is_some_and(has_ended)
    }

    /// Opens the session to its engine again where the [`Patient`](Pace::Patient) call that was given up has
    /// returned after all; says whether that is so. Where it is not, another object may be opened for the session,
    /// and this one is never touched again.
    pub(crate) fn take_back(&mut self) -> bool {
        let has_returned = |call: &mut GivenUp| call.returned.load(Ordering::Acquire);
        let Some(call) = self.given_up.take_if(has_returned) else {
            return false;
        };
        self.cell = Some(ManuallyDrop::into_inner(call.cell));
        self.closed.clear();
        true
    }

    /// Makes one call, or several in one hop: `code` runs on a worker thread and owns everything it needs.
    /// `method` names it in errors.
    ///
    /// # Errors
    /// [`CallError`]. After a panic or a missed deadline the session no longer calls the engine.
    pub(crate) fn call<T: Send + 'static>(
        &mut self,
        method: &'static str,
        allowance: impl Into<Allowance>,
        code: impl FnOnce(&mut dyn ContextEngine) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, CallError> {
        let Some(cell) = self.cell.clone() else {
            return Err(CallError::Closed {
                engine: self.engine.clone(),
                reason: self.closed.clone(),
            });
        };
        let allowance = allowance.into();
        let returned = Arc::new(AtomicBool::new(false));
        let returns = Arc::clone(&returned);
        let names = (self.engine.as_str(), self.session.as_str());
        let result = self
            .supervisor
            .run(names, method, allowance, &self.state, move || {
                // The guard would poison the lock, but a panicked engine is never locked again.
                let mut engine = lock(&cell);
                let result = code(engine.as_mut());
                drop(engine);
                // A proposal that nobody waited for is not one to go on with.
                let goes_on = allowance.pace == Pace::Patient
                    && !matches!(result, Err(EngineError::Panicked(_)));
                returns.store(goes_on, Ordering::Release);
                result
            });
        if let Err(error @ (CallError::Panicked { .. } | CallError::TimedOut { .. })) = &result {
            self.closed = error.to_string();
            // Its state is unknown, so even its destructor may not run.
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
            // Nothing of the engine's own is left in it.
            self.cell = None;
        }
        result
    }
}
