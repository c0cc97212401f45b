//! Sessions: one conversation each, behind one lock, shared by all who open it in this process.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contexture::formats::{self, Format};
use contexture::session::AgentWindow;
use contexture::{BodyMessage, Canceller, Compact, ToolCall, TurnOptions, Unrelated};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use serde_json::{Value, json};

use crate::errors::{ArgumentError, ContextureError, FormatError, of_session, of_tool};
use crate::host::{OpenHost, lock};
use crate::turn::{Given, Place, Turn};
use crate::waiting::{at_once, wait_for};
use crate::{argument, usage, walk};

/// The options with which a session is opened.
pub(crate) struct Spec {
    pub(crate) agent: AgentWindow,
    pub(crate) engine: Option<String>,
    pub(crate) wait: Duration,
    pub(crate) own_summaries: bool,
    pub(crate) note: bool,
    pub(crate) unrelated: Unrelated,
}

impl Spec {
    /// How these options differ from those of a session that was opened as `first` and now has this agent and engine;
    /// `None` if they do not.
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

/// An agent's model and window, in words.
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

/// A session that is open in this process, for everybody who opened it.
pub(crate) struct Shared {
    pub(crate) id: String,
    state: Mutex<State>,
    /// Stops the call in progress.
    canceller: Mutex<Option<Canceller>>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) session: Option<contexture::Session>,
    pub(crate) agent: Option<AgentWindow>,
    /// The options it was opened with.
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

    /// The session is between two calls whatever happened in one of them.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A conversation. Its calls may come from any thread, one is made at a time, and none holds the interpreter.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Session {
    host: Arc<OpenHost>,
    shared: Arc<Shared>,
    format: Format,
    note: bool,
    closed: AtomicBool,
    /// The agent as this holder last knew it.
    agent: Mutex<AgentWindow>,
    /// How long the last request was, in bytes.
    length: AtomicUsize,
}

const COMPACT: [(&str, Compact); 3] = [
    ("auto", Compact::Auto),
    ("force", Compact::Force),
    ("never", Compact::Never),
];

