//! The interface of an engine.

use crate::background::BackgroundCall;
use crate::compaction::{Compaction, CompressRequest, Outcome};
use crate::delivery::Delivery;
use crate::error::EngineError;
use crate::message::{MessageId, MessageView, Observed};
use crate::model::{ModelAnswer, ModelFailure};
use crate::services::OpenRequest;
use crate::store::StoreCommand;
use crate::tool::{ToolCall, ToolSpec};
use crate::window::{Decision, Usage, WindowState};

/// One conversation's engine. The host opens one object a session and calls it from one thread at a
/// time, each call with a deadline.
///
/// Three methods are required. A complete engine that keeps the last ten messages:
///
/// ```
/// use contexture_engine_api::*;
///
/// struct LastTen;
///
/// impl ContextEngine for LastTen {
///     fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
///         Ok(LastTen)
///     }
///
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
///         let mut entries = vec![Entry::Summary {
///             text: format!("{cut} earlier messages were left out."),
///             covers: messages[..cut].iter().map(|message| message.id()).collect(),
///         }];
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
/// # let outcome = engine.compress(&CompressRequest { messages: &messages, order: &order });
/// # assert!(matches!(outcome, Ok(Outcome::Compacted(c)) if c.entries.len() == 11));
/// ```
pub trait ContextEngine: Send {
    /// Opens the engine of one session.
    ///
    /// # Errors
    /// Settings that make no sense, or a store that cannot be opened.
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError>
    where
        Self: Sized;

    /// The settings under `context.engines.<name>`, as JSON Schema of an object; none for any. The host checks
    /// what is configured before it opens the engine. A plugin declares them in its `plugin.yaml`.
    fn settings_schema() -> Option<serde_json::Value>
    where
        Self: Sized,
    {
        None
    }

    /// Whether to compact now, with the reason. Cheap: it is asked every turn.
    fn should_compress(&self, window: &WindowState) -> Decision;

    /// Proposes a new window. It changes nothing durable on which the window depends: that waits for
    /// [`committed`](Self::committed).
    ///
    /// # Errors
    /// Whatever kept it from a proposal; the conversation then stays as it is.
    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError>;

    /// How far it has seen the conversation; none for an engine that remembers nothing, which is then
    /// shown only what is new.
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

    /// Whether it has a view of its own to offer for requests. Asked once; [`select`](Self::select) is
    /// called only where it has.
    fn selects(&self) -> bool {
        false
    }

    /// A view for this request only, which changes nothing for the next; none for the window as it is.
    ///
    /// # Errors
    /// The window is then sent as it is.
    fn select(&mut self, request: &CompressRequest<'_>) -> Result<Option<Compaction>, EngineError> {
        let _ = request;
        Ok(None)
    }

    /// The proposal was checked, stored and is in force. Idempotent: it may be said again after a crash.
    fn committed(&mut self, compaction: u64) {
        let _ = compaction;
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

    /// A turn is over: the answer was observed and reported.
    fn turn_complete(&mut self) {}

    /// Model calls that it would like made between turns. Each is answered exactly once.
    fn background(&mut self) -> Vec<BackgroundCall> {
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

    /// As [`ContextEngine::settings_schema`].
    fn settings_schema() -> Option<serde_json::Value>
    where
        Self: Sized,
    {
        None
    }

    /// Opens the engine of one session.
    ///
    /// # Errors
    /// As [`ContextEngine::open`].
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
pub struct FactoryRequest<'a> {
    /// The settings under `context.engines.<name>` as JSON text; `{}` where there are none.
    pub settings: &'a str,
    /// The engine's own directory; it exists before the first session is opened, and a question about what is kept
    /// may come earlier.
    pub data_dir: &'a std::path::Path,
}
