//! Hosts: one for each home directory in a process, shared by everybody who opens it.
//!
//! A host is the configuration, the engines and the record of sessions of one home directory. Two
//! hosts on the same directory would lock each other out, so [`OpenHost::of`] returns the open host
//! if there is one. Python holds a [`Host`], which is only a reference to it.
//!
//! [`OpenHost`] also counts the holders of each open session. The first one opens the session,
//! further ones share it, and the last one closes it. The calls on a session are in the `session`
//! module. A process that was forked can use neither, see [`OpenHost::check_process`].

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use contexture::formats::{self, Format};
use contexture::providers::LentModel;
use contexture::session::RecordError;
use contexture::{HostOptions, PerProcess, SessionError, Unrelated, lock};
use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{ArgumentError, ContextureError, differs, of_host, of_json, of_session};
use crate::session::{Session, Shared, Spec};
use crate::waiting::wait_for;
use crate::{argument, walk};

/// A host, with the sessions that are open in this process and the number of holders of each. It
/// exists as long as a `Host` or a session refers to it.
pub(crate) struct OpenHost {
    pub(crate) host: contexture::Host,
    config: Option<PathBuf>,
    offline: bool,
    model: Option<Py<PyAny>>,
    sessions: Mutex<HashMap<String, (Arc<Shared>, usize)>>,
    /// The process that opened it. A child made by `fork` has none of its threads, so the child
    /// neither uses nor drops the host.
    process: u32,
}

type Hosts = Mutex<Option<HashMap<PathBuf, Weak<OpenHost>>>>;

/// How long to wait by default for a session that is open in another process.
const WAIT: Duration = Duration::from_secs(2);

/// How long one attempt to open a session waits. Between two attempts, the wait checks whether it
/// was given up.
const LOOK: Duration = Duration::from_millis(200);

/// The longest wait. It is short enough not to overflow the clock.
const LONGEST_WAIT: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

const FORMATS: [(&str, Format); 4] = [
    ("openai", Format::OpenAiChat),
    ("responses", Format::OpenAiResponses),
    ("anthropic", Format::Anthropic),
    ("gemini", Format::Gemini),
];

/// The values of `summaries`, with whether summaries get messages of their own.
const SUMMARIES: [(&str, bool); 2] = [("own", true), ("folded", false)];

const UNRELATED: [(&str, Unrelated); 2] = [
    ("new_root", Unrelated::NewRoot),
    ("refuse", Unrelated::Refuse),
];

static HOSTS: PerProcess<Hosts> = PerProcess::new(Mutex::new(None));

impl OpenHost {
    /// Returns the host of a home directory: the open one if there is one, otherwise a new one.
    ///
    /// # Errors
    /// Fails if the open host has another `config`, `offline` or `model`, if a new one cannot be
    /// opened, and if the configuration has unknown keys.
    pub(crate) fn of(
        home: Option<PathBuf>,
        config: Option<PathBuf>,
        offline: bool,
        model: Option<(Py<PyAny>, LentModel)>,
    ) -> PyResult<Arc<Self>> {
        let (model, lent) = model.unzip();
        let options = HostOptions::default()
            .home(home)
            .config(config.clone())
            .offline(offline)
            .strict(true)
            .model(lent);
        let place = options.place();
        let mut hosts = lock(HOSTS.get());
        let hosts = hosts.get_or_insert_default();
        if let Some(host) = place.as_ref().and_then(|place| hosts.get(place)?.upgrade()) {
            let is_same = match (&host.model, &model) {
                (Some(one), Some(other)) => one.is(other),
                (None, None) => true,
                _ => false,
            };
            if host.config == config && host.offline == offline && is_same {
                return Ok(host);
            }
            return Err(ContextureError::new_err(format!(
                "the home directory {} is open in this process with another `config`, `offline` or `model`: a home has \
                 one host in a process, so give all of them the same",
                place.unwrap_or_default().display()
            )));
        }
        let host = Arc::new(Self {
            host: contexture::Host::open(&options).map_err(of_host)?,
            config,
            offline,
            model,
            sessions: Mutex::default(),
            process: std::process::id(),
        });
        hosts.retain(|_, host| host.strong_count() > 0);
        // The home directory exists only now. Its path is resolved after that, so that a link to it
        // counts as the same directory.
        if let Some(place) = options.place() {
            hosts.insert(place, Arc::downgrade(&host));
        }
        Ok(host)
    }

