//! Watching the calls of an engine.
//!
//! An engine under test may panic or hang, and the check must report both instead of failing with
//! them. [`Watch::over`] runs a part of the check on a thread of its own and notices if a call does
//! not return. [`Watch::call`] makes a single call and turns a panic into an error.
//!
//! A watch also collects the results. It knows which conversation and which turn is being played,
//! and adds both to the reason of every failure.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use contexture_engine_api::panic_text;

use super::{Report, Row};
use crate::locked;

/// The call in progress and the results so far. It is shared by the thread that plays and the
/// thread that waits for it.
#[derive(Clone)]
pub(super) struct Watch {
    patience: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    report: Report,
    scene: String,
    turn: usize,
    call: Option<(&'static str, Instant)>,
}

/// The error of a call that panicked. Nothing more is asked of the engine after it, because its
/// state can no longer be trusted.
pub(super) struct Panicked;

impl Watch {
    pub(super) fn new(patience: Duration) -> Self {
        let state = Arc::default();
        Self { patience, state }
    }

    /// Runs a part of the check on another thread. Returns true if a call in it did not return in
    /// time. The thread is then left behind.
    pub(super) fn over(&self, scene: &str, work: impl FnOnce(&Self) + Send + 'static) -> bool {
        locked(&self.state).scene = scene.to_owned();
        let (done, is_done) = mpsc::channel();
        let watch = self.clone();
        let thread = std::thread::spawn(move || {
            // If nobody waits any more, a call took too long and the result is not needed.
            work(&watch);
            let _ = done.send(());
        });
        // Each call has its own deadline, so the call in progress is looked at in short intervals.
        let step = self.patience.min(Duration::from_millis(50));
        while is_done.recv_timeout(step) == Err(mpsc::RecvTimeoutError::Timeout) {
            let call = locked(&self.state).call;
            if let Some((method, since)) = call
                && since.elapsed() > self.patience
            {
                let patience = self.patience.as_secs_f64();
                self.broke(
                    Row::Time,
                    format!("{method} did not return within {patience} s"),
                );
                return true;
            }
        }
        // Calls of the engine are caught one by one, so a panic here is a bug in the kit.
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
        false
    }

    /// Makes one call of the engine and notes whether it panicked. The name of the method appears
    /// in the reason of a failure.
    pub(super) fn call<T>(
        &self,
        method: &'static str,
        call: impl FnOnce() -> T,
    ) -> Result<T, Panicked> {
        locked(&self.state).call = Some((method, Instant::now()));
        let answer = catch_unwind(AssertUnwindSafe(call));
        locked(&self.state).call = None;
        // Noted for a call that panicked as well: it did return.
        self.note(Row::Time, Ok(()));
        let panicked = |panic| format!("{method} panicked: {}", panic_text(panic));
        answer
            .map_err(|panic| {
                self.broke(Row::Panics, panicked(panic));
                Panicked
            })
            .inspect(|_| self.note(Row::Panics, Ok(())))
    }

    pub(super) fn at_turn(&self, turn: usize) {
        locked(&self.state).turn = turn;
    }

    /// Notes the result of a check under a row, with the conversation and the turn.
    pub(super) fn note(&self, row: Row, found: Result<(), String>) {
        let mut state = locked(&self.state);
        let place = format!("in \"{}\", turn {}", state.scene, state.turn + 1);
        let found = found.map_err(|why| format!("{place}: {why}"));
        state.report.note(row, found);
    }

    pub(super) fn broke(&self, row: Row, why: impl Into<String>) {
        self.note(row, Err(why.into()));
    }

    /// Notes whether a requirement holds. `why` is only called if it does not.
    pub(super) fn hold(&self, row: Row, holds: bool, why: impl FnOnce() -> String) {
        self.note(row, if holds { Ok(()) } else { Err(why()) });
    }

    pub(super) fn report(&self) -> Report {
        locked(&self.state).report.clone()
    }
}
