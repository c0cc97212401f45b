//! Runs blocking work on threads of its own, with a limit on how much runs at once.
//!
//! Parsing requests, calling engines and writing to the store all block, so they must not run on
//! the threads that relay answers. [`WorkPool`] hands such pieces to the blocking pool of the
//! runtime. More pieces at once would only take memory and get in each other's way, so further ones
//! wait in the order in which they arrived.
//!
//! [`runtime`] creates the runtime that fits this, with few threads of its own.

use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, Semaphore};
use tokio::task::JoinHandle;
use tracing::Span;

use crate::GatewayError;
use crate::failure::Failure;

/// How many pieces of work run at once for each core. It is more than one, because a piece may wait
/// for the disk, for an engine or for another gateway.
const PIECES_PER_CORE: usize = 8;

/// Creates the runtime for a gateway, with one thread for every two cores. These threads only relay
/// bytes, and more of them would wake each other up for nothing. Blocking work has threads of its
/// own.
///
/// # Errors
/// The system starts no more threads.
pub fn runtime() -> Result<Runtime, GatewayError> {
    Builder::new_multi_thread()
        .worker_threads(cores().div_ceil(2))
        .enable_all()
        .build()
        .map_err(GatewayError::Runtime)
}

/// The number of cores, or 1 if it is unknown.
fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Limits how many pieces of blocking work run at once. Waiting pieces are started in order.
#[derive(Debug)]
pub(crate) struct WorkPool {
    permits: Arc<Semaphore>,
    /// Read by whoever will start work later, and written by whoever waits until nobody will.
    later: Arc<RwLock<()>>,
}

impl Default for WorkPool {
    fn default() -> Self {
        Self {
            permits: Arc::new(Semaphore::new(PIECES_PER_CORE * cores().max(2))),
            later: Arc::default(),
        }
    }
}

impl WorkPool {
    /// Starts a piece of work as soon as there is room for it, in the current span, and returns its
    /// handle. Dropping the handle does not stop the work.
    pub(crate) async fn spawn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let span = Span::current();
        tokio::task::spawn_blocking(move || {
            // The permit is released when the work ends, even if it panics.
            let _permit = permit;
            span.in_scope(work)
        })
    }

    /// Announces work that will be started later. Until the result is dropped, the pool is not idle.
    pub(crate) async fn later(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.later).read_owned().await
    }

    /// Waits until no piece of work is announced or under way, for at most this time. Pieces that are
    /// started meanwhile wait until then.
    pub(crate) async fn until_idle(&self, most: Duration) {
        // The number of permits is small, so the conversion does not cut it.
        let all = (PIECES_PER_CORE * cores().max(2)) as u32;
        let idle = async {
            drop(self.later.write().await);
            drop(self.permits.acquire_many(all).await);
        };
        let _ = tokio::time::timeout(most, idle).await;
    }

    /// Runs a piece of work as soon as there is room for it, and returns its result.
    ///
    /// # Errors
    /// The work panicked. The reason is `panic`.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let begun = self.spawn(work).await;
        begun.await.map_err(|error| Failure::new("panic", error))
    }
}
