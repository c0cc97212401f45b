//! Threads that run engine calls.
//!
//! Starting a thread costs more than most engine calls, so a thread is kept after a call and reused
//! by the next call of the same engine. It ends after it has been idle for some time. Each thread
//! carries the engine's name, which debuggers, `top -H` and panic messages show.
//!
//! [`Workers`] is the pool. It never makes a call wait for another one: if all threads are busy or
//! hang, it starts a new thread. [`Workers::start`] returns a [`Ticket`], which the caller gives
//! back with [`Workers::finish`] or [`Workers::abandon`].
//!
//! Waiting for the result, deadlines and panics are left to the parent module. A job must not
//! panic.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use contexture_base::lock;

/// How long a thread waits for its next call before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// One call, with everything that it needs and the channel for its result.
pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads that is shared by all engines. It has no upper limit, because a limit would
/// let a hanging engine block the calls of the others.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Idle threads, by the engine's name. The thread that became idle last is reused first.
    idle: Arc<Mutex<HashMap<String, Vec<Ticket>>>>,
}

/// The thread that runs a call. When this is dropped, the thread ends as soon as the call returns.
#[derive(Debug)]
pub(super) struct Ticket(Arc<Desk>);

/// The place in which a thread finds its next call. A channel would wake the thread while the
/// sender still holds the channel's lock, and the thread would have to wait once more.
#[derive(Default)]
struct Desk {
    next: Mutex<Next>,
    came: Condvar,
}

#[derive(Default)]
struct Next {
    call: Option<Job>,
    /// Whether no further call will come or be taken: the ticket was dropped, or the thread was
    /// idle for too long.
    is_last: bool,
}

impl Desk {
    /// Passes a call to the thread.
    ///
    /// # Errors
    /// Returns the call if the thread has ended.
    fn bring(&self, job: Job) -> Result<(), Job> {
        let mut next = lock(&self.next);
        if next.is_last {
            return Err(job);
        }
        next.call = Some(job);
        drop(next);
        // Notified after the lock is released, so that the thread can take the call at once.
        self.came.notify_one();
        Ok(())
    }

    /// Waits for the next call. Returns `None` if none comes within [`IDLE`], or if none will come.
    fn take(&self) -> Option<Job> {
        let is_nothing = |next: &mut Next| next.call.is_none() && !next.is_last;
        let waited = self
            .came
            .wait_timeout_while(lock(&self.next), IDLE, is_nothing);
        let mut next = waited.unwrap_or_else(PoisonError::into_inner).0;
        // Set under the lock: a call that is passed after this returns to its sender instead of
        // being lost.
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
    /// Runs a job on an idle thread of this engine, or on a new one if there is none.
    ///
    /// # Errors
    /// Returns the error of the operating system if it cannot start a thread.
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

    /// Takes back the thread of a call that has returned, for the next call of the same engine.
    pub(super) fn finish(&self, engine: &str, ticket: Ticket) {
        let mut idle = lock(&self.idle);
        match idle.get_mut(engine) {
            Some(idle) => idle.push(ticket),
            None => {
                idle.insert(engine.to_owned(), vec![ticket]);
            }
        }
    }

    /// Gives up the thread of a call that did not return. The thread ends when the call does, which
    /// may be never, and nothing waits for it.
    pub(super) fn abandon(&self, ticket: Ticket) {
        drop(ticket);
    }
}

/// Starts a thread that runs this job first and then waits for others.
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
