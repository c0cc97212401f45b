//! The engine of one session.

use std::cell::RefCell;
use std::collections::HashSet;

use contexture_engine_api::{
    BackgroundCall, Committed, CompressRequest, ContextEngine, Cut, Decision, Delivery,
    EngineError, LogLevel, MessageId, MessageView, ModelAnswer, ModelFailure, Observed,
    OpenRequest, Outcome, ToolCall, ToolCallView, ToolSpec, WindowState, grouped,
};
use contexture_secrets::mask_secrets;
use contexture_summaries::{Headroom, to_host_tokens};
use serde_json::{Value, json};

use crate::background::{Answered, Background};
use crate::compact::{Compacted, Compactor, ModelUse, Proposal};
use crate::error::StoreError;
use crate::model_trust::ModelTrust;
use crate::session_state::SessionState;
use crate::settings::Settings;
use crate::staging::Staging;
use crate::store::Store;
use crate::store::nodes;
use crate::tools;

/// The share of the soft threshold from which summaries are prepared.
const PREPARE_FROM: f64 = 0.80;
/// The most texts that are prepared concurrently.
const MAX_TEXTS: usize = 8;

/// One conversation, kept whole.
pub(crate) struct Engine {
    settings: Settings,
    session: SessionState,
    staging: Staging,
    background: Background,
    proposal: Option<Proposal>,
    /// A compaction that is in force for the host and could not be stored yet (a full disk, a locked file). It is
    /// stored before anything depends on it.
    unsettled: Option<(u64, Proposal)>,
    /// The window as last reported by the host.
    window: RefCell<WindowState>,
    /// Whether the host makes the calls of `background`.
    has_background: bool,
    trust: ModelTrust,
    headroom: Headroom,
    compactions: u64,
}

impl Engine {
    pub(crate) fn new(
        store: Store,
        settings: Settings,
        request: &OpenRequest<'_>,
    ) -> Result<Self, EngineError> {
        let session = SessionState::open(store, request)?;
        // Those of an earlier embedder, and of what was stored without one.
        session.store.embed_soon(session.id);
        Ok(Self {
            settings,
            session,
            staging: Staging::default(),
            background: Background::default(),
            proposal: None,
            unsettled: None,
            window: RefCell::new(request.window.clone()),
            has_background: false,
            trust: ModelTrust::open(request.data_dir, request.services.clone()),
            headroom: Headroom::default(),
            compactions: 0,
        })
    }

    /// Tries again to store a committed compaction.
    fn settle(&mut self) -> Result<(), StoreError> {
        match self.unsettled.take() {
            Some((compaction, proposal)) => self.record(compaction, proposal),
            None => Ok(()),
        }
    }

    /// Puts aside what was prepared from messages that are no longer part of the conversation.
    fn put_aside(&mut self, cut: Option<Cut>, revised: &HashSet<MessageId>) {
        if let Some(cut) = cut {
            self.withdraw();
            self.background.forget();
            self.staging.retain(|id| cut.keeps(id));
            self.headroom.things_changed();
        }
        if !revised.is_empty() {
            self.staging.retain(|id| !revised.contains(&id));
            self.background.forget_leaves_over(revised);
        }
    }

    /// Moves the frontier to the committed compaction.
    fn record(&mut self, compaction: u64, proposal: Proposal) -> Result<(), StoreError> {
        let frontier = proposal.frontier.clone();
        let moved = self
            .session
            .move_frontier(compaction, frontier, &proposal.better);
        match moved {
            Ok(()) => {}
            // The frontier of the other session object is kept; this one's summaries then count as foreign.
            Err(StoreError::FrontierMoved) => {
                self.log(LogLevel::Warn, &StoreError::FrontierMoved.to_string());
                return self.session.refresh();
            }
            Err(error) => {
                self.unsettled = Some((compaction, proposal));
                return Err(error);
            }
        }
        match proposal.took_apart {
            true => self.session.forget_loose(),
            false => self.session.now_covered(&proposal.covered),
        }
        let better: Vec<_> = proposal.better.iter().map(|(id, _)| *id).collect();
        self.staging.used(&proposal.covered, &better);
        self.background
            .forget_leaves_over(&proposal.covered.iter().copied().collect());
        self.background.frontier_moved(&self.session);
        Ok(())
    }

