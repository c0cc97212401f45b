//! What the host lends an engine.

use std::path::Path;
use std::sync::Arc;

use crate::error::EngineError;
use crate::model::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
use crate::transcript::{TranscriptPage, TranscriptRange};

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogLevel {
    /// For whoever debugs the engine.
    Debug,
    /// For whoever runs the agent.
    Warn,
    /// Something is broken.
    Error,
    /// For whoever wants to follow what happens; a level of a later version counts as this one.
    #[serde(other)]
    Info,
}

/// The services that a host lends. None of them calls back into an engine.
pub trait HostServices: Send + Sync {
    /// Whether the host has a service, calls a method or takes an entry of this name: `complete`, `select`,
    /// `stub_result`.
    fn supports(&self, feature: &str) -> bool {
        crate::protocol::features().any(|known| known == feature)
    }
    /// The auxiliary model, where there is one.
    fn model(&self) -> Option<ModelInfo>;
    /// Makes one model call; blocks until it is answered, fails or is cancelled.
    ///
    /// # Errors
    /// Every way in which there is no usable answer, typed.
    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure>;
    /// Makes several model calls side by side; the answers stand in the order of the requests.
    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>>;
    /// Counts the tokens of a text for the agent's model.
    fn count_tokens(&self, text: &str) -> u64;
    /// Writes to the host's log, under the engine's name.
    fn log(&self, level: LogLevel, message: &str);
    /// Whether the host has given up on the current call. Long work asks every few milliseconds and answers
    /// [`EngineError::Cancelled`](crate::EngineError::Cancelled).
    fn is_cancelled(&self) -> bool;
    /// The time, in milliseconds since the Unix epoch.
    fn now_ms(&self) -> i64;
    /// Reads messages of a session as the host keeps them. Cheap enough for a tool call, too slow for every message of
    /// every turn: what is new comes with [`observe`](crate::ContextEngine::observe).
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] if the host keeps no text of this session (see
    /// [`About::reads_transcript`](crate::About::reads_transcript)); [`EngineError::InvalidInput`] if there is no such
    /// session or it may not be read; a store that failed.
    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let _ = range;
        Err(EngineError::Unsupported("the transcript".to_owned()))
    }
    /// Reads an artifact of this engine in this session. `None` if there is none of that name.
    ///
    /// # Errors
    /// As [`transcript`](Self::transcript).
    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        let _ = name;
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// Stores an artifact of this engine in this session, or deletes it if there is no text. It replaces one of the same
    /// name, can be read at once, and becomes durable together with the turn: both, or neither.
    ///
    /// # Errors
    /// As [`transcript`](Self::transcript); [`EngineError::Cancelled`] in a call that the host has given up.
    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        let _ = (name, text);
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// The names of this engine's artifacts in this session that begin with `prefix`, in the order of the names.
    ///
    /// # Errors
    /// As [`transcript`](Self::transcript).
    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        let _ = prefix;
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// Whether what is kept of another session may be shown in this one. Several people may share a store: an engine whose
    /// tools look into other sessions asks before each look, whatever its settings allow. By default all may be shown.
    fn may_read_session(&self, session: &str) -> bool {
        let _ = session;
        true
    }
}

/// The services of the host, cheap to clone and usable from any thread for as long as the session lasts.
#[derive(Clone)]
pub struct Services(Arc<dyn HostServices>);

impl Services {
    /// The services that `host` implements.
    pub fn new(host: Arc<dyn HostServices>) -> Self {
        Self(host)
    }

    /// Services of no host: no model, four bytes a token, a silent log. For the tests of an engine.
    pub fn none() -> Self {
        Self(Arc::new(NoHost))
    }

    /// The host that lends them.
    #[cfg(feature = "host")]
    pub fn host(&self) -> &Arc<dyn HostServices> {
        &self.0
    }
}

impl std::ops::Deref for Services {
    type Target = dyn HostServices;

    fn deref(&self) -> &Self::Target {
        self.0.as_ref()
    }
}

impl std::fmt::Debug for Services {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Services")
    }
}

struct NoHost;

impl NoHost {
    fn no_model() -> ModelFailure {
        ModelFailure::new(FailureKind::NoProvider, "there is no host")
    }
}

impl HostServices for NoHost {
    fn model(&self) -> Option<ModelInfo> {
        None
    }

    fn complete(&self, _request: &ModelRequest) -> Result<ModelAnswer, ModelFailure> {
        Err(Self::no_model())
    }

    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>> {
        requests.iter().map(|_| Err(Self::no_model())).collect()
    }

    fn count_tokens(&self, text: &str) -> u64 {
        (text.len() as u64).div_ceil(4)
    }

    fn log(&self, _level: LogLevel, _message: &str) {}

    fn is_cancelled(&self) -> bool {
        false
    }

    fn now_ms(&self) -> i64 {
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as i64)
    }
}

/// What a session's engine is opened with.
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenRequest<'a> {
    /// The session's id.
    pub session: &'a str,
    /// The settings under `context.engines.<name>` as JSON text; `{}` where there are none.
    pub settings: &'a str,
    /// The engine's own directory (`$CONTEXTURE_HOME/engines/<name>/`); it exists.
    pub data_dir: &'a Path,
    /// The host's services, for the engine to keep.
    pub services: Services,
    /// The window of the agent's model as it is now; empty of messages.
    pub window: &'a crate::WindowState,
    /// The session's current compaction, if any.
    pub compaction: Option<&'a crate::CurrentCompaction>,
}

impl<'a> OpenRequest<'a> {
    /// A session without a compaction.
    pub const fn new(
        session: &'a str,
        settings: &'a str,
        data_dir: &'a Path,
        services: Services,
        window: &'a crate::WindowState,
    ) -> Self {
        Self {
            session,
            settings,
            data_dir,
            services,
            window,
            compaction: None,
        }
    }

    /// The same with this compaction in force.
    #[must_use]
    pub const fn compaction(mut self, compaction: Option<&'a crate::CurrentCompaction>) -> Self {
        self.compaction = compaction;
        self
    }

    /// Reads the settings into `T`.
    ///
    /// # Errors
    /// [`EngineError::Settings`](crate::EngineError::Settings) that names the key and what is wrong.
    pub fn settings<T: serde::de::DeserializeOwned>(&self) -> Result<T, crate::EngineError> {
        serde_json::from_str(self.settings)
            .map_err(|error| crate::EngineError::Settings(error.to_string()))
    }
}
