//! The engine of one session.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use contexture_digest::mask_secrets;
use contexture_engine_api::{
    BackgroundCall, CompressRequest, ContextEngine, Decision, EngineError, FailureKind, LogLevel,
    MessageId, MessageView, ModelAnswer, ModelFailure, Observed, OpenRequest, Outcome, ToolCall,
    ToolCallView, ToolSpec, WindowState,
};
use serde_json::{Value, json};

use crate::background::Background;
use crate::compact::{Compacted, Compactor, ModelUse, Proposal};
use crate::nodes;
use crate::session::Session;
use crate::settings::Settings;
use crate::staging::Staging;
use crate::store::Store;
use crate::tools;

/// The share of the soft threshold from which summaries are prepared.
const PREPARE_FROM: f64 = 0.80;
/// How long a model that failed is left alone, in milliseconds, where it does not say itself.
const COOL_DOWN_MS: i64 = 60_000;
/// The same, where only a person can mend it.
const LONG_COOL_DOWN_MS: i64 = 600_000;
/// How much the prompt must grow after a compaction that did not help before the next is tried.
const GROWTH: f64 = 1.05;

/// One conversation, kept whole.
pub(crate) struct Engine {
    settings: Settings,
    session: Session,
    staging: Staging,
    background: Background,
    proposal: Option<Proposal>,
    /// The window as last told.
    window: RefCell<WindowState>,
    /// Whether anybody makes the calls of `background`.
    has_background: bool,
    /// The model is left alone until then, and why.
    cool_down: Option<(i64, ModelFailure)>,
    /// The prompt after a compaction that could not get below the threshold.
    stuck_at: Cell<Option<u64>>,
    /// Messages that the next ones replace: new, old.
    revisions: Vec<(MessageId, MessageId)>,
    compactions: u64,
}