    /// The window of a request, or the last reported one.
    fn window_of(&self, told: &WindowState) -> WindowState {
        if told.context_length > 0 {
            self.window.replace(told.clone());
        }
        self.window.borrow().clone()
    }

    fn model_use(&self, may_wait: bool, force: bool, before: u64, hard: u64) -> ModelUse {
        if self.session.services.model().is_none() {
            return ModelUse::None { wanted: false };
        }
        // A forced compaction may follow a fix of the problem.
        let cooling = self.trust.withheld().is_some() && !force;
        if may_wait {
            return match cooling {
                true => ModelUse::None { wanted: true },
                false => ModelUse::Now,
            };
        }
        let can_wait = self.has_background && !cooling && !force && before < hard;
        match can_wait {
            true => ModelUse::Prepared,
            false => ModelUse::PreparedOrNone,
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.session.services.log(level, message);
    }
}

impl ContextEngine for Engine {
    fn should_compress(&self, window: &WindowState) -> Decision {
        let window = self.window_of(window);
        if window.context_length == 0 {
            return Decision::No("the model's context length is not known".to_owned());
        }
        let prompt = window.best_prompt_tokens();
        let budgets = self.settings.budgets(&window);
        if prompt < budgets.soft {
            return Decision::No(format!(
                "the prompt has {} tokens; a compaction is due from {}",
                grouped(prompt),
                grouped(budgets.soft)
            ));
        }
        if window.fixed_tokens >= budgets.soft && prompt < budgets.hard {
            return Decision::No(format!(
                "the system prompt and the tools alone have {} tokens, which no compaction can change; the next \
                 one is due from {}",
                grouped(window.fixed_tokens),
                grouped(budgets.hard)
            ));
        }
        let likely = window.fixed_tokens + budgets.tail + budgets.summaries;
        let decision = self.headroom.decide(&window, likely);
        if !decision.is_yes() {
            return decision;
        }
        let waits = prompt < budgets.hard
            && self.has_background
            && self.session.services.model().is_some()
            && self.trust.withheld().is_none()
            && self.background.prepares_leaves()
            && self.staging.leaves() == 0;
        if waits {
            return Decision::No(format!(
                "the prompt has {} tokens, and its summaries are being prepared; a compaction waits for \
                 them up to {} tokens",
                grouped(prompt),
                grouped(budgets.hard)
            ));
        }
        Decision::Yes(format!(
            "the prompt has {} tokens; a compaction is due from {}, in a window of {}",
            grouped(prompt),
            grouped(budgets.soft),
            grouped(window.context_length)
        ))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.withdraw();
        self.settle()?;
        self.session.refresh()?;
        let order = request.order;
        let window = self.window_of(&order.window);
        if window.context_length == 0 {
            return Ok(Outcome::NothingToDo(
                "the model's context length is not known: set `model.context_length`".to_owned(),
            ));
        }
        let mut budgets = self.settings.budgets(&window);
        let counted: u64 = window.fixed_tokens
            + request
                .messages
                .iter()
                .map(MessageView::tokens)
                .sum::<u64>();
        let scale = to_host_tokens(counted, &window);
        for limit in [&mut budgets.soft, &mut budgets.hard, &mut budgets.usable] {
            *limit = (*limit as f64 * scale) as u64;
        }
        let model = self.model_use(order.may_wait_for_model, order.force, counted, budgets.hard);
        let compactor = Compactor {
            session: &self.session,
            settings: &self.settings,
            trigger: budgets.trigger(&window),
            goal: budgets.goal(&window),
            budgets,
            may_shorten_user: window.usable_tokens(),
            staging: &self.staging,
            views: request.messages,
            fixed: window.fixed_tokens,
            focus: order.focus.as_deref(),
            model,
            order,
        };
        match compactor.run(&mut self.headroom)? {
            Compacted::Proposed(proposal, compaction, failure) => {
                match failure {
                    Some(failure) => self.trust.failed(&failure),
                    None if proposal.model_wrote => self.trust.succeeded(),
                    None => {}
                }
                self.proposal = Some(*proposal);
                Ok(Outcome::Compacted(compaction))
            }
            Compacted::Unchanged(outcome) => {
                if counted >= budgets.soft && self.headroom.stopped(&window).is_none() {
                    let reason = "the last compaction found nothing that it could make smaller; the next is tried \
                                  when the prompt has grown, or when more is prepared";
                    self.headroom.stop(reason.to_owned(), &window);
                }
                Ok(outcome)
            }
        }
    }

