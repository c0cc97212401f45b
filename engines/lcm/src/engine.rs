//! The engine of one session.
//!
//! [`Engine`] implements [`ContextEngine`] for one open session and ties the parts together. The
//! messages and the frontier are in [`SessionState`]. A compaction is the work of [`Compactor`],
//! whose result stays a proposal until the host commits or discards it. Between turns [`Texts`] asks
//! the model for the summaries that the next compaction will need, and keeps them until then.
//!
//! This module decides when a compaction is due and how it may use the model. It also masks secrets
//! on the way into the store if the settings ask for it. The tools of the model are in [`tools`],
//! and the commands of the user are in the maintenance module.

use std::cell::RefCell;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;

use contexture_engine_api::{
    BackgroundCall, Committed, CompressRequest, ContextEngine, Cut, Decision, Delivery,
    EngineError, LogLevel, MessageId, ModelAnswer, ModelFailure, OpenRequest, Outcome,
    OwnedMessage, ToolCall, ToolSpec, WindowState, grouped, with_views,
};
use contexture_summaries::Headroom;
use serde_json::{Value, json};

use crate::compact::{Compactor, ModelUse, Proposal};
use crate::error::StoreError;
use crate::model_trust::ModelTrust;
use crate::session_state::SessionState;
use crate::settings::Settings;
use crate::shared::{Shared, SourceGuard};
use crate::store::nodes;
use crate::store::redact;
use crate::summarise::AT_ONCE;
use crate::texts::Texts;
use crate::tools;

/// Summaries are prepared as soon as the prompt has reached this share of the soft threshold, so
/// that they are ready when a compaction is due.
const PREPARE_FROM: f64 = 0.80;

/// The engine of one open session. It holds no messages in memory beyond what the current call
/// needs, because all of them can be read from the transcript.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    settings: Settings,
    session: SessionState,
    /// The transcript of the session, lent to maintenance commands as long as the session is open.
    source_guard: SourceGuard,
    /// The name of the session. It is needed to open the session again after damage.
    name: String,
    data_dir: PathBuf,
    texts: Texts,
    proposal: Option<Proposal>,
    /// A compaction that the host has committed but that could not be stored yet, for example
    /// because the disk is full or the file is locked. Every call that depends on the frontier
    /// stores it first.
    unsettled: Option<(u64, Proposal)>,
    /// The window as the host last reported it. It is in a cell because `should_compress` takes
    /// `&self` and still has to remember the window it was given.
    window: RefCell<WindowState>,
    /// Whether the host makes background calls. It is true once the host has asked for them for the
    /// first time, and a compaction waits for prepared summaries only then.
    has_background: bool,
    trust: ModelTrust,
    headroom: Headroom,
    compactions: u64,
}

