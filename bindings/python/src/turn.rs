//! The result of a turn: what happened to each of the caller's messages.
//!
//! [`Turn`] is the type to read first. Most callers use `messages` or `body`, which is what to send
//! to the model. Callers with message objects of their own use `places` instead: it says for each
//! message of the result whether it is kept ([`Kept`]), changed ([`Changed`]) or added by the host
//! ([`Summary`]), so that they can change their own list in the same way.
//!
//! The host works on JSON. Messages that it kept are returned as the caller's own objects, and only
//! the others are parsed. Nothing is parsed until an attribute is read.

use contexture::BodyMessage;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::walk;

/// A message of the caller's that is sent unchanged. Its index is counted among all messages of the
/// request.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Kept {
    /// The index among the caller's messages, counted from 0.
    index: usize,
}

/// A message of the caller's that is sent in another form, for example with a tool result
/// shortened.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Changed {
    /// The index among the caller's messages, counted from 0.
    index: usize,
    /// The new content, or the whole item if it has no content.
    content: Py<PyAny>,
    /// The whole message in its new form.
    message: Py<PyAny>,
}

/// A message that the host adds: a summary of messages that were dropped, or a notice of an engine.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Summary {
    /// The text of the message. Several text blocks are joined with line breaks.
    text: String,
    /// The whole message.
    message: Py<PyAny>,
}

#[pymethods]
impl Kept {
    #[classattr]
    #[allow(non_upper_case_globals)] // Python's name.
    const __match_args__: (&'static str,) = ("index",);

    fn __repr__(&self) -> String {
        format!("Kept({})", self.index)
    }
}

#[pymethods]
impl Changed {
    #[classattr]
    #[allow(non_upper_case_globals)] // Python's name.
    const __match_args__: (&'static str, &'static str) = ("index", "content");

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Changed({}, {})",
            self.index,
            self.content.bind(py).repr()?
        ))
    }
}

#[pymethods]
impl Summary {
    #[classattr]
    #[allow(non_upper_case_globals)] // Python's name.
    const __match_args__: (&'static str,) = ("text",);

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "Summary({})",
            self.text.clone().into_pyobject(py)?.repr()?
        ))
    }
}

/// The request as the caller gave it. The result is returned in the same form.
pub(crate) enum Given {
    List(Py<PyAny>),
    Dict(Py<PyDict>),
    Text(Py<PyAny>),
}

/// The result of a turn. Send its `messages` or its `body` to the model in place of the request.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Turn {
    pub(crate) given: Given,
    /// The name of the list of messages in a body, which depends on the format: `messages` or
    /// `input`.
    pub(crate) list_key: &'static str,
    /// The caller's own messages. Empty if the body was given as text.
    pub(crate) own: Vec<Py<PyAny>>,
    /// The messages of the result. Indexes count all of the caller's messages, those of the system
    /// prompt included.
    pub(crate) places: Vec<BodyMessage>,
    /// Whether the result differs from the request.
    pub(crate) changed: bool,
    /// The body to send. `None` if it is the one that was given.
    pub(crate) body: Option<String>,
    pub(crate) report: String,
}

#[pymethods]
impl Turn {
    /// The messages that the model is to see, in order. Each is a `Kept`, a `Changed` or a
    /// `Summary`.
    #[getter]
    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for place in &self.places {
            match place {
                BodyMessage::Kept(index) => {
                    list.append(Kept { index: *index }.into_pyobject(py)?)?
                }
                BodyMessage::Changed(index, json) => {
                    let message = walk::parse(py, json)?;
                    let content = content_of(&message)?;
                    let changed = Changed {
                        index: *index,
                        content: content.unbind(),
                        message: message.unbind(),
                    };
                    list.append(changed.into_pyobject(py)?)?;
                }
                BodyMessage::Added(json) => {
                    let message = walk::parse(py, json)?;
                    let text = text_of(&content_of(&message)?)?;
                    let summary = Summary {
                        text,
                        message: message.unbind(),
                    };
                    list.append(summary.into_pyobject(py)?)?;
                }
            }
        }
        Ok(list)
    }

    /// The messages to send. A kept message is the caller's own object. If the body was given as
    /// text, all messages are new.
    #[getter]
    fn messages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if let Given::Text(text) = &self.given {
            let text = match &self.body {
                Some(body) => walk::parse(py, body)?,
                None => py.import("json")?.call_method1("loads", (text,))?,
            };
            let list = match text.cast::<PyDict>() {
                Ok(body) => body
                    .get_item(self.list_key)?
                    .unwrap_or_else(|| PyList::empty(py).into_any()),
                Err(_) => text,
            };
            return Ok(list.cast_into::<PyList>()?);
        }
        let mut messages = Vec::with_capacity(self.places.len());
        for place in &self.places {
            messages.push(match place {
                // Kept messages are the caller's own objects, so that an agent can recognise them
                // by identity.
                BodyMessage::Kept(index) => match self.own.get(*index) {
                    Some(own) => own.bind(py).clone(),
                    None => continue,
                },
                BodyMessage::Changed(_, json) | BodyMessage::Added(json) => walk::parse(py, json)?,
            });
        }
        PyList::new(py, messages)
    }

    /// What to send, in the form that was given. If nothing changed, this is the very object that
    /// was given.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match (&self.given, &self.body) {
            (Given::List(list), _) if !self.changed => Ok(list.bind(py).clone()),
            (Given::List(_), _) => Ok(self.messages(py)?.into_any()),
            (Given::Dict(given), None) => Ok(given.bind(py).clone().into_any()),
            (Given::Dict(given), Some(body)) => {
                // A copy keeps the caller's keys that the host did not read, and leaves the
                // caller's dictionary alone.
                let whole = given.bind(py).copy()?;
                whole.update(walk::parse(py, body)?.cast_into::<PyDict>()?.as_mapping())?;
                Ok(whole.into_any())
            }
            (Given::Text(text), None) => Ok(text.bind(py).clone()),
            (Given::Text(_), Some(body)) => Ok(body.into_pyobject(py)?.into_any()),
        }
    }

    /// Whether the result differs from the request. If not, the request can be sent as it is.
    #[getter]
    fn changed(&self) -> bool {
        self.changed
    }

    /// What happened in the turn, as a dictionary: the decision with its reason, the compaction
    /// with its figures, the number of new messages, and warnings.
    #[getter]
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        walk::parse(py, &self.report)
    }

    fn __repr__(&self) -> String {
        let changed = if self.changed {
            "changed"
        } else {
            "as it came"
        };
        format!("<Turn: {} messages, {changed}>", self.places.len())
    }
}

/// Returns the content of a message, or the whole message if it has none. An item of the Responses
/// API, such as a function call, has none.
fn content_of<'py>(message: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match message
        .cast::<PyDict>()
        .ok()
        .map(|dict| dict.get_item("content"))
    {
        Some(content) => Ok(content?.unwrap_or_else(|| message.clone())),
        None => Ok(message.clone()),
    }
}

/// Returns the text of a content, which is a string or a list of blocks. Blocks without text are
/// skipped.
fn text_of(content: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = content.extract::<String>() {
        return Ok(text);
    }
    let mut texts = Vec::new();
    if let Ok(blocks) = content.cast::<PyList>() {
        for block in blocks.iter() {
            if let Ok(text) = block
                .get_item("text")
                .and_then(|text| text.extract::<String>())
            {
                texts.push(text);
            }
        }
    }
    Ok(texts.join("\n"))
}
