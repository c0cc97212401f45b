//! Ctrl-C while a command runs that can be asked to stop.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::Poll;

use contexture_engine_api::unwatch_exit;
use tokio::runtime::Builder;
use tokio::signal::ctrl_c;

/// What a shell says of a command that Ctrl-C ended.
pub(crate) const INTERRUPTED: u8 = 130;

/// Whether Ctrl-C was pressed. The first is only noted, and the result of the work so far is still reported. The
/// second ends the process at once.
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Where that is not possible, Ctrl-C ends the process as it always does.
    pub(crate) fn listen() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel::<()>();
        let noted = Arc::clone(&pressed);
        let listener = std::thread::Builder::new().spawn(move || {
            let Ok(runtime) = Builder::new_current_thread().enable_all().build() else {
                return;
            };
            runtime.block_on(async {
                let mut first = pin!(ctrl_c());
                // Looked at once, it is listened for.
                let early = poll_fn(|context| Poll::Ready(first.as_mut().poll(context))).await;
                drop(ready);
                let heard = match early {
                    Poll::Ready(heard) => heard,
                    Poll::Pending => first.await,
                };
                noted.store(heard.is_ok(), Ordering::Relaxed);
                if ctrl_c().await.is_ok() {
                    unwatch_exit();
                    exit(INTERRUPTED.into());
                }
            });
        });
        if listener.is_ok() {
            // Ends when the listener listens, or has ended.
            let _ = is_ready.recv();
        }
        Self(pressed)
    }

    pub(crate) fn is_pressed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