impl Engine {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        settings: Settings,
        request: &OpenRequest<'_>,
    ) -> Result<Self, EngineError> {
        let session = shared.session(settings.redact, request)?;
        let source_guard = shared.lend(session.store.source()?.clone());
        // Some messages may have no vectors, if the embedder was changed or added since.
        session.store.embed_soon(session.id);
        Ok(Self {
            shared: Arc::clone(shared),
            settings,
            session,
            source_guard,
            name: request.session.to_owned(),
            data_dir: request.data_dir.to_owned(),
            texts: Texts::default(),
            proposal: None,
            unsettled: None,
            window: RefCell::new(request.window.clone()),
            has_background: false,
            trust: ModelTrust::open(request.data_dir, request.services.clone()),
            headroom: Headroom::default(),
            compactions: 0,
        })
    }

    /// Deletes a damaged store and opens this session again, which fills a new store from the
    /// transcript. What was prepared for the next compaction is dropped, because it refers to the
    /// old rows.
    fn heal(&mut self, damage: &StoreError) -> Result<(), StoreError> {
        self.log(LogLevel::Warn, &format!("{damage}; rebuilding it now"));
        self.shared.remove_store();
        let window = self.window.borrow().clone();
        let services = self.session.services.clone();
        let request = OpenRequest::new(&self.name, "{}", &self.data_dir, services, &window);
        self.session = self.shared.session(self.settings.redact, &request)?;
        self.source_guard = self.shared.lend(self.session.store.source()?.clone());
        self.texts.retain(|_| false);
        Ok(())
    }

    /// Tries again to store a committed compaction.
    fn settle(&mut self) -> Result<(), StoreError> {
        match self.unsettled.take() {
            Some((compaction, proposal)) => self.record(compaction, proposal),
            None => Ok(()),
        }
    }

    /// Moves the frontier to a committed compaction and drops the prepared texts that it used. If
    /// the store fails, the compaction is kept in `unsettled`, so that a later call can store it.
    fn record(&mut self, compaction: u64, proposal: Proposal) -> Result<(), StoreError> {
        let frontier = proposal.frontier.clone();
        let moved = self
            .session
            .move_frontier(compaction, frontier, &proposal.better);
        match moved {
            Ok(()) => {}
            // Another engine object of the same session has moved the frontier. Its frontier wins,
            // and the summaries of this one in the window count as those of a foreign engine.
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
        let usable = self.settings.budgets(&self.window.borrow()).usable;
        self.session.forget_readings(usable);
        let covered: HashSet<MessageId> = proposal.covered.iter().copied().collect();
        self.texts.retain(|id| !covered.contains(&id));
        Ok(())
    }

    /// Remembers the window of a request and returns it. If the request does not know its context
    /// length, the last known window is returned instead.
    fn window_of(&self, told: &WindowState) -> WindowState {
        if told.context_length > 0 {
            self.window.replace(told.clone());
        }
        self.window.borrow().clone()
    }

    /// Decides how a compaction may use the model. If the caller may wait, the model is called now,
    /// unless it is in cool-down. Otherwise what is not ready waits for a later compaction if the
    /// prompt is below the hard threshold and the host makes background calls, and is extracted
    /// without the model if not.
    fn model_use(&self, compactor: &Compactor<'_, '_>, cooling: bool) -> ModelUse {
        let (order, is_full) = (compactor.order, compactor.before >= compactor.budgets.hard);
        if self.session.services.model().is_none() {
            return ModelUse::None;
        }
        match order.may_wait_for_model {
            _ if cooling => ModelUse::Later,
            true => ModelUse::Now,
            false if self.has_background && !order.force && !is_full => ModelUse::Prepared,
            false => ModelUse::Later,
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
        // Between the soft and the hard threshold the conversation can go on while its summaries
        // are being written, so nobody has to wait for the model.
        let waits = prompt < budgets.hard
            && self.has_background
            && self.session.services.model().is_some()
            && self.trust.withheld().is_none()
            && self.texts.makes_leaves()
            && self.texts.leaf_count() == 0;
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
        let mut outcome = self.compact(request);
        // A repair of the transcript may have lost messages that the rows still name.
        let differs = matches!(
            outcome,
            Err(StoreError::NoText(_) | StoreError::NotShown(_))
        );
        if differs && self.session.follow_transcript(true)? {
            outcome = self.compact(request);
        }
        Ok(outcome?)
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        if !self.settings.redact {
            return self.ingest(delivery);
        }
        let mut masked: Vec<OwnedMessage> =
            delivery.messages.iter().map(OwnedMessage::from).collect();
        masked.iter_mut().for_each(redact);
        with_views(&masked, |messages| {
            let delivery = Delivery::new(messages)
                .after(delivery.cut)
                .with_revisions(delivery.revisions);
            self.ingest(&delivery)
        })
    }

    fn committed(&mut self, committed: &Committed) {
        let compaction = committed.id;
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        let (sizes, degraded) = (proposal.sizes, proposal.degraded);
        if let Err(error) = self.record(compaction, proposal) {
            // If the process ends before this compaction is stored, the next one adopts it: the
            // host's record of the compaction names its nodes.
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
        // A later call may have withdrawn the proposal already. The refusal then says nothing about
        // what the next compaction can achieve.
        if self.proposal.is_some() {
            let (window, services) = (self.window.borrow(), &self.session.services);
            (self.headroom).refused(compaction, reason, &window, services);
        }
        self.withdraw();
    }

    fn tools(&self) -> Vec<ToolSpec> {
        tools::specs()
    }

    fn call_tool(&mut self, call: &ToolCall) -> Result<String, EngineError> {
        self.session.find_rows()?;
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

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        self.has_background = true;
        // During a cool-down a background call would most likely fail like the ones before it.
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
        // Planning takes time, so it waits until the texts of the last plan are written.
        if self.texts.in_the_making() == 0 {
            let most = match self.trust.in_doubt() {
                true => 1,
                false => AT_ONCE,
            };
            let (session, texts) = (&self.session, &self.texts);
            let compactor = Compactor::new(session, &self.settings, texts, &window, request);
            match compactor.wanted(due, most) {
                Ok(wanted) => {
                    for (purpose, job) in wanted {
                        self.texts.add(purpose, job, &self.session);
                    }
                }
                Err(error) => {
                    let line = format!("no summary is being prepared: {error}");
                    self.log(LogLevel::Warn, &line);
                }
            }
        }
        self.texts.calls(self.session.services.now_ms())
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let (session, trust) = (&self.session, &mut self.trust);
        if self.texts.answered(id, answer, session, trust) {
            self.headroom.things_changed();
        }
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window.replace(window.clone());
        self.headroom.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        let everything = Cut::after(None);
        self.observe(&Delivery::new(&[]).after(Some(everything)))
    }

    fn end(&mut self) {
        self.withdraw();
        // Build the index now, so that the next process can search without building it first.
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
                "messages": frontier.iter().map(|node| node.messages).sum::<u64>(),
                "tokens": frontier.iter().map(|node| node.tokens).sum::<u64>(),
                "compaction": self.session.compaction,
            },
            "summaries": counts.iter().map(|(depth, nodes, degraded)| json!({
                "depth": depth, "nodes": nodes, "to_redo": degraded,
            })).collect::<Vec<_>>(),
            "compactions_in_this_process": self.compactions,
            "stopped": self.headroom.reason(),
            "background": {
                "calls_out": self.texts.calls_out(),
                "leaves_ready": self.texts.leaf_count(),
            },
            "summary_model": services.model().map(|model| model.name),
            "cool_down": self.trust.withheld(),
        })
    }
}

