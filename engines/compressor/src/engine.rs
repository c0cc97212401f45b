//! The engine: when to compact, what to propose, what to remember of it.

mod limits;
mod proposing;

use contexture_digest::Readings;
use contexture_engine_api::{
    BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Cut, Decision, Delivery,
    EngineError, Entry, LogLevel, MessageView, ModelAnswer, ModelFailure, OpenRequest, Outcome,
    Services, StandaloneEngine, Usage, WindowState, grouped,
};
use contexture_summaries::{Headroom, Sizes, SummaryCycle};
use serde_json::{Value, json};

use crate::boundaries::{MIN_TAIL, Outline};
use crate::covered::Covered;
use crate::entries::pruned;
use crate::plan::Plan;
use crate::settings::{Budgets, CompressionSettings, ECONOMY_FROM, room_for_prompt, share};
use proposing::{Draft, Proposal};

/// The share of the threshold from which the next summary is prepared in the background.
const PREPARE_FROM: f64 = 0.80;

/// The built-in lossy engine: it clears old tool results, keeps head and tail, and puts a structured
/// summary in place of what is between them.
pub struct Compressor {
    settings: CompressionSettings,
    services: Services,
    cycle: SummaryCycle,
    headroom: Headroom,
    /// The window as last told.
    window: WindowState,
    /// The prompt as the provider last reported it, its answer added; none since the last compaction.
    reported_tokens: Option<u64>,
    /// What the next digest need not look for again.
    readings: Readings,
    proposal: Option<Proposal>,
    compactions: u64,
    last_compaction: Option<Value>,
}

impl StandaloneEngine for Compressor {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let settings = CompressionSettings::from_json(request.settings)
            .map_err(|error| EngineError::Settings(error.to_string()))?;
        for warning in settings.warnings() {
            request.services.log(LogLevel::Warn, warning);
        }
        Ok(Self {
            cycle: SummaryCycle::open(request.data_dir, request.services.clone()),
            services: request.services.clone(),
            settings,
            headroom: Headroom::default(),
            window: request.window.clone(),
            reported_tokens: None,
            readings: Readings::default(),
            proposal: None,
            compactions: 0,
            last_compaction: None,
        })
    }
}

impl ContextEngine for Compressor {
    fn should_compress(&self, window: &WindowState) -> Decision {
        self.due(window)
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.proposal = None;
        let order = request.order;
        let window = self.window_of(order);
        let outline = Outline::of(request.messages);
        let before = window.fixed_tokens + outline.tokens.iter().sum::<u64>();
        if let Some(outcome) = self.refusal(order, &window) {
            return Ok(outcome);
        }

        let (limits, floor) = self.limits(&window, &outline, before);
        let threshold = limits.budgets.threshold_tokens;
        // A last message that the window cannot hold at all is kept as a preview; the rest of the floor
        // cannot shrink.
        let only_a_preview_fits = floor > limits.room_for_prompt && limits.fixed < limits.trigger;
        // A threshold of 0 is no size to get below: a compaction is always due.
        if !order.force
            && threshold > 0
            && floor >= threshold
            && (floor >= limits.trigger || before < limits.trigger)
            && !only_a_preview_fits
        {
            return Ok(self.floor_too_high(floor, format!(
                "the system prompt, the tools, the user's last message and calls in flight alone have \
                 {} tokens; the threshold is {}: shorten the message, offer fewer tools, raise \
                 `compression.threshold` or choose a model with a larger window",
                grouped(floor),
                grouped(threshold)
            )));
        }

        let plan = Plan::of(&outline, &limits);
        if !plan.does_something() {
            if !order.force && before >= limits.trigger {
                return Ok(self.floor_too_high(plan.kept_tokens, format!(
                    "the last turn and the user's last message, which stay, leave {} tokens; the threshold is {}: \
                     choose a model with a larger window",
                    grouped(plan.kept_tokens),
                    grouped(threshold)
                )));
            }
            return Ok(Outcome::NothingToDo(nothing_to_do(
                &outline,
                &self.settings,
            )));
        }

        let sizes = Sizes {
            before,
            after: plan.total,
            trigger: match threshold {
                0 => 0,
                // A compaction that is timed by price comes before the threshold, and has to make room below the
                // threshold.
                _ if window.timed_by_price && limits.trigger == threshold => {
                    share(threshold, 1.0 / ECONOMY_FROM)
                }
                _ => limits.trigger,
            },
        };
        if let Some(reason) = self.headroom.refuses(order, sizes) {
            return Ok(Outcome::Deferred(reason));
        }
        let covered = Covered::of(&outline, &plan.split, &plan.replaced, &self.cycle);
        let written = match plan.summary_tokens {
            0 => None,
            tokens => {
                let notes = covered.notes(Some(&self.readings), tokens, order, &self.services);
                Some(self.cycle.write(&notes, order)?)
            }
        };
        Ok(self.propose(Draft {
            outline: &outline,
            plan: &plan,
            limits: &limits,
            before,
            force: order.force,
            written,
        }))
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        if let Some(cut) = delivery.cut {
            self.cut(cut);
        }
        self.cycle.observe(delivery);
        for message in delivery.messages {
            self.readings.read(message);
        }
        Ok(())
    }

