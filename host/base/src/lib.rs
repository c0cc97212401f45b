//! Small things that several crates of the host need and that no single one of them should own.
//!
//! [`trust`] decides which files may influence what the host runs, and [`private`] restricts
//! who may read the host's own files. [`PerProcess`] and [`lock`] make shared state safe to use
//! after a `fork` and after a panic. [`suggest`] finds the word that a mistyped one probably
//! meant, [`user_home`] the user's home directory, and [`secret`] reads a key or a token.
//!
//! The crate depends only on the engine API and knows nothing about conversations, so that
//! every other crate of the host can use it.

mod per_process;
pub mod private;
mod secret;
pub mod suggest;
pub mod trust;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

pub use per_process::PerProcess;
pub use secret::{SecretError, secret, secret_if_readable};

/// Locks a mutex and ignores poisoning. Use it only if the guarded data is consistent between
/// statements, so that a panic in another thread cannot leave it half changed.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a variable of the environment. Callers pass [`std::env::var_os`], and tests pass a
/// function of their own, so that they neither depend on the environment nor change it.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Returns the path in a variable of the environment. A variable that is set but empty counts as not
/// set, as most programs treat it.
pub fn path_of(env: Env<'_>, name: &str) -> Option<PathBuf> {
    env(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the home directory of the user: `HOME`, or `USERPROFILE` if `HOME` is not set. `None` if
/// neither is.
pub fn user_home(env: Env<'_>) -> Option<PathBuf> {
    path_of(env, "HOME").or_else(|| path_of(env, "USERPROFILE"))
}

/// The time in milliseconds since the Unix epoch. Zero if the clock is set to an earlier time.
pub fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
