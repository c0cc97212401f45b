//! Sessions: one conversation each, shared by everybody in this process who opens it.
//!
//! Read [`Session`] first. It is what Python holds. Several `Session` objects may stand for the
//! same conversation: they share a [`Shared`], which has the host's session behind a lock, so that
//! one call at a time is made. Each call releases the interpreter, so other Python threads go on.
//!
//! A turn goes three ways here: the request is written as JSON by the `walk` module, the host's
//! session works on the JSON, and the result is mapped back to the caller's own message objects,
//! see [`Turn`]. Opening and closing is the task of the `host` module, and interrupting a call that
//! of `waiting`.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use contexture::formats::{self, Format};
use contexture::session::AgentWindow;
use contexture::{Canceller, Compact, ToolCall, TurnOptions, Unrelated, lock};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde_json::Value;

use crate::engine::is_called_by;
use crate::errors::{ArgumentError, ContextureError, FormatError, of_json, of_session, of_tool};
use crate::host::OpenHost;
use crate::turn::{Given, Turn};
use crate::waiting::{at_once, wait_for};
use crate::{argument, walk};

/// The options with which a session is opened. All holders in this process must pass the same ones,
/// since they share one conversation.
pub(crate) struct Spec {
    pub(crate) agent: AgentWindow,
    pub(crate) engine: Option<String>,
    pub(crate) wait: Duration,
    pub(crate) own_summaries: bool,
    pub(crate) note: bool,
    pub(crate) unrelated: Unrelated,
}

impl Spec {
    /// Describes how these options differ from those of a session that was opened as `first` and
    /// now has this agent and engine. Returns `None` if they do not differ. An engine that is not
    /// named never differs.
    pub(crate) fn differs_from(
        &self,
        first: &Self,
        agent: &AgentWindow,
        engine: &str,
    ) -> Option<String> {
        let wanted = self.engine.as_deref().unwrap_or(engine);
        if wanted != engine {
            return Some(format!("the engine `{engine}`, not `{wanted}`"));
        }
        if &self.agent != agent {
            return Some(format!("{}, not {}", worded(agent), worded(&self.agent)));
        }
        let options = [
            ("summaries", self.own_summaries == first.own_summaries),
            ("note", self.note == first.note),
            ("unrelated", self.unrelated == first.unrelated),
        ];
        let (name, _) = options.into_iter().find(|(_, is_same)| !is_same)?;
        Some(format!("another `{name}`"))
    }
}

/// Returns an agent's model and window in words, for messages.
fn worded(agent: &AgentWindow) -> String {
    let answer = match agent.max_output_tokens {
        0 => String::new(),
        tokens => format!(" with {tokens} for the answer"),
    };
    format!(
        "the model `{}` and a window of {} tokens{answer}",
        agent.model, agent.context_length
    )
}

/// A session that is open in this process, for everybody who opened it. The state and the canceller
/// have separate locks, because a call is cancelled while it holds the state.
pub(crate) struct Shared {
    pub(crate) id: String,
    state: Mutex<State>,
    /// Stops the call in progress, or the last one if none is in progress.
    canceller: Mutex<Option<Canceller>>,
}

/// What a call works on. The session is `None` before it is opened and after its last holder closed
/// it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) session: Option<contexture::Session>,
    pub(crate) agent: Option<AgentWindow>,
    /// The options of the first holder, to which those of later ones are compared.
    pub(crate) spec: Option<Spec>,
}

impl Shared {
    pub(crate) fn new(id: String) -> Self {
        Self {
            id,
            state: Mutex::default(),
            canceller: Mutex::default(),
        }
    }

    /// Locks the state. A poisoned lock is taken as it is: the session stays consistent between two
    /// calls, even if one of them panicked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// A conversation. Its calls may come from any thread. Only one call is made at a time, and none
/// holds the interpreter while it waits.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Session {
    host: Arc<OpenHost>,
    shared: Arc<Shared>,
    format: Format,
    closed: AtomicBool,
    /// The agent as this holder last knew it. If another holder changes the model, the difference
    /// is how this one finds out.
    agent: Mutex<AgentWindow>,
    /// The length of the last request in bytes. It tells how much memory to reserve for the next
    /// one.
    length: AtomicUsize,
}

const COMPACT: [(&str, Compact); 3] = [
    ("auto", Compact::Auto),
    ("force", Compact::Force),
    ("never", Compact::Never),
];

