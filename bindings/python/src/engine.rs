//! A Python class as an engine: the owned protocol of the interface, with Python as its carrier. A method that the
//! class lacks is done without, as one that an older plugin lacks.

use std::sync::{Arc, Mutex, PoisonError};

use contexture::catalog::{BUILT_IN, NAME_RULE, is_engine_name};
use contexture::engines::register_context_engine;
use contexture_engine_api::protocol::{Carrier, Open, RemoteEngine, serve_services, write};
use contexture_engine_api::{
    About, ContextEngine, EngineDefinition, EngineError, EngineFactory, FactoryRequest,
    MessageView, OpenRequest, OwnedMessage, Owner, Services, with_views,
};
use contexture_testkit::conformance::{Checking, Subject, check_engine};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use crate::errors::{ArgumentError, ContextureError, FormatError};
use crate::waiting::wait_for;
use crate::{argument, walk};

/// The classes that are registered. A definition is plain functions, so that each class has a place of its own.
static CLASSES: Mutex<[Option<Py<PyAny>>; PLACES]> = Mutex::new([const { None }; PLACES]);

const PLACES: usize = 16;

struct Factory(Py<PyAny>);

impl Factory {
    fn open_with(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        let open = write(&Open::of(request))?;
        let services = Lent {
            services: request.services.clone(),
            process: std::process::id(),
        };
        let object = with_python(|py| {
            let open = walk::parse(py, &open)?;
            Ok(self.0.bind(py).call1((open, services))?.unbind())
        })?;
        Ok(Box::new(RemoteEngine(Object(object))))
    }
}

struct At<const PLACE: usize>(Factory);

impl<const PLACE: usize> EngineFactory for At<PLACE> {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        let class = with_python(|py| {
            let classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(classes[PLACE].as_ref().map(|class| class.clone_ref(py)))
        })?;
        let gone = || EngineError::Gone("its Python class is gone".to_owned());
        Ok(Self(Factory(class.ok_or_else(gone)?)))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        self.0.open_with(request)
    }
}

impl EngineFactory for Factory {
    fn create(_request: &FactoryRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "making a class of nothing".to_owned(),
        ))
    }

    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError> {
        self.open_with(request)
    }
}

/// An engine's object.
struct Object(Py<PyAny>);

/// What is told in two values.
const IN_TWO: [&str; 2] = ["discarded", "background_done"];

/// What is about messages, which come first.
const OF_MESSAGES: [&str; 7] = [
    "compress",
    "observe",
    "has_content_to_compress",
    "prune_tool_results",
    "rewrite",
    "select",
    "background",
];

impl Carrier for Object {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        let messages = match OF_MESSAGES.contains(&method) {
            true => {
                let owned: Vec<OwnedMessage> = messages.iter().map(OwnedMessage::from).collect();
                Some(write(&owned)?)
            }
            false => None,
        };
        with_python(|py| {
            let object = self.0.bind(py);
            if !object.hasattr(method)? {
                return Ok(None);
            }
            let mut arguments = Vec::new();
            if let Some(messages) = &messages {
                arguments.push(walk::parse(py, messages)?);
            }
            if argument != "null" {
                let argument = walk::parse(py, argument)?;
                match IN_TWO.contains(&method) {
                    true => arguments.extend(argument.try_iter()?.collect::<PyResult<Vec<_>>>()?),
                    false => arguments.push(argument),
                }
            }
            let answer = object.call_method1(method, PyTuple::new(py, arguments)?)?;
            let mut text = String::new();
            walk::write(&mut text, &decided(method, answer)?, 1)?;
            Ok(Some(text))
        })?
        .ok_or_else(|| EngineError::UnknownMethod(method.to_owned()))
    }
}

/// A decision may be said as `True` or `False`, with a reason or without.
fn decided<'py>(method: &str, answer: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let decides = [
        "should_compress",
        "should_compress_preflight",
        "may_call_tools",
    ];
    if !decides.contains(&method) || answer.is_instance_of::<PyDict>() {
        return Ok(answer);
    }
    let (yes, reason) = match answer.cast::<PyBool>() {
        Ok(yes) => (yes.is_true(), String::new()),
        Err(_) => answer.extract::<(bool, String)>()?,
    };
    let decision = PyDict::new(answer.py());
    decision.set_item(if yes { "yes" } else { "no" }, reason)?;
    Ok(decision.into_any())
}

/// Does something with the interpreter; what is raised is the engine's error.
fn with_python<T>(act: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, EngineError> {
    let ends = || EngineError::Gone("the interpreter ends".to_owned());
    Python::try_attach(|py| {
        act(py).map_err(|error| {
            let text = error.to_string();
            let is_input =
                error.is_instance_of::<PyValueError>(py) || error.is_instance_of::<PyTypeError>(py);
            match is_input {
                true => EngineError::InvalidInput(text),
                false => EngineError::Other(text),
            }
        })
    })
    .ok_or_else(ends)?
}

/// What the host lends an engine.
#[pyclass(frozen, name = "Services", module = "contexture")]
struct Lent {
    services: Services,
    /// The process that owns them, see [`crate::host::OpenHost::check_process`].
    process: u32,
}

impl Lent {
    fn services(&self) -> PyResult<&Services> {
        match self.process == std::process::id() {
            true => Ok(&self.services),
            false => Err(ContextureError::new_err(format!(
                "these services belong to the process {}, and this is a forked child of it: use those of a \
                 session that is opened here",
                self.process
            ))),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.services.clone());
        }
    }
}

