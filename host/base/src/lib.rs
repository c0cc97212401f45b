//! What several crates of the host need and none of them owns: which files are trusted ([`trust`]) and who may read them
//! ([`private`]), locks that survive a panic and a `fork`, and what a mistyped word may have meant.

mod per_process;
pub mod private;
pub mod suggest;
pub mod trust;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use per_process::PerProcess;

/// Ignores poisoning: the guarded data is consistent between statements.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
