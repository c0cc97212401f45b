//! The stable ABI: the only place that names `abi_stable`.
//!
//! It carries the [`protocol`](crate::protocol) between a host and a cdylib. What crosses for every message is a
//! frozen struct, [`view::MessageView`], lent as a slice; all else crosses as JSON text.
//!
//! Who owns what: a slice or a text that goes *in* is borrowed for the length of the call; what comes
//! *out* is owned by the receiver; an object is dropped by the side that made it, through its table.

#![allow(unsafe_code)]

#[cfg(feature = "host")]
pub(crate) mod exit;
pub(crate) mod export;
#[cfg(feature = "host")]
pub(crate) mod load;
pub(crate) mod tables;
pub(crate) mod view;

use abi_stable::std_types::{RResult, RStr, RString};

use crate::error::EngineError;
use crate::protocol::{read_error, write_error};

/// The major version of the ABI, as the plain C symbol `contexture_abi_version` answers it.
pub const ABI_VERSION: u32 = 1;

/// A value as JSON text, or an [`EngineError`] as JSON text.
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

/// Runs what crosses the boundary so that a panic comes out as an error instead of ending the process.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        .unwrap_or_else(|panic| Err(EngineError::Panicked(panic_text(panic))))
}

/// The most characters of a panic's message that are shown.
const PANIC_TEXT: usize = 1_000;

/// What a panic said, as it may be shown. What it carried is dropped here, guarded: its destructor may panic.
pub fn panic_text(panic: Box<dyn std::any::Any + Send>) -> String {
    let text = panic
        .downcast_ref::<EngineError>()
        .map(EngineError::to_string)
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned());
    let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(panic)));
    if let Err(another) = dropped {
        std::mem::forget(another);
    }
    crate::printable(&text, PANIC_TEXT).into_owned()
}

/// How many characters of a panic's backtrace are shown at most.
const BACKTRACE_TEXT: usize = 100_000;

/// Has panics of this program, or of the library that says it, shown on stderr as they always are, but with
/// control characters made visible. If `RUST_BACKTRACE` asks for one, a backtrace follows.
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

/// The name of this thread. A library has a standard library of its own, which does not know the threads of the program
/// that loaded it; the system does.
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
