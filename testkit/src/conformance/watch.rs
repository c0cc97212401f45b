//! Watches over an engine's calls: which of them panicked, and which did not return.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use contexture_engine_api::panic_text;

use super::{Report, Row};
use crate::locked;

/// What is under way, and what was found. Shared by the thread that plays and the one that waits for it.
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

/// A call panicked: there is nothing more to ask of this engine.
pub(super) struct Panicked;

impl Watch {
    pub(super) fn new(patience: Duration) -> Self {
        let state = Arc::default();
        Self { patience, state }
    }

    /// Does some work on a thread; whether a call in it did not return.
    pub(super) fn over(&self, scene: &str, work: impl FnOnce(&Self) + Send + 'static) -> bool {
        locked(&self.state).scene = scene.to_owned();
        let (done, is_done) = mpsc::channel();
        let watch = self.clone();
        let thread = std::thread::spawn(move || {
            work(&watch);
            let _ = done.send(());
        });
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
        // What panics here is the kit itself.
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
        false
    }

    /// Makes one call of the engine.
    pub(super) fn call<T>(
        &self,
        method: &'static str,
        call: impl FnOnce() -> T,
    ) -> Result<T, Panicked> {
        locked(&self.state).call = Some((method, Instant::now()));
        let answer = catch_unwind(AssertUnwindSafe(call));
        locked(&self.state).call = None;
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

    /// Notes what was found.
    pub(super) fn note(&self, row: Row, found: Result<(), String>) {
        let mut state = locked(&self.state);
        let place = format!("in \"{}\", turn {}", state.scene, state.turn + 1);
        let found = found.map_err(|why| format!("{place}: {why}"));
        state.report.note(row, found);
    }

    pub(super) fn broke(&self, row: Row, why: impl Into<String>) {
        self.note(row, Err(why.into()));
    }

    /// Notes whether something holds.
    pub(super) fn hold(&self, row: Row, holds: bool, why: impl FnOnce() -> String) {
        self.note(row, if holds { Ok(()) } else { Err(why()) });
    }

    pub(super) fn report(&self) -> Report {
        locked(&self.state).report.clone()
    }
}
