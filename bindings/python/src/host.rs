//! Hosts: one for each home directory in a process, whoever opens it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use contexture::catalog::{BUILT_IN, Choice, resolve};
use contexture::formats::Format;
use contexture::providers::LentModel;
use contexture::session::AgentWindow;
use contexture::{HostOptions, ToolSpec, Unrelated};
use contexture_engine_api::{FailureKind, ModelAnswer, ModelFailure, ModelRequest};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use serde_json::{Value, json};

use crate::errors::{ContextureError, of_host, of_session};
use crate::session::{Session, Shared, State, set_model};
use crate::walk;

/// A host, and the sessions of it that are open in this process with how many have them open.
pub(crate) struct OpenHost {
    host: contexture::Host,
    config: Option<PathBuf>,
    offline: bool,
    model: Option<Py<PyAny>>,
    sessions: Mutex<HashMap<String, (Arc<Shared>, usize)>>,
}

static HOSTS: Mutex<Option<HashMap<PathBuf, Weak<OpenHost>>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OpenHost {
    /// The host of this home directory: the one that is open, where one is.
    pub(crate) fn of(
        home: Option<PathBuf>,
        config: Option<PathBuf>,
        offline: bool,
        model: Option<(Py<PyAny>, LentModel)>,
    ) -> PyResult<Arc<Self>> {
        let place = place_of(home.as_deref());
        let mut hosts = lock(&HOSTS);
        let hosts = hosts.get_or_insert_default();
        if let Some(host) = place.as_ref().and_then(|place| hosts.get(place)?.upgrade()) {
            let is_same = match (&host.model, &model) {
                (Some(one), Some((other, _))) => one.is(other),
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
        let (model, lent) = model.unzip();
        let options = HostOptions {
            home,
            config: config.clone(),
            offline,
            model: lent,
        };
        let host = Arc::new(Self {
            host: contexture::Host::open(&options).map_err(of_host)?,
            config,
            offline,
            model,
            sessions: Mutex::default(),
        });
        hosts.retain(|_, host| host.strong_count() > 0);
        // The home is there now, so that a link to it is the same place.
        if let Some(place) = place_of(options.home.as_deref()) {
            hosts.insert(place, Arc::downgrade(&host));
        }
        Ok(host)
    }

    pub(crate) fn engines(&self) -> Arc<contexture::engines::Engines> {
        self.host.engines()
    }

    /// Lets go of a session; who had it open last closes it.
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
        let mut state = shared.lock();
        let session = {
            let mut sessions = lock(&self.sessions);
            match sessions.get(&shared.id) {
                // Somebody opened it meanwhile.
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

/// The caller's own model: an object with a `name`, a `context_length` or none, and a method `complete`.
fn lent(model: &Bound<'_, PyAny>) -> PyResult<(Py<PyAny>, LentModel)> {
    let object = Arc::new(model.clone().unbind());
    let name: String = model.getattr("name")?.extract()?;
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
        context_length: model.getattr("context_length")?.extract()?,
        ask: Arc::new(ask),
    };
    Ok((model.clone().unbind(), lent))
}

/// What an error of a model's says by its `status_code`, as those of `openai` and `anthropic` have one; else it is down.
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

/// Where a home directory is, whatever path leads to it.
fn place_of(home: Option<&Path>) -> Option<PathBuf> {
    let home = home.map(Path::to_owned).or_else(|| {
        let named = std::env::var_os("CONTEXTURE_HOME").filter(|home| !home.is_empty());
        named
            .map(PathBuf::from)
            .or_else(|| std::env::home_dir().map(|home| home.join(".contexture")))
    })?;
    home.canonicalize()
        .or_else(|_| std::path::absolute(&home))
        .ok()
}

/// The engines of a configuration and the record of their sessions.
#[pyclass(frozen, module = "contexture")]
pub(crate) struct Host {
    open: Arc<OpenHost>,
}

#[pymethods]
impl Host {
    #[new]
    #[pyo3(signature = (home=None, config=None, offline=false, model=None))]
    fn new(
        py: Python<'_>,
        home: Option<PathBuf>,
        config: Option<PathBuf>,
        offline: bool,
        model: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let model = model.map(lent).transpose()?;
        let open = py.detach(|| OpenHost::of(home, config, offline, model))?;
        Ok(Self { open })
    }

    /// The engines that there are: name, description, and whether the configuration names it.
    fn engines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let engines = py.detach(|| {
            let engines = self.open.host.engines();
            let catalog = engines.catalog();
            let resolution = resolve(catalog, engines.config(), None).ok();
            let chosen = resolution.map(|resolution| match resolution.engine {
                Choice::BuiltIn => BUILT_IN.to_owned(),
                _ => resolution.requested,
            });
            let one = |name: &str| {
                let registered = catalog.registered.iter().find(|engine| engine.name == name);
                let plugin = catalog.plugins.iter().find(|plugin| plugin.name == name);
                json!({
                    "name": name,
                    "source": match (name, plugin) {
                        (BUILT_IN, _) => "builtin",
                        (_, Some(_)) => "plugin",
                        _ => "registered",
                    },
                    "description": registered.map(|engine| engine.description.as_str()),
                    "chosen": chosen.as_deref() == Some(name),
                })
            };
            Value::Array(catalog.names().into_iter().map(one).collect())
        });
        walk::parse(py, &engines.to_string())
    }

    /// The tools that an engine gives to agents, without any session: OpenAI's form of a function.
    #[pyo3(signature = (engine=None))]
    fn tools<'py>(&self, py: Python<'py>, engine: Option<String>) -> PyResult<Bound<'py, PyAny>> {
        let tools = py.detach(|| self.open.host.tools(engine.as_deref()).map_err(of_host))?;
        walk::parse(py, &functions(&tools).to_string())
    }

    /// Opens a session, or goes on with it. In one process a session is shared by all who open it.
    #[pyo3(signature = (id, model, context_length, max_output_tokens=0, engine=None, wait_s=2.0, format="openai",
                        summaries="own", note=true, unrelated="new_root"))]
    #[allow(clippy::too_many_arguments)] // The names are Python's.
    fn session(
        &self,
        py: Python<'_>,
        id: String,
        model: String,
        context_length: u64,
        max_output_tokens: u64,
        engine: Option<String>,
        wait_s: f64,
        format: &str,
        summaries: &str,
        note: bool,
        unrelated: &str,
    ) -> PyResult<Session> {
        let wrong = |what: String| PyValueError::new_err(what);
        let format = match format {
            "openai" => Format::OpenAiChat,
            "responses" => Format::OpenAiResponses,
            "anthropic" => Format::Anthropic,
            other => {
                let text = "`format` is \"openai\", \"responses\" or \"anthropic\", not";
                return Err(wrong(format!("{text} {other:?}")));
            }
        };
        let own = match summaries {
            "own" => true,
            "folded" => false,
            other => {
                return Err(wrong(format!(
                    "`summaries` is \"own\" or \"folded\", not {other:?}"
                )));
            }
        };
        let unrelated = match unrelated {
            "new_root" => Unrelated::NewRoot,
            "refuse" => Unrelated::Refuse,
            other => {
                let text = format!("`unrelated` is \"new_root\" or \"refuse\", not {other:?}");
                return Err(wrong(text));
            }
        };
        let wait = Duration::try_from_secs_f64(wait_s)
            .map_err(|_| wrong(format!("`wait_s` is a number of seconds, not {wait_s}")))?;
        let agent = AgentWindow {
            model,
            context_length,
            max_output_tokens,
        };
        let shared = py.detach(|| {
            let shared = {
                let mut sessions = lock(&self.open.sessions);
                let fresh = || {
                    let shared = Shared {
                        id: id.clone(),
                        state: Mutex::new(State::default()),
                    };
                    (Arc::new(shared), 0)
                };
                let (shared, holders) = sessions.entry(id.clone()).or_insert_with(fresh);
                *holders += 1;
                Arc::clone(shared)
            };
            let opened = {
                let mut state = shared.lock();
                match &state.session {
                    Some(session) => match &engine {
                        Some(engine) if session.engine().name() != engine => {
                            Err(ContextureError::new_err(format!(
                                "the session `{id}` is open in this process with the engine `{}`: close it there first",
                                session.engine().name()
                            )))
                        }
                        _ => set_model(&mut state, agent.clone()),
                    },
                    None => {
                        let mut builder = self.open.host.session(&id).wait(wait).unrelated(unrelated);
                        builder = builder.model(&agent.model, agent.context_length);
                        builder = builder.max_output_tokens(agent.max_output_tokens).note(note);
                        if own {
                            builder = builder.own_summaries();
                        }
                        if let Some(engine) = &engine {
                            builder = builder.engine(engine);
                        }
                        builder.open().map_err(of_session).map(|session| {
                            state.session = Some(session);
                            state.agent = Some(agent.clone());
                        })
                    }
                }
            };
            if opened.is_err() {
                let _ = self.open.let_go(&shared);
            }
            opened.map(|()| shared)
        })?;
        Ok(Session::new(Arc::clone(&self.open), shared, format, note))
    }

    /// Nothing is left open by a host; its sessions are closed on their own.
    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, _error: &Bound<'_, PyTuple>) {}
}

/// Tools in OpenAI's form of a function.
pub(crate) fn functions(tools: &[ToolSpec]) -> Value {
    let function = |tool: &ToolSpec| {
        json!({
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
            },
        })
    };
    Value::Array(tools.iter().map(function).collect())
}
