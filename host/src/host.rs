//! What an embedder opens once: the configuration, the engines that it gives access to, the model that
//! summarises, and the record of sessions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_base::lock;
use contexture_config::{Config, ConfigError, Loaded};
use contexture_engine_api::{MessageId, ToolSpec};
use contexture_providers::{
    LentModel, ModelClient, NoModel, ProviderError, Resolved, configured_agent, configured_client,
    resolve_configured,
};
use contexture_runtime::engines::{Engines, NameTaken};
use contexture_session::{
    AgentWindow, BackgroundBy, Peers, Record, RecordError, Session, SessionError, SessionOptions,
    Unrelated,
};
use contexture_session::{Stage, StageError};

use crate::gateway_token::{GatewayToken, TokenError};
use crate::mask_secrets;

/// Why a host cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The configuration cannot be read or makes no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configured model cannot be used.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Two engines have the same name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The record of sessions cannot be used.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is no room for an engine's data.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// An engine cannot be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Where a host finds what it needs. The default is what the command line takes, too.
#[derive(Debug, Clone, Default)]
pub struct HostOptions {
    /// The home directory; by default `$CONTEXTURE_HOME`, else `~/.contexture`.
    pub home: Option<PathBuf>,
    /// The configuration file; by default `config.yaml` in the home directory.
    pub config: Option<PathBuf>,
    /// Whether nothing may leave the machine.
    pub offline: bool,
    /// The embedding program's own model: it answers where the configuration follows the agent's
    /// (`auxiliary.compression.provider: auto` or `main`) and says nothing of that.
    pub model: Option<LentModel>,
}

impl HostOptions {
    /// A home directory other than the user's.
    pub fn in_home(home: impl Into<PathBuf>) -> Self {
        Self {
            home: Some(home.into()),
            ..Self::default()
        }
    }
}

/// The engines of a configuration and the record of their sessions. Opened once and shared by all threads; a
/// [`Session`] is one thread's at a time.
#[derive(Debug)]
pub struct Host {
    /// Where the configuration is read from, again too.
    options: HostOptions,
    /// Those of the configuration in force. A session keeps the ones that it was opened with.
    engines: Mutex<Arc<Engines>>,
    record: Arc<Record>,
}

impl Host {
    /// Opens the host of the user's configuration. Keys come from the environment.
    ///
    /// # Errors
    /// What is wrong with the configuration or the home directory. A damaged record of sessions is only a warning:
    /// sessions go on without it ([`Record::stands_in`]).
    pub fn open(options: &HostOptions) -> Result<Self, HostError> {
        let loaded = read(options)?;
        let options = HostOptions {
            // Neither another working directory nor another environment moves them.
            home: Some(loaded.home.clone()),
            config: options.config.as_ref().and(loaded.path.clone()),
            offline: options.offline,
            model: options.model.clone(),
        };
        let record = match Record::open(&loaded.home) {
            Err(damage) if damage.is_damage() => {
                tracing::warn!("sessions go on without their record: {damage}");
                Record::standing_in(&loaded.home, &damage.to_string())?
            }
            record => record?,
        };
        Ok(Self {
            engines: Mutex::new(engines_of(loaded, &options)?),
            options,
            record,
        })
    }

    /// Reads the configuration again. What is open goes on as it is; a session that is opened from now on has the new
    /// configuration, and where that names another engine than had the session, the session's warnings say so.
    ///
    /// # Errors
    /// What is wrong with it, the settings of engines included. The last good configuration then stays in force, and a
    /// warning in the log says so.
    pub fn reload(&self) -> Result<(), HostError> {
        let read = read(&self.options).and_then(|loaded| engines_of(loaded, &self.options));
        let checked = read.and_then(|engines| {
            let wrong = engines.catalog().wrong_settings(engines.loaded());
            match wrong.is_empty() {
                true => Ok(engines),
                false => Err(ConfigError::Invalid(wrong).into()),
            }
        });
        match checked {
            Ok(engines) => {
                // The old ones may take their time to end, and nobody is to wait for that.
                let _old = std::mem::replace(&mut *lock(&self.engines), engines);
                Ok(())
            }
            Err(error) => {
                tracing::warn!("the last good configuration stays in force: {error}");
                Err(error)
            }
        }
    }

    /// The engines of the configuration in force.
    pub fn engines(&self) -> Arc<Engines> {
        Arc::clone(&lock(&self.engines))
    }

