//! Work that blocks: as much of it at once as is of use. Each piece has a thread, and memory of its own.

use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::conversation::Failure;

/// How many pieces for each core. A piece may wait: for the disk, for an engine, for another gateway.
const EACH: usize = 8;

/// Room for work; it is had in the order in which it was asked for.
#[derive(Debug)]
pub(crate) struct Work(Arc<Semaphore>);

impl Default for Work {
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new(EACH * cores.max(2))))
    }
}

impl Work {
    /// Begins with a piece of work once there is room for it.
    pub(crate) async fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let room = Arc::clone(&self.0).acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let _room = room;
            work()
        })
    }

    /// Does a piece of work once there is room for it.
    ///
    /// # Errors
    /// It panicked.
    pub(crate) async fn done<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let begun = self.begin(work).await;
        begun.await.map_err(|error| Failure::new("panic", error))
    }
}