/// Whether to compact, and why.
#[pyclass(frozen, module = "contexture", get_all)]
pub(crate) struct Decision {
    /// Whether to compact.
    compact: bool,
    /// Why.
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

/// A request, walked.
struct Walked {
    given: Given,
    text: String,
    list_key: &'static str,
    own: Vec<Py<PyAny>>,
    /// The messages that lead the list: of the system prompt, and what the provider compacted itself.
    leading: usize,
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
            note: spec.note,
            agent: Mutex::new(spec.agent.clone()),
            closed: AtomicBool::new(false),
            length: AtomicUsize::new(0),
        }
    }

    /// Runs something quick, directly on this thread if nobody else is using the session.
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

    fn check_open(&self) -> PyResult<()> {
        let id = &self.shared.id;
        self.host.check_process(&format!("the session `{id}`"))?;
        match self.closed.load(Ordering::Acquire) {
            true => Err(closed(id)),
            false => Ok(()),
        }
    }

    /// Runs something on the session with the interpreter released.
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
        // Only this call is cancelled, never the other holder's call that it waits for.
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

    fn walk(&self, given: &Bound<'_, PyAny>) -> PyResult<Walked> {
        let list_key = if self.format == Format::OpenAiResponses {
            "input"
        } else {
            "messages"
        };
        if let Some(text) = walk::document(given)? {
            return Ok(Walked {
                given: Given::Text(given.clone().unbind()),
                text,
                list_key,
                own: Vec::new(),
                leading: 0,
            });
        }
        let mut text = String::with_capacity(self.length.load(Ordering::Relaxed) * 9 / 8 + 256);
        text.push('{');
        let dict = given.cast::<PyDict>().ok();
        if let Some(dict) = dict {
            // What else stands in it the host does not read.
            for key in ["model", "system", "instructions", "tools", "tool_choice"] {
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
        let (own, leading) = if let Ok(list) = messages.cast::<PyList>() {
            self.write_messages(&mut text, list.iter().collect())?
        } else if let Ok(tuple) = messages.cast::<PyTuple>() {
            self.write_messages(&mut text, tuple.iter().collect())?
        } else if dict.is_some() {
            walk::write(&mut text, &messages, 1)?;
            (Vec::new(), 0)
        } else {
            let kind = given.get_type().name()?;
            return Err(FormatError::new_err(format!(
                "a request is a list of messages, or a body as a dictionary or JSON text, and no `{kind}`"
            )));
        };
        text.push('}');
        // What a provider compacted itself stands behind the system prompt, and is none of the session's.
        let leading = match self.format {
            Format::Anthropic | Format::OpenAiResponses if text.contains("compaction") => {
                formats::split(&text, Some(self.format)).map_or(leading, |wire| wire.leading())
            }
            _ => leading,
        };
        self.length.store(text.len(), Ordering::Relaxed);
        Ok(Walked {
            given: match dict {
                Some(dict) => Given::Dict(dict.clone().unbind()),
                None => Given::List(given.clone().unbind()),
            },
            text,
            list_key,
            own,
            leading,
        })
    }

    fn write_messages(
        &self,
        text: &mut String,
        messages: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<(Vec<Py<PyAny>>, usize)> {
        walk::write_list(text, &messages)?;
        let leads = |message: &&Bound<'_, PyAny>| {
            let role = match message.cast::<PyDict>() {
                Ok(dict) => dict.get_item("role").ok().flatten(),
                Err(_) => message.getattr("role").ok(),
            };
            let role = role.and_then(|role| role.extract::<String>().ok());
            matches!(role.as_deref(), Some("system" | "developer"))
        };
        let head: Vec<_> = messages.iter().take_while(leads).cloned().collect();
        let mut leading = 0;
        if !head.is_empty() {
            // A summary in the system role is none of the system prompt.
            let mut body = "{\"messages\":".to_owned();
            walk::write_list(&mut body, &head)?;
            body.push('}');
            let split = formats::split(&body, Some(Format::OpenAiChat));
            leading = split.map_or(0, |wire| wire.system_messages.len());
        }
        Ok((messages.into_iter().map(Bound::unbind).collect(), leading))
    }

    /// The warning for this holder if another holder changed the session's agent.
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

    /// The JSON of the items of an answer.
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

    /// Marks this holder as closed. Returns whether it had the session open until now.
    fn gives_up(&self) -> bool {
        self.host.is_here() && !self.closed.swap(true, Ordering::AcqRel)
    }

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
            // A forked child leaves its copy alone. The locks may be held by threads that do not exist in the child,
            // and the file belongs to the parent.
            std::mem::forget((Arc::clone(&self.host), Arc::clone(&self.shared)));
        } else if self.gives_up() {
            // An engine written in Python needs the interpreter in order to end, so it must not be held here meanwhile.
            let ended = Python::try_attach(|py| py.detach(|| self.host.let_go(&self.shared)));
            drop(ended);
        }
    }
}

