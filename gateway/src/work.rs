//! Runs blocking work on threads of its own, on as few as possible.
//!
//! Parsing requests, calling engines and writing to the store all block, so they must not run on
//! the threads that relay answers. [`WorkPool`] queues such pieces for its threads. Most take a part
//! of a millisecond, so one thread for each core works through the queue, and neither threads nor
//! caches are switched for each piece. A piece may also wait, for the disk, for a model or for
//! another gateway. While it does, another thread takes the place of its thread, up to a limit.
//!
//! [`runtime`] creates the runtime that fits this, with few threads of its own.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, Builder, Thread, ThreadId, available_parallelism};
use std::time::{Duration, Instant};

use contexture::lock;

use contexture_engine_api::panic_text;
use tokio::runtime::{self, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, Span};

use crate::GatewayError;
use crate::failure::Failure;

/// How many pieces of work run at once for each core if pieces wait for something.
const MOST_PER_CORE: usize = 8;
/// How long a piece may take before another thread takes the place of its thread. Pieces that wait
/// for nothing are done sooner, also if other programs take part of the cores. With 5 ms, pieces that
/// only waited for a core began more threads than cores, each with memory of its own: 50 streams of
/// 165 KB took 113 to 145 MB, and with 20 ms 92 to 98 MB.
const LATE: Duration = Duration::from_millis(20);
/// How long a thread waits for work before it ends.
const IDLE: Duration = Duration::from_secs(10);

/// Creates the runtime for a gateway, with one thread for every two cores. These threads only relay
/// bytes, and more of them would wake each other up for nothing. Blocking work has threads of its
/// own.
///
/// # Errors
/// The system starts no more threads.
pub fn runtime() -> Result<Runtime, GatewayError> {
    runtime::Builder::new_multi_thread()
        .worker_threads(cores().div_ceil(2))
        .enable_all()
        .build()
        .map_err(|error| {
            GatewayError::Failed(format!(
                "cannot start the gateway's threads: {error}; raise the limit on processes of this user"
            ))
        })
}

/// The number of cores, or 1 if it is unknown.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Runs pieces of blocking work in the order in which they came, see the module documentation. Pieces
/// that end a request come before those that begin one. Otherwise, if more requests come than can be
/// answered, each would wait twice behind all others, and hardly any would end.
#[derive(Default)]
pub(crate) struct WorkPool {
    threads: Arc<Threads>,
    /// The tasks that may start work.
    tasks: TaskTracker,
}

/// One piece of work. It must not panic.
type Job = Box<dyn FnOnce() + Send>;

/// The threads of a pool and their queue.
struct Threads {
    queue: Mutex<Queue>,
    /// How many threads get on with the queue, and how many there are at most.
    few: usize,
    most: usize,
}

#[derive(Default)]
struct Queue {
    /// The pieces that no thread has taken, and those that end a request, which come first.
    waiting: VecDeque<Job>,
    ending: VecDeque<Job>,
    running: Vec<Running>,
    /// Threads without work. The one that became idle last is used first, because its memory is
    /// still in the caches, and because the others end if they are not needed.
    idle: Vec<Thread>,
    /// The number of threads that have work or look for it.
    busy: usize,
    /// Whether [`Threads::watch`] runs.
    is_watched: bool,
}

/// A piece that a thread works on.
struct Running {
    thread: ThreadId,
    began: Instant,
    /// Whether it takes so long that another thread has the place of its thread.
    is_slow: bool,
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        let ending = self.ending.pop_front();
        ending.or_else(|| self.waiting.pop_front())
    }

    /// The number of threads that get on with the queue.
    fn quick(&self) -> usize {
        self.busy - self.running.iter().filter(|one| one.is_slow).count()
    }
}

impl Default for Threads {
    fn default() -> Self {
        let few = cores().max(2);
        Self {
            queue: Mutex::default(),
            few,
            most: MOST_PER_CORE * few,
        }
    }
}