impl Engine {
    /// Proposes a compaction of the session as the rows describe it.
    fn compact(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, StoreError> {
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
        let (session, texts) = (&self.session, &self.texts);
        let mut compactor = Compactor::new(session, &self.settings, texts, &window, request);
        let (counted, soft) = (compactor.before, compactor.budgets.soft);
        // A user who forces a compaction may have fixed the problem, for example a wrong key. The
        // cool-down would hide that.
        let cool_down = self.trust.withheld().filter(|_| !order.force);
        let cool_down = cool_down.map(|it| it.reason(self.session.services.now_ms()));
        compactor.model = self.model_use(&compactor, cool_down.is_some());
        compactor.cool_down = cool_down;
        let (outcome, proposal) = compactor.run(&mut self.headroom, &mut self.trust)?;
        // Without this stop the engine would try the same useless compaction before every request.
        if proposal.is_none() && counted >= soft && self.headroom.stopped(&window).is_none() {
            let reason = "the last compaction found nothing that it could make smaller; the next is tried when the \
                          prompt has grown, or when more is prepared";
            self.headroom.stop(reason.to_owned(), &window);
        }
        self.proposal = proposal;
        Ok(outcome)
    }

    /// Stores a delivery. If the settings ask for it, its secrets are masked already. If the store
    /// is damaged, it is built again and the delivery is repeated once.
    fn ingest(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        self.settle()?;
        if delivery.cut.is_some() {
            self.withdraw();
            self.headroom.things_changed();
        }
        if delivery.cut.is_some() || !delivery.revisions.is_empty() {
            let is_revised = |id| delivery.revisions.iter().any(|(_, old)| *old == id);
            let is_cut = |id| delivery.cut.is_some_and(|cut| !cut.keeps(id));
            self.texts.retain(|id| !is_revised(id) && !is_cut(id));
        }
        let mut delivered = self.session.deliver(delivery);
        if let Err(damage @ (StoreError::Damaged(_) | StoreError::Gone(_))) = &delivered
            && self.heal(damage).is_ok()
        {
            delivered = self.session.deliver(delivery);
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
