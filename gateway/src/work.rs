//! Work that blocks: as much of it at once as is of use. Each piece has a thread, and memory of its own.

use std::io;
use std::sync::Arc;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// How many pieces for each core. A piece may wait: for the disk, for an engine, for another gateway.
const EACH: usize = 8;

/// What a gateway runs on: one thread for each two cores. They only relay, and more of them wake each other up for nothing;
/// what blocks has threads of its own.
///
/// # Errors
/// The system has no thread left.
pub fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(cores().div_ceil(2))
        .enable_all()
        .build()
}

fn cores() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// Room for work; it is had in the order in which it was asked for.
#[derive(Debug)]
pub(crate) struct Work(Arc<Semaphore>);

impl Default for Work {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(EACH * cores().max(2))))
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