/// Whether to compact, and the reason. In a condition it counts as `True` if the conversation is to
/// be compacted.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Decision {
    /// Whether to compact.
    compact: bool,
    /// The reason, in words for a log.
    reason: String,
}

#[pymethods]
impl Decision {
    fn __bool__(&self) -> bool {
        self.compact
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let word = if self.compact { "yes" } else { "no" };
        Ok(format!(
            "<Decision: {word}, {}>",
            self.reason.clone().into_pyobject(py)?.repr()?
        ))
    }
}

/// A request as JSON text, together with what is needed to map the result back to the caller's
/// objects.
struct Walked {
    given: Given,
    text: String,
    list_key: &'static str,
    own: Vec<Py<PyAny>>,
}

impl Session {
    pub(crate) fn new(
        host: Arc<OpenHost>,
        shared: Arc<Shared>,
        format: Format,
        spec: &Spec,
    ) -> Self {
        Self {
            host,
            shared,
            format,
            agent: Mutex::new(spec.agent.clone()),
            closed: AtomicBool::new(false),
            length: AtomicUsize::new(0),
        }
    }

    /// Runs something quick. If nobody else is using the session, it runs on this thread, which
    /// saves the start of a thread. If another call holds the session, it waits like any other
    /// call.
    fn with_soon<T: Send + 'static>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> PyResult<T> + Send + 'static,
    ) -> PyResult<T> {
        self.check_open()?;
        let free = match self.shared.state.try_lock() {
            Ok(state) => state.session.is_some(),
            Err(_) => false,
        };
        match free {
            true => at_once(py, || act(&mut self.shared.lock())),
            false => self.with(py, act),
        }
    }

    /// Checks that this holder may make a call.
    ///
    /// # Errors
    /// Fails if this process is a fork of the one that opened the session, if the holder was closed,
    /// or if the session's engine makes the call.
    fn check_open(&self) -> PyResult<()> {
        let id = &self.shared.id;
        self.host.check_process(&format!("the session `{id}`"))?;
        // A session of another host may have the same id.
        if is_called_by(id) && self.shared.state.try_lock().is_err() {
            return Err(ContextureError::new_err(format!(
                "the engine of the session `{id}` calls its own session, which waits for the engine to return: \
                 use the services that the engine was given"
            )));
        }
        match self.closed.load(Ordering::Acquire) {
            true => Err(closed(id)),
            false => Ok(()),
        }
    }

    /// Runs something on the session with the interpreter released. If the wait is interrupted, the
    /// call is cancelled. A call that still waits for its turn is given up before it begins.
    fn with<T: Send + 'static>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> PyResult<T> + Send + 'static,
    ) -> PyResult<T> {
        self.check_open()?;
        const WAITS: u8 = 0;
        const RUNS: u8 = 1;
        const GIVEN_UP: u8 = 2;
        let stage = Arc::new(AtomicU8::new(WAITS));
        let (shared, shared_with) = (Arc::clone(&self.shared), Arc::clone(&self.shared));
        let (call, caller) = (Arc::clone(&stage), stage);
        // Only this call may be cancelled. As long as it waits, the canceller belongs to another
        // holder's call.
        let cancel = move || {
            if caller.swap(GIVEN_UP, Ordering::AcqRel) == RUNS
                && let Some(canceller) = &*lock(&shared_with.canceller)
            {
                canceller.cancel();
            }
        };
        wait_for(py, cancel, move || {
            let mut state = shared.lock();
            let Some(session) = &state.session else {
                return Err(closed(&shared.id));
            };
            *lock(&shared.canceller) = Some(session.canceller());
            if call.swap(RUNS, Ordering::AcqRel) == GIVEN_UP {
                return Err(ContextureError::new_err("the call was given up"));
            }
            act(&mut state)
        })
    }

    /// Writes a request as JSON text and keeps the caller's message objects. A request is a list of
    /// messages, or a body as a dictionary or JSON text.
    ///
    /// # Errors
    /// Raises a `FormatError` if it has another type, if a body has no list of messages, or if a
    /// value has no JSON form.
    fn walk(&self, given: &Bound<'_, PyAny>) -> PyResult<Walked> {
        let list_key = self.format.list_key();
        if let Some(text) = walk::document(given)? {
            return Ok(Walked {
                given: Given::Text(given.clone().unbind()),
                text,
                list_key,
                own: Vec::new(),
            });
        }
        let mut text = String::with_capacity(self.length.load(Ordering::Relaxed) * 9 / 8 + 256);
        text.push('{');
        let dict = given.cast::<PyDict>().ok();
        if let Some(dict) = dict {
            // The host reads only these keys, so nothing else in the body has to be written as
            // JSON.
            for key in [
                "model", "system", "instructions", "systemInstruction", "system_instruction",
                "tools", "tool_choice",
            ] {
                let Some(value) = dict.get_item(key)?.filter(|value| !value.is_none()) else {
                    continue;
                };
                text.push_str(&format!("\"{key}\":"));
                walk::write(&mut text, &value, 1)?;
                text.push(',');
            }
        }
        let messages = match dict {
            Some(dict) => dict.get_item(list_key)?.ok_or_else(|| {
                FormatError::new_err(format!("the body has no list `{list_key}`"))
            })?,
            None => given.clone(),
        };
        text.push_str(&format!("\"{list_key}\":"));
        let own: Vec<_> = if let Ok(list) = messages.cast::<PyList>() {
            list.iter().collect()
        } else if let Ok(tuple) = messages.cast::<PyTuple>() {
            tuple.iter().collect()
        } else if dict.is_some() {
            Vec::new()
        } else {
            let kind = given.get_type().name()?;
            return Err(FormatError::new_err(format!(
                "a request must be a list of messages, or a body as a dictionary or JSON text, not `{kind}`"
            )));
        };
        match own.is_empty() {
            true => walk::write(&mut text, &messages, 1)?,
            false => walk::write_list(&mut text, &own)?,
        }
        text.push('}');
        self.length.store(text.len(), Ordering::Relaxed);
        Ok(Walked {
            given: match dict {
                Some(dict) => Given::Dict(dict.clone().unbind()),
                None => Given::List(given.clone().unbind()),
            },
            text,
            list_key,
            own: own.into_iter().map(Bound::unbind).collect(),
        })
    }

    /// Returns the warning for this holder if another holder changed the session's model. It is
    /// given only once, because the new agent is remembered.
    fn told(&self, agent: Option<AgentWindow>) -> Option<String> {
        let mut known = lock(&self.agent);
        let agent = agent.filter(|agent| *agent != *known)?;
        let text = format!(
            "another holder of this session changed it: it has {} now, not {}",
            worded(&agent),
            worded(&known)
        );
        *known = agent;
        Some(text)
    }

    /// Returns the JSON of the items of an answer: one message, or a list of items as the Responses
    /// API returns it.
    fn items(&self, message: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let item = |value: &Bound<'_, PyAny>| {
            let mut text = String::new();
            walk::write_message(&mut text, value)?;
            Ok(text)
        };
        if let Some(text) = walk::document(message)? {
            return Ok(vec![text]);
        }
        match message.cast::<PyList>() {
            Ok(list) => list.iter().map(|value| item(&value)).collect(),
            Err(_) => Ok(vec![item(message)?]),
        }
    }

    /// Marks this holder as closed. Returns whether it had the session open until now. In a forked
    /// child it never had.
    fn gives_up(&self) -> bool {
        self.host.is_here() && !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Closes the session for this holder. Further calls do nothing.
    fn let_go(&self, py: Python<'_>) -> PyResult<()> {
        if !self.gives_up() {
            return Ok(());
        }
        let (host, shared) = (Arc::clone(&self.host), Arc::clone(&self.shared));
        wait_for(py, || {}, move || host.let_go(&shared))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if !self.host.is_here() {
            // A forked child leaves its copy alone. The locks may be held by threads that do not
            // exist in the child, and the file belongs to the parent.
            std::mem::forget((Arc::clone(&self.host), Arc::clone(&self.shared)));
        } else if self.gives_up() {
            // An engine that is written in Python needs the interpreter in order to end, so it must
            // not be held here.
            let ended = Python::try_attach(|py| py.detach(|| self.host.let_go(&self.shared)));
            drop(ended);
        }
    }
}

