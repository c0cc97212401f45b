//! Checks the arguments of Python's callers. An invalid value of any kind (another type, a negative or too large
//! number) raises an `ArgumentError` that names the argument.

use std::path::PathBuf;
use std::time::Duration;

use contexture::session::AgentWindow;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

use crate::errors::ArgumentError;

/// The largest accepted number, which JSON can carry without loss. Sums of a few of them do not overflow.
pub(crate) const LARGEST: u64 = 1 << 53;

/// A value as an error shows it: its `repr`, shortened.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let kind = value
        .get_type()
        .name()
        .map_or_else(|_| "?".to_owned(), |name| name.to_string());
    let simple = value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyInt>()
        || value.is_instance_of::<PyFloat>();
    // The `repr` of any other value may be a whole conversation.
    let repr = simple.then(|| value.repr().and_then(|repr| repr.extract::<String>()).ok());
    match repr.flatten() {
        Some(repr) if repr.chars().count() <= 60 => format!("{repr} (`{kind}`)"),
        _ => format!("a value of the type `{kind}`"),
    }
}

fn wrong(name: &str, wanted: &str, value: &Bound<'_, PyAny>) -> PyErr {
    ArgumentError::new_err(
        value.py(),
        format!("`{name}` is {wanted}, not {}", shown(value)),
    )
}

/// A text.
pub(crate) fn text(value: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let text = value
        .cast::<PyString>()
        .map_err(|_| wrong(name, "a text", value))?;
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

/// A text that is not empty.
pub(crate) fn name(value: &Bound<'_, PyAny>, name: &str) -> PyResult<String> {
    let given = text(value, name)?;
    match given.trim().is_empty() {
        true => Err(wrong(name, "a text with something in it", value)),
        false => Ok(given),
    }
}

/// A whole number of at least `least`.
pub(crate) fn whole(value: &Bound<'_, PyAny>, name: &str, least: u64) -> PyResult<u64> {
    let wanted = || format!("a whole number from {least} to 2**53");
    // `True` would be accepted as 1.
    let number = match value.is_instance_of::<PyBool>() {
        true => None,
        false => value.extract::<u64>().ok(),
    };
    number
        .filter(|number| (least..=LARGEST).contains(number))
        .ok_or_else(|| wrong(name, &wanted(), value))
}

/// An agent's model and its window.
pub(crate) fn agent(
    model: &Bound<'_, PyAny>,
    context_length: &Bound<'_, PyAny>,
    max_output_tokens: Option<&Bound<'_, PyAny>>,
) -> PyResult<AgentWindow> {
    let max_output_tokens = max_output_tokens.map(|tokens| whole(tokens, "max_output_tokens", 0));
    Ok(AgentWindow {
        model: text(model, "model")?,
        context_length: whole(context_length, "context_length", 1)?,
        max_output_tokens: max_output_tokens.transpose()?.unwrap_or(0),
    })
}

/// A number of seconds.
pub(crate) fn seconds(value: &Bound<'_, PyAny>, name: &str) -> PyResult<Duration> {
    let number = match value.is_instance_of::<PyBool>() {
        true => None,
        false => value.extract::<f64>().ok(),
    };
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| wrong(name, "a number of seconds", value))
}

/// `True` or `False`.
pub(crate) fn flag(value: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let flag = value.cast::<PyBool>();
    flag.map(|flag| flag.is_true())
        .map_err(|_| wrong(name, "`True` or `False`", value))
}

/// A path.
pub(crate) fn path(value: &Bound<'_, PyAny>, name: &str) -> PyResult<PathBuf> {
    value
        .extract()
        .map_err(|_| wrong(name, "a path, as a text or an `os.PathLike`", value))
}

/// One of several words, converted to the value that it stands for.
pub(crate) fn choice<T: Copy>(
    value: &Bound<'_, PyAny>,
    name: &str,
    words: &[(&str, T)],
) -> PyResult<T> {
    let given = value
        .cast::<PyString>()
        .ok()
        .and_then(|text| text.to_str().ok());
    let found = words.iter().find(|(word, _)| given == Some(*word));
    found.map(|(_, meant)| *meant).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        wrong(name, &words.join(" or "), value)
    })
}
