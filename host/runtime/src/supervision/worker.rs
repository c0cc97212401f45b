//! Threads that run engine calls. They are started when needed, kept for the next call of the same engine, and ended
//! when idle. Each thread has the engine's name, which debuggers, `top -H` and panic messages show.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use contexture_base::lock;

/// How long a thread waits for its next call before it ends.
const IDLE: Duration = Duration::from_secs(10);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A pool that never makes a call wait: it starts a new thread when all others are busy or hang.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Idle threads, by the engine's name.
    idle: Arc<Mutex<HashMap<String, Vec<Ticket>>>>,
}

/// The worker that a call occupies. Its thread ends once this is gone and the call has returned.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Desk>);

/// Where a worker finds its next call. (A channel wakes the thread while it still holds what that thread needs next.)
#[derive(Default)]
struct Desk {
    next: Mutex<Next>,
    came: Condvar,
}

#[derive(Default)]
struct Next {
    call: Option<Job>,
    /// Whether nobody brings another one, or takes it.
    is_last: bool,
}

impl Desk {
    /// Brings a call; given back where the worker has ended.
    fn bring(&self, job: Job) -> Result<(), Job> {
        let mut next = lock(&self.next);
        if next.is_last {
            return Err(job);
        }
        next.call = Some(job);
        drop(next);
        self.came.notify_one();
        Ok(())
    }

    /// The next call; none where there is none for a while, or never again.
    fn take(&self) -> Option<Job> {
        let is_nothing = |next: &mut Next| next.call.is_none() && !next.is_last;
        let waited = self
            .came
            .wait_timeout_while(lock(&self.next), IDLE, is_nothing);
        let mut next = waited.unwrap_or_else(PoisonError::into_inner).0;
        next.is_last |= next.call.is_none();
        next.call.take()
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Desk")
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock(&self.0.next).is_last = true;
        self.0.came.notify_one();
    }
}

impl Workers {
    /// Runs a job of this engine on a separate thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(&self, engine: &str, mut job: Job) -> io::Result<Ticket> {
        loop {
            let idle = lock(&self.idle).get_mut(engine).and_then(Vec::pop);
            let Some(worker) = idle else {
                return start_thread(engine, job);
            };
            match worker.0.bring(job) {
                Ok(()) => return Ok(worker),
                // The thread ended while idle; take the job back and try the next one.
                Err(again) => job = again,
            }
        }
    }

    /// The call returned: its thread is free for the next.
    pub(super) fn finish(&self, engine: &str, ticket: Ticket) {
        let mut idle = lock(&self.idle);
        match idle.get_mut(engine) {
            Some(idle) => idle.push(ticket),
            None => {
                idle.insert(engine.to_owned(), vec![ticket]);
            }
        }
    }

    /// The call did not return: its thread ends when the call does, if ever, and nothing waits for it.
    pub(super) fn abandon(&self, ticket: Ticket) {
        drop(ticket);
    }
}

fn start_thread(engine: &str, first: Job) -> io::Result<Ticket> {
    let desk = Arc::new(Desk::default());
    let own = Arc::clone(&desk);
    Builder::new()
        // Linux shows only the first 15 bytes of the name.
        .name(format!("engine {}", engine.replace('\0', "")))
        .spawn(move || {
            first();
            while let Some(job) = own.take() {
                job();
            }
        })?;
    Ok(Ticket(desk))
}