    /// Returns whether this process opened the host. If not, it is a fork of the one that did.
    pub(crate) fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Checks that this process opened the host. `what` is the subject of the message.
    ///
    /// # Errors
    /// Fails if another process opened it, so that this one is a fork of that process.
    pub(crate) fn check_process(&self, what: &str) -> PyResult<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(ContextureError::new_err(format!(
                "{what} was opened by the process {}, and this is a child of it, made by a fork: open a \
                 `contexture.Host` and its sessions here, in the child",
                self.process
            ))),
        }
    }

    /// Opens a session for one more holder, or shares it if it is open in this process.
    ///
    /// If the session is open in another process, this waits for up to `spec.wait`. When `given_up`
    /// is set, the wait ends early.
    ///
    /// # Errors
    /// Fails if the session is open here with other options, if the wait ends without success, or
    /// if the host cannot open it.
    fn session(
        self: Arc<Self>,
        id: String,
        spec: Spec,
        format: Format,
        given_up: &AtomicBool,
    ) -> PyResult<Session> {
        let shared = {
            let mut sessions = lock(&self.sessions);
            let fresh = || (Arc::new(Shared::new(id.clone())), 0);
            let (shared, holders) = sessions.entry(id.clone()).or_insert_with(fresh);
            *holders += 1;
            Arc::clone(shared)
        };
        // Dropping this holder releases the session, so an early return below undoes the count
        // above.
        let agent = spec.agent.clone();
        let session = Session::new(Arc::clone(&self), Arc::clone(&shared), format, &spec);
        let mut state = shared.lock();
        if let (Some(open), Some(agent), Some(first)) = (&state.session, &state.agent, &state.spec)
        {
            return match spec.differs_from(first, agent, open.engine().name()) {
                None => Ok(session),
                Some(how) => {
                    let text = format!(
                        "the session `{id}` is open in this process with {how}: open it with the same, or close \
                         it first; an open session changes its model with `set_model`"
                    );
                    Err(Python::try_attach(|py| differs(py, text.clone(), agent))
                        .unwrap_or_else(|| ContextureError::new_err(text)))
                }
            };
        }
        let builder = |wait| {
            let mut builder = self.host.session(&id).wait(wait);
            builder = builder.unrelated(spec.unrelated).note(spec.note);
            builder = builder.model(&agent.model, agent.context_length);
            builder = builder.max_output_tokens(agent.max_output_tokens);
            if spec.own_summaries {
                builder = builder.own_summaries();
            }
            if let Some(engine) = &spec.engine {
                builder = builder.engine(engine);
            }
            builder
        };
        let ends = Instant::now() + spec.wait.min(LONGEST_WAIT);
        let opened = loop {
            // The host's own wait cannot be interrupted, so it is split into short ones.
            let left = ends.saturating_duration_since(Instant::now());
            match builder(left.min(LOOK)).open() {
                Err(SessionError::InUse(RecordError::InUse { session, by, .. })) => {
                    if left <= LOOK || given_up.load(Ordering::Acquire) {
                        let waited = spec.wait;
                        let error = RecordError::InUse {
                            session,
                            by,
                            waited,
                        };
                        return Err(of_session(SessionError::InUse(error)));
                    }
                }
                opened => break opened.map_err(of_session)?,
            }
        };
        state.session = Some(opened);
        state.agent = Some(agent);
        state.spec = Some(spec);
        drop(state);
        Ok(session)
    }

    /// Gives up one holder's claim to a session. If it was the last one, the session is closed.
    /// Errors are those of ending the session.
    pub(crate) fn let_go(&self, shared: &Arc<Shared>) -> PyResult<()> {
        {
            let mut sessions = lock(&self.sessions);
            let Some((_, holders)) = sessions.get_mut(&shared.id) else {
                return Ok(());
            };
            *holders = holders.saturating_sub(1);
            if *holders > 0 {
                return Ok(());
            }
        }
        // Closing takes the session's lock, which a call may hold for long. The list of sessions
        // must not be locked meanwhile, so the number of holders is checked again afterwards.
        let mut state = shared.lock();
        let session = {
            let mut sessions = lock(&self.sessions);
            match sessions.get(&shared.id) {
                // Another holder opened the session while this one waited for the lock.
                Some((_, holders)) if *holders > 0 => return Ok(()),
                _ => sessions.remove(&shared.id),
            };
            state.session.take()
        };
        match session {
            Some(session) => session.end().map_err(of_session),
            None => Ok(()),
        }
    }
}

