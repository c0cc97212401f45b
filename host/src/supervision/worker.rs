//! Threads that run engine calls: started when needed, kept for the next call, ended when idle.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::Builder;
use std::time::Duration;

use super::lock;

/// How long a thread waits for its next call before it ends.
const IDLE: Duration = Duration::from_secs(10);

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// A pool that never makes a call wait: it starts a new thread when all others are busy or hang.
#[derive(Debug, Default)]
pub(super) struct Workers {
    idle: Arc<Mutex<Vec<Sender<Job>>>>,
}

/// The worker that a call occupies.
pub(super) struct Ticket(Sender<Job>);

impl Workers {
    /// Runs a job on a separate thread.
    ///
    /// # Errors
    /// The system has no thread left.
    pub(super) fn start(&self, mut job: Job) -> io::Result<Ticket> {
        loop {
            let Some(worker) = lock(&self.idle).pop() else {
                return start_thread(job);
            };
            match worker.send(job) {
                Ok(()) => return Ok(Ticket(worker)),
                // The thread ended while idle; take the job back and try the next one.
                Err(unsent) => job = unsent.0,
            }
        }
    }

    /// The call returned: its thread is free for the next.
    pub(super) fn finish(&self, ticket: Ticket) {
        lock(&self.idle).push(ticket.0);
    }

    /// The call did not return: its thread ends when the call does, if ever, and nothing waits for it.
    pub(super) fn abandon(&self, ticket: Ticket) {
        drop(ticket);
    }
}

fn start_thread(first: Job) -> io::Result<Ticket> {
    let (sender, jobs) = channel::<Job>();
    Builder::new()
        .name("contexture-engine".to_owned())
        .spawn(move || work(first, &jobs))?;
    Ok(Ticket(sender))
}

fn work(first: Job, jobs: &Receiver<Job>) {
    first();
    loop {
        match jobs.recv_timeout(IDLE) {
            Ok(job) => job(),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
    }
}