#[pymethods]
impl Lent {
    /// Calls a service by its name (`complete`, `count_tokens`, `log`, `is_cancelled`, …) with its argument.
    #[pyo3(signature = (service, argument=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        service: &Bound<'py, PyAny>,
        argument: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let service = argument::name(service, "service")?;
        let text = match argument {
            Some(argument) => walk::json(argument)?,
            None => "null".to_owned(),
        };
        let services = self.services()?;
        let answer = py.detach(|| serve_services(services.host().as_ref(), &service, &text));
        let answer = answer.map_err(|error| ContextureError::new_err(error.to_string()))?;
        walk::parse(py, &answer)
    }

    /// The tokens of a text, as the agent's model counts them.
    fn count_tokens(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<u64> {
        let text = argument::text(text, "text")?;
        let services = self.services()?;
        Ok(py.detach(|| services.count_tokens(&text)))
    }
}

/// Registers a class as the engine `name`: hosts that are opened from now on have it.
#[pyfunction]
#[pyo3(signature = (name, engine, version=None, description=None),
       text_signature = "(name, engine, version='0', description='')")]
fn register_engine(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    engine: Bound<'_, PyAny>,
    version: Option<&Bound<'_, PyAny>>,
    description: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let name = argument::name(name, "name")?;
    let wrong = match name.as_str() {
        BUILT_IN => Some("is the built-in's".to_owned()),
        name if is_engine_name(name) => None,
        _ => Some(format!("is no engine's: it must be {NAME_RULE}")),
    };
    if let Some(wrong) = wrong {
        let text = format!("the `name` {name:?} {wrong}");
        return Err(ArgumentError::new_err(py, text));
    }
    let version = version.map(|version| argument::text(version, "version"));
    let version = version.transpose()?.unwrap_or_else(|| "0".to_owned());
    let description = description.map(|text| argument::text(text, "description"));
    let description = description.transpose()?.unwrap_or_default();
    check_class(&engine)?;
    let place = {
        let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
        let free = classes.iter().position(Option::is_none).ok_or_else(|| {
            ContextureError::new_err(format!(
                "a process has {PLACES} engines of Python's at most"
            ))
        })?;
        classes[free] = Some(engine.unbind());
        free
    };
    // A definition lasts as long as the process.
    let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
    let owner = Owner {
        name: "Python",
        version: text(&version),
        description: text(&description),
    };
    let definition = definition_at(place, text(&name), owner);
    let registered = py.detach(|| register_context_engine(definition));
    registered.map_err(|error| {
        let mut classes = CLASSES.lock().unwrap_or_else(PoisonError::into_inner);
        classes[place] = None;
        ContextureError::new_err(error.to_string())
    })
}

/// Checks that an engine can be made by a call and has all required methods.
fn check_class(engine: &Bound<'_, PyAny>) -> PyResult<()> {
    let wrong = |what: &str| {
        let text = format!(
            "`engine` is a class of an engine: {} {what}",
            argument::shown(engine)
        );
        Err(ArgumentError::new_err(engine.py(), text))
    };
    if !engine.is_callable() {
        return wrong("cannot be called");
    }
    for method in ["should_compress", "compress"] {
        if !engine.hasattr(method)? {
            return wrong(&format!("has no method `{method}`"));
        }
    }
    Ok(())
}

fn definition_at(place: usize, name: &'static str, owner: Owner) -> EngineDefinition {
    macro_rules! at {
        ($($place:literal)*) => {
            match place {
                $($place => EngineDefinition::factory::<At<$place>>(name, owner),)*
                _ => EngineDefinition::factory::<At<15>>(name, owner),
            }
        };
    }
    at!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14)
}

/// Runs the conformance tests on an engine class: a set of written scenes, and this many generated conversations.
/// Returns the table of results, and whether every row passed.
#[pyfunction]
#[pyo3(name = "check_engine", signature = (name, engine, conversations=None),
       text_signature = "(name, engine, conversations=24)")]
fn check(
    py: Python<'_>,
    name: &Bound<'_, PyAny>,
    engine: Bound<'_, PyAny>,
    conversations: Option<&Bound<'_, PyAny>>,
) -> PyResult<(bool, String)> {
    let name = argument::name(name, "name")?;
    let conversations = conversations.map(|number| argument::whole(number, "conversations", 0));
    let mut checking = Checking::default();
    checking.generated = conversations.transpose()?.unwrap_or(checking.generated);
    check_class(&engine)?;
    let class = Arc::new(engine.unbind());
    let play = move || {
        let subject = Subject::new(name, About::default(), move |_| {
            let class = with_python(|py| Ok(class.clone_ref(py)))?;
            Ok(Box::new(Factory(class)))
        });
        let report = check_engine(subject, checking);
        Ok((report.broken().next().is_none(), report.to_string()))
    };
    wait_for(py, || {}, play)
}

/// The largest index at or below `index` at which these messages, in the form that an engine receives, can be cut
/// without separating a call from its results. If there is none, the start.
#[pyfunction]
fn safe_cut(messages: &Bound<'_, PyAny>, index: &Bound<'_, PyAny>) -> PyResult<usize> {
    let text = walk::json(messages)?;
    let owned: Vec<OwnedMessage> = serde_json::from_str(&text).map_err(|error| {
        FormatError::new_err(format!(
            "`messages` do not have the form that an engine receives: {error}"
        ))
    })?;
    let index = match index.lt(0).unwrap_or(false) {
        true => 0,
        false => argument::whole(index, "index", 0)?,
    };
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    Ok(with_views(&owned, |views| {
        contexture_engine_api::safe_cut(views, index)
    }))
}

pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Lent>()?;
    module.add_function(wrap_pyfunction!(register_engine, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(safe_cut, module)?)
}