impl Threads {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        lock(&self.queue)
    }

    /// Queues a piece, and has a thread take it if one is free.
    fn push(self: &Arc<Self>, job: Job, ends: bool) {
        let mut queue = self.queue();
        match ends {
            true => queue.ending.push_back(job),
            false => queue.waiting.push_back(job),
        }
        if queue.quick() < self.few {
            self.wake_one(&mut queue);
        } else {
            self.have_watched(&mut queue);
        }
    }

    fn have_watched(self: &Arc<Self>, queue: &mut Queue) {
        if !std::mem::replace(&mut queue.is_watched, true) {
            tokio::spawn(Arc::clone(self).watch());
        }
    }

    /// Has one more thread look for work, the one that was idle last or a new one, if there may be
    /// one more.
    fn wake_one(self: &Arc<Self>, queue: &mut Queue) {
        if queue.busy >= self.most {
            return self.have_watched(queue);
        }
        queue.busy += 1;
        if let Some(thread) = queue.idle.pop() {
            thread.unpark();
            return;
        }
        let (own, runtime) = (Arc::clone(self), Handle::current());
        let started = Builder::new()
            .name("contexture-work".to_owned())
            .spawn(move || {
                // Work may start tasks.
                let _runtime = runtime.enter();
                own.work();
            });
        if let Err(error) = started {
            queue.busy -= 1;
            tracing::warn!("cannot start a thread: {error}");
            self.have_watched(queue);
        }
    }

    /// Has other threads take the place of those that take long, until no piece waits.
    async fn watch(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LATE).await;
            let mut queue = self.queue();
            if queue.waiting.is_empty() && queue.ending.is_empty() {
                queue.is_watched = false;
                return;
            }
            for one in &mut queue.running {
                one.is_slow |= one.began.elapsed() >= LATE;
            }
            while queue.quick() < self.few && queue.busy < self.most {
                let before = queue.busy;
                self.wake_one(&mut queue);
                if queue.busy == before {
                    break;
                }
            }
        }
    }

    /// What a thread does: it takes one piece after the other, and ends if none has come for a
    /// while.
    fn work(&self) {
        let own = thread::current();
        let mut queue = self.queue();
        loop {
            // A thread that was slow has been replaced, so there may be one too many.
            let is_wanted = queue.quick() <= self.few;
            let job = is_wanted.then(|| queue.next()).flatten();
            let Some(job) = job else {
                queue.busy -= 1;
                queue.idle.push(own.clone());
                drop(queue);
                if !self.is_woken(own.id()) {
                    return;
                }
                queue = self.queue();
                continue;
            };
            queue.running.push(Running {
                thread: own.id(),
                began: Instant::now(),
                is_slow: false,
            });
            drop(queue);
            job();
            queue = self.queue();
            queue.running.retain(|one| one.thread != own.id());
        }
    }

    /// Waits until this thread is woken up, for at most [`IDLE`]. It is no longer idle then.
    fn is_woken(&self, own: ThreadId) -> bool {
        let until = Instant::now() + IDLE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            thread::park_timeout(left);
            let mut queue = self.queue();
            // Whoever woke this thread has taken it from the list.
            let Some(at) = queue.idle.iter().position(|thread| thread.id() == own) else {
                return true;
            };
            if left.is_zero() {
                queue.idle.remove(at);
                return false;
            }
        }
    }
}

impl WorkPool {
    /// Queues a piece of work, in the current span. If it panics, whatever it owns is dropped.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        self.push(work, false);
    }

    fn push(&self, work: impl FnOnce() + Send + 'static, ends: bool) {
        let span = Span::current();
        let job = move || {
            // The panic was reported when it happened.
            let _ = catch_unwind(AssertUnwindSafe(|| span.in_scope(work)));
        };
        self.threads.push(Box::new(job), ends);
    }

    /// Starts a task in the current span. The pool is not idle before the task has ended and has let
    /// go of the span.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.tasks.spawn(task.in_current_span())
    }

    /// Waits until no task and no piece of work is under way, for at most this time.
    pub(crate) async fn until_idle(&self, most: Duration) {
        let idle = async {
            self.tasks.close();
            self.tasks.wait().await;
            while self.threads.queue().busy > 0 {
                tokio::time::sleep(LATE).await;
            }
        };
        let _ = tokio::time::timeout(most, idle).await;
    }

    /// Runs a piece of work, and returns its result.
    ///
    /// # Errors
    /// The work panicked. The reason is `panic`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.result_of(work, false).await
    }

    /// Same as [`run`](Self::run), for work that ends a request.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn end<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        self.result_of(work, true).await
    }

    async fn result_of<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
        ends: bool,
    ) -> Result<T, Failure> {
        let (sender, receiver) = oneshot::channel();
        // Nobody may wait for the result any more.
        let work = move || drop(sender.send(catch_unwind(AssertUnwindSafe(work))));
        self.push(work, ends);
        let done = receiver
            .await
            .map_err(|error| Failure::new("panic", error))?;
        done.map_err(|panic| Failure::new("panic", panic_text(panic)))
    }
}

#[cfg(test)]
mod tests;