#[pymethods]
impl Session {
    /// Ingests a request and returns what to send to the model instead. The request is a list of
    /// messages, or a body as a dictionary or JSON text. See `Turn` for the result.
    #[pyo3(signature = (messages_or_body, *, compact=None, fixed_tokens=None, keep_from=None, focus=None, memory=None),
           text_signature = "($self, messages_or_body, *, compact='auto', fixed_tokens=None, keep_from=None, focus=None, memory=None)")]
    #[allow(clippy::too_many_arguments)] // The names are Python's.
    fn turn<'py>(
        &self,
        py: Python<'py>,
        messages_or_body: &Bound<'py, PyAny>,
        compact: Option<&Bound<'py, PyAny>>,
        fixed_tokens: Option<&Bound<'py, PyAny>>,
        keep_from: Option<&Bound<'py, PyAny>>,
        focus: Option<&Bound<'py, PyAny>>,
        memory: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Turn> {
        let compact = compact.map(|words| argument::choice(words, "compact", &COMPACT));
        let compact = compact.transpose()?.unwrap_or(Compact::Auto);
        let fixed_tokens = fixed_tokens.map(|tokens| argument::whole(tokens, "fixed_tokens", 0));
        let fixed_tokens = fixed_tokens.transpose()?;
        let keep_from = keep_from.map(|index| argument::whole(index, "keep_from", 0));
        let keep_from = keep_from
            .transpose()?
            .map(|index| usize::try_from(index).unwrap_or(usize::MAX));
        let focus = focus
            .map(|focus| argument::text(focus, "focus"))
            .transpose()?;
        let memory = memory
            .map(|memory| argument::text(memory, "memory"))
            .transpose()?;
        let Walked {
            given,
            text,
            list_key,
            own,
        } = self.walk(messages_or_body)?;
        let options = TurnOptions::default()
            .compact(compact)
            .focus(focus)
            .memory(memory)
            .fixed_tokens(fixed_tokens)
            .keep_from(keep_from);
        let format = self.format;
        let (places, changed, body, mut report, agent) = self.with(py, move |state| {
            let agent = state.agent.clone();
            let session = open(state)?;
            let mut turn = session
                .turn_with(&text, Some(format), &options)
                .map_err(of_session)?;
            let places = turn.take_items();
            let report = turn.report(session.take_warnings());
            let changed = *turn.body != *text;
            let body = changed.then(|| turn.body.into_owned());
            Ok((places, changed, body, report, agent))
        })?;
        report.warnings.extend(self.told(agent));
        Ok(Turn {
            given,
            list_key,
            own,
            places,
            changed,
            body,
            report: serde_json::to_string(&report).map_err(of_json)?,
        })
    }

    /// Ingests the complete answer to the last turn, and the usage that the provider reported for
    /// it. Call it before the next turn if the answer does not come back with the next request.
    #[pyo3(signature = (message, usage=None))]
    fn answer(
        &self,
        py: Python<'_>,
        message: &Bound<'_, PyAny>,
        usage: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let items = self.items(message)?;
        let usage = usage.map(|usage| reported(usage)).transpose()?;
        self.with(py, move |state| {
            let items: Vec<&str> = items.iter().map(String::as_str).collect();
            open(state)?
                .answer(&items, usage.as_ref())
                .map_err(of_session)?;
            Ok(())
        })
    }

    /// Tells the session the usage that the provider reported, if the answer itself comes with the
    /// next request. Pass the provider's usage object, or its figures by name, but not both.
    #[pyo3(signature = (usage=None, **figures))]
    fn usage(
        &self,
        py: Python<'_>,
        usage: Option<&Bound<'_, PyAny>>,
        figures: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let given = match (usage, figures) {
            (Some(usage), None) => usage.clone(),
            (None, Some(figures)) => figures.clone().into_any(),
            (given, _) => {
                let text = match given {
                    Some(_) => "give the usage as a whole or by its figures, not both",
                    None => {
                        "neither `usage` nor any figure is given: pass what the provider reported"
                    }
                };
                return Err(ArgumentError::new_err(py, text.to_owned()));
            }
        };
        let usage = reported(&given)?;
        self.with_soon(py, move |state| {
            open(state)?.update_usage(&usage);
            Ok(())
        })
    }

    /// Returns whether a prompt of about this many tokens would be compacted. It is cheap, because
    /// it does not look at the messages.
    fn preflight(&self, py: Python<'_>, tokens: &Bound<'_, PyAny>) -> PyResult<Decision> {
        let tokens = argument::whole(tokens, "tokens", 0)?;
        self.with_soon(py, move |state| {
            let decision = open(state)?.preflight(tokens).map_err(of_session)?;
            Ok(Decision {
                compact: decision.is_yes(),
                reason: decision.reason().to_owned(),
            })
        })
    }

    /// Tells the session that the agent's model changed. Other holders in this process receive a
    /// warning in the report of their next turn.
    #[pyo3(signature = (model, context_length, max_output_tokens=None),
           text_signature = "($self, model, context_length, max_output_tokens=0)")]
    fn set_model(
        &self,
        py: Python<'_>,
        model: &Bound<'_, PyAny>,
        context_length: &Bound<'_, PyAny>,
        max_output_tokens: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let agent = argument::agent(model, context_length, max_output_tokens)?;
        let own = agent.clone();
        self.with(py, move |state| {
            if state.agent.as_ref() != Some(&agent) {
                open(state)?.set_model(agent.clone()).map_err(of_session)?;
                state.agent = Some(agent);
            }
            Ok(())
        })?;
        *lock(&self.agent) = own;
        Ok(())
    }

    /// Returns the tools that the engine offers to the agent, in OpenAI's form of a function. Add
    /// them to the tools of each request.
    fn tools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tools = self.with(py, |state| open(state)?.tools().map_err(of_session))?;
        walk::parse(py, &formats::tool_list(&tools, Format::OpenAiChat))
    }

    /// Lets the engine answer a call of one of its tools, and returns the text for the model. The
    /// arguments are a dictionary or JSON text. Raises a `ToolError` if the engine refuses them or
    /// fails.
    fn call_tool(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        args: &Bound<'_, PyAny>,
    ) -> PyResult<String> {
        let name = argument::text(name, "name")?;
        let arguments = match walk::document(args)? {
            Some(text) => text,
            None => walk::json(args)?,
        };
        let call = ToolCall::new(name, arguments);
        self.with(py, move |state| {
            open(state)?.call_tool(call).map_err(of_tool)
        })
    }

    /// Pins words for the user, each line on its own, as a line `/pin WORDS` in a message does. Raises
    /// a `ToolError` if a line cannot be pinned.
    fn pin(&self, py: Python<'_>, words: &Bound<'_, PyAny>) -> PyResult<()> {
        let words = argument::text(words, "words")?;
        self.with(py, move |state| open(state)?.pin(&words).map_err(of_tool))
    }

    /// Ends pins, whoever made them, except those of the configuration.
    fn unpin(&self, py: Python<'_>, words: &Bound<'_, PyAny>) -> PyResult<()> {
        let words = argument::text(words, "words")?;
        self.with(py, move |state| open(state)?.unpin(&words).map_err(of_tool))
    }

    /// Returns how full the window is, which engine runs, and what the engine says about itself.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let status = self.with(py, |state| open(state)?.report().map_err(of_session))?;
        walk::parse(py, &serde_json::to_string(&status).map_err(of_json)?)
    }

    /// Forgets the conversation and begins a new one under the same id.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| open(state)?.reset().map_err(of_session))
    }

    /// Closes the session for this holder. After the last holder in this process closes it, another
    /// process may open it. Further calls do nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.let_go(py)
    }

    /// The id of the session, as it was given when it was opened.
    #[getter]
    fn id(&self) -> &str {
        &self.shared.id
    }

    /// The name of the engine that the session runs with. It may differ from the configured one if
    /// another engine stands in.
    #[getter]
    fn engine(&self, py: Python<'_>) -> PyResult<String> {
        self.with_soon(py, |state| Ok(open(state)?.engine().name().to_owned()))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.let_go(py)
    }

    fn __repr__(&self) -> String {
        let closed = if self.closed.load(Ordering::Acquire) {
            ", closed"
        } else {
            ""
        };
        format!("<Session {:?}{closed}>", self.shared.id)
    }
}

/// The error for a call on a session that its holder or the last holder closed.
fn closed(id: &str) -> PyErr {
    ContextureError::new_err(format!("the session `{id}` is closed: open it again"))
}

/// Returns the open session of a state.
///
/// # Errors
/// Fails if the last holder closed the session while this call waited for it.
fn open(state: &mut State) -> PyResult<&mut contexture::Session> {
    let closed = || ContextureError::new_err("the session is closed: open it again");
    state.session.as_mut().ok_or_else(closed)
}

/// Reads what a provider reported, from a dictionary or an object such as `openai` returns it.
///
/// # Errors
/// Raises a `FormatError` if it is not an object with known figures.
fn reported(usage: &Bound<'_, PyAny>) -> PyResult<contexture::Usage> {
    let wrong = |text: String| FormatError::new_err(text);
    let py = usage.py();
    let text =
        walk::json(usage).map_err(|error| wrong(format!("the usage: {}", error.value(py))))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("the usage is not a JSON object: {error}")))?;
    contexture::formats::reported_usage(&value).map_err(|error| wrong(error.to_string()))
}
