//! Makes a Python class an engine.
//!
//! `register_engine` is the function to start with. The host calls an engine through a protocol
//! of method names and JSON values, which is also what plugins in other processes use. Here
//! [`Object`] carries the protocol: it calls the method of that name on a Python object. A method
//! that the class lacks is skipped, like one that an older plugin lacks.
//!
//! The other direction is [`Lent`]: it lets a Python engine use what the host offers, such as a
//! model for summaries or the token counter. The module also exports the conformance tests for
//! engine classes (`check`) and `safe_cut`, which an engine needs to split a conversation.

use std::cell::RefCell;

use contexture::engines::{RegisterError, register_context_engine};
use contexture_engine_api::protocol::{
    Carrier, Open, RemoteEngine, serve_services, takes_messages, write,
};
use contexture_engine_api::{
    ContextEngine, EngineDefinition, EngineError, MessageView, OpenRequest, OwnedMessage, Services,
    with_views,
};
use contexture_testkit::conformance::{Checking, Subject, check_engine};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};

use crate::errors::{ArgumentError, ContextureError, FormatError};
use crate::waiting::wait_for;
use crate::{argument, walk};

/// Defines an engine whose sessions each call a Python class with the session's options and the
/// services of the host.
fn definition(name: &str, version: &str, description: &str, class: Py<PyAny>) -> EngineDefinition {
    let open = move |request: &OpenRequest<'_>| -> Result<Box<dyn ContextEngine>, EngineError> {
        let open = write(&Open::of(request))?;
        let services = Lent {
            services: request.services.clone(),
            process: std::process::id(),
        };
        let _called = Called::by(request.session);
        let object = with_python(|py| {
            let open = walk::parse(py, &open)?;
            Ok(class.bind(py).call1((open, services))?.unbind())
        })?;
        let session = request.session.to_owned();
        Ok(Box::new(RemoteEngine(Object { object, session })))
    };
    EngineDefinition::at_run_time(name, version, description, "Python", open)
}

/// An engine that is a Python object. Each call needs the interpreter, so calls of several sessions
/// wait for each other.
struct Object {
    object: Py<PyAny>,
    session: String,
}

thread_local! {
    /// The sessions that wait for an engine on this thread to return, innermost last.
    static CALLED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Whether the code on this thread is the engine of a session with this id, in a call that the session
/// waits for. If it calls the session, both would wait until the deadline.
pub(crate) fn is_called_by(session: &str) -> bool {
    CALLED.with_borrow(|called| called.iter().any(|one| one == session))
}

/// A call of an engine on this thread. It ends when this value is dropped.
struct Called;

impl Called {
    fn by(session: &str) -> Self {
        CALLED.with_borrow_mut(|called| called.push(session.to_owned()));
        Self
    }
}

impl Drop for Called {
    fn drop(&mut self) {
        CALLED.with_borrow_mut(Vec::pop);
    }
}

/// The methods that take their argument as two values, which JSON carries as a list.
const IN_TWO: [&str; 2] = ["discarded", "background_done"];

impl Carrier for Object {
    fn call(
        &self,
        method: &str,
        argument: &str,
        messages: &[MessageView<'_>],
    ) -> Result<String, EngineError> {
        // The messages are written before the interpreter is taken, so that other sessions need not
        // wait for it.
        let messages = match takes_messages(method) {
            true => {
                let owned: Vec<OwnedMessage> = messages.iter().map(OwnedMessage::from).collect();
                Some(write(&owned)?)
            }
            false => None,
        };
        let _called = Called::by(&self.session);
        with_python(|py| {
            let object = self.object.bind(py);
            // The host takes an unknown method for one that the engine does not support.
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

    // The calls are made in this process.
    fn joins_calls(&self) -> bool {
        false
    }
}

/// Converts a decision into the form of the protocol. A class may return `True` or `False`, or a
/// tuple of that and a reason. A dictionary and the answers of other methods are left unchanged.
fn decided<'py>(method: &str, answer: Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let decides = ["should_compress", "may_call_tools"];
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

/// Runs something with the interpreter and converts an exception into the engine's error. A
/// `ValueError` or `TypeError` means invalid input. If the interpreter has ended, the engine counts
/// as gone.
fn with_python<T>(act: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, EngineError> {
    let ends = || EngineError::Gone("the interpreter ends".to_owned());
    // `attach` would panic if the interpreter has ended, and a thread of the host may outlive it.
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

/// The services that the host lends to an engine. They are passed to the class when a session
/// opens.
#[pyclass(frozen, name = "Services", module = "contexture")]
struct Lent {
    services: Services,
    /// The process that owns the services, see [`crate::host::OpenHost::check_process`].
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
        // A fork has copied the services without their threads, so a forked child neither uses nor
        // drops them. The copy that is forgotten keeps their count above zero.
        if self.process != std::process::id() {
            std::mem::forget(self.services.clone());
        }
    }
}

#[pymethods]
impl Lent {
    /// Calls a service by its name, such as `complete`, `count_tokens`, `log` or `is_cancelled`,
    /// with its argument. Raises a `ContextureError` if the host refuses the call or if it fails.
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

    /// Counts the tokens of a text as the tokenizer of the agent's model does.
    fn count_tokens(&self, py: Python<'_>, text: &Bound<'_, PyAny>) -> PyResult<u64> {
        let text = argument::text(text, "text")?;
        let services = self.services()?;
        Ok(py.detach(|| services.count_tokens(&text)))
    }
}

/// Registers a class as the engine `name`. Hosts that are opened afterwards have it, in place of a
/// class that was registered under this name and version before. Raises an `ArgumentError` if the
/// name or the class is unsuitable, and a `ContextureError` if the name is taken.
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
    let version = version.map(|version| argument::text(version, "version"));
    let version = version.transpose()?.unwrap_or_else(|| "0".to_owned());
    let description = description.map(|text| argument::text(text, "description"));
    let description = description.transpose()?.unwrap_or_default();
    check_class(&engine)?;
    let definition = definition(&name, &version, &description, engine.unbind());
    let registered = py.detach(|| register_context_engine(definition));
    registered.map_err(|error| match error {
        RegisterError::Taken(taken) => ContextureError::new_err(taken.to_string()),
        error => ArgumentError::new_err(py, error.to_string()),
    })
}

/// Checks that `engine` can be called to make an engine and has all required methods. Finding this
/// out here gives a better error than the first turn would.
fn check_class(engine: &Bound<'_, PyAny>) -> PyResult<()> {
    let wrong = |what: &str| {
        let text = format!(
            "`engine` must be the class of an engine: {} {what}",
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

/// Runs the conformance tests on an engine class: a fixed set of scenarios, and this many generated
/// conversations. Returns whether every row passed, and the table of results. Use it in the tests
/// of an engine.
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
    let definition = definition(&name, "", "", engine.unbind());
    let play = move || {
        let report = check_engine(Subject::from(&definition), checking);
        Ok((report.broken().next().is_none(), report.to_string()))
    };
    wait_for(py, || {}, play)
}

/// Returns the largest index at or below `index` at which these messages can be cut without
/// separating a tool call from its results. The messages have the form that an engine receives. If
/// there is no such index, the result is 0.
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
