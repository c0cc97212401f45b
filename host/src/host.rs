//! The entry point for programs that embed Contexture.
//!
//! A [`Host`] holds what all sessions share: the configuration, the engines that it selects, the
//! model that summarises, and the record of sessions. A program opens it once, with
//! [`HostOptions`], and shares it between its threads.
//!
//! [`Host::session`] returns a [`SessionBuilder`], which opens a new session or resumes an existing
//! one. [`Host::reload`] and [`Host::look_at_plugins`] pick up changes while the program runs.
//! Sessions that are already open keep what they were opened with.
//!
//! The work on requests is done by [`Session`], in another crate.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture_base::{lock, secret_if_readable};
use contexture_config::{Config, ConfigError, Loaded};
use contexture_engine_api::{MessageId, ToolSpec};
use contexture_providers::{
    LentModel, ModelClient, NoModel, ProviderError, Resolved, configured_agent, configured_client,
    resolve_configured,
};
use contexture_replay::Report;
use contexture_runtime::engines::{Engines, NameTaken, OpenError};
use contexture_session::{
    AgentWindow, BackgroundBy, Peers, Session, SessionError, SessionOptions, TempHome,
    TempHomeError, Unrelated,
};
use contexture_transcript::{Record, RecordError};
use derive_setters::Setters;

use crate::gateway_token::{GatewayToken, TokenError};
use crate::mask_secrets;
use crate::open_record::open_record_or_later;

/// How long [`Host::delete_session`] waits for a session that is in use.
const DELETE_WAIT: Duration = Duration::from_secs(2);

/// Why a host or a session of it cannot be opened. It displays as the underlying error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The configuration cannot be read, or it is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configured model cannot be used.
    #[error(transparent)]
    Provider(#[from] ProviderError),
    /// Two engines have the same name.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The record of sessions cannot be opened or read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The temporary directory for the data of engines cannot be made.
    #[error(transparent)]
    TempHome(#[from] TempHomeError),
    /// An engine could not be opened.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// An engine could not delete what it derived from a session.
    #[error(transparent)]
    Engine(#[from] OpenError),
    /// The configuration that was read again sets nothing, although the one in force does. Whoever
    /// replaces a file may have emptied or removed it for a moment. The defaults would remove what
    /// protects a gateway, such as its tokens.
    #[error(
        "{} is empty or gone: write it again, or restart the program if you mean the defaults",
        .0.display()
    )]
    Emptied(PathBuf),
}

/// Where a host finds its files, and what it may do. The defaults are those of the command line, so
/// a program and the command line share sessions. Each field has a setter of its name.
#[derive(Debug, Clone, Default, Setters)]
#[non_exhaustive]
pub struct HostOptions {
    /// The home directory. By default it is `$CONTEXTURE_HOME`, and `~/.contexture` if that is not
    /// set.
    pub home: Option<PathBuf>,
    /// The configuration file. By default it is `config.yaml` in the home directory.
    pub config: Option<PathBuf>,
    /// Whether nothing may leave the machine, so that no provider is asked.
    pub offline: bool,
    /// Whether an unknown key of the configuration is an error. By default it is only a warning,
    /// because many users may share a configuration. A program that has one of its own wants to know
    /// of a misspelled key.
    pub strict: bool,
    /// A model of the embedding program. It answers if the configuration says to use the agent's
    /// model (`auxiliary.compression.provider: auto` or `main`) but does not say which model that
    /// is.
    pub model: Option<LentModel>,
    /// Whether the host opens also if the database of sessions does not answer. Until it does, no
    /// session can be opened, and [`Record::outage`] says why. By default it is an error.
    pub database_may_be_away: bool,
}

impl HostOptions {
    /// Returns options with another home directory than the user's.
    pub fn in_home(home: impl Into<PathBuf>) -> Self {
        Self {
            home: Some(home.into()),
            ..Self::default()
        }
    }

    /// Returns the home directory that a host with these options has, as an absolute path with links
    /// resolved if it exists. Two hosts with the same one would lock each other out. `None` if no home
    /// directory can be determined.
    pub fn place(&self) -> Option<PathBuf> {
        let home = contexture_config::home(&|name| self.variable(name)).ok()?;
        Some(home.canonicalize().unwrap_or(home))
    }

    /// Reads a variable of the environment. The home of the options counts for everything that the
    /// configuration derives from it.
    fn variable(&self, name: &str) -> Option<OsString> {
        match (&self.home, name) {
            (Some(home), "CONTEXTURE_HOME") => Some(home.clone().into_os_string()),
            _ => std::env::var_os(name),
        }
    }
}