/// Reads the caller's own model, which the host may use for summaries: an object with a `name`, a
/// `context_length` or `None`, and a method `complete`. Raises an `ArgumentError` if a member is
/// missing or has the wrong type.
fn lent(model: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, LentModel)> {
    let member = |name: &str| {
        model.getattr(name).map_err(|_| {
            let text = format!(
                "`model` must be an object with a `name`, a `context_length` and a method `complete`: {} has no \
                 `{name}`",
                argument::shown(model)
            );
            ArgumentError::new_err(model.py(), text)
        })
    };
    let object = Arc::new(model.clone().unbind());
    let name = argument::name(&member("name")?, "model.name")?;
    if !member("complete")?.is_callable() {
        let text = "`model.complete` must be a method".to_owned();
        return Err(ArgumentError::new_err(model.py(), text));
    }
    let context_length = member("context_length")?;
    let context_length = match context_length.is_none() {
        true => None,
        false => Some(argument::whole(&context_length, "model.context_length", 1)?),
    };
    let answering = name.clone();
    let ask = move |request: &ModelRequest| {
        let failed = |kind, text: String| Err(ModelFailure::new(kind, text));
        let asked = Python::try_attach(|py| {
            let material = (&request.system, &request.prompt, request.max_tokens);
            let answer = object.bind(py).call_method1("complete", material)?;
            answer.extract::<String>()
        });
        match asked {
            Some(Ok(text)) if text.trim().is_empty() => failed(
                FailureKind::Empty,
                format!("{answering} answered without text"),
            ),
            Some(Ok(text)) => Ok(ModelAnswer::new(text, answering.as_str())),
            Some(Err(error)) => failed(kind_of(&error), error.to_string()),
            None => failed(FailureKind::Cancelled, "the interpreter ends".to_owned()),
        }
    };
    let lent = LentModel {
        name,
        context_length,
        ask: Arc::new(ask),
    };
    Ok((model.clone().unbind(), lent))
}

/// Returns the kind of failure that an exception of the caller's model stands for. The exceptions
/// of `openai` and `anthropic` have a `status_code`. Without one the model counts as unavailable.
fn kind_of(error: &PyErr) -> FailureKind {
    let status = Python::try_attach(|py| {
        let status = error.value(py).getattr("status_code").ok()?;
        status.extract::<u16>().ok()
    });
    match status.flatten() {
        Some(401 | 403) => FailureKind::Auth,
        Some(404) => FailureKind::UnknownModel,
        Some(413) => FailureKind::TooLong,
        Some(429) => FailureKind::RateLimited,
        Some(400 | 422) => FailureKind::Other,
        _ => FailureKind::Overloaded,
    }
}

/// Reads the arguments that identify a host: `home`, `config` and `offline`.
pub(crate) fn place(
    home: Option<&Bound<'_, PyAny>>,
    config: Option<&Bound<'_, PyAny>>,
    offline: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Option<PathBuf>, Option<PathBuf>, bool)> {
    let home = home.map(|home| argument::path(home, "home")).transpose()?;
    let config = config.map(|config| argument::path(config, "config"));
    let offline = offline.map(|offline| argument::flag(offline, "offline"));
    Ok((
        home,
        config.transpose()?,
        offline.transpose()?.unwrap_or(false),
    ))
}

/// The engines of a configuration and the record of their sessions. All hosts of one home directory
/// in a process are the same one.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Host {
    open: Arc<OpenHost>,
}

impl Drop for Host {
    fn drop(&mut self) {
        if !self.open.is_here() {
            // A forked child must not drop the host: its threads and files belong to the parent.
            std::mem::forget(Arc::clone(&self.open));
        }
    }
}