    fn observed_through(&self) -> Option<Observed> {
        match self.session.store.observed(self.session.id) {
            Ok(observed) => observed,
            Err(error) => {
                self.log(LogLevel::Error, &error.to_string());
                None
            }
        }
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        let redacted;
        let calls;
        let masked;
        let messages = match self.settings.redact {
            false => delivery.messages,
            true => {
                let messages = delivery.messages.iter();
                redacted = messages.clone().map(Redacted::of).collect::<Vec<_>>();
                calls = redacted.iter().map(Redacted::calls).collect::<Vec<_>>();
                masked = messages
                    .zip(redacted.iter().zip(&calls))
                    .map(|(view, (texts, calls))| texts.view(view, calls))
                    .collect::<Vec<_>>();
                &masked
            }
        };
        self.settle()?;
        let revised = delivery.revisions.iter().map(|(_, old)| *old).collect();
        self.put_aside(delivery.cut, &revised);
        let delivery = Delivery::new(messages, delivery.chain)
            .after(delivery.cut)
            .with_revisions(delivery.revisions);
        let delivered = self.session.deliver(&delivery);
        if matches!(delivered, Err(StoreError::WentOn)) {
            // What was prepared may be about messages that are gone.
            self.put_aside(Some(Cut::after(None)), &HashSet::new());
        }
        for (new, old) in delivered? {
            self.log(
                LogLevel::Info,
                &format!(
                    "{new} replaces {old}, which this store never had: {new} stands for itself"
                ),
            );
        }
        Ok(())
    }