impl Engine {
    pub(crate) fn new(
        store: Store,
        settings: Settings,
        request: &OpenRequest<'_>,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            settings,
            session: Session::open(store, request)?,
            staging: Staging::default(),
            background: Background::default(),
            proposal: None,
            window: RefCell::new(request.window.clone()),
            has_background: false,
            cool_down: None,
            stuck_at: Cell::new(None),
            revisions: Vec::new(),
            compactions: 0,
        })
    }

    fn cooling(&self) -> Option<&ModelFailure> {
        let (until, failure) = self.cool_down.as_ref()?;
        (*until > self.session.services.now_ms()).then_some(failure)
    }

    fn failed(&mut self, failure: ModelFailure) {
        // Given up for reasons of the host's, or about one text only: the model is not to blame.
        let for_ms = match failure.kind {
            FailureKind::Cancelled
            | FailureKind::Refused
            | FailureKind::Empty
            | FailureKind::CutOff
            | FailureKind::TooLong
            | FailureKind::Other => return,
            FailureKind::NoProvider | FailureKind::Auth | FailureKind::UnknownModel => {
                LONG_COOL_DOWN_MS
            }
            _ => COOL_DOWN_MS,
        };
        let asked = failure
            .retry_after_ms
            .map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX / 2));
        let until = self
            .session
            .services
            .now_ms()
            .saturating_add(for_ms.max(asked));
        self.cool_down = Some((until, failure));
    }

    /// The window of a request; where the request does not say, the one last told.
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
        // Who forces a compaction may just have mended what was wrong.
        let cooling = self.cooling().is_some() && !force;
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
    fn open(_request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Err(EngineError::Unsupported(
            "opening a session without the store that the factory holds".to_owned(),
        ))
    }

    fn should_compress(&self, window: &WindowState) -> Decision {
        let window = self.window_of(window);
        if window.context_length == 0 {
            return Decision::No("the model's context length is not known".to_owned());
        }
        let prompt = window.best_prompt_tokens();
        let budgets = self.settings.budgets(&window);
        if prompt < budgets.soft {
            return Decision::No(format!(
                "the prompt has {prompt} tokens; a compaction is due from {}",
                budgets.soft
            ));
        }
        if window.fixed_tokens >= budgets.soft && prompt < budgets.hard {
            return Decision::No(format!(
                "the system prompt and the tools alone have {} tokens, which no compaction can change; the next \
                 one is due from {}",
                window.fixed_tokens, budgets.hard
            ));
        }
        if let Some(stuck_at) = self.stuck_at.get()
            && (prompt as f64) < stuck_at as f64 * GROWTH
        {
            return Decision::No(format!(
                "the last compaction could not get the prompt below {} tokens; the next is tried when it has grown",
                budgets.soft
            ));
        }
        let waits = prompt < budgets.hard
            && self.has_background
            && self.session.services.model().is_some()
            && self.cooling().is_none()
            && self.background.out() > 0
            && self.staging.leaves() == 0;
        if waits {
            return Decision::No(format!(
                "the prompt has {prompt} tokens, and its summaries are being prepared; a compaction waits for \
                 them up to {} tokens",
                budgets.hard
            ));
        }
        Decision::Yes(format!(
            "the prompt has {prompt} tokens; a compaction is due from {}, in a window of {}",
            budgets.soft, window.context_length
        ))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.withdraw();
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
        // The provider may count otherwise than the host: its figure decides, in the host's units.
        if let Some(reported) = window.reported_tokens.filter(|reported| *reported > 0) {
            let scale = (counted as f64 / reported as f64).clamp(0.5, 2.0);
            for limit in [&mut budgets.soft, &mut budgets.hard, &mut budgets.usable] {
                *limit = (*limit as f64 * scale) as u64;
            }
        }
        let model = self.model_use(order.may_wait_for_model, order.force, counted, budgets.hard);
        let compactor = Compactor {
            session: &self.session,
            settings: &self.settings,
            budgets,
            staging: &self.staging,
            views: request.messages,
            fixed: window.fixed_tokens,
            focus: order.focus.as_deref(),
            model,
            force: order.force,
        };
        match compactor.run()? {
            Compacted::Proposed(proposal, compaction, failure) => {
                if let Some(failure) = failure {
                    self.failed(failure);
                }
                self.proposal = Some(*proposal);
                Ok(Outcome::Compacted(compaction))
            }
            Compacted::Unchanged(outcome) => {
                if !matches!(outcome, Outcome::Deferred(_)) && counted >= budgets.soft {
                    self.stuck_at.set(Some(counted));
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

    fn observe(&mut self, messages: &[MessageView<'_>], chain: u64) -> Result<(), EngineError> {
        let redacted;
        let calls;
        let masked;
        let messages = match self.settings.redact {
            false => messages,
            true => {
                redacted = messages.iter().map(Redacted::of).collect::<Vec<_>>();
                calls = redacted.iter().map(Redacted::calls).collect::<Vec<_>>();
                masked = messages
                    .iter()
                    .zip(redacted.iter().zip(&calls))
                    .map(|(view, (texts, calls))| texts.view(view, calls))
                    .collect::<Vec<_>>();
                &masked
            }
        };
        let (store, id) = (&self.session.store, self.session.id);
        let ingested = store.ingest(id, messages, chain)?;
        for (new, old) in std::mem::take(&mut self.revisions) {
            store.mark_revision(id, new, old)?;
        }
        let new = &messages[ingested.known.min(messages.len())..];
        self.session.stored(new, ingested.new.start);
        Ok(())
    }

    fn revised(&mut self, revisions: &[(MessageId, MessageId)]) {
        for (new, old) in revisions {
            self.session.revised(*old);
            self.revisions.push((*new, *old));
        }
        let old: HashSet<MessageId> = revisions.iter().map(|(_, old)| *old).collect();
        self.staging.retain(|id| !old.contains(&id));
    }

    fn has_content_to_compress(&self, messages: &[MessageView<'_>]) -> bool {
        let raw = messages
            .iter()
            .filter(|view| view.kind() == contexture_engine_api::MessageKind::Original);
        raw.count() > 1
    }

    fn committed(&mut self, compaction: u64) {
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        let better: Vec<_> = proposal.better.iter().map(|(id, _)| *id).collect();
        let moved = self
            .session
            .move_frontier(compaction, proposal.frontier, &proposal.better);
        if let Err(error) = moved {
            // The host's record of this compaction names its nodes: the next opening catches up.
            self.log(
                LogLevel::Error,
                &format!(
                    "compaction {compaction} is in force and could not be recorded yet: {error}"
                ),
            );
            self.session.forget_loose();
            return;
        }
        match proposal.took_apart {
            true => self.session.forget_loose(),
            false => self.session.now_covered(&proposal.covered),
        }
        self.staging.used(&proposal.covered, &better);
        self.background.forget();
        self.compactions += 1;
        let soft = self.settings.budgets(&self.window.borrow()).soft;
        self.stuck_at
            .set((proposal.after >= soft).then_some(proposal.after));
        self.log(
            LogLevel::Info,
            &format!(
                "compaction {compaction}: {} to {} tokens{}",
                proposal.before,
                proposal.after,
                if proposal.degraded {
                    ", some summaries without the model"
                } else {
                    ""
                }
            ),
        );
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        if let Some(proposal) = &self.proposal {
            self.stuck_at.set(Some(proposal.before));
            self.log(
                LogLevel::Warn,
                &format!("compaction {compaction} was refused: {reason}"),
            );
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

    fn background(&mut self) -> Vec<BackgroundCall> {
        self.has_background = true;
        if self.session.services.model().is_none() || self.cooling().is_some() {
            return Vec::new();
        }
        let window = self.window.borrow().clone();
        if window.context_length == 0 {
            return Vec::new();
        }
        let budgets = self.settings.budgets(&window);
        let due = window.best_prompt_tokens() as f64 >= budgets.soft as f64 * PREPARE_FROM;
        let calls =
            self.background
                .calls(&self.session, &self.settings, &budgets, &self.staging, due);
        calls.unwrap_or_else(|error| {
            self.log(
                LogLevel::Warn,
                &format!("no summary is being prepared: {error}"),
            );
            Vec::new()
        })
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let failure = self
            .background
            .answered(id, answer, &self.session, &mut self.staging);
        match failure {
            Some(failure) => self.failed(failure),
            None => self.stuck_at.set(None),
        }
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window.replace(window.clone());
        self.stuck_at.set(None);
        self.cool_down = None;
    }

    fn branched(&mut self, last: Option<MessageId>) {
        self.withdraw();
        self.background.forget();
        self.staging
            .retain(|id| last.is_some_and(|last| id <= last));
        self.revisions.clear();
        self.stuck_at.set(None);
        if let Err(error) = self.session.cut(last) {
            self.log(
                LogLevel::Error,
                &format!("the conversation was cut back, and the store does not follow: {error}"),
            );
        }
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.branched(None);
        Ok(())
    }

    fn end(&mut self) {
        self.withdraw();
        // The next process finds the index complete.
        if let Err(error) = self.session.store.index_now(self.session.id) {
            self.log(LogLevel::Warn, &error.to_string());
        }
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
            "background": {
                "calls_out": self.background.out(),
                "leaves_ready": self.staging.leaves(),
            },
            "summary_model": services.model().map(|model| model.name),
            "cool_down": self.cooling(),
        })
    }
}

impl Engine {
    /// Takes back a proposal that nobody decided on: its nodes are in nobody's way, and of no use.
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

/// A message's texts without their secrets.
struct Redacted {
    text: String,
    raw: String,
    calls: Vec<(String, String, String)>,
}

impl Redacted {
    fn of(view: &MessageView<'_>) -> Self {
        let calls = view.tool_calls().iter().map(|call| {
            let arguments = mask_secrets(call.arguments()).into_owned();
            (call.id().to_owned(), call.name().to_owned(), arguments)
        });
        Self {
            text: mask_secrets(view.text()).into_owned(),
            raw: mask_secrets(view.raw()).into_owned(),
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
        view.with_text(&self.text)
            .with_raw(&self.raw)
            .with_tool_calls(calls)
            .with_tokens(view.tokens())
    }
}