/// The engines of a configuration and the record of their sessions. Open it once and share it
/// between all threads. A [`Session`], by contrast, is used by one thread at a time.
#[derive(Debug)]
pub struct Host {
    /// Kept to read the configuration again.
    options: HostOptions,
    /// The engines of the configuration that is in force. A session keeps the engines that it was
    /// opened with.
    engines: Mutex<Arc<Engines>>,
    record: Arc<Record>,
}

impl Host {
    /// Opens a host with the user's configuration. API keys come from the environment.
    ///
    /// # Errors
    /// Returns an error if the configuration or the home directory cannot be used. A damaged record
    /// of sessions is only a warning, because sessions can go on without it
    /// ([`Record::stands_in`]).
    pub fn open(options: &HostOptions) -> Result<Self, HostError> {
        let loaded = read(options)?;
        let options = HostOptions {
            // Fixed here, so that a later change of the working directory or the environment does
            // not move them.
            home: Some(loaded.home.clone()),
            config: options.config.as_ref().and(loaded.path.clone()),
            ..options.clone()
        };
        let record = match open_record_or_later(&loaded, options.database_may_be_away) {
            Err(damage) if damage.is_damage() => {
                tracing::warn!("sessions continue without their record: {damage}");
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

    /// Reads the configuration again. Open sessions go on unchanged. Sessions that are opened from
    /// now on use the new configuration. If it selects another engine than a session had before,
    /// the session's warnings say so.
    ///
    /// # Errors
    /// Returns an error if the new configuration is wrong, including the settings of engines, or if
    /// its file has become empty or was removed. The last good configuration then stays in force,
    /// and the log contains a warning.
    pub fn reload(&self) -> Result<(), HostError> {
        self.reload_if(|_| Ok(()))
    }

    /// Like [`reload`](Self::reload), but the program checks the new configuration as well. Nothing
    /// changes unless `check` accepts it. Returns what `check` makes of it.
    ///
    /// # Errors
    /// As [`reload`](Self::reload), or `check` refuses the new configuration.
    pub fn reload_if<T, E: From<HostError> + std::fmt::Display>(
        &self,
        check: impl FnOnce(&Engines) -> Result<T, E>,
    ) -> Result<T, E> {
        let old = self.engines();
        let read = read(&self.options).and_then(|loaded| match &old.loaded().path {
            Some(file) if loaded.is_empty() && !old.loaded().is_empty() => {
                Err(HostError::Emptied(file.clone()))
            }
            _ => engines_of(loaded, &self.options),
        });
        let checked = read.and_then(|engines| {
            // The settings of engines are checked here already, so that a bad value does not
            // replace a good configuration.
            let wrong = engines.catalog().wrong_settings(engines.loaded());
            match wrong.is_empty() {
                true => Ok(engines),
                false => Err(ConfigError::Invalid(wrong).into()),
            }
        });
        let checked = checked.map_err(E::from);
        let checked = checked.and_then(|engines| check(&engines).map(|made| (engines, made)));
        match checked {
            Ok((engines, made)) => {
                // Dropped after the lock is released: the old engines may take time to end, and
                // nobody should wait for that.
                let _old = std::mem::replace(&mut *lock(&self.engines), engines);
                Ok(made)
            }
            Err(error) => {
                tracing::warn!("the last good configuration stays in force: {error}");
                Err(error)
            }
        }
    }

    /// Returns the engines of the configuration that is in force.
    pub fn engines(&self) -> Arc<Engines> {
        Arc::clone(&lock(&self.engines))
    }

    /// Checks whether plugins were installed, built or removed. If so, sessions that are opened from
    /// now on use the new plugins with the same configuration as before, and the result is true.
    /// Nothing changes if the configuration was read again meanwhile, because that looked at the
    /// plugins as well. Opening a session calls this, so a program rarely has to.
    pub fn look_at_plugins(&self) -> bool {
        let engines = self.engines();
        if !engines.has_other_plugins() {
            return false;
        }
        match Engines::new(engines.loaded().clone(), engines.client().clone()) {
            Ok(again) => {
                let mut current = lock(&self.engines);
                // These are the engines of another configuration, if it was read again meanwhile.
                if !Arc::ptr_eq(&current, &engines) {
                    return false;
                }
                *current = again;
                // The old engines are dropped after the lock is released, as in `reload`.
                drop(current);
                tracing::info!(
                    "the plugins changed: sessions that are opened from now on use the new ones"
                );
                true
            }
            Err(error) => {
                tracing::warn!("the plugins changed, but the old ones stay in use: {error}");
                false
            }
        }
    }

    /// Returns the token of this home directory's gateway. The file is read again on every call,
    /// and created on the first.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or created, if others may have written it, or if
    /// it does not contain a token.
    pub fn gateway_token(&self) -> Result<GatewayToken, TokenError> {
        GatewayToken::of(&self.engines().loaded().home)
    }

    /// Returns the record of sessions: which exist, which engine each of them uses, and what was
    /// stored of their messages.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Plays the recorded conversations of a document without an engine and with one, so that their
    /// costs can be compared. `engine` names the engine, and `None` takes the configured one. The
    /// engine finds nothing of the user's sessions, and nothing is stored.
    ///
    /// # Errors
    /// Returns an error if the document cannot be read, or if the engine cannot be used.
    pub fn replay(
        &self,
        document: String,
        agent: &AgentWindow,
        engine: Option<&str>,
    ) -> Result<Report, HostError> {
        let recordings = contexture_formats::read(document, None).map_err(SessionError::from)?;
        let engines = self.engines();
        let stage = TempHome::new(engines.loaded().clone(), engines.client().clone())?;
        Ok(Report::of_document(recordings, agent, &stage, engine)?)
    }

    /// Starts to open a session with this id. If the record knows the session, it is resumed.
    /// Nothing happens until [`SessionBuilder::open`] is called.
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
            agent: AgentWindow::new("", 0, 0),
            options: SessionOptions::default().peers(Some(Peers::of(&self.record, id))),
            tenant: None,
        }
    }

    /// Opens a read-only session next to the one that is in use, to call its engine's tools without
    /// taking part in the conversation. Returns `None` if the record does not know the session.
    ///
    /// # Errors
    /// Returns an error if the record cannot be read or the engine cannot be opened.
    pub fn read_only_session(&self, id: &str) -> Result<Option<Session>, HostError> {
        let Some(delivered) = self.record.delivered(id)? else {
            return Ok(None);
        };
        let SessionBuilder { agent, .. } = self.session(id);
        let options = SessionOptions::default()
            .engine(Some(delivered.engine))
            .read_only(Some(Arc::clone(&self.record)))
            .peers(Some(Peers::of(&self.record, id)));
        Ok(Some(Session::open(
            &self.engines(),
            None,
            id,
            agent,
            options,
        )?))
    }

    /// Stores what a tool call in a session opened by
    /// [`read_only_session`](Self::read_only_session) asked to restore, and returns the ids of
    /// these messages. They return to the conversation with the session's next request.
    ///
    /// # Errors
    /// Returns an error if the engine failed, if the session stays in use elsewhere for too long,
    /// or if the record cannot be written.
    pub fn note_restored(&self, reader: &mut Session) -> Result<Vec<MessageId>, HostError> {
        let wished = reader.wants_restored()?;
        let wait = SessionOptions::default().wait;
        Ok((self.record).wish_restored(reader.id(), Some(&wished), wait)?)
    }

    /// Deletes a session with everything that is stored of it, and what its engine derived from it.
    /// Returns false if the record does not know the session. Waits a moment if the session is in
    /// use.
    ///
    /// # Errors
    /// Returns an error if the session stays in use, if the record cannot be written, or if the
    /// engine fails. In the last case, the record has already forgotten the session.
    pub fn delete_session(&self, id: &str) -> Result<bool, HostError> {
        let Some(session) = self.record.session(id)? else {
            return Ok(false);
        };
        let hold = self.record.hold(id, DELETE_WAIT)?;
        self.record.forget(id, &hold)?;
        self.engines().forget(&session.engine, id)?;
        Ok(true)
    }

    /// Returns the tools that an engine offers to agents, without opening a session. Without a
    /// name, it is the configured engine.
    ///
    /// # Errors
    /// Returns an error if the engine cannot be opened.
    pub fn tools(&self, engine: Option<&str>) -> Result<Vec<ToolSpec>, HostError> {
        let engines = self.engines();
        // A temporary home: asking for tools must not create files for the engine in the user's
        // home directory.
        let stage = TempHome::new(engines.loaded().clone(), engines.client().clone())?;
        let SessionBuilder { agent, .. } = self.session("tools");
        let options = SessionOptions::default().engine(engine.map(str::to_owned));
        let mut session = Session::open(stage.engines(), None, "tools", agent, options)?;
        Ok(session.tools()?)
    }
}

/// A session that is about to be opened. Set what differs from the defaults, then call
/// [`open`](Self::open).
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
    /// Sets the name of the agent's model and the size of its whole window, in tokens.
    pub fn model(mut self, name: &str, context_length: u64) -> Self {
        name.clone_into(&mut self.agent.model);
        self.agent.context_length = context_length;
        self
    }