#[pymethods]
impl Session {
    /// Takes in a request: a list of messages, or a body. See `Turn`.
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
            leading,
        } = self.walk(messages_or_body)?;
        let options = TurnOptions {
            compact,
            focus,
            memory,
            fixed_tokens,
            keep_from: keep_from.map(|index| index.saturating_sub(leading)),
            ..TurnOptions::default()
        };
        let (format, note) = (self.format, self.note);
        let (places, changed, body, report, agent) = self.with(py, move |state| {
            let agent = state.agent.clone();
            let session = open(state)?;
            let turn = session
                .turn_with(&text, Some(format), &options)
                .map_err(of_session)?;
            let mut places = Vec::with_capacity(leading + turn.messages.len());
            let noted = (leading > 0 && note && turn.changed)
                .then(|| formats::split(&turn.body, Some(format)).ok())
                .flatten();
            let before = noted
                .as_ref()
                .and_then(|_| formats::split(&text, Some(format)).ok());
            for index in 0..leading {
                let of = |wire: &Option<formats::WireBody<'_>>| {
                    wire.as_ref()?
                        .system_messages
                        .get(index)
                        .map(|raw| (*raw).to_owned())
                };
                places.push(match (of(&noted), of(&before)) {
                    (Some(now), Some(then)) if now != then => Place::Changed(index, now),
                    _ => Place::Kept(index),
                });
            }
            let decision = &turn.decision;
            let mut report = json!({
                "changed": turn.changed,
                "decision": {"compact": decision.is_yes(), "reason": decision.reason()},
                "compaction": turn.compaction,
                "rewrite": turn.rewrite,
                "selected_tokens": turn.selected,
                "tools_denied": turn.tools_denied,
                "new": turn.new.len(),
                "revised": turn.revised.len(),
                "branched": turn.branched.is_some(),
                "new_root": turn.new_root,
                "missing": turn.missing,
            });
            places.extend(turn.messages.into_iter().map(|message| match message {
                BodyMessage::Kept(at) => Place::Kept(at + leading),
                BodyMessage::Changed(at, json) => Place::Changed(at + leading, json),
                BodyMessage::Added(json) => Place::Added(json),
            }));
            let changed = *turn.body != *text;
            let body = changed.then(|| turn.body.into_owned());
            report["warnings"] = json!(session.take_warnings());
            Ok((places, changed, body, report, agent))
        })?;
        let mut report = report;
        if let (Some(told), Some(list)) = (self.told(agent), report["warnings"].as_array_mut()) {
            list.push(Value::String(told));
        }
        Ok(Turn {
            given,
            list_key,
            own,
            places,
            changed,
            body,
            report: report.to_string(),
        })
    }

    /// Takes in the complete answer to the last turn, and what the provider reported for it.
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

    /// Takes in what the provider reported, where the answer itself comes with the next request.
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
                    Some(_) => "the usage is given as a whole, or by its figures, not both",
                    None => "what did the provider report? Neither `usage` nor any figure is given",
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

    /// Whether a prompt of about so many tokens would be compacted. Cheap.
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

    /// Tells the session that the agent's model changed. Other holders in this process receive a warning in the report
    /// of their next turn.
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

    /// The tools that the engine gives to the agent: OpenAI's form of a function.
    fn tools<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let tools = self.with(py, |state| open(state)?.tools().map_err(of_session))?;
        walk::parse(py, &crate::host::functions(&tools).to_string())
    }

    /// Has the engine answer a call of one of its tools, with arguments as a dictionary or JSON text.
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

    /// How full the window is, which engine runs, and what that says of itself.
    fn status<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let status = self.with(py, |state| {
            let session = open(state)?;
            let engine = session.status().map_err(of_session)?;
            Ok(json!({
                "session": session.id(),
                "engine": session.engine().name(),
                "source": session.engine().source(),
                "window": session.state(),
                "model_calls": session.model_calls(),
                "status": engine,
            }))
        })?;
        walk::parse(py, &status.to_string())
    }

    /// Forgets the conversation and begins anew under the same id.
    fn reset(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |state| open(state)?.reset().map_err(of_session))
    }

    /// Closes the session for its holder; with the last one in this process another may open it.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.let_go(py)
    }

    /// The session's id.
    #[getter]
    fn id(&self) -> &str {
        &self.shared.id
    }

    /// The name of the engine that it runs under.
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

fn closed(id: &str) -> PyErr {
    ContextureError::new_err(format!("the session `{id}` is closed: open it again"))
}

fn open(state: &mut State) -> PyResult<&mut contexture::Session> {
    let closed = || ContextureError::new_err("the session is closed: open it again");
    state.session.as_mut().ok_or_else(closed)
}

fn reported(usage: &Bound<'_, PyAny>) -> PyResult<contexture::Usage> {
    let wrong = |text: String| FormatError::new_err(text);
    let py = usage.py();
    let text =
        walk::json(usage).map_err(|error| wrong(format!("the usage: {}", error.value(py))))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("the usage is no JSON object: {error}")))?;
    usage::of(&value).map_err(wrong)
}