    /// Checks whether plugins were installed, built or removed. If so, sessions that are opened from now on use the new
    /// ones, with the same configuration as before. Opening a session calls this. Returns whether anything changed.
    pub fn look_at_plugins(&self) -> bool {
        let engines = self.engines();
        if !engines.has_other_plugins() {
            return false;
        }
        match Engines::new(engines.loaded().clone(), engines.client().clone()) {
            Ok(again) => {
                tracing::info!(
                    "the plugins changed: sessions that are opened from now on use the new ones"
                );
                let _old = std::mem::replace(&mut *lock(&self.engines), again);
                true
            }
            Err(error) => {
                tracing::warn!("the plugins changed, but the old ones stay in use: {error}");
                false
            }
        }
    }

    /// The token of this home directory's gateway. It is read again each time, and made the first time.
    ///
    /// # Errors
    /// The file cannot be read or made, others may have written it, or it holds no token.
    pub fn gateway_token(&self) -> Result<GatewayToken, TokenError> {
        GatewayToken::of(&self.engines().loaded().home)
    }

    /// The record of sessions.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Begins to open a session, or to go on with it.
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use contexture::{Host, HostOptions};
    ///
    /// let host = Host::open(&HostOptions::default())?;
    /// let mut session = host.session("work").model("gpt-4o", 128_000).open()?;
    /// let turn = session.turn(r#"{"messages": [{"role": "user", "content": "Hello"}]}"#)?;
    /// // … send `turn.body` to the model, and then:
    /// session.answer(&[r#"{"role": "assistant", "content": "Hello!"}"#], None)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn session(&self, id: &str) -> SessionBuilder<'_> {
        SessionBuilder {
            host: self,
            id: id.to_owned(),
            agent: AgentWindow {
                model: String::new(),
                context_length: 0,
                max_output_tokens: 0,
            },
            options: SessionOptions {
                peers: Some(Peers::of(&self.record, id)),
                ..SessionOptions::default()
            },
            tenant: None,
        }
    }

    /// A session beside whoever has it open: to call its engine's tools, and to take no part in it. None where the record
    /// knows of no such session.
    ///
    /// # Errors
    /// The record cannot be read, or the engine cannot be had.
    pub fn beside(&self, id: &str) -> Result<Option<Session>, HostError> {
        let Some(delivered) = self.record.delivered(id)? else {
            return Ok(None);
        };
        let SessionBuilder { agent, .. } = self.session(id);
        let options = SessionOptions {
            engine: Some(delivered.engine),
            beside: Some(Arc::clone(&self.record)),
            peers: Some(Peers::of(&self.record, id)),
            ..SessionOptions::default()
        };
        Ok(Some(Session::open(
            &self.engines(),
            None,
            id,
            agent,
            options,
        )?))
    }

    /// Writes to the record what a tool call in a session [beside](Self::beside) the open one asked to restore. The
    /// messages return to the conversation with the session's next request. Returns these messages.
    ///
    /// # Errors
    /// The engine failed, the session stays open elsewhere, or the record cannot be written.
    pub fn note_restored(&self, beside: &mut Session) -> Result<Vec<MessageId>, HostError> {
        let wished = beside.wants_restored()?;
        if wished.is_empty() {
            return Ok(wished);
        }
        let id = beside.id();
        let _hold = self.record.hold(id, SessionOptions::default().wait)?;
        Ok(self.record.wish_restored(id, Some(&wished))?)
    }

    /// The tools that an engine gives to agents, without any session: of the configured engine, or of this one.
    ///
    /// # Errors
    /// The engine cannot be had.
    pub fn tools(&self, engine: Option<&str>) -> Result<Vec<ToolSpec>, HostError> {
        let engines = self.engines();
        let stage = Stage::new(engines.loaded().clone(), engines.client().clone())?;
        let SessionBuilder { agent, .. } = self.session("tools");
        let options = SessionOptions {
            engine: engine.map(str::to_owned),
            ..SessionOptions::default()
        };
        let mut session = Session::open(stage.engines(), None, "tools", agent, options)?;
        Ok(session.tools()?)
    }
}

/// A session about to be opened.
#[derive(Debug)]
#[must_use = "a session is opened by `open`"]
pub struct SessionBuilder<'h> {
    host: &'h Host,
    id: String,
    agent: AgentWindow,
    options: SessionOptions,
    tenant: Option<String>,
}

