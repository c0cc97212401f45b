//! A background thread of the store, which works on the sessions that it is told about.
//!
//! The store has up to two such threads, one for the search index and one for vectors. A delivery
//! only wakes a thread, so no turn waits for this work. The work is a loop around [`Orders::wait`],
//! which returns the sessions with something to do.
//!
//! Start with [`Worker::start`]. What is done for a session is up to the caller. Nothing depends on
//! the result, since search reads what is not indexed yet.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use super::{SessionId, Source};

/// A background thread. Dropping it tells the thread to stop and waits until it has ended.
pub(crate) struct Worker {
    sender: Option<Sender<(SessionId, Source)>>,
    thread: Option<JoinHandle<()>>,
    closing: Arc<AtomicBool>,
}

/// The receiving end of a worker, from which its thread learns what to do.
pub(crate) struct Orders {
    receiver: Receiver<(SessionId, Source)>,
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

    /// Tells the thread that a session has something to do. Its transcript can be read through
    /// `source`.
    pub(crate) fn wake(&self, session: SessionId, source: &Source) {
        if let Some(sender) = &self.sender {
            // If the thread has ended, search is slower or finds less by meaning. It is never
            // wrong.
            let _ = sender.send((session, source.clone()));
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
    /// Waits for something to do and returns the sessions, each with a source for its transcript.
    /// Returns None when the store is closed.
    pub(crate) fn wait(&self) -> Option<BTreeMap<SessionId, Source>> {
        // A session may have been requested several times during the last work.
        let mut sessions = BTreeMap::from([self.receiver.recv().ok()?]);
        sessions.extend(self.receiver.try_iter());
        Some(sessions)
    }

    /// Returns whether the store is being closed. Work that can be done later should stop then.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }
}
