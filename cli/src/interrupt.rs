//! Ctrl-C for commands that can stop in an orderly way.
//!
//! By default, Ctrl-C ends a process in the middle of its work. A command that repairs or copies a
//! store calls [`Interrupt::listen`] instead and looks at [`Interrupt::is_pressed`] between two
//! steps. It then asks the engine to stop and reports what was done.
//!
//! A thread of its own listens, because the command itself waits for the engine. The second press
//! still ends the process at once, for an engine that does not stop. A command that is one long call
//! runs in [`watched`], which also shows its progress.

use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use contexture_engine_api::unwatch_exit;
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;

/// The exit code that a shell gives to a command that Ctrl-C ended: 128 and the number of SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

/// How often [`watched`] looks whether the user pressed Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Whether the user pressed Ctrl-C. The first press is only noted, so that the command can stop at
/// a good point and report its result so far. The second press ends the process at once.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to listen. If that is not possible, Ctrl-C ends the process as usual.
    pub(crate) fn listen() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel::<()>();
        let noted = Arc::clone(&pressed);
        let listener = std::thread::Builder::new().spawn(move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                // The first poll registers the handler, so from then on Ctrl-C no longer ends the
                // process.
                let (heard, ()) = tokio::join!(biased; ctrl_c(), async { drop(ready) });
                noted.store(heard.is_ok(), Ordering::Relaxed);
                if ctrl_c().await.is_ok() {
                    unwatch_exit();
                    exit(INTERRUPTED.into());
                }
            });
        });
        if listener.is_ok() {
            // The channel closes when the listener has registered or has ended. Without this wait,
            // an early Ctrl-C would end the process.
            let _ = is_ready.recv();
        }
        Self(pressed)
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs `work`, which may take long. Meanwhile another thread calls `pressed` once if the user presses
/// Ctrl-C, and `tick` twenty times a second. `tick` is told whether the user has pressed Ctrl-C.
pub(crate) fn watched<T>(
    pressed: impl FnOnce() + Send,
    mut tick: impl FnMut(bool) + Send,
    work: impl FnOnce() -> T,
) -> T {
    let interrupt = Interrupt::listen();
    let mut pressed = Some(pressed);
    std::thread::scope(|scope| {
        let (done, is_done) = channel::<()>();
        scope.spawn(move || {
            while is_done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let is_pressed = interrupt.is_pressed();
                if is_pressed && let Some(pressed) = pressed.take() {
                    pressed();
                }
                tick(is_pressed);
            }
        });
        let answer = work();
        drop(done);
        answer
    })
}
