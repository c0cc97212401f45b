//! The stable ABI: the only place that names `abi_stable`.
//!
//! What crosses for every message is a frozen struct, [`view::MessageView`], lent as a slice. All else
//! crosses as JSON text of the crate's own types, in which either side ignores what it does not know
//! and defaults what it misses, so that adding a field breaks nobody.
//!
//! Who owns what: a slice or a text that goes *in* is borrowed for the length of the call; what comes
//! *out* is owned by the receiver; an object is dropped by the side that made it, through its table.

#![allow(unsafe_code)]

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
        .unwrap_or_else(|panic| Err(EngineError::Panicked(panic_text(panic.as_ref()))))
}

/// What a panic said.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

pub(crate) fn rstr(text: &str) -> RStr<'_> {
    RStr::from_str(text)
}
