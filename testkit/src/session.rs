//! An engine at work on a conversation.

use std::sync::Arc;

use contexture_engine_api::{
    BackgroundCall, Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, Cut,
    Delivery, EngineError, EngineFactory, MessageId, MessageKind, Outcome, StandaloneEngine,
    ToolCall, WindowState,
};
use serde_json::Value;

use crate::chat::views_of;
use crate::{Chat, Message, ScriptedHost};

/// An order to compact a window as full as this.
pub fn order(window: WindowState) -> CompressOrder {
    CompressOrder::default().window(window)
}

/// The engine of one session, and what a host does with it.
pub struct Session {
    /// The engine, for whatever else a test asks of it.
    pub engine: Box<dyn ContextEngine>,
    /// How many compactions are in force.
    pub compactions: u64,
    /// The host that it was opened by.
    pub host: Arc<ScriptedHost>,
    seen: Option<MessageId>,
}

impl Session {
    /// Opens an engine whose sessions share nothing.
    ///
    /// # Panics
    /// Where it does not open.
    #[track_caller]
    pub fn open<E: StandaloneEngine>(
        host: &Arc<ScriptedHost>,
        settings: &str,
        window: &WindowState,
    ) -> Self {
        let engine = E::open(&host.open_request(settings, window));
        Self::of(host, Box::new(engine.expect("the engine opens")))
    }

    /// Makes a factory and has it open an engine.
    ///
    /// # Panics
    /// Where it does not open.
    #[track_caller]
    pub fn open_by<F: EngineFactory>(
        host: &Arc<ScriptedHost>,
        settings: &str,
        window: &WindowState,
    ) -> Self {
        let factory = F::create(&host.factory_request(settings)).expect("the factory is made");
        let engine = factory.open(&host.open_request(settings, window));
        Self::of(host, engine.expect("the engine opens"))
    }

    /// A session of an engine that is open already.
    pub fn of(host: &Arc<ScriptedHost>, engine: Box<dyn ContextEngine>) -> Self {
        Self {
            compactions: 0,
            host: Arc::clone(host),
            seen: engine.observed_through().map(|observed| observed.last),
            engine,
        }
    }

    /// Shows the engine what it has not seen of a conversation.
    ///
    /// # Errors
    /// The engine's own; it is shown the same again next time.
    pub fn observe(&mut self, chat: &Chat) -> Result<(), EngineError> {
        self.observe_revised(chat, &[])
    }

    /// The same where some messages are other forms of earlier ones: each new id, and the id of the earlier one.
    ///
    /// # Errors
    /// The engine's own; it is shown the same again next time.
    pub fn observe_revised(
        &mut self,
        chat: &Chat,
        revisions: &[(MessageId, MessageId)],
    ) -> Result<(), EngineError> {
        let is_new = |message: &&Message| {
            message.kind == MessageKind::Original && Some(message.id) > self.seen
        };
        let new: Vec<Message> = chat.messages.iter().filter(is_new).cloned().collect();
        let Some(last) = new.last().map(|message| message.id) else {
            return Ok(());
        };
        views_of(&new, |views| {
            let delivery = Delivery::new(views, last.0).with_revisions(revisions);
            self.host.record(&delivery);
            self.engine.observe(&delivery)
        })?;
        self.seen = Some(last);
        Ok(())
    }

    /// Cuts the conversation back: everything after `last` is no longer part of it.
    ///
    /// # Errors
    /// The engine's own.
    pub fn cut(&mut self, last: Option<MessageId>) -> Result<(), EngineError> {
        let delivery = Delivery::new(&[], 0).after(Some(Cut::after(last)));
        self.host.record(&delivery);
        self.engine.observe(&delivery)
    }

    /// Asks for a compaction, and leaves it at that.
    ///
    /// # Errors
    /// The engine's own.
    pub fn compress(&mut self, chat: &Chat, order: &CompressOrder) -> Result<Outcome, EngineError> {
        chat.with_views(|messages| self.engine.compress(&CompressRequest::new(messages, order)))
    }

    /// Asks for the cheap part of a compaction alone.
    ///
    /// # Errors
    /// The engine's own.
    pub fn prune(&mut self, chat: &Chat, order: &CompressOrder) -> Result<Outcome, EngineError> {
        chat.with_views(|messages| {
            self.engine
                .prune_tool_results(&CompressRequest::new(messages, order))
        })
    }

    /// Checks a proposal, puts it in force and tells the engine; the new window.
    ///
    /// # Panics
    /// With the violation, where the proposal breaks the contract.
    #[track_caller]
    pub fn commit(&mut self, chat: &Chat, order: &CompressOrder, proposal: &Compaction) -> Chat {
        if let Err(violation) = chat.check(proposal, order) {
            panic!("the proposal breaks the contract: {violation}: {proposal:?}");
        }
        self.compactions += 1;
        let next = chat.apply(proposal);
        let is_old = |id| chat.messages.iter().any(|message| message.id == id);
        let placed = next.messages.iter().map(|message| message.id);
        let committed = Committed::new(self.compactions)
            .entries(proposal.entries.clone())
            .inserted(placed.filter(|id| !is_old(*id)).collect());
        self.engine.committed(&committed);
        next
    }

    /// Compacts as a host does: asks, checks, commits; the new window and the proposal.
    ///
    /// # Panics
    /// Where the engine proposes nothing, or something that breaks the contract.
    #[track_caller]
    pub fn compacted(&mut self, chat: &Chat, order: &CompressOrder) -> (Chat, Compaction) {
        match self.compress(chat, order) {
            Ok(Outcome::Compacted(proposal)) => (self.commit(chat, order, &proposal), proposal),
            other => panic!("not compacted: {other:?}"),
        }
    }

    /// The model calls that the engine would like made, where it is shown nothing of the window.
    pub fn background(&mut self) -> Vec<BackgroundCall> {
        let order = CompressOrder::default();
        self.engine.background(&CompressRequest::new(&[], &order))
    }

    /// The same for this window.
    pub fn background_of(&mut self, chat: &Chat, order: &CompressOrder) -> Vec<BackgroundCall> {
        chat.with_views(|messages| (self.engine).background(&CompressRequest::new(messages, order)))
    }

    /// Has the host's model answer background calls.
    pub fn answer(&mut self, calls: Vec<BackgroundCall>) {
        for call in calls {
            let answer = self.host.model.complete(&call.request);
            self.engine.background_done(call.id, answer);
        }
    }

    /// Calls a tool of the engine and reads its answer.
    ///
    /// # Panics
    /// Where the call fails, or its answer is no JSON.
    #[track_caller]
    pub fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let call = ToolCall::new(name.to_owned(), arguments.to_string());
        match self.engine.call_tool(&call) {
            Ok(answer) => serde_json::from_str(&answer).expect("an answer in JSON"),
            Err(error) => panic!("{name} {arguments}: {error}"),
        }
    }
}