    /// Sets how much of the window is reserved for the answer, in tokens. By default nothing is
    /// reserved.
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.agent.max_output_tokens = tokens;
        self
    }

    /// Selects an engine. If it cannot be opened, opening the session fails. Without this, a new
    /// session uses the configured engine. A resumed session keeps its engine, unless the
    /// configuration names another one in `context.engine`.
    pub fn engine(mut self, name: &str) -> Self {
        self.options.engine = Some(name.to_owned());
        self
    }

    /// Sets what happens to a request that belongs to another conversation. See [`Unrelated`].
    pub fn unrelated(mut self, unrelated: Unrelated) -> Self {
        self.options.unrelated = unrelated;
        self
    }

    /// Puts a summary at the head of the window into a message of its own, which is an assistant
    /// message if a user message follows. See
    /// [`RenderPlan::own_summaries`](contexture_formats::RenderPlan::own_summaries). By default the
    /// summary is part of the user message.
    pub fn own_summaries(mut self) -> Self {
        self.options.own_summaries = true;
        self
    }

    /// Sets whether a compaction may append its note to the system prompt. By default it may.
    pub fn note(mut self, note: bool) -> Self {
        self.options.note = note;
        self
    }

    /// Leaves the engine's model calls between turns to the embedding program. See
    /// [`Session::background`]. By default a thread of the session makes them.
    pub fn background_by_embedder(mut self) -> Self {
        self.options.background = BackgroundBy::Embedder;
        self
    }

    /// Sets the name of the provider that serves the agent's model. It decides on prompt cache
    /// markers, in place of the configuration's `model` section.
    pub fn provider(mut self, name: &str) -> Self {
        self.options.provider = Some(name.to_owned());
        self
    }

    /// Adds the engine's tools to the requests, even if the engine leaves that to the agent. They
    /// are added once a compaction is in force, if the window has space for them. Answer their
    /// calls with [`Session::call_tool`].
    pub fn offer_tools(mut self) -> Self {
        self.options.offer_tools = true;
        self
    }

    /// Sets how long to wait if the session is open elsewhere. The default is 30 seconds.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = wait;
        self
    }

    /// Sets whose session this is, if several people share the home directory. Engines whose tools
    /// look into other sessions then see only those of the same tenant. A session that the record
    /// already knows is not changed.
    pub fn tenant(mut self, name: &str) -> Self {
        self.tenant = Some(name.to_owned());
        self
    }

    /// Opens the session, or resumes it.
    ///
    /// # Errors
    /// Returns an error as [`Session::open`] does.
    pub fn open(mut self) -> Result<Session, SessionError> {
        // Sessions that are opened later find plugins that were installed while the program ran.
        self.host.look_at_plugins();
        if let Some(tenant) = &self.tenant {
            self.host.record.set_tenant(&self.id, tenant)?;
        }
        let (engines, record) = (self.host.engines(), &self.host.record);
        if self.options.engine.is_none() {
            // If the record cannot be read, the session's own warnings say so.
            let delivered = record.delivered(&self.id).ok().flatten();
            let own = delivered
                .as_ref()
                .map(|delivered| delivered.engine.as_str());
            // An engine that is named has no fallback, and the configured one need not be named.
            let own = engines.loaded().engine_to_go_on(own);
            let configured = &engines.config().context.engine;
            self.options.engine = own.filter(|own| own != configured).map(str::to_owned);
        }
        let mut session =
            Session::open(&engines, Some(record), &self.id, self.agent, self.options)?;
        session.warn_of_takeover();
        Ok(session)
    }
}

fn read(options: &HostOptions) -> Result<Loaded, HostError> {
    let variable = |name: &str| options.variable(name);
    let loaded = Config::load(options.config.as_deref(), &variable)?;
    if options.strict && !loaded.warnings.is_empty() {
        return Err(ConfigError::Invalid(loaded.warnings).into());
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    Ok(loaded)
}

fn engines_of(loaded: Loaded, options: &HostOptions) -> Result<Arc<Engines>, HostError> {
    let agent = configured_agent(&loaded.config, None)?;
    let model = resolve_configured(
        &loaded.config,
        agent.as_ref(),
        options.offline,
        &secret_if_readable,
    )?;
    // The program's own model only answers if the configuration names no model for the agent.
    let client = match (model, &options.model) {
        (Resolved::NoModel(NoModel::NoAgent(_)), Some(lent)) => {
            ModelClient::lent(lent.clone(), mask_secrets)
        }
        (model, _) => configured_client(&loaded.config, model),
    };
    Ok(Engines::new(loaded, client)?)
}
