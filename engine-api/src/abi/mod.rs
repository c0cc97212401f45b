//! The stable ABI: the only place that names `abi_stable`.
//!
//! What crosses for every message is a frozen struct, [`view::MessageView`], lent as a slice. All else
//! crosses as JSON text of the crate's own types, in which either side ignores what it does not know
//! and defaults what it misses, so that adding a field breaks nobody.
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
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::EngineError;

/// The major version of the ABI, as the plain C symbol `contexture_abi_version` answers it.
pub const ABI_VERSION: u32 = 1;

/// A value as JSON text, or an [`EngineError`] as JSON text.
pub(crate) type Answer = RResult<RString, RString>;

pub(crate) fn to_answer<T: Serialize>(result: Result<T, EngineError>) -> Answer {
    match result.and_then(|value| serde_json::to_string(&value).map_err(unreadable)) {
        Ok(text) => RResult::ROk(text.into()),
        Err(error) => RResult::RErr(error_text(&error)),
    }
}

pub(crate) fn from_answer<T: DeserializeOwned>(answer: Answer) -> Result<T, EngineError> {
    match answer {
        RResult::ROk(text) => read(text.as_str()),
        RResult::RErr(text) => Err(read_error(text.as_str())),
    }
}

pub(crate) fn error_text(error: &EngineError) -> RString {
    // An error is two strings at most; should it fail to serialise all the same, an empty text reads
    // back as a broken answer.
    serde_json::to_string(error).unwrap_or_default().into()
}

pub(crate) fn read_error(text: &str) -> EngineError {
    read(text).unwrap_or_else(|error| error)
}

pub(crate) fn write<T: Serialize>(value: &T) -> Result<String, EngineError> {
    serde_json::to_string(value).map_err(unreadable)
}

pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, EngineError> {
    serde_json::from_str(text).map_err(|error| {
        let shown: String = text.chars().take(80).collect();
        EngineError::Protocol(format!("{error} in `{shown}`"))
    })
}

fn unreadable(error: serde_json::Error) -> EngineError {
    EngineError::Protocol(error.to_string())
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

/// Has panics of this program, or of the library that says it, shown on stderr as they always are, but with
/// control characters made visible.
pub fn show_panics_plainly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            let thread = std::thread::current();
            let message = format!("thread `{}` {panic}\n", thread.name().unwrap_or("unnamed"));
            let shown = crate::printable(&message, PANIC_TEXT);
            let _ = std::io::Write::write_all(&mut std::io::stderr(), shown.as_bytes());
        }));
    });
}

pub(crate) fn rstr(text: &str) -> RStr<'_> {
    RStr::from_str(text)
}