impl Host {
    fn open(&self) -> PyResult<Arc<OpenHost>> {
        self.open.check_process("this host")?;
        Ok(Arc::clone(&self.open))
    }
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (home=None, config=None, offline=None, model=None),
           text_signature = "(home=None, config=None, offline=False, model=None)")]
    fn new(
        py: Python<'_>,
        home: Option<&Bound<'_, PyAny>>,
        config: Option<&Bound<'_, PyAny>>,
        offline: Option<&Bound<'_, PyAny>>,
        model: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let (home, config, offline) = place(home, config, offline)?;
        let model = model.map(lent).transpose()?;
        let open = wait_for(
            py,
            || {},
            move || OpenHost::of(home, config, offline, model),
        )?;
        Ok(Self { open })
    }

    /// Returns the engines that can be used, each as a dictionary with its name, source and
    /// description, and with whether the configuration chooses it.
    fn engines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open()?;
        let engines = move || serde_json::to_string(&open.host.engines().list()).map_err(of_json);
        walk::parse(py, &wait_for(py, || {}, engines)?)
    }

    /// Returns the tools that an engine offers to agents, in OpenAI's form of a function. No
    /// session is opened. Without `engine`, the configured one is asked.
    #[pyo3(signature = (engine=None))]
    fn tools<'py>(
        &self,
        py: Python<'py>,
        engine: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let engine = engine.map(|engine| argument::text(engine, "engine"));
        let (engine, open) = (engine.transpose()?, self.open()?);
        let tools = move || open.host.tools(engine.as_deref()).map_err(of_host);
        let tools = wait_for(py, || {}, tools)?;
        walk::parse(py, &formats::tool_list(&tools, Format::OpenAiChat))
    }

    /// Opens a session, or shares it if it is open in this process. All holders share one
    /// conversation and use the same model, window and options. Raises `SessionDiffers` if they do
    /// not match, and `SessionInUse` if another process has the session open for longer than
    /// `wait_s` seconds.
    #[pyo3(signature = (id, model, context_length, max_output_tokens=None, engine=None, wait_s=None, format=None,
                        summaries=None, note=None, unrelated=None),
           text_signature = "($self, id, model, context_length, max_output_tokens=0, engine=None, wait_s=2.0, format='openai', \
                             summaries='own', note=True, unrelated='new_root')")]
    #[allow(clippy::too_many_arguments)] // The names are Python's.
    fn session<'py>(
        &self,
        py: Python<'py>,
        id: &Bound<'py, PyAny>,
        model: &Bound<'py, PyAny>,
        context_length: &Bound<'py, PyAny>,
        max_output_tokens: Option<&Bound<'py, PyAny>>,
        engine: Option<&Bound<'py, PyAny>>,
        wait_s: Option<&Bound<'py, PyAny>>,
        format: Option<&Bound<'py, PyAny>>,
        summaries: Option<&Bound<'py, PyAny>>,
        note: Option<&Bound<'py, PyAny>>,
        unrelated: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Session> {
        let id = argument::name(id, "id")?;
        let agent = argument::agent(model, context_length, max_output_tokens)?;
        let engine = engine.map(|engine| argument::text(engine, "engine"));
        let wait = wait_s.map(|wait| argument::seconds(wait, "wait_s"));
        let format = format.map(|format| argument::choice(format, "format", &FORMATS));
        let own = summaries.map(|words| argument::choice(words, "summaries", &SUMMARIES));
        let note = note.map(|note| argument::flag(note, "note"));
        let unrelated = unrelated.map(|words| argument::choice(words, "unrelated", &UNRELATED));
        let spec = Spec {
            agent,
            engine: engine.transpose()?,
            wait: wait.transpose()?.unwrap_or(WAIT),
            own_summaries: own.transpose()?.unwrap_or(true),
            note: note.transpose()?.unwrap_or(true),
            unrelated: unrelated.transpose()?.unwrap_or(Unrelated::NewRoot),
        };
        let format = format.transpose()?.unwrap_or(Format::OpenAiChat);
        let open = self.open()?;
        let given_up = Arc::new(AtomicBool::new(false));
        let gives_up = Arc::clone(&given_up);
        let give_up = move || gives_up.store(true, Ordering::Release);
        wait_for(py, give_up, move || {
            open.session(id, spec, format, &given_up)
        })
    }

    /// Enters a `with` block. Leaving it closes nothing: a host stays usable, and its sessions are
    /// closed on their own.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {}
}
