//! A background thread of the store, which is told the sessions that have something to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::SessionId;

/// The thread; dropping this ends and joins it.
pub(crate) struct Worker {
    sender: Option<Sender<SessionId>>,
    thread: Option<JoinHandle<()>>,
    closing: Arc<AtomicBool>,
}

/// What a thread is told.
pub(crate) struct Orders {
    receiver: Receiver<SessionId>,
    closing: Arc<AtomicBool>,
}

impl Worker {
    pub(crate) fn start(
        name: &str,
        work: impl FnOnce(&Orders) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (sender, receiver) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let orders = Orders {
            receiver,
            closing: Arc::clone(&closing),
        };
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || work(&orders))?;
        Ok(Self {
            sender: Some(sender),
            thread: Some(thread),
            closing,
        })
    }

    /// Tells the thread that there is something to do for this session.
    pub(crate) fn wake(&self, session: SessionId) {
        if let Some(sender) = &self.sender {
            // Without the thread search is slower or finds less, and is not wrong.
            let _ = sender.send(session);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        drop(self.sender.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Orders {
    /// Waits for something to do, and returns the sessions that it is to be done for; none when the store is closed.
    pub(crate) fn wait(&self) -> Option<Vec<SessionId>> {
        // The same may have been requested several times during the last work.
        let mut sessions = vec![self.receiver.recv().ok()?];
        sessions.extend(self.receiver.try_iter());
        sessions.sort_unstable();
        sessions.dedup();
        Some(sessions)
    }

    /// Whether the store is being closed, which work that can wait does not hold up.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}
