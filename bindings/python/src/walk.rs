//! Converts Python values to JSON text and back.
//!
//! The host reads JSON, and Python's callers have dictionaries and objects. [`write()`] walks
//! through a value once and writes it directly as text, without building a tree or calling Python's
//! `json` module. [`write_list`] does this for a list of messages.
//!
//! Nothing is remembered of an object between two walks. A dictionary that was changed in place is
//! therefore noticed, at the price of a full walk for every request. Objects are accepted if they
//! can be read as a dictionary: the models of pydantic, which `openai` and `anthropic` return, and
//! any mapping.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

use crate::errors::FormatError;

/// How deeply values may be nested. The walk is recursive, so the limit keeps a hostile value from
/// overflowing the stack.
const DEEPEST: usize = 120;

/// The number of bytes after which other threads may run. A walk holds the interpreter, and a long
/// conversation would block them.
const BREATH: usize = 512 << 10;

/// Writes the messages as a JSON list, brackets included.
///
/// # Errors
/// Fails if something in them has no JSON form. The error names the message and the member.
pub(crate) fn write_list(out: &mut String, messages: &[Bound<'_, PyAny>]) -> PyResult<()> {
    out.push('[');
    let mut breath = out.len() + BREATH;
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_message(out, message)
            .map_err(|error| named(message.py(), &error, &format!("message {at}")))?;
        if out.len() >= breath {
            breath = out.len() + BREATH;
            message.py().detach(std::thread::yield_now);
        }
    }
    out.push(']');
    Ok(())
}

/// Writes a message, which is a dictionary or an object that can be read as one. Members whose name
/// begins with `_` are left out.
///
/// # Errors
/// Fails if it is any other value, or if a value in it has no JSON form.
pub(crate) fn write_message(out: &mut String, message: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_plain = message.is_none()
        || message.is_instance_of::<PyString>()
        || message.is_instance_of::<PyInt>()
        || message.is_instance_of::<PyFloat>()
        || message.is_instance_of::<PyList>()
        || message.is_instance_of::<PyTuple>();
    if is_plain {
        let kind = message.get_type().name()?;
        let text = format!("a message must be a dictionary, not a value of the type `{kind}`");
        return Err(FormatError::new_err(text));
    }
    write(out, message, 0)
}

/// Returns the JSON of one value with everything in it.
///
/// # Errors
/// Fails if something in it has no JSON form.
pub(crate) fn json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::new();
    write(&mut text, value, 1)?;
    Ok(text)
}

