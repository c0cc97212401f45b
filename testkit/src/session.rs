//! A session of an engine under test.
//!
//! [`Session`] does with an engine what a host does, but one step at a time and under the control
//! of a test. It shows the engine the new messages of a [`Chat`], asks for a compaction, checks the
//! proposal against the contract and commits it. The result of a compaction is a new [`Chat`] that
//! contains what the model would see.
//!
//! Open one with [`Session::open`], or with [`Session::open_by`] if the engine has a factory. Most
//! tests then call only [`Session::observe`] and [`Session::compacted`]. If a step fails that a
//! test cannot go on without, the method panics at the line that called it.

use std::sync::Arc;

use contexture_engine_api::{
    BackgroundCall, Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, Cut,
    Delivery, EngineError, EngineFactory, MessageId, MessageKind, Outcome, StandaloneEngine,
    ToolCall, WindowState,
};
use serde_json::Value;

use crate::chat::views_of;
use crate::{Chat, Message, ScriptedHost};

/// Creates an order to compact a window in this state. Nothing is forced, and the engine may not
/// wait for a model.
pub fn order(window: WindowState) -> CompressOrder {
    CompressOrder::default().window(window)
}

/// An engine and the host that lends it services, for one session. It remembers which messages the
/// engine has seen.
pub struct Session {
    /// The engine. Call it directly for everything that this type has no method for.
    pub engine: Box<dyn ContextEngine>,
    /// The number of compactions that were committed, which is also the number of the last one.
    pub compactions: u64,
    /// The host that lends the engine its services. A test can script its model and read its log.
    pub host: Arc<ScriptedHost>,
    seen: Option<MessageId>,
}

impl Session {
    /// Opens an engine whose sessions share nothing. The settings are JSON text.
    ///
    /// # Panics
    /// Panics if the engine does not open.
    #[track_caller]
    pub fn open<E: StandaloneEngine>(
        host: &Arc<ScriptedHost>,
        settings: &str,
        window: &WindowState,
    ) -> Self {
        let engine = E::open(&host.open_request(settings, window));
        Self::of(host, Box::new(engine.expect("the engine opens")))
    }

    /// Makes the factory of an engine and opens a session with it. The settings are JSON text.
    ///
    /// # Panics
    /// Panics if the factory cannot be made or the engine does not open.
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

    /// Creates a session for an engine that is already open. The engine is shown the conversation
    /// from its beginning, and has to recognise what it was shown before.
    pub fn of(host: &Arc<ScriptedHost>, engine: Box<dyn ContextEngine>) -> Self {
        Self {
            compactions: 0,
            host: Arc::clone(host),
            seen: None,
            engine,
        }
    }

    /// Shows the engine the original messages of a conversation that it has not seen yet. Does
    /// nothing if there are none.
    ///
    /// # Errors
    /// Returns the error of the engine. The same messages are then shown again next time.
    pub fn observe(&mut self, chat: &Chat) -> Result<(), EngineError> {
        self.observe_revised(chat, &[])
    }

    /// Shows the engine new messages as [`observe`](Self::observe) does, some of which are new
    /// forms of earlier ones. Each revision is a pair of the new id and the earlier one.
    ///
    /// # Errors
    /// Returns the error of the engine. The same messages are then shown again next time.
    pub fn observe_revised(
        &mut self,
        chat: &Chat,
        revisions: &[(MessageId, MessageId)],
    ) -> Result<(), EngineError> {
        // Only what somebody said is shown. Summaries, notices and shorter forms are not.
        let is_new = |message: &&Message| {
            message.kind == MessageKind::Original && Some(message.id) > self.seen
        };
        let new: Vec<Message> = chat.messages.iter().filter(is_new).cloned().collect();
        let Some(last) = new.last().map(|message| message.id) else {
            return Ok(());
        };
        views_of(&new, |views| {
            let delivery = Delivery::new(views).with_revisions(revisions);
            self.host.record(&delivery);
            self.engine.observe(&delivery)
        })?;
        // Only after the engine accepted them, or it would never see messages that it refused.
        self.seen = Some(last);
        Ok(())
    }

