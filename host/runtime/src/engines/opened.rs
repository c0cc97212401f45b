//! The engine of one session, with what it was chosen for and what its calls took.

use std::time::{Duration, Instant};

use contexture_engine_api::{About, ContextEngine, EngineError, Usage};

use super::Source;
use crate::supervision::{Budget, CallError, Supervised, thrown};

/// An engine that is opened for one session, with counters for its time and its failures. Every
/// call goes through [`call`](Self::call), which adds the deadline and the panic guard.
#[derive(Debug)]
pub struct Opened {
    pub(super) source: Source,
    pub(super) origin: String,
    pub(super) about: About,
    pub(super) supervised: Supervised,
    pub(super) busy: Duration,
    pub(super) failures: u64,
    /// Whether the last of the failures was one of the engine's store.
    pub(super) failed_in_store: bool,
    /// Usage reported by the provider that the engine has not received yet.
    pub(super) untold: Vec<Usage>,
    /// Why this engine was opened instead of the configured one. `None` if it is the configured
    /// one.
    pub(super) stands_in: Option<String>,
    /// The configured engine, if this one was opened because the process of that one did not start.
    pub(super) unstarted: Option<String>,
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
    /// or it is [closed](Self::is_closed), in [quarantine](Self::quarantine), or could not be opened
    /// yet. Returns `None` if the configured engine works.
    pub fn stands_in(&self) -> Option<String> {
        let closed = || (self.is_closed()).then(|| self.supervised.closed().to_owned());
        (self.stands_in.clone())
            .or_else(closed)
            .or_else(|| self.quarantine())
            .or_else(|| self.supervised.absence())
    }

    /// Whether this engine was opened because the process of the configured one did not start, and
    /// that may be tried again now. To try it, open the session again. After several failures there
    /// are pauses, which grow.
    pub fn may_start_configured(&self) -> bool {
        let unstarted = self.unstarted.as_ref();
        unstarted.is_some_and(|engine| self.supervised.may_start(engine))
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
    /// process ended, or it could not be opened when the session was. [Take it
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
