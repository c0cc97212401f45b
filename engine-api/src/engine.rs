//! The interface that an engine implements.
//!
//! A host talks to an engine through three traits. [`ContextEngine`] is the engine of one session:
//! it decides when to compact, proposes the new window, and may offer tools to the agent.
//! [`StandaloneEngine`] adds how such an engine is opened, and is all that an engine needs if its
//! sessions share nothing. [`EngineFactory`] replaces it if the sessions share something, such as a
//! store.
//!
//! Read [`ContextEngine`] first. Only two of its methods have no default body, so an engine can
//! start with these and override others when it needs them. This module holds no logic of its own:
//! the registry is in the module `definition`, and [`protocol`](crate::protocol) carries calls to
//! engines in plugins and other processes.

use crate::about::{About, HostInfo};
use crate::background::BackgroundCall;
use crate::compaction::{Committed, Compaction, CompressRequest, Outcome};
use crate::delivery::{Delivery, Follow};
use crate::error::EngineError;
use crate::message::MessageId;
use crate::model::{ModelAnswer, ModelFailure};
use crate::services::OpenRequest;
use crate::store::StoreCommand;
use crate::tool::{ToolCall, ToolSpec};
use crate::window::{Decision, Usage, WindowState};

/// The engine of one conversation. The host opens one object for each session and calls it from one
/// thread at a time. Every call has a deadline. If a call does not return in time, the host goes on
/// without it.
///
/// The trait requires two methods, and [`StandaloneEngine`] adds [`open`](StandaloneEngine::open)
/// for engines whose sessions share nothing. This is a complete engine that keeps the last ten messages:
///
/// ```
/// use contexture_engine_api::*;
///
/// struct LastTen;
///
/// impl StandaloneEngine for LastTen {
///     fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
///         Ok(LastTen)
///     }
/// }
///
/// impl ContextEngine for LastTen {
///     fn should_compress(&self, window: &WindowState) -> Decision {
///         if window.best_prompt_tokens() * 2 >= window.context_length {
///             Decision::Yes("half of the window is full".into())
///         } else {
///             Decision::No("less than half of the window is full".into())
///         }
///     }
///
///     fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
///         let messages = request.messages;
///         let cut = safe_cut(messages, messages.len().saturating_sub(10));
///         if cut == 0 {
///             return Ok(Outcome::NothingToDo("ten messages or fewer".into()));
///         }
///         let mut entries = vec![Entry::summary(
///             format!("{cut} earlier messages were left out."),
///             messages[..cut].iter().map(|message| message.id()).collect(),
///         )];
///         entries.extend(messages[cut..].iter().map(|message| Entry::Keep(message.id())));
///         Ok(Outcome::Compacted(Compaction::new(entries)))
///     }
/// }
///
/// register_engine!("last-ten", LastTen); // or `export_engine!` in a cdylib
/// # let calls = [ToolCallView::new("c", "ls", "{}")];
/// # let messages: Vec<_> = (0..20)
/// #     .map(|i| MessageView::new(MessageId(i), if i % 2 == 0 { "user" } else { "assistant" }))
/// #     .collect();
/// # let mut engine = LastTen;
/// # let order = CompressOrder::default();
/// # let outcome = engine.compress(&CompressRequest::new(&messages, &order));
/// # assert!(matches!(outcome, Ok(Outcome::Compacted(c)) if c.entries.len() == 11));
/// ```
pub trait ContextEngine: Send {
    /// Decides whether to compact now, and gives the reason. The host asks this on every turn, so
    /// the answer must be cheap.
    ///
    /// If [`estimated`](WindowState::estimated) is set, nothing was counted yet, and the figures are
    /// rough and rather too high. The host takes a no as it is. Before it acts on a yes, it counts
    /// the window and asks again.
    fn should_compress(&self, window: &WindowState) -> Decision;

    /// Proposes a new window. The engine must not change anything durable that the window depends
    /// on yet, because the host may still refuse the proposal. It makes such changes in
    /// [`committed`](Self::committed).
    ///
    /// # Errors
    /// Returns an error if the engine cannot make a proposal. The conversation then stays as it is.
    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError>;