/// Writes one value. `depth` is how deeply it is nested, and 0 stands for a message itself.
///
/// # Errors
/// Fails if it has no JSON form: a number that is not finite, a key that is not a text, an object
/// of an unknown type, or values nested too deeply.
pub(crate) fn write(out: &mut String, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    if depth > DEEPEST {
        return Err(FormatError::new_err("values are nested too deeply"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        quote(
            out,
            text.to_str().map_err(|_| {
                FormatError::new_err(
                    "a string holds a lone surrogate, which is not valid Unicode: replace it first",
                )
            })?,
        );
    } else if let Ok(dict) = value.cast::<PyDict>() {
        // The members are collected first, because code of a value may run below and change the
        // dictionary.
        write_members(out, dict.iter().collect(), depth)?;
    } else if value.is_none() {
        out.push_str("null");
    } else if let Ok(list) = value.cast::<PyList>() {
        write_items(out, list.iter(), depth)?;
    } else if let Ok(flag) = value.cast::<PyBool>() {
        out.push_str(if flag.is_true() { "true" } else { "false" });
    } else if value.is_instance_of::<PyInt>() {
        match value.extract::<i64>() {
            Ok(number) => out.push_str(&number.to_string()),
            // A larger number keeps all its digits. The method of `int` itself is called, because a
            // subclass may have its own `str`.
            Err(_) => {
                let int = value.py().get_type::<PyInt>();
                let digits = int.call_method1("__repr__", (value,));
                let digits =
                    digits.map_err(|_| FormatError::new_err("a number has too many digits"))?;
                out.push_str(&digits.extract::<String>()?);
            }
        }
    } else if let Ok(number) = value.cast::<PyFloat>() {
        if !number.value().is_finite() {
            return Err(FormatError::new_err("a number is not finite"));
        }
        // A subclass of float may have its own `repr`, so a plain float is made.
        let plain = PyFloat::new(value.py(), number.value());
        out.push_str(plain.repr()?.to_str()?);
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        write_items(out, tuple.iter(), depth)?;
    } else if let Ok(dump) = value.getattr("model_dump") {
        // The messages of `openai` and `anthropic` are pydantic models.
        let options = PyDict::new(value.py());
        options.set_item("exclude_none", true)?;
        options.set_item("by_alias", true)?;
        let kind = value.get_type().name()?;
        let dumped = dump.call((), Some(&options)).map_err(|error| {
            FormatError::new_err(format!("the `model_dump` of `{kind}` raised {error}"))
        })?;
        match dumped.cast::<PyDict>() {
            Ok(dict) => write_members(out, dict.iter().collect(), depth)?,
            Err(_) => {
                let text = format!("the `model_dump` of `{kind}` does not return a dictionary");
                return Err(FormatError::new_err(text));
            }
        }
    } else if let Ok(mapping) = value.cast::<PyMapping>() {
        let kind = value.get_type().name()?;
        let items = mapping.items().and_then(|items| {
            items
                .iter()
                .map(|item| item.extract())
                .collect::<PyResult<Vec<_>>>()
        });
        let items = items
            .map_err(|error| FormatError::new_err(format!("the items of `{kind}`: {error}")))?;
        write_members(out, items, depth)?;
    } else {
        let kind = value.get_type().name()?;
        return Err(FormatError::new_err(format!(
            "a value of the type `{kind}` cannot be written as JSON"
        )));
    }
    Ok(())
}

fn write_members(
    out: &mut String,
    members: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    depth: usize,
) -> PyResult<()> {
    out.push('{');
    let mut first = true;
    for (key, value) in &members {
        let key = key
            .cast::<PyString>()
            .map_err(|_| FormatError::new_err("a key is not a string"))?;
        let key = key
            .to_str()
            .map_err(|_| FormatError::new_err("a key is not valid Unicode"))?;
        // An agent keeps such members for its own use, and providers refuse unknown members.
        if depth == 0 && key.starts_with('_') {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(',');
        }
        quote(out, key);
        out.push(':');
        write(out, value, depth + 1)
            .map_err(|error| named(value.py(), &error, &format!("`{key}`")))?;
    }
    out.push('}');
    Ok(())
}

fn write_items<'py>(
    out: &mut String,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    depth: usize,
) -> PyResult<()> {
    out.push('[');
    for (at, item) in items.enumerate() {
        if at > 0 {
            out.push(',');
        }
        write(out, &item, depth + 1)?;
    }
    out.push(']');
    Ok(())
}

/// Writes a text as a JSON string. Everything that needs no escape is copied in whole runs, which
/// is most of a text.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !ESCAPED[usize::from(byte)] {
            continue;
        }
        // Escaped bytes are ASCII, so both ends of a run are at the border of a character.
        out.push_str(text.get(from..at).unwrap_or_default());
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => out.push_str(&format!("\\u{other:04x}")),
        }
        from = at + 1;
    }
    out.push_str(text.get(from..).unwrap_or_default());
    out.push('"');
}

/// The bytes that JSON requires to be escaped, as a table, so that the loop over a text needs one
/// look-up for each byte.
const ESCAPED: [bool; 256] = {
    let mut escaped = [false; 256];
    let mut at = 0;
    while at < 0x20 {
        escaped[at] = true;
        at += 1;
    }
    escaped[b'"' as usize] = true;
    escaped[b'\\' as usize] = true;
    escaped
};

/// Adds the place to an error, such as the number of a message. Other exceptions, such as a
/// `KeyboardInterrupt`, are left unchanged.
fn named(py: Python<'_>, error: &PyErr, place: &str) -> PyErr {
    match error.is_instance_of::<FormatError>(py) {
        true => FormatError::new_err(format!("{place}: {}", error.value(py))),
        false => error.clone_ref(py),
    }
}

/// Returns the text of a document that was given as text or as bytes. `None` if the value is
/// neither. Fails if it is not valid Unicode.
pub(crate) fn document(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str().map_err(|_| {
            FormatError::new_err("the string holds a lone surrogate, which is not valid Unicode")
        })?;
        return Ok(Some(text.to_owned()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let text = std::str::from_utf8(bytes.as_bytes());
        return Ok(Some(
            text.map_err(|_| FormatError::new_err("the body is not UTF-8"))?
                .to_owned(),
        ));
    }
    Ok(None)
}

/// Parses JSON text with Python's own `json` module, so that callers get plain dictionaries and
/// lists.
pub(crate) fn parse<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
