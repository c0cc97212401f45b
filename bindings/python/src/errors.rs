//! The exceptions that Python sees, and how the host's errors become exceptions.
//!
//! All are subclasses of `ContextureError`, so one `except` catches everything that this package
//! raises. A subclass exists if a program may want to react in its own way: wait for a session,
//! tell the model of a failed tool, or send the conversation unchanged.
//!
//! The functions `of_session`, `of_tool`, `of_host` and `of_json` choose the class. The message is
//! that of the host's error.

use contexture::session::AgentWindow;
use contexture::{HostError, SessionError};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};

create_exception!(
    contexture,
    ContextureError,
    PyException,
    "What goes wrong in Contexture."
);
create_exception!(
    contexture,
    SessionInUse,
    ContextureError,
    "The session is open in another process."
);
create_exception!(
    contexture,
    SessionDiffers,
    ContextureError,
    "The session is open in this process in another way: with another model, window, engine or option.\n\n\
     `model`, `context_length` and `max_output_tokens` are those that it has."
);
create_exception!(
    contexture,
    ToolError,
    ContextureError,
    "A tool of the engine refused its arguments, or failed."
);
create_exception!(
    contexture,
    EngineFailed,
    ContextureError,
    "The engine failed, and no other engine may replace it."
);
create_exception!(
    contexture,
    FormatError,
    ContextureError,
    "A message, a body or a usage cannot be read."
);

const TEXT: &str =
    "An argument has the wrong type, is out of range, or is none of the allowed words.";

/// The exception for an invalid argument. It is also a `ValueError`, which `create_exception!`
/// cannot express, so the class is made at run time.
pub(crate) struct ArgumentError;

impl ArgumentError {
    /// Returns the class, and makes it on the first call.
    pub(crate) fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
        static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
        let make = || {
            let bases = (
                py.get_type::<ContextureError>(),
                py.get_type::<PyValueError>(),
            );
            let members = PyDict::new(py);
            members.set_item("__module__", "contexture")?;
            members.set_item("__doc__", TEXT)?;
            let class = py
                .get_type::<PyType>()
                .call1(("ArgumentError", bases, members))?;
            Ok::<_, PyErr>(class.cast_into::<PyType>()?.unbind())
        };
        CLASS.get_or_try_init(py, make).map(|class| class.bind(py))
    }

    /// Returns a new exception with this message. If the class itself cannot be made, the exception
    /// is that failure.
    pub(crate) fn new_err(py: Python<'_>, text: String) -> PyErr {
        match Self::class(py) {
            Ok(class) => PyErr::from_type(class.clone(), text),
            Err(error) => error,
        }
    }
}

/// Returns the error for a session that is open with other options. Its attributes are the model
/// and window that the session is open with, so that a caller can open it with the same.
pub(crate) fn differs(py: Python<'_>, text: String, open: &AgentWindow) -> PyErr {
    let error = SessionDiffers::new_err(text);
    let value = error.value(py);
    // These are attributes and not constructor arguments, so that the message stays the only
    // argument.
    let set = value
        .setattr("model", &open.model)
        .and_then(|()| value.setattr("context_length", open.context_length))
        .and_then(|()| value.setattr("max_output_tokens", open.max_output_tokens));
    set.map_or_else(|failed| failed, |()| error)
}

/// Returns the exception for an error of a session. The host's error decides the class.
pub(crate) fn of_session(error: SessionError) -> PyErr {
    let text = error.to_string();
    match error {
        SessionError::InUse(_) => SessionInUse::new_err(text),
        SessionError::Format(_) => FormatError::new_err(text),
        SessionError::EngineFailed { .. } | SessionError::Call(_) => EngineFailed::new_err(text),
        _ => ContextureError::new_err(text),
    }
}

/// Returns the exception for the failed call of a tool. What the engine said is meant for the
/// model, so it becomes a `ToolError` with only that text.
pub(crate) fn of_tool(error: SessionError) -> PyErr {
    match error {
        SessionError::Call(call) => ToolError::new_err(call.to_string()),
        SessionError::HostTool { error, .. } => ToolError::new_err(error.to_string()),
        error => of_session(error),
    }
}

/// Returns the exception for an answer of the host that has no JSON form.
pub(crate) fn of_json(error: serde_json::Error) -> PyErr {
    ContextureError::new_err(error.to_string())
}

/// Returns the exception for an error of the host. Errors of a session keep their class.
pub(crate) fn of_host(error: HostError) -> PyErr {
    match error {
        HostError::Session(error) => of_session(error),
        error => ContextureError::new_err(error.to_string()),
    }
}
