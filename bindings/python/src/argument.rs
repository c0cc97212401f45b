//! Checks the arguments of Python's callers.
//!
//! PyO3's own conversions raise a `TypeError` or an `OverflowError` whose message does not name the
//! value. These functions instead raise an [`ArgumentError`] for every invalid value, such as one
//! of another type or a negative or too large number. It names the argument, what is allowed and
//! what was given.
//!
//! There is one function for each kind of argument. Each takes the value and the name of the
//! argument.

use std::path::PathBuf;
use std::time::Duration;

use contexture::session::AgentWindow;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use crate::errors::ArgumentError;

/// The largest accepted number, 2^53. JSON carries it without loss, and sums of a few such numbers
/// do not overflow.
pub(crate) const LARGEST: u64 = 1 << 53;

/// Returns a value as an error shows it: its `repr` and type, or only its type if the `repr` is
/// longer than 60 characters.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let kind = value
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let simple = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    // The `repr` of any other value may be a whole conversation, and it runs code of the caller.
    let repr = simple.then(|| value.repr().and_then(|repr| repr.extract::<String>()).ok());
    match repr.flatten() {
        Some(repr) if repr.chars().count() <= 60 => format!("{repr} (`{kind}`)"),
        _ => format!("a value of the type `{kind}`"),
    }
}

/// The error for an argument with a wrong value. `wanted` says what is allowed and follows the word
/// "is".
fn wrong(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    ArgumentError::new_err(
        value.py(),
        format!("`{name}` must be {wanted}, not {}", shown(value)),
    )
}

/// Reads a text. Fails if the value is not a `str` or is not valid Unicode, since Rust's strings
/// cannot hold a lone surrogate.
pub(crate) fn text(value: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let text = value
        .cast::<PyString>()
        .map_err(|_| wrong(name, "a string", value))?;
    let unicode = |_| {
        ArgumentError::new_err(
            value.py(),
            format!(
                "`{name}` holds a lone surrogate, which is not valid Unicode: replace it first"
            ),
        )
    };
    Ok(text.to_str().map_err(unicode)?.to_owned())
}

/// Reads a text that has more than white space in it, such as a session's id.
pub(crate) fn name(value: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let given = text(value, name)?;
    match given.trim().is_empty() {
        true => Err(wrong(name, "a non-empty string", value)),
        false => Ok(given),
    }
}

/// Reads a whole number from `least` to [`LARGEST`]. A float is refused even if it is whole.
pub(crate) fn whole(value: &Bound<'_, PyAny>, name: &str, least: u64) -> PyResult<u64> {
    let wanted = || format!("a whole number from {least} to 2**53");
    // In Python a bool is an int, so `True` would be accepted as 1.
    let number = match value.is_instance_of::<PyBool>() {
        true => None,
        false => value.extract::<u64>().ok(),
    };
    number
        .filter(|number| (least..=LARGEST).contains(number))
        .ok_or_else(|| wrong(name, &wanted(), value))
}

/// Reads an agent's model, its window and the tokens that are reserved for the answer. Without
/// `max_output_tokens` none are reserved.
pub(crate) fn agent(
    model: &Bound<'_, PyAny>,
    context_length: &Bound<'_, PyAny>,
    max_output_tokens: Option<&Bound<'_, PyAny>>,
) -> PyResult<AgentWindow> {
    let max_output_tokens = max_output_tokens.map(|tokens| whole(tokens, "max_output_tokens", 0));
    Ok(AgentWindow::new(
        text(model, "model")?,
        whole(context_length, "context_length", 1)?,
        max_output_tokens.transpose()?.unwrap_or(0),
    ))
}

/// Reads a number of seconds, whole or not. Fails if it is negative, not finite or too large for a
/// duration.
pub(crate) fn seconds(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let number = match value.is_instance_of::<PyBool>() {
        true => None,
        false => value.extract::<f64>().ok(),
    };
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| wrong(name, "a number of seconds", value))
}

/// Reads `True` or `False`. Other values that Python takes for true or false are refused, because
/// they are probably misplaced arguments.
pub(crate) fn flag(value: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let flag = value.cast::<PyBool>();
    flag.map(|flag| flag.is_true())
        .map_err(|_| wrong(name, "`True` or `False`", value))
}

/// Reads a path, as a text or as an `os.PathLike`. The path need not exist.
pub(crate) fn path(value: &Bound<'_, PyAny>, name: &str) -> PyResult<PathBuf> {
    value
        .extract()
        .map_err(|_| wrong(name, "a path, as a string or an `os.PathLike`", value))
}

/// Reads one of several words and returns the value that it stands for. The error lists all words.
pub(crate) fn choice<T: Copy>(
    value: &Bound<'_, PyAny>,
    name: &str,
    words: &[(&str, T)],
) -> PyResult<T> {
    let given = value
        .cast::<PyString>()
        .ok()
        .and_then(|text| text.to_str().ok());
    // The comparison is exact: a word in capitals is more likely a mistake than a choice.
    let found = words.iter().find(|(word, _)| given == Some(*word));
    found.map(|(_, meant)| *meant).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        wrong(name, &words.join(" or "), value)
    })
}
