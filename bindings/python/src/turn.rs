//! The result of a turn: what became of each of the caller's messages.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::walk;

/// A message of the caller's that stays as it is.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Kept {
    /// Where it stands among the caller's messages.
    index: usize,
}

/// Another form of a message of the caller's.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Changed {
    /// Where it stands among the caller's messages.
    index: usize,
    /// Its content now.
    content: Py<PyAny>,
    /// The whole message now.
    message: Py<PyAny>,
}

/// A message that the host puts in: a summary, or an engine's notice.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Summary {
    /// Its text.
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

/// A place of the result, with the index among all of the caller's messages, the system prompt's included.
pub(crate) enum Place {
    Kept(usize),
    Changed(usize, String),
    Added(String),
}

/// What the caller gave.
pub(crate) enum Given {
    /// A list of messages.
    List(Py<PyAny>),
    /// A body as a dictionary.
    Dict(Py<PyDict>),
    /// A body as text.
    Text(Py<PyAny>),
}

/// The result of a turn.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Turn {
    pub(crate) given: Given,
    /// The name of the list of messages in a body.
    pub(crate) list_key: &'static str,
    /// The caller's own messages; empty for a body as text.
    pub(crate) own: Vec<Py<PyAny>>,
    pub(crate) places: Vec<Place>,
    /// Whether anything but what came is to be sent.
    pub(crate) changed: bool,
    /// The body to send, where it is another.
    pub(crate) body: Option<String>,
    pub(crate) report: String,
}

#[pymethods]
impl Turn {
    /// What the model is to see, in order: `Kept`, `Changed` or `Summary` for each message.
    #[getter]
    fn places<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for place in &self.places {
            match place {
                Place::Kept(index) => list.append(Kept { index: *index }.into_pyobject(py)?)?,
                Place::Changed(index, json) => {
                    let message = walk::parse(py, json)?;
                    let content = content_of(&message)?;
                    let changed = Changed {
                        index: *index,
                        content: content.unbind(),
                        message: message.unbind(),
                    };
                    list.append(changed.into_pyobject(py)?)?;
                }
                Place::Added(json) => {
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

    /// The messages to send: the caller's own objects for what is kept. Of a body that was given as text, new ones.
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
                Place::Kept(index) => match self.own.get(*index) {
                    Some(own) => own.bind(py).clone(),
                    None => continue,
                },
                Place::Changed(_, json) | Place::Added(json) => walk::parse(py, json)?,
            });
        }
        PyList::new(py, messages)
    }

    /// What to send, in the form that was given: the very object where nothing changed.
    #[getter]
    fn body<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match (&self.given, &self.body) {
            (Given::List(list), _) if !self.changed => Ok(list.bind(py).clone()),
            (Given::List(_), _) => Ok(self.messages(py)?.into_any()),
            (Given::Dict(given), None) => Ok(given.bind(py).clone().into_any()),
            (Given::Dict(given), Some(body)) => {
                let whole = given.bind(py).copy()?;
                whole.update(walk::parse(py, body)?.cast_into::<PyDict>()?.as_mapping())?;
                Ok(whole.into_any())
            }
            (Given::Text(text), None) => Ok(text.bind(py).clone()),
            (Given::Text(_), Some(body)) => Ok(body.into_pyobject(py)?.into_any()),
        }
    }

    /// Whether anything but what came is to be sent.
    #[getter]
    fn changed(&self) -> bool {
        self.changed
    }

    /// What happened: the decision, the compaction with its figures, what was new, and warnings.
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

/// The content of a message, or the message where it has none (an item of Responses).
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

/// The text of a content: a string, or a list of blocks.
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
