//! The interface of an engine.

use crate::about::{About, HostInfo};
use crate::background::BackgroundCall;
use crate::compaction::{Committed, Compaction, CompressRequest, Outcome};
use crate::delivery::Delivery;
use crate::error::EngineError;
use crate::message::{MessageId, MessageView, Observed};
use crate::model::{ModelAnswer, ModelFailure};
use crate::protocol::follow::{Follow, Followed, one_by_one};
use crate::services::OpenRequest;
use crate::store::StoreCommand;
use crate::tool::{ToolCall, ToolSpec};
use crate::window::{Decision, Usage, WindowState};

/// One conversation's engine. The host opens one object a session and calls it from one thread at a
/// time, each call with a deadline.
///
/// Two methods are required, and [`open`](StandaloneEngine::open) of an engine whose sessions share nothing. A
/// complete engine that keeps the last ten messages:
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
    /// Whether to compact now, with the reason. Cheap: it is asked every turn.
    fn should_compress(&self, window: &WindowState) -> Decision;

    /// Proposes a new window. It changes nothing durable on which the window depends: that waits for
    /// [`committed`](Self::committed).
    ///
    /// # Errors
    /// Whatever kept it from a proposal; the conversation then stays as it is.
    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError>;

    /// How far it has seen the conversation; none for an engine that remembers nothing, which is then
    /// shown only what is new. One that remembers and wants everything shown again says
    /// [`Observed::NOTHING`].
    fn observed_through(&self) -> Option<Observed> {
        None
    }

    /// Sees what became of the conversation: each message exactly once, in order.
    ///
    /// # Errors
    /// A store that failed; nothing is taken in then, and the host shows it again later.
    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let _ = delivery;
        Ok(())
    }

    /// Some of these calls in one, as a host makes them; an engine leaves it as it is.
    ///
    /// # Errors
    /// As [`observe`](Self::observe).
    #[doc(hidden)]
    fn follow(&mut self, step: &Follow<'_>) -> Result<Followed, EngineError> {
        one_by_one(self, step)
    }

    /// Learns what the provider reported for the last answer.
    fn update_usage(&mut self, usage: &Usage) {
        let _ = usage;
    }

    /// A cheap answer before anything is counted, from a rough estimate; by default
    /// [`should_compress`](Self::should_compress) on that estimate.
    fn should_compress_preflight(&self, window: &WindowState) -> Decision {
        self.should_compress(window)
    }

    /// Whether a rough estimate that says "compact" should wait for the usage that the provider will
    /// report instead.
    fn defers_preflight_to_reported_usage(&self, window: &WindowState) -> bool {
        let _ = window;
        false
    }

    /// Whether there is anything in these messages that a compaction could make smaller.
    fn has_content_to_compress(&self, messages: &[MessageView<'_>]) -> bool {
        let _ = messages;
        true
    }

    /// The cheap part of a compaction alone: old tool results shortened, nothing summarised, no model.
    ///
    /// # Errors
    /// As [`compress`](Self::compress).
    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        let _ = request;
        Ok(Outcome::NothingToDo(
            "this engine does not prune tool results on their own".into(),
        ))
    }

    /// What it changes of the window before a request, whether a compaction is due or not; none for nothing. It is
    /// held to the contract, committed, and stays. The window may grow by notices and by what is restored, and by
    /// nothing else. Asked where [`About::rewrites`] says so, and [`should_compress`](Self::should_compress) after it.
    ///
    /// # Errors
    /// The window then stays as it is.
    fn rewrite(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Option<Compaction>, EngineError> {
        let _ = request;
        Ok(None)
    }

    /// A view for this request only, which changes nothing for the next; none for the window as it is. Asked
    /// where [`About::selects`] says so.
    ///
    /// # Errors
    /// The window is then sent as it is.
    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let _ = request;
        Ok(None)
    }

    /// The proposal was checked, stored and is in force. Idempotent: it may be said again after a crash.
    fn committed(&mut self, committed: &Committed) {
        let _ = committed;
    }

    /// The proposal was refused, and why; the window is as it was.
    fn discarded(&mut self, compaction: u64, reason: &str) {
        let _ = (compaction, reason);
    }

    /// The originals of these messages, as JSON text each, where the engine keeps them; none for one
    /// that it does not have, or that is no part of the conversation any more. The host asks when its own
    /// record was lost, when the two disagree, and when another engine takes the session over.
    ///
    /// # Errors
    /// A store that failed.
    fn recall(&mut self, ids: &[MessageId]) -> Result<Vec<Option<String>>, EngineError> {
        Ok(ids.iter().map(|_| None).collect())
    }

    /// Whether the model may call tools in answer to this request; by default it may. Asked where
    /// [`About::limits_tool_calls`] says so. A no is written into the request, and told to the agent.
    fn may_call_tools(&self, window: &WindowState) -> Decision {
        let _ = window;
        Decision::Yes("there is no limit".into())
    }

    /// The tools that it gives to the agent.
    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    /// Answers a call of one of its tools with text for the model.
    ///
    /// # Errors
    /// [`EngineError::InvalidInput`] that says what is wrong with the arguments; anything else that failed.
    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        Err(EngineError::Unsupported(format!(
            "the tool `{}`",
            call.name
        )))
    }

    /// The messages that the engine's tool calls asked to restore since the last call of this function.
    ///
    /// An engine restores them itself with the next request ([`Entry::Restore`](crate::Entry::Restore)). A host calls
    /// this only if the tool call did not come from the conversation itself, but to a session that receives no request.
    /// The host then stores the wish with the messages, as [`RESTORE_WISH`](crate::RESTORE_WISH), for the session that
    /// handles the next request.
    fn wants_restored(&mut self) -> Vec<MessageId> {
        Vec::new()
    }

    /// A turn is over: the answer was observed and reported.
    fn turn_complete(&mut self) {}

    /// Model calls that it would like made between turns, over the window as it is then. Each is answered
    /// exactly once.
    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let _ = request;
        Vec::new()
    }

    /// The answer to a background call. It is only staged: the window changes at the next
    /// [`compress`](Self::compress).
    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let _ = (id, answer);
    }

    /// The agent's model changed, and with it the window.
    fn model_changed(&mut self, window: &WindowState) {
        let _ = window;
    }

    /// Forget the conversation and begin anew, under the same session.
    ///
    /// # Errors
    /// A store that failed.
    fn reset(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// The session is closed; nothing is called after this.
    fn end(&mut self) {}

    /// What a person or a monitor may want to know, as a JSON object.
    fn status(&self) -> serde_json::Value {
        serde_json::Value::Object(serde_json::Map::new())
    }
}

