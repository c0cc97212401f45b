//! The native part of the npm package `contexture`: a thin layer over the host.
//!
//! JavaScript passes and gets JSON text. What a caller sees, the classes, their types and the
//! caller's own message objects, is made of it by the package's `index.cjs`. So this crate needs
//! little of Node's interface: functions that take and return text and numbers.
//!
//! `host` opens hosts and sessions and makes their calls. `engine` lets classes of JavaScript be
//! engines and models. Values that live on are known to JavaScript by a number ([`Handles`]), and
//! every call that may take long runs on a thread of its own and returns a promise ([`promise`]), so
//! that Node's event loop goes on.

// The macros of napi write code that is unsafe, without comments. The functions that they export are
// called by JavaScript, and the compiler sees no caller.
#![allow(unsafe_code, missing_docs, unreachable_pub)]
// A test build exports nothing, so nothing is used in it.
#![cfg_attr(test, allow(dead_code))]

mod engine;
mod host;

use std::collections::BTreeMap;
use std::sync::Arc;

use contexture::{HostError, SessionError};
use napi::bindgen_prelude::Object;
use napi::{Env, Status};
use napi_derive::napi;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a call failed: the name of the JavaScript class of the error, and its message.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    class: &'static str,
    message: String,
}

impl Failure {
    /// Something that has no class of its own. If callers should be able to tell it apart, it needs
    /// a class in the package's JavaScript too.
    pub(crate) fn other(message: impl ToString) -> Self {
        Self::of("ContextureError", message)
    }

    /// An argument that is of the wrong type, out of range, or not one of the allowed words.
    pub(crate) fn argument(message: impl ToString) -> Self {
        Self::of("ArgumentError", message)
    }

    /// A message, a body or a document that cannot be read.
    pub(crate) fn format(message: impl ToString) -> Self {
        Self::of("FormatError", message)
    }

    /// A tool of the engine that refused its arguments or failed. The message is for the model.
    pub(crate) fn tool(message: impl ToString) -> Self {
        Self::of("ToolError", message)
    }

    fn of(class: &'static str, message: impl ToString) -> Self {
        let message = message.to_string();
        Self { class, message }
    }
}

impl From<SessionError> for Failure {
    fn from(error: SessionError) -> Self {
        let class = match &error {
            SessionError::InUse(_) => "SessionInUse",
            SessionError::Format(_) => "FormatError",
            SessionError::EngineFailed { .. } | SessionError::Call(_) => "EngineFailed",
            SessionError::HostTool { .. } => "ToolError",
            _ => "ContextureError",
        };
        Self::of(class, error)
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Session(error) => error.into(),
            error => Self::other(error),
        }
    }
}

impl From<Failure> for napi::Error {
    fn from(failure: Failure) -> Self {
        // The package's JavaScript makes an error of the class out of it.
        let text = serde_json::to_string(&failure).unwrap_or(failure.message);
        Self::new(Status::GenericFailure, text)
    }
}

/// Runs the command line with these arguments, which do not include the program's name. Others start
/// it with `command`. Returns the exit code. Blocks.
#[napi]
pub fn run_command(command: Vec<String>, arguments: Vec<String>) -> u8 {
    let program = std::iter::once("contexture".to_owned());
    contexture_cli::run_with(
        Some(command),
        program.chain(arguments).map(std::ffi::OsString::from),
    )
}

/// What JavaScript holds by a number. If a value is in use when its number is released, it lives
/// until that use ends. Numbers are never given twice.
pub(crate) struct Handles<T> {
    last: u32,
    open: BTreeMap<u32, Arc<T>>,
}

impl<T> Handles<T> {
    pub(crate) const fn new() -> Self {
        Self {
            last: 0,
            open: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, value: Arc<T>) -> u32 {
        self.last += 1;
        self.open.insert(self.last, value);
        self.last
    }

    /// Returns the value of a number.
    ///
    /// # Errors
    /// Fails if it was released.
    pub(crate) fn get(&self, number: u32) -> Result<Arc<T>, Failure> {
        let found = self.open.get(&number).map(Arc::clone);
        found.ok_or_else(|| Failure::other("it is closed: open it again"))
    }

    /// Takes a value out. `None` if there is none with this number, as when it was released before.
    pub(crate) fn release(&mut self, number: u32) -> Option<Arc<T>> {
        self.open.remove(&number)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<T>> {
        self.open.values()
    }
}

/// Runs something on a thread of its own and returns a promise of its result. Node's own threads
/// are few, and a call may wait for a model. If no thread can be started, this throws, and there is
/// no promise.
pub(crate) fn promise(
    env: &Env,
    work: impl FnOnce() -> Result<String, Failure> + Send + 'static,
) -> napi::Result<Object<'_>> {
    let (deferred, promise) = env.create_deferred()?;
    let spawned = std::thread::Builder::new()
        .name("contexture".to_owned())
        .spawn(move || match work() {
            Ok(value) => deferred.resolve(move |_| Ok(value)),
            Err(failure) => deferred.reject(failure.into()),
        });
    match spawned {
        Ok(_) => Ok(promise),
        Err(error) => Err(Failure::other(error).into()),
    }
}

/// Reads the options of a call.
///
/// # Errors
/// Fails with an `ArgumentError` that names the option.
pub(crate) fn options<T: DeserializeOwned>(text: &str, of: &str) -> Result<T, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::argument(format!("the options of {of}: {error}")))
}

/// Writes a value as JSON text.
///
/// # Errors
/// Fails if it has no JSON form.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(Failure::other)
}