    /// Shows the engine how the conversation changed since it was last called. Messages come in
    /// order.
    ///
    /// The host records how far an engine was shown the conversation, in the same transaction as
    /// the turn. This record moves when the call has returned without an error. If the call failed,
    /// was given up, or the process ended before the record was written, the same messages come
    /// again. If another engine takes over a session, it is shown the conversation from its
    /// beginning, whether or not it had the session before. So a delivery may go back, and then
    /// everything from its first message on comes again. An engine recognises messages by their ids
    /// and must not count them twice.
    ///
    /// The record stays when the engine is opened again. An engine that needs earlier messages then
    /// reads them with [`transcript`](crate::HostServices::transcript), or keeps what it derived
    /// from them as an [artifact](crate::HostServices::put_artifact).
    ///
    /// # Errors
    /// Returns an error if the engine's store failed. The host shows the delivery again later.
    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let _ = delivery;
        Ok(())
    }

    /// Makes several of these calls in one, which saves round trips if the engine runs in another
    /// process. Returns the decision if the step asks for one. Only hosts call it, and engines do
    /// not override it.
    ///
    /// # Errors
    /// Returns the error of [`observe`](Self::observe).
    #[doc(hidden)]
    fn follow(&mut self, step: &Follow<'_>) -> Result<Option<Decision>, EngineError> {
        one_by_one(self, step)
    }

    /// Tells the engine what the provider reported for the last answer. An engine may use the
    /// figures to correct its own estimates.
    fn update_usage(&mut self, usage: &Usage) {
        let _ = usage;
    }

    /// Does only the cheap part of a compaction: it shortens old tool results, writes no summary
    /// and calls no model.
    ///
    /// # Errors
    /// Returns an error as [`compress`](Self::compress) does.
    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        let _ = request;
        Ok(Outcome::NothingToDo(
            "this engine does not prune tool results on their own".into(),
        ))
    }

    /// Changes the window before a request, whether or not a compaction is due. Returns `None` if
    /// there is nothing to change. The host checks the proposal against the contract and commits
    /// it, so the change stays. The window may grow only by notices and by restored messages. The
    /// host calls this only if [`About::rewrites`] is set, and calls
    /// [`should_compress`](Self::should_compress) after it.
    ///
    /// # Errors
    /// Returns an error if the engine failed. The window then stays as it is.
    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        let _ = request;
        Ok(None)
    }

    /// Proposes a view of the window for this request only, which does not affect the next one.
    /// Returns `None` to send the window as it is. The host calls this only if [`About::selects`]
    /// is set.
    ///
    /// # Errors
    /// Returns an error if the engine failed. The window is then sent as it is.
    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let _ = request;
        Ok(None)
    }

    /// Tells the engine that its proposal was checked and stored and is now in force. This must be
    /// idempotent, because the host calls it again when a crash leaves open whether the engine
    /// heard it.
    fn committed(&mut self, committed: &Committed) {
        let _ = committed;
    }

    /// Tells the engine that its proposal was refused, and why. The window is unchanged, so the
    /// engine drops whatever it prepared for this compaction.
    fn discarded(&mut self, compaction: u64, reason: &str) {
        let _ = (compaction, reason);
    }

    /// Decides whether the model may call tools in its answer to this request. By default it may.
    /// The host calls this only if [`About::limits_tool_calls`] is set. If the answer is no, the
    /// host writes that into the request and tells the agent.
    fn may_call_tools(&self, window: &WindowState) -> Decision {
        let _ = window;
        Decision::Yes("there is no limit".into())
    }

    /// Returns the tools that the engine offers to the agent. The list is empty by default.
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// Answers a call of one of the engine's tools with text for the model.
    ///
    /// # Errors
    /// Returns [`EngineError::InvalidInput`] with the reason if the arguments are wrong, or another
    /// error if the call failed.
    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        Err(EngineError::Unsupported(format!(
            "the tool `{}`",
            call.name
        )))
    }

    /// Returns the messages that the engine's tool calls asked to restore since this was last
    /// called.
    ///
    /// An engine restores them itself with the next request
    /// ([`Entry::Restore`](crate::Entry::Restore)). The host calls this only if the tool call did
    /// not come from the conversation itself but was made in a session that receives no request.
    /// The host then stores the wish with the messages, as [`RESTORE_WISH`](crate::RESTORE_WISH),
    /// for the session that handles the next request.
    fn wants_restored(&mut self) -> Vec<MessageId> {
        Vec::new()
    }

    /// Tells the engine that a turn is over: the answer was observed and its usage reported.
    fn turn_complete(&mut self) {}

    /// Returns the model calls that the engine wants made between turns, based on the window as it
    /// is then. The host answers each call exactly once, through
    /// [`background_done`](Self::background_done).
    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let _ = request;
        Vec::new()
    }

    /// Receives the answer to a background call. The engine only stages it: the window does not
    /// change until the next [`compress`](Self::compress).
    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let _ = (id, answer);
    }

    /// Tells the engine that the agent's model changed, and with it the size of the window. Limits
    /// that the engine derived from the old window are no longer valid.
    fn model_changed(&mut self, window: &WindowState) {
        let _ = window;
    }

    /// Forgets the conversation and starts a new one under the same session.
    ///
    /// # Errors
    /// Returns an error if the engine's store failed.
    fn reset(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Tells the engine that the session is closed. No method is called after this. If the engine
    /// has work that should survive the session, it saves it now.
    fn end(&mut self) {}

    /// Returns whatever a person or a monitoring tool may want to know, as a JSON object. By
    /// default the object is empty.
    fn status(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
}

/// Makes the calls of a step one after the other and stops at the first error. Returns the engine's
/// decision if one was asked for.
pub(crate) fn one_by_one(
    engine: &mut (impl ContextEngine + ?Sized),
    step: &Follow<'_>,
) -> Result<Option<Decision>, EngineError> {
    if let Some(delivery) = &step.delivery {
        engine.observe(delivery)?;
    }
    Ok(step.window.map(|window| engine.should_compress(window)))
}

/// An engine whose sessions share nothing. Implement this if each session can be opened from its
/// [`OpenRequest`] alone. Otherwise implement [`EngineFactory`].
pub trait StandaloneEngine: ContextEngine + Sized + 'static {
    /// Describes the engine to the given host. The host calls this once per process, before it
    /// opens any session, so the answer must not depend on settings.
    fn about(host: &HostInfo) -> About {
        let _ = host;
        About::default()
    }

    /// Opens the engine of one session.
    ///
    /// # Errors
    /// Returns an error if the settings make no sense or a store cannot be opened.
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError>;

    /// Answers a command about what the engine keeps, as [`EngineFactory::manage`] does. An engine
    /// that keeps files for each session should handle [`Delete`](StoreCommand::Delete), because
    /// nobody else removes these files when the session is deleted.
    ///
    /// # Errors
    /// Returns an error as [`EngineFactory::manage`] does.
    fn manage(
        command: &StoreCommand,
        engine: &FactoryRequest<'_>,
    ) -> Result<serde_json::Value, EngineError> {
        let _ = (command, engine);
        Err(EngineError::Unsupported("keeping sessions".to_owned()))
    }
}