    fn update_usage(&mut self, usage: &Usage) {
        // Reasoning is not part of the next prompt.
        let answer = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        self.reported_tokens = Some(usage.input_tokens.saturating_add(answer));
    }

    fn defers_preflight_to_reported_usage(&self, window: &WindowState) -> bool {
        // Right after a compaction a rough estimate is no ground for the next one.
        window.estimated
            && window.reported_tokens.is_none()
            && self.compactions > 0
            && self.reported_tokens.is_none()
            && window.prompt_tokens < room_for_prompt(window)
    }

    fn has_content_to_compress(&self, messages: &[MessageView<'_>]) -> bool {
        let outline = Outline::of(messages);
        let split = outline.split(self.protection(&outline, &self.window));
        split.something_new(&outline)
            || outline.tokens.iter().sum::<u64>() + self.window.fixed_tokens
                >= Budgets::for_window(&self.settings, &self.window)
                    .threshold_tokens
                    .max(1)
                && messages.len() > MIN_TAIL
    }

    fn prune_tool_results(
        &mut self,
        request: &CompressRequest<'_>,
    ) -> Result<Outcome, EngineError> {
        self.proposal = None;
        let window = self.window_of(request.order);
        let outline = Outline::of(request.messages);
        let split = outline.split(self.protection(&outline, &window));
        let (entries, shortened) = pruned(&outline, &split);
        if shortened == 0 {
            return Ok(Outcome::NothingToDo(
                "there is no long tool output before the protected messages".into(),
            ));
        }
        Ok(Outcome::Compacted(Compaction::new(entries).notes(vec![
            format!("{shortened} old tool calls and results were shortened"),
        ])))
    }

    fn committed(&mut self, committed: &Committed) {
        for entry in &committed.entries {
            if !matches!(entry, Entry::Keep(_)) {
                self.readings.forget(entry.ids());
            }
        }
        if let Some(proposal) = self.proposal.take() {
            self.adopt(proposal, committed.id);
        }
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        if self.proposal.take().is_some() {
            (self.headroom).refused(compaction, reason, &self.window, &self.services);
        }
    }

    fn background(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let window = self.window_of(request.order);
        let budgets = Budgets::for_window(&self.settings, &window);
        let is_near = self.settings.enabled
            && window.context_length > 0
            && window.is_near(
                budgets.threshold_tokens,
                budgets.likely_after(&window),
                PREPARE_FROM,
            );
        if is_near && self.cycle.is_idle() {
            let outline = Outline::of(request.messages);
            let split = outline.split(self.protection(&outline, &window));
            let covered = Covered::of(&outline, &split, &[], &self.cycle);
            if !covered.messages.is_empty() {
                let content = split.middle().map(|at| outline.tokens[at]).sum();
                let tokens = budgets.summary_tokens(content);
                let notes = covered.notes(None, tokens, request.order, &self.services);
                self.cycle.prepare(&notes);
            }
        }
        self.cycle.calls()
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        self.cycle.answered(id, answer);
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window = window.clone();
        self.reported_tokens = None;
        self.headroom.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.cut(Cut::after(None));
        self.cycle.reset();
        self.last_compaction = None;
        self.compactions = 0;
        Ok(())
    }

    fn status(&self) -> Value {
        self.cycle.with_status(json!({
            "settings": self.settings,
            "budgets": Budgets::for_window(&self.settings, &self.window),
            "compactions": self.compactions,
            "last_compaction": self.last_compaction,
            "stopped": self.headroom.reason(),
        }))
    }
}

impl Compressor {
    /// Forgets what was said behind a cut.
    fn cut(&mut self, cut: Cut) {
        self.readings.cut(cut);
        self.proposal = None;
        self.reported_tokens = None;
        self.headroom.things_changed();
    }
}

fn nothing_to_do(outline: &Outline<'_, '_>, settings: &CompressionSettings) -> String {
    if outline.was_compacted() {
        return "nothing new stands between the summary and the protected messages".into();
    }
    format!(
        "all {} messages are protected (`compression.protect_last_n` is {})",
        grouped(outline.messages.len() as u64),
        settings.protect_last_n
    )
}
