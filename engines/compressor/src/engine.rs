//! [`Compressor`], the engine itself: when to compact, what to propose and what to remember of it.
//!
//! This file implements the [`ContextEngine`] calls. Read `compress` first: it checks whether a
//! compaction may be tried, makes a [`Plan`], lets [`SummaryCycle`] write the summary and hands the
//! result to the host as a proposal. `limits` computes thresholds and floors, and `proposing` turns
//! a plan into entries and adopts it when the host commits. How the messages are cut lives in
//! `boundaries` and `plan`, and how a summary is written lives in the `contexture_summaries` crate.

mod limits;
mod proposing;

use contexture_digest::Readings;
use contexture_engine_api::{
    BackgroundCall, Committed, Compaction, CompressRequest, ContextEngine, Cut, Decision, Delivery,
    EngineError, Entry, ModelAnswer, ModelFailure, OpenRequest, Outcome, Services,
    StandaloneEngine, Usage, WindowState, grouped,
};
use contexture_summaries::{Headroom, Sizes, SummaryCycle};
use serde_json::{Value, json};

use crate::boundaries::Outline;
use crate::covered::Covered;
use crate::entries::pruned;
use crate::plan::Plan;
use crate::settings::{Budgets, CompressionSettings, ECONOMY_FROM, share};
use proposing::{Draft, Proposal};

/// The share of the threshold from which the next summary is prepared in the background, so that it
/// is ready when the compaction is due.
const PREPARE_FROM: f64 = 0.80;

/// The built-in lossy engine. It clears old tool results, keeps the head and the tail of the
/// conversation, and replaces the messages between them with a structured summary.
///
/// Each instance serves one session. The host opens it through [`StandaloneEngine::open`], which
/// fails with [`EngineError::Settings`] if the `compression` section has a value of a wrong type.
pub struct Compressor {
    settings: CompressionSettings,
    services: Services,
    cycle: SummaryCycle,
    headroom: Headroom,
    /// The window as the host last reported it. A request whose window has no known context length
    /// is served with this one.
    window: WindowState,
    /// The size of the next prompt in tokens, as the provider last reported it: its input and the
    /// answer without reasoning. `None` until the provider reports usage, and again after a
    /// compaction.
    reported_tokens: Option<u64>,
    /// What the digest already found in the messages as they were delivered, so that a compaction
    /// need not scan them again.
    readings: Readings,
    proposal: Option<Proposal>,
    compactions: u64,
    last_compaction: Option<Value>,
}

impl StandaloneEngine for Compressor {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        Ok(Self {
            cycle: SummaryCycle::open(request.data_dir, request.services.clone()),
            services: request.services.clone(),
            settings: request.settings()?,
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

// The proposal in `self.proposal` lives from `compress` until the host calls `committed` or
// `discarded`. Any other attempt in between replaces it.
impl ContextEngine for Compressor {
    fn should_compress(&self, window: &WindowState) -> Decision {
        // Right after a compaction, a rough estimate is not enough evidence to start the next one.
        // Wait until the provider reports the real size, unless the estimate says that the prompt
        // no longer fits.
        let waits_for_report = window.estimated
            && window.reported_tokens.is_none()
            && self.compactions > 0
            && self.reported_tokens.is_none()
            && window.has_room_for(window.prompt_tokens);
        match self.due(window) {
            Decision::Yes(_) if waits_for_report => {
                Decision::No("the estimate waits for the usage that the provider reports".into())
            }
            decision => decision,
        }
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
        // A last message that does not fit the window at all is kept as a preview. Nothing else in
        // the floor can shrink.
        let only_a_preview_fits = floor > limits.room_for_prompt && limits.fixed < limits.trigger;
        // A threshold of 0 means that a compaction is always due, so there is no size to get below.
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

        let plan = Plan::of(&outline, &limits, &self.services);
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
                &outline, &self.settings,
            )));
        }

        let sizes = Sizes {
            before,
            after: plan.total,
            trigger: match threshold {
                0 => 0,
                // A compaction that is timed by price is due at half of the threshold. It has to
                // make room below the threshold itself, so the share is undone here.
                _ if window.timed_by_price && limits.trigger == threshold => {
                    share(threshold, 1.0 / ECONOMY_FROM)
                }
                _ => limits.trigger,
            },
        };
        if let Some(reason) = self.headroom.refuses(order, sizes) {
            return Ok(Outcome::Deferred(reason));
        }
        let covered = Covered::of(&outline, &plan.split, &self.cycle);
        let written = match plan.summary_tokens {
            0 => None,
            tokens => {
                let readings = Some(&self.readings);
                let mut notes = covered.notes(readings, tokens, order, &self.services);
                notes.largest = limits.budgets.max_summary_tokens;
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
        // The delivered messages follow the cut, so the cut must not drop their readings.
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
        // Reasoning tokens are not part of the next prompt.
        let answer = usage.output_tokens.saturating_sub(usage.reasoning_tokens);
        self.reported_tokens = Some(usage.input_tokens.saturating_add(answer));
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
            // Only messages that changed or left are forgotten. Readings of kept messages serve the
            // next digest.
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
        // `is_idle` also covers a summary that is ready: preparing a second one would waste a model
        // call.
        if is_near && self.cycle.is_idle() {
            let outline = Outline::of(request.messages);
            let split = outline.split(self.protection(&outline, &window));
            let covered = Covered::of(&outline, &split, &self.cycle);
            if !covered.messages.is_empty() {
                let content = split.middle().map(|at| outline.tokens[at]).sum();
                let tokens = budgets.summary_tokens(content);
                let mut notes = covered.notes(None, tokens, request.order, &self.services);
                notes.largest = budgets.max_summary_tokens;
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
    /// Forgets what depends on the messages after `cut`: their readings, the open proposal, the
    /// reported size and the reason to wait.
    fn cut(&mut self, cut: Cut) {
        self.readings.retain(|id| cut.keeps(id));
        self.proposal = None;
        self.reported_tokens = None;
        self.headroom.things_changed();
    }
}

fn nothing_to_do(outline: &Outline<'_, '_>, settings: &CompressionSettings) -> String {
    if outline.was_compacted() {
        return "there is nothing new between the summary and the protected messages".into();
    }
    format!(
        "all {} messages are protected (`compression.protect_last_n` is {})",
        grouped(outline.messages.len() as u64),
        settings.protect_last_n
    )
}
