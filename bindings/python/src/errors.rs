//! What Python sees of the host's errors.

use contexture::{HostError, SessionError};
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

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
    ToolError,
    ContextureError,
    "A tool of the engine refused its arguments, or failed."
);
create_exception!(
    contexture,
    EngineFailed,
    ContextureError,
    "The engine failed, and nothing was to stand in for it."
);
create_exception!(
    contexture,
    FormatError,
    ContextureError,
    "A message or a body cannot be read."
);

pub(crate) fn of_session(error: SessionError) -> PyErr {
    let text = error.to_string();
    match error {
        SessionError::InUse(_) => SessionInUse::new_err(text),
        SessionError::Format(_) => FormatError::new_err(text),
        SessionError::EngineFailed { .. } | SessionError::Call(_) => EngineFailed::new_err(text),
        _ => ContextureError::new_err(text),
    }
}

/// Of a call of a tool: whatever the engine said is for the model.
pub(crate) fn of_tool(error: SessionError) -> PyErr {
    match error {
        SessionError::Call(call) => ToolError::new_err(call.to_string()),
        error => of_session(error),
    }
}

pub(crate) fn of_host(error: HostError) -> PyErr {
    match error {
        HostError::Session(error) => of_session(error),
        error => ContextureError::new_err(error.to_string()),
    }
}