/// Opens the engines of sessions that share something, such as a store and its writer. The host
/// makes one factory for each process and data directory. An engine whose sessions share nothing
/// implements [`StandaloneEngine`] instead.
pub trait EngineFactory: Send + Sync {
    /// Makes the factory.
    ///
    /// # Errors
    /// Returns an error if the settings make no sense or a store cannot be opened.
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError>
    where
        Self: Sized;

    /// Describes the engine to the given host, as [`StandaloneEngine::about`] does.
    fn about(host: &HostInfo) -> About
    where
        Self: Sized,
    {
        let _ = host;
        About::default()
    }

    /// Opens the engine of one session.
    ///
    /// # Errors
    /// Returns an error as [`StandaloneEngine::open`] does.
    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError>;

    /// Answers a command about what the engine keeps, with a JSON object for a person.
    ///
    /// # Errors
    /// Returns [`EngineError::Unsupported`] if the engine keeps nothing, and another error if its
    /// store failed or the session does not exist.
    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        let _ = command;
        Err(EngineError::Unsupported("keeping sessions".to_owned()))
    }
}

/// What a factory is made with. The host fills it in, and an engine reads it in
/// [`EngineFactory::create`] and [`StandaloneEngine::manage`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FactoryRequest<'a> {
    /// The settings under `context.engines.<name>` as JSON text, or `{}` if there are none.
    pub settings: &'a str,
    /// The engine's own directory. It exists before the first session is opened, but it may not
    /// exist yet when a [`StoreCommand`] arrives.
    pub data_dir: &'a std::path::Path,
    /// What the host says of itself: its version and the features that an engine may use.
    pub host: &'a HostInfo,
}

impl<'a> FactoryRequest<'a> {
    /// Creates a request with these settings and this data directory for the given host.
    pub const fn new(settings: &'a str, data_dir: &'a std::path::Path, host: &'a HostInfo) -> Self {
        Self {
            settings,
            data_dir,
            host,
        }
    }
}
