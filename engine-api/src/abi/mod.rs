//! The stable ABI between a host and an engine in a cdylib.
//!
//! The ABI carries the [`protocol`](crate::protocol) through tables of functions. Messages cross as
//! a frozen struct, [`MessageView`](crate::MessageView), in a borrowed slice. Everything else
//! crosses as JSON text. Only this module and that struct use the crate `abi_stable`, and nothing
//! of it appears in the interface.
//!
//! The ownership rules are simple. Text or a slice that is passed in is borrowed until the call
//! returns. What is returned belongs to the receiver. An object is dropped by the side that made
//! it, through its table.
//!
//! The submodule `tables` defines what both sides agree on, `export` is the plugin's side and
//! `load` the host's. A panic never crosses the boundary: [`guarded`] turns it into an error on the
//! side on which it happened.

#![allow(unsafe_code)]

#[cfg(feature = "host")]
pub(crate) mod exit;
pub(crate) mod export;
#[cfg(feature = "host")]
pub(crate) mod load;
pub(crate) mod tables;

use abi_stable::std_types::{RResult, RStr, RString};

use crate::error::EngineError;
use crate::protocol::{read_error, write_error};

/// The major version of the ABI. Every plugin exports a C function `contexture_abi_version` that
/// returns this number, and a host loads the plugin only if the number equals its own.
pub const ABI_VERSION: u32 = 1;

/// The result of a call: a value as JSON text, or an [`EngineError`] as JSON text.
pub(crate) type Answer = RResult<RString, RString>;

pub(crate) fn to_answer(result: Result<String, EngineError>) -> Answer {
    match result {
        Ok(text) => RResult::ROk(text.into()),
        Err(error) => RResult::RErr(write_error(&error).into()),
    }
}

pub(crate) fn from_answer<T>(answer: RResult<T, RString>) -> Result<T, EngineError> {
    answer
        .into_result()
        .map_err(|text| read_error(text.as_str()))
}

/// Runs code at the boundary and turns a panic into an error, so that the panic neither unwinds
/// into the other side nor ends the process.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(EngineError::Panicked(panic_text(panic))))
}

/// The largest number of characters of a panic message that are shown.
const PANIC_TEXT: usize = 1_000;

/// Returns the message of a panic in a form that is safe to print. The value that the panic carried
/// is dropped here, and if its destructor panics too, that is caught.
pub fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic
        .downcast_ref::<EngineError>()
        // A `RemoteEngine` panics with an error as the value, so that the reason is not lost.
        .map(EngineError::to_string)
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    // The value may come from the plugin, and its destructor with it.
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(panic)));
    if let Err(another) = dropped {
        // Dropping a second panic could panic again without end, so it is leaked.
        std::mem::forget(another);
    }
    crate::printable(&text, PANIC_TEXT).into_owned()
}

/// The largest number of characters of a panic's backtrace that are shown.
const BACKTRACE_TEXT: usize = 100_000;

/// Makes panics of this program or library print on stderr with control characters made visible. If
/// `RUST_BACKTRACE` asks for a backtrace, it follows the message. Calling this more than once has
/// no effect.
pub fn show_panics_plainly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            use std::backtrace::{Backtrace, BacktraceStatus};

            let message = format!("thread `{}` {panic}\n", thread_name());
            let mut shown = crate::printable(&message, PANIC_TEXT).into_owned();
            let backtrace = Backtrace::capture();
            if backtrace.status() == BacktraceStatus::Captured {
                let text = format!("stack backtrace:\n{backtrace}\n");
                shown.push_str(&crate::printable(&text, BACKTRACE_TEXT));
            }
            let _ = std::io::Write::write_all(&mut std::io::stderr(), shown.as_bytes());
        }));
    });
}

/// Returns the name of the current thread. A plugin has its own copy of the standard library, which
/// does not know the threads of the program that loaded it, so the system is asked if there is no
/// name.
fn thread_name() -> String {
    let current = std::thread::current();
    let by_system = || std::fs::read_to_string("/proc/thread-self/comm").ok();
    let name = current.name().map(str::to_owned).or_else(by_system);
    let name = name.unwrap_or_default();
    match name.trim() {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

pub(crate) fn rstr(text: &str) -> RStr<'_> {
    RStr::from_str(text)
}