/// An engine whose sessions share nothing.
pub trait StandaloneEngine: ContextEngine + Sized + 'static {
    /// What it is, for a host that is this. Said before anything is made, and once in a process.
    fn about(host: &HostInfo) -> About {
        let _ = host;
        About::default()
    }

    /// Opens the engine of one session.
    ///
    /// # Errors
    /// Settings that make no sense, or a store that cannot be opened.
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError>;

    /// As [`EngineFactory::manage`]. An engine that keeps files of each session answers
    /// [`Delete`](StoreCommand::Delete), or they outlive it.
    ///
    /// # Errors
    /// As there.
    fn manage(
        command: &StoreCommand,
        engine: &FactoryRequest<'_>,
    ) -> Result<serde_json::Value, EngineError> {
        let _ = (command, engine);
        Err(EngineError::Unsupported("keeping sessions".to_owned()))
    }
}

/// Opens the engines of an engine's sessions: one factory a process and data directory, which holds
/// what they share (a store, its writer). An engine that shares nothing needs none of its own.
pub trait EngineFactory: Send + Sync {
    /// Makes the factory.
    ///
    /// # Errors
    /// Settings that make no sense, or a store that cannot be opened.
    fn create(request: &FactoryRequest<'_>) -> Result<Self, EngineError>
    where
        Self: Sized;

    /// As [`StandaloneEngine::about`].
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
    /// As [`StandaloneEngine::open`].
    fn open(&self, request: &OpenRequest<'_>) -> Result<Box<dyn ContextEngine>, EngineError>;

    /// Answers a question about what the engine keeps, with a JSON object for a person.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] from an engine that keeps nothing; a store that failed; a session
    /// that is not there.
    fn manage(&self, command: &StoreCommand) -> Result<serde_json::Value, EngineError> {
        let _ = command;
        Err(EngineError::Unsupported("keeping sessions".to_owned()))
    }
}

/// What a factory is made with.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct FactoryRequest<'a> {
    /// The settings under `context.engines.<name>` as JSON text; `{}` where there are none.
    pub settings: &'a str,
    /// The engine's own directory; it exists before the first session is opened, and a question about what is kept
    /// may come earlier.
    pub data_dir: &'a std::path::Path,
    /// The host.
    pub host: &'a HostInfo,
}

impl<'a> FactoryRequest<'a> {
    /// A request with these settings and this directory, of this host.
    pub const fn new(settings: &'a str, data_dir: &'a std::path::Path, host: &'a HostInfo) -> Self {
        Self {
            settings,
            data_dir,
            host,
        }
    }
}
