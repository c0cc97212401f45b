//! Python values as JSON text, in one walk: what the host reads of a conversation. Nothing is remembered of an object
//! from one walk to the next, so that a dictionary that was changed in place is seen.

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString, PyTuple};

use crate::errors::FormatError;

/// How deep values may lie in each other.
const DEEPEST: usize = 120;

/// After so many bytes other threads have their turn: a walk holds the interpreter.
const BREATH: usize = 512 << 10;

/// Writes the messages as the members of a JSON list, with the list's brackets.
///
/// # Errors
/// Something in them is no JSON; the error names the message and the member.
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

/// Writes a message, which is a dictionary or an object that can be read as one.
///
/// # Errors
/// It is any other value, or a value in it has no JSON form.
pub(crate) fn write_message(out: &mut String, message: &Bound<'_, PyAny>) -> PyResult<()> {
    let is_plain = message.is_none()
        || message.is_instance_of::<PyString>()
        || message.is_instance_of::<PyInt>()
        || message.is_instance_of::<PyFloat>()
        || message.is_instance_of::<PyList>()
        || message.is_instance_of::<PyTuple>();
    if is_plain {
        let kind = message.get_type().name()?;
        let text = format!("a message is a dictionary, not a value of the type `{kind}`");
        return Err(FormatError::new_err(text));
    }
    write(out, message, 0)
}

/// The JSON of one value with all of its contents.
///
/// # Errors
/// It has no JSON form.
pub(crate) fn json(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let mut text = String::new();
    write(&mut text, value, 1)?;
    Ok(text)
}

/// Writes one value.
///
/// # Errors
/// It is no JSON.
pub(crate) fn write(out: &mut String, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    if depth > DEEPEST {
        return Err(FormatError::new_err("values lie too deep in each other"));
    }
    if let Ok(text) = value.cast::<PyString>() {
        quote(
            out,
            text.to_str().map_err(|_| {
                FormatError::new_err(
                    "a text holds a lone surrogate, which is not valid Unicode: replace it first",
                )
            })?,
        );
    } else if let Ok(dict) = value.cast::<PyDict>() {
        // Collected first, because a value's own code may run below and change the dictionary.
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
            // A subclass may have its own `str`.
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
        let plain = PyFloat::new(value.py(), number.value());
        out.push_str(plain.repr()?.to_str()?);
    } else if let Ok(tuple) = value.cast::<PyTuple>() {
        write_items(out, tuple.iter(), depth)?;
    } else if let Ok(dump) = value.getattr("model_dump") {
        // The messages of `openai` and `anthropic` are models of pydantic's.
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
                let text = format!("the `model_dump` of `{kind}` answers no dictionary");
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
            "a value of the type `{kind}` is no JSON"
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
            .map_err(|_| FormatError::new_err("a key is no text"))?;
        let key = key
            .to_str()
            .map_err(|_| FormatError::new_err("a key is no Unicode"))?;
        // A member for the agent's own use, which no provider accepts.
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

/// A text as JSON: what needs no escape is copied in whole runs.
fn quote(out: &mut String, text: &str) {
    out.push('"');
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !ESCAPED[usize::from(byte)] {
            continue;
        }
        // Escaped bytes are ASCII, so that both ends are on a character.
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

/// The error with the place that it happened in.
fn named(py: Python<'_>, error: &PyErr, place: &str) -> PyErr {
    match error.is_instance_of::<FormatError>(py) {
        true => FormatError::new_err(format!("{place}: {}", error.value(py))),
        false => error.clone_ref(py),
    }
}

/// The bytes or text of a document that was given as text.
pub(crate) fn document(value: &Bound<'_, PyAny>) -> PyResult<Option<String>> {
    if let Ok(text) = value.cast::<PyString>() {
        let text = text.to_str().map_err(|_| {
            FormatError::new_err("the text holds a lone surrogate, which is not valid Unicode")
        })?;
        return Ok(Some(text.to_owned()));
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        let text = std::str::from_utf8(bytes.as_bytes());
        return Ok(Some(
            text.map_err(|_| FormatError::new_err("the body is no UTF-8"))?
                .to_owned(),
        ));
    }
    Ok(None)
}

/// JSON text as Python values.
pub(crate) fn parse<'py>(py: Python<'py>, json: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("json")?.call_method1("loads", (json,))
}
