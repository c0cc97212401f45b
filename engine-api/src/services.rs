//! The services that a host lends to an engine.
//!
//! An engine does not open network connections, count tokens or read the clock itself. It asks its
//! host, so that the host can enforce deadlines, mask secrets, count the cost of model calls, and
//! replace everything in a test.
//!
//! Read [`HostServices`] first, the trait that a host implements. An engine holds it as
//! [`Services`], a cheap handle that it gets with its [`OpenRequest`] and may use from any thread.
//! [`Services::none`] stands in for a host in an engine's own unit tests.
//!
//! What a model call asks and answers is in the module `model`, and what a transcript holds in the
//! module `transcript`.

use std::path::Path;
use std::sync::Arc;

use crate::error::EngineError;
use crate::model::{FailureKind, ModelAnswer, ModelFailure, ModelInfo, ModelRequest};
use crate::transcript::{TranscriptPage, TranscriptRange};

/// How important a log line is. A level that this version does not know is read as
/// [`Info`](Self::Info).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogLevel {
    /// Details that only a developer who debugs the engine wants to see.
    Debug,
    /// Something that the person who runs the agent should look at, although the engine can go on.
    Warn,
    /// Something is broken, and the engine could not do what it was asked to do.
    Error,
    /// What an engine did, for a person who follows its work. A level of a later version is read as
    /// this one.
    #[serde(other)]
    Info,
}

/// The services that a host lends. None of them calls back into an engine, so an engine may hold
/// its own locks during a call.
pub trait HostServices: Send + Sync {
    /// Returns true if the host has a service, calls an engine method, or accepts an entry of this
    /// name, such as `complete`, `select` or `stub_result`.
    fn supports(&self, feature: &str) -> bool {
        crate::methods::features().any(|known| known == feature)
    }
    /// Returns the auxiliary model that [`complete`](Self::complete) asks, or `None` if there is
    /// none.
    fn model(&self) -> Option<ModelInfo>;
    /// Makes one model call and blocks until it is answered, fails, or is cancelled.
    ///
    /// # Errors
    /// Returns a [`ModelFailure`] if there is no usable answer. Its kind says why.
    fn complete(&self, request: &ModelRequest) -> Result<ModelAnswer, ModelFailure>;
    /// Makes several model calls at the same time. The answers are in the order of the requests,
    /// and a call that fails does not affect the others.
    fn complete_many(&self, requests: &[ModelRequest]) -> Vec<Result<ModelAnswer, ModelFailure>>;
    /// Counts the tokens of a text as the agent's model counts them.
    fn count_tokens(&self, text: &str) -> u64;
    /// Writes a line to the host's log, under the engine's name. The line is lost if the host
    /// cannot be reached.
    fn log(&self, level: LogLevel, message: &str);
    /// Returns true if the host has given up on the current call. An engine that works for long
    /// should ask every few milliseconds and return
    /// [`EngineError::Cancelled`](crate::EngineError::Cancelled) when the answer is true.
    fn is_cancelled(&self) -> bool;
    /// Returns the current time in milliseconds since the Unix epoch. A test can set this clock, so
    /// prefer it to the system's.
    fn now_ms(&self) -> i64;
    /// Reads messages of a session from the host's record. This is cheap enough for a tool call,
    /// but too slow to do for every message on every turn. New messages arrive through
    /// [`observe`](crate::ContextEngine::observe).
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the host keeps no text of this session (see
    /// [`About::reads_transcript`](crate::About::reads_transcript)), [`EngineError::InvalidInput`]
    /// if there is no such session or it may not be read, and another error if the store failed.
    fn transcript(&self, range: &TranscriptRange) -> Result<TranscriptPage, EngineError> {
        let _ = range;
        Err(EngineError::Unsupported("the transcript".to_owned()))
    }
    /// Reads an artifact that this engine stored in this session. Returns `None` if there is none
    /// of that name.
    ///
    /// # Errors
    /// Returns an error as [`transcript`](Self::transcript) does.
    fn artifact(&self, name: &str) -> Result<Option<String>, EngineError> {
        let _ = name;
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// Stores an artifact of this engine in this session, or deletes it if `text` is `None`. It
    /// replaces an artifact of the same name and can be read at once. It becomes durable together
    /// with the turn: if the turn is lost, the artifact is lost too.
    ///
    /// # Errors
    /// Returns an error as [`transcript`](Self::transcript) does, and [`EngineError::Cancelled`] if
    /// the host has given up on the current call.
    fn put_artifact(&self, name: &str, text: Option<&str>) -> Result<(), EngineError> {
        let _ = (name, text);
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// Returns the names of this engine's artifacts in this session that begin with `prefix`,
    /// sorted by name.
    ///
    /// # Errors
    /// Returns an error as [`transcript`](Self::transcript) does.
    fn artifacts(&self, prefix: &str) -> Result<Vec<String>, EngineError> {
        let _ = prefix;
        Err(EngineError::Unsupported("artifacts".to_owned()))
    }
    /// Returns true if data of the given session may be shown in this one. Several people may share
    /// a store, so an engine whose tools look into other sessions must ask before each look,
    /// whatever its settings allow. By default every session may be shown.
    fn may_read_session(&self, session: &str) -> bool {
        let _ = session;
        true
    }
}

/// A handle to the services of the host. It is cheap to clone and works from any thread for as long
/// as the session lasts.
#[derive(Clone)]
pub struct Services(Arc<dyn HostServices>);

impl Services {
    /// Wraps an implementation of the services. Hosts and test kits call this, engines do not.
    pub fn new(host: Arc<dyn HostServices>) -> Self {
        Self(host)
    }

    /// Returns services without a host, for the unit tests of an engine. There is no model, a token
    /// is four bytes, and log lines are dropped.
    pub fn none() -> Self {
        Self(Arc::new(NoHost))
    }

    /// Returns the host that lends these services, to lend them again to a plugin.
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
        // Rounded up, so that a short text is never free.
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

/// What the engine of a session is opened with. The host fills it in, and an engine reads it in
/// [`open`](crate::StandaloneEngine::open).
#[derive(Debug)]
#[non_exhaustive]
pub struct OpenRequest<'a> {
    /// The id of the session. It stays the same when the session is resumed.
    pub session: &'a str,
    /// The settings under `context.engines.<name>` as JSON text, or `{}` if there are none.
    pub settings: &'a str,
    /// The engine's own directory (`$CONTEXTURE_HOME/engines/<name>/`). It exists when the session
    /// is opened.
    pub data_dir: &'a Path,
    /// The host's services. The engine clones or keeps them if it needs them after `open` returns.
    pub services: Services,
    /// The window of the agent's model as it is now, without any messages in it yet.
    pub window: &'a crate::WindowState,
    /// The compaction that is in force, or `None` if the session has none. A resumed session
    /// usually has one.
    pub compaction: Option<&'a crate::CurrentCompaction>,
}

impl<'a> OpenRequest<'a> {
    /// Creates a request for a session without a compaction.
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

    /// Sets the compaction that is in force when the session is opened, if there is one.
    #[must_use]
    pub const fn compaction(mut self, compaction: Option<&'a crate::CurrentCompaction>) -> Self {
        self.compaction = compaction;
        self
    }

    /// Parses the settings into `T`.
    ///
    /// # Errors
    /// Returns [`EngineError::Settings`](crate::EngineError::Settings) with the key and the reason
    /// if the settings do not match `T`.
    pub fn settings<T: serde::de::DeserializeOwned>(&self) -> Result<T, crate::EngineError> {
        serde_json::from_str(self.settings)
            .map_err(|error| crate::EngineError::Settings(error.to_string()))
    }
}