    /// Cuts the conversation back: everything after `last` is no longer part of it. `None` removes
    /// the whole conversation.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn cut(&mut self, last: Option<MessageId>) -> Result<(), EngineError> {
        let delivery = Delivery::new(&[]).after(Some(Cut::after(last)));
        self.host.record(&delivery);
        self.engine.observe(&delivery)
    }

    /// Asks the engine to compact and returns its outcome, without committing anything.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn compress(&mut self, chat: &Chat, order: &CompressOrder) -> Result<Outcome, EngineError> {
        chat.with_views(|messages| self.engine.compress(&CompressRequest::new(messages, order)))
    }

    /// Asks the engine only for the cheap part of a compaction, without committing anything.
    ///
    /// # Errors
    /// Returns the error of the engine.
    pub fn prune(&mut self, chat: &Chat, order: &CompressOrder) -> Result<Outcome, EngineError> {
        chat.with_views(|messages| {
            self.engine
                .prune_tool_results(&CompressRequest::new(messages, order))
        })
    }

    /// Checks a proposal, puts it in force and tells the engine. Returns the new window.
    ///
    /// # Panics
    /// Panics with the violation if the proposal breaks the contract.
    #[track_caller]
    pub fn commit(&mut self, chat: &Chat, order: &CompressOrder, proposal: &Compaction) -> Chat {
        if let Err(violation) = chat.check(proposal, order) {
            panic!("the proposal breaks the contract: {violation}: {proposal:?}");
        }
        self.compactions += 1;
        let next = chat.apply(proposal);
        // The host's ids for inserted messages are those that the old window did not have.
        let is_old = |id| chat.messages.iter().any(|message| message.id == id);
        let placed = next.messages.iter().map(|message| message.id);
        let committed = Committed::new(self.compactions)
            .entries(proposal.entries.clone())
            .inserted(placed.filter(|id| !is_old(*id)).collect());
        self.engine.committed(&committed);
        next
    }

    /// Compacts as a host does: asks for a proposal, checks it and commits it. Returns the new
    /// window and the proposal.
    ///
    /// # Panics
    /// Panics if the engine proposes nothing, or if its proposal breaks the contract.
    #[track_caller]
    pub fn compacted(&mut self, chat: &Chat, order: &CompressOrder) -> (Chat, Compaction) {
        match self.compress(chat, order) {
            Ok(Outcome::Compacted(proposal)) => (self.commit(chat, order, &proposal), proposal),
            other => panic!("not compacted: {other:?}"),
        }
    }

    /// Returns the model calls that the engine wants made when the window is empty. Use
    /// [`background_of`](Self::background_of) if the engine has to see the window to decide.
    pub fn background(&mut self) -> Vec<BackgroundCall> {
        let order = CompressOrder::default();
        self.engine.background(&CompressRequest::new(&[], &order))
    }

    /// Returns the model calls that the engine wants made for this window. Empty if it has nothing
    /// to prepare.
    pub fn background_of(&mut self, chat: &Chat, order: &CompressOrder) -> Vec<BackgroundCall> {
        chat.with_views(|messages| (self.engine).background(&CompressRequest::new(messages, order)))
    }

    /// Answers background calls with the host's model and passes the answers, or failures, to the
    /// engine.
    pub fn answer(&mut self, calls: Vec<BackgroundCall>) {
        for call in calls {
            let answer = self.host.model.complete(&call.request);
            self.engine.background_done(call.id, answer);
        }
    }

    /// Calls a tool of the engine and parses its answer as JSON.
    ///
    /// # Panics
    /// Panics if the call fails or the answer is not JSON.
    #[track_caller]
    pub fn tool(&mut self, name: &str, arguments: &Value) -> Value {
        let call = ToolCall::new(name.to_owned(), arguments.to_string());
        match self.engine.call_tool(&call) {
            Ok(answer) => serde_json::from_str(&answer).expect("an answer in JSON"),
            Err(error) => panic!("{name} {arguments}: {error}"),
        }
    }
}