impl SessionBuilder<'_> {
    /// The agent's model and its whole window, in tokens.
    pub fn model(mut self, name: &str, context_length: u64) -> Self {
        name.clone_into(&mut self.agent.model);
        self.agent.context_length = context_length;
        self
    }

    /// What of the window is reserved for the answer, in tokens.
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.agent.max_output_tokens = tokens;
        self
    }

    /// This engine: it runs, or opening fails. Without it a known session goes on with its own, unless
    /// `context.engine` is written in the configuration and names another; a new one has the configured one.
    pub fn engine(mut self, name: &str) -> Self {
        self.options.engine = Some(name.to_owned());
        self
    }

    /// What happens to a request of another conversation.
    pub fn unrelated(mut self, unrelated: Unrelated) -> Self {
        self.options.unrelated = unrelated;
        self
    }

    /// Gives a summary at the head of the window a message of its own, which is an assistant message if a user message
    /// follows. See [`RenderPlan::own_summaries`](contexture_formats::RenderPlan::own_summaries). By default the summary
    /// joins the user message.
    pub fn own_summaries(mut self) -> Self {
        self.options.own_summaries = true;
        self
    }

    /// Whether a compaction may append its note to the system prompt; by default it may.
    pub fn note(mut self, note: bool) -> Self {
        self.options.note = note;
        self
    }

    /// The embedder makes the engine's model calls between turns, see [`Session::background`].
    pub fn background_by_embedder(mut self) -> Self {
        self.options.background = BackgroundBy::Embedder;
        self
    }

    /// Who serves the agent's model, by the provider's name: it decides on prompt cache markers in place of the
    /// configuration's `model` section.
    pub fn provider(mut self, name: &str) -> Self {
        self.options.provider = Some(name.to_owned());
        self
    }

    /// The engine's tools are in the requests, also where the engine leaves that to the agent: once a compaction is in
    /// force, where the window has room for them. Their calls are to be answered by [`Session::call_tool`].
    pub fn offer_tools(mut self) -> Self {
        self.options.offer_tools = true;
        self
    }

    /// How long to wait for a session that is open elsewhere; half a minute by default.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// Says whose session it is, if several people share the home directory. Engines whose tools look into other sessions
    /// look into those of the same tenant alone. A session that was somebody's before stays so.
    pub fn tenant(mut self, name: &str) -> Self {
        self.tenant = Some(name.to_owned());
        self
    }

    /// Opens the session.
    ///
    /// # Errors
    /// As [`Session::open`].
    pub fn open(mut self) -> Result<Session, SessionError> {
        self.host.look_at_plugins();
        if let Some(tenant) = &self.tenant {
            self.host.record.set_tenant(&self.id, tenant)?;
        }
        let (engines, record) = (self.host.engines(), &self.host.record);
        if self.options.engine.is_none() {
            // Of a record that cannot be read the session's warnings tell.
            let delivered = record.delivered(&self.id).ok().flatten();
            let own = delivered
                .as_ref()
                .map(|delivered| delivered.engine.as_str());
            self.options.engine = engines.loaded().engine_to_go_on(own).map(str::to_owned);
        }
        let mut session =
            Session::open(&engines, Some(record), &self.id, self.agent, self.options)?;
        session.warn_of_takeover();
        Ok(session)
    }
}

fn read(options: &HostOptions) -> Result<Loaded, HostError> {
    let home = options.home.clone();
    let env = move |name: &str| match (&home, name) {
        (Some(home), "CONTEXTURE_HOME") => Some(home.clone().into_os_string()),
        _ => std::env::var_os(name),
    };
    let loaded = Config::load(options.config.as_deref(), &env)?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded)
}

fn engines_of(loaded: Loaded, options: &HostOptions) -> Result<Arc<Engines>, HostError> {
    let key = |name: &str| std::env::var(name).ok();
    let agent = configured_agent(&loaded.config, None)?;
    let model = resolve_configured(&loaded.config, agent.as_ref(), options.offline, &key)?;
    let client = match (model, &options.model) {
        (Resolved::NoModel(NoModel::NoAgent(_)), Some(lent)) => {
            ModelClient::lent(lent.clone(), mask_secrets)
        }
        (model, _) => configured_client(&loaded.config, model),
    };
    Ok(Engines::new(loaded, client)?)
}