    fn has_content_to_compress(&self, messages: &[MessageView<'_>]) -> bool {
        let raw = messages
            .iter()
            .filter(|view| view.kind() == contexture_engine_api::MessageKind::Original);
        raw.count() > 1
    }

    fn committed(&mut self, committed: &Committed) {
        let compaction = committed.id;
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        let (sizes, degraded) = (proposal.sizes, proposal.degraded);
        if let Err(error) = self.record(compaction, proposal) {
            // If the process ends first, the host's record of this compaction names its nodes.
            self.log(
                LogLevel::Error,
                &format!(
                    "compaction {compaction} is in force and could not be recorded yet: {error}"
                ),
            );
        }
        self.compactions += 1;
        self.headroom.committed(&self.window.borrow(), sizes);
        self.log(
            LogLevel::Info,
            &format!(
                "compaction {compaction}: {} to {} tokens{}",
                grouped(sizes.before),
                grouped(sizes.after),
                match degraded {
                    true => ", some summaries without the model",
                    false => "",
                }
            ),
        );
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        if self.proposal.is_some() {
            let (window, services) = (self.window.borrow(), &self.session.services);
            (self.headroom).refused(compaction, reason, &window, services);
        }
        self.withdraw();
    }

    fn recall(&mut self, ids: &[MessageId]) -> Result<Vec<Option<String>>, EngineError> {
        Ok(self.session.store.recall(self.session.id, ids)?)
    }

    fn tools(&self) -> Vec<ToolSpec> {
        tools::specs()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        let status = match call.name.as_str() {
            "lcm_status" => self.status(),
            _ => Value::Null,
        };
        let mut context = tools::Context {
            session: &mut self.session,
            settings: &self.settings,
        };
        let answer = tools::call(&mut context, call, &status)?;
        Ok(answer.to_string())
    }

    fn background(&mut self, _request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.has_background = true;
        let no_model = self.session.services.model().is_none() || self.trust.withheld().is_some();
        if no_model {
            return Vec::new();
        }
        let window = self.window.borrow().clone();
        if window.context_length == 0 {
            return Vec::new();
        }
        let budgets = self.settings.budgets(&window);
        let likely = window.fixed_tokens + budgets.tail + budgets.summaries;
        let due = window.is_near(budgets.soft, likely, PREPARE_FROM);
        let most = match self.trust.in_doubt() {
            true => 1,
            false => MAX_TEXTS,
        };
        let calls = self.background.calls(
            &self.session,
            &self.settings,
            &budgets,
            &mut self.staging,
            due,
            most,
        );
        calls.unwrap_or_else(|error| {
            self.log(
                LogLevel::Warn,
                &format!("no summary is being prepared: {error}"),
            );
            Vec::new()
        })
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let answered = self
            .background
            .answered(id, answer, &self.session, &mut self.staging);
        match answered {
            Answered::Written => {
                self.trust.succeeded();
                self.headroom.things_changed();
            }
            Answered::Failed(failure) => {
                self.trust.failed(&failure);
                self.headroom.things_changed();
            }
            Answered::Nothing => {}
        }
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window.replace(window.clone());
        self.headroom.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        let everything = Cut::after(None);
        self.observe(&Delivery::new(&[], 0).after(Some(everything)))
    }

    fn end(&mut self) {
        self.withdraw();
        // So that the next process finds the index complete.
        self.session.store.index_soon(self.session.id);
    }

    fn status(&self) -> Value {
        let frontier = self.session.frontier();
        let services = &self.session.services;
        let counts = nodes::count(&self.session.store, self.session.id).unwrap_or_default();
        let info = self.session.store.session_info(self.session.id).ok();
        json!({
            "settings": self.settings,
            "budgets": self.settings.budgets(&self.window.borrow()),
            "messages": info.as_ref().map(|info| info.messages),
            "embedded": self.session.store.embedded(self.session.id).ok().flatten(),
            "indexed": self.session.store.indexed(self.session.id).ok(),
            "frontier": {
                "nodes": frontier.len(),
                "messages": frontier.iter().map(|placed| placed.node.messages).sum::<u64>(),
                "tokens": frontier.iter().map(|placed| placed.node.tokens).sum::<u64>(),
                "compaction": self.session.compaction,
            },
            "summaries": counts.iter().map(|(depth, nodes, degraded)| json!({
                "depth": depth, "nodes": nodes, "to_redo": degraded,
            })).collect::<Vec<_>>(),
            "compactions_in_this_process": self.compactions,
            "stopped": self.headroom.reason(),
            "background": {
                "calls_out": self.background.out(),
                "leaves_ready": self.staging.leaves(),
            },
            "summary_model": services.model().map(|model| model.name),
            "cool_down": self.trust.withheld(),
        })
    }
}

impl Engine {
    /// Removes the nodes of a proposal that was neither committed nor discarded.
    fn withdraw(&mut self) {
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        let (store, id) = (&self.session.store, self.session.id);
        if let Err(error) = nodes::forget(store, id, &proposal.added) {
            self.log(LogLevel::Warn, &error.to_string());
        }
    }
}

/// A message's texts with secrets masked.
struct Redacted {
    name: String,
    text: String,
    raw: String,
    call_id: String,
    tool: String,
    calls: Vec<(String, String, String)>,
}

impl Redacted {
    fn of(view: &MessageView<'_>) -> Self {
        let calls = view.tool_calls().iter().map(|call| {
            let arguments = mask_secrets(call.arguments()).into_owned();
            let name = mask_secrets(call.name()).into_owned();
            (mask_secrets(call.id()).into_owned(), name, arguments)
        });
        Self {
            name: mask_secrets(view.name().unwrap_or_default()).into_owned(),
            text: mask_secrets(view.text()).into_owned(),
            raw: mask_secrets(view.raw()).into_owned(),
            call_id: mask_secrets(view.tool_call_id().unwrap_or_default()).into_owned(),
            tool: mask_secrets(view.tool_name().unwrap_or_default()).into_owned(),
            calls: calls.collect(),
        }
    }

    fn calls(&self) -> Vec<ToolCallView<'_>> {
        self.calls
            .iter()
            .map(|(id, name, arguments)| ToolCallView::new(id, name, arguments))
            .collect()
    }

    fn view<'a>(
        &'a self,
        view: &MessageView<'a>,
        calls: &'a [ToolCallView<'a>],
    ) -> MessageView<'a> {
        let view = match view.tool_call_id() {
            Some(_) => view.with_result_of(&self.call_id, &self.tool),
            None => *view,
        };
        view.with_name(&self.name)
            .with_text(&self.text)
            .with_raw(&self.raw)
            .with_tool_calls(calls)
            .with_tokens(view.tokens())
    }
}
