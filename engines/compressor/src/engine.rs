//! The engine: when to compact, what to propose, what to remember of it.

use std::collections::{HashMap, HashSet};

use contexture_digest::Digest;
use contexture_engine_api::{
    BackgroundCall, CLEARED_TOOL_OUTPUT, COMPACTION_NOTE, Compaction, CompressOrder,
    CompressRequest, ContextEngine, Decision, EngineError, Entry, FailureKind, LogLevel, MessageId,
    MessageKind, MessageView, ModelAnswer, ModelFailure, ModelInfo, OpenRequest, Outcome,
    Replacement, Services, ShortArguments, Usage, WindowState,
};
use serde_json::{Value, json};

use crate::background::{Pending, Purpose, Staged};
use crate::boundaries::{MIN_TAIL, Outline, Protection};
use crate::clearing::{is_clearable, shorten_arguments};
use crate::cooldown::CoolDowns;
use crate::material::{self, Noted};
use crate::plan::{LAST_CALL, Limits, Plan};
use crate::progress::Progress;
use crate::prompt::{Brief, body_of, marked};
use crate::settings::{Budgets, CompressionSettings, room_for_prompt, share};
use crate::summariser::Summariser;
use crate::summary::{digested, digested_with_focus, with_facts};

/// The share of the threshold from which the next summary is prepared in the background.
const PREPARE_FROM: f64 = 0.80;
/// What a compaction must save to be proposed unforced, as a share of the prompt.
const MIN_SAVING: f64 = 0.03;
/// What the host's framing of a made-up message costs, in tokens, at most.
const FRAMING_TOKENS: u64 = 8;
/// Answers a call whose result is nowhere.
const STUB: &str = "[The result of this call is not part of the conversation]";

/// The built-in lossy engine: it clears old tool results, keeps head and tail, and puts a structured
/// summary in place of what is between them.
pub struct Compressor {
    settings: CompressionSettings,
    services: Services,
    cool_downs: CoolDowns,
    progress: Progress,
    /// The window as last told.
    window: WindowState,
    /// The prompt as the provider last reported it, its answer added; none since the last compaction.
    reported_tokens: Option<u64>,
    /// What stands in the window, for background summaries. Empty where there is no model to make them.
    log: Vec<Noted>,
    /// The summary in the window.
    previous: Option<String>,
    /// A summary made without the model, and the one that the model made of the same messages later.
    improved: Option<(String, String)>,
    redo: Option<Redo>,
    pending: Option<Pending>,
    staged: Option<Staged>,
    last_call: u64,
    proposal: Option<Proposal>,
    compactions: u64,
    degraded: u64,
    last_compaction: Option<Value>,
}

/// What a summary that was made without the model could be made from again.
struct Redo {
    of: String,
    covers: Vec<MessageId>,
    previous: Option<String>,
    budget: u64,
    units: Vec<String>,
}

/// A proposal that the host has not decided on yet.
struct Proposal {
    before: u64,
    after: u64,
    threshold: u64,
    /// The summary's text without its mark; none where nothing was summarised.
    body: Option<String>,
    degraded: bool,
    redo: Option<Redo>,
    /// The log after it.
    kept: Vec<Noted>,
    /// The messages that it is about.
    seen: HashSet<MessageId>,
    messages: (usize, usize),
}

/// How the text of a summary came about.
struct Written {
    body: String,
    degraded: bool,
    note: String,
}

impl ContextEngine for Compressor {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let settings = CompressionSettings::from_json(request.settings)
            .map_err(|error| EngineError::Settings(error.to_string()))?;
        for warning in settings.warnings() {
            request.services.log(LogLevel::Warn, warning);
        }
        Ok(Self {
            cool_downs: CoolDowns::open(request.data_dir, request.services.clone()),
            services: request.services.clone(),
            settings,
            progress: Progress::default(),
            window: request.window.clone(),
            reported_tokens: None,
            log: Vec::new(),
            previous: request
                .compaction
                .and_then(|current| joined(current.summaries.iter().map(|text| body_of(text)))),
            improved: None,
            redo: None,
            pending: None,
            staged: None,
            last_call: 0,
            proposal: None,
            compactions: 0,
            degraded: 0,
            last_compaction: None,
        })
    }

    fn should_compress(&self, window: &WindowState) -> Decision {
        if !self.settings.enabled {
            return Decision::No("compaction is off (`compression.enabled: false`)".into());
        }
        if window.context_length == 0 {
            return Decision::No("the model's context length is not known".into());
        }
        let prompt = window.best_prompt_tokens();
        let threshold = Budgets::for_window(&self.settings, window).threshold_tokens;
        if prompt < threshold {
            return Decision::No(format!(
                "the prompt has {prompt} tokens; a compaction is due from {threshold}"
            ));
        }
        if let Some(reason) = self.progress.stopped(prompt) {
            return Decision::No(reason.to_owned());
        }
        let last_call = share(room_for_prompt(window), LAST_CALL);
        if window.fixed_tokens >= threshold
            && (window.fixed_tokens >= last_call || prompt < last_call)
        {
            return Decision::No(format!(
                "the system prompt and the tools alone have {} tokens, and a compaction cannot get below \
                 them; the threshold is {threshold}: raise `compression.threshold` or offer fewer tools",
                window.fixed_tokens
            ));
        }
        Decision::Yes(format!(
            "the prompt has {prompt} tokens; a compaction is due from {threshold}, in a window of {}",
            window.context_length
        ))
    }

    fn compress(&mut self, request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        self.proposal = None;
        let order = request.order;
        let window = self.window_of(order);
        let outline = Outline::of(request.messages);
        let before = window.fixed_tokens + outline.tokens.iter().sum::<u64>();
        if let Some(outcome) = self.refusal(order, &window, before) {
            return Ok(outcome);
        }

        let (limits, floor) = self.limits(&window, &outline, before);
        let threshold = limits.budgets.threshold_tokens;
        // A last message that the window cannot hold at all is kept as a preview; the rest of the floor
        // cannot shrink.
        let only_a_preview_fits = floor > limits.room_for_prompt && limits.fixed < limits.trigger;
        if !order.force
            && floor >= threshold
            && (floor >= limits.trigger || before < limits.trigger)
            && !only_a_preview_fits
        {
            return Ok(self.floor_too_high(floor, before, threshold, format!(
                "the system prompt, the tools, the user's last message and calls in flight alone have \
                 {floor} tokens; the threshold is {threshold}: shorten the message, offer fewer tools, raise \
                 `compression.threshold` or choose a model with a larger window"
            )));
        }

        let plan = Plan::of(&outline, &limits);
        if !plan.does_something() {
            if !order.force && before >= limits.trigger {
                return Ok(self.floor_too_high(plan.kept_tokens, before, threshold, format!(
                    "the last messages, which are never removed, leave {} tokens; the threshold is \
                     {threshold}: choose a model with a larger window",
                    plan.kept_tokens
                )));
            }
            return Ok(Outcome::NothingToDo(nothing_to_do(
                &outline,
                &self.settings,
            )));
        }

        let covered = Covered::of(&outline, &plan, self.improved.as_ref());
        let written = match plan.summary_tokens {
            0 => None,
            tokens => Some(self.write(&covered, tokens, order)?),
        };
        self.propose(&outline, &plan, covered, written, order, before, &limits)
    }

    fn observe(&mut self, messages: &[MessageView<'_>], _chain: u64) -> Result<(), EngineError> {
        // What nobody will ask for is not kept.
        if self.services.model().is_none() {
            return Ok(());
        }
        let outline = Outline::of(messages);
        for (at, message) in messages.iter().enumerate() {
            if message.kind() != MessageKind::Summary {
                let caller = outline.call_of[at].map(|call| &messages[call]);
                self.log.push(Noted::of(message, caller));
            }
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
        let mut pruned = 0;
        let entries = request
            .messages
            .iter()
            .enumerate()
            .map(|(at, message)| {
                let replacement = if split.keeps(at) {
                    None
                } else {
                    let caller = outline.call_of[at].map(|call| &request.messages[call]);
                    pruned_form(message, caller)
                };
                pruned += usize::from(replacement.is_some());
                replacement.map_or(Entry::Keep(message.id()), Entry::Replace)
            })
            .collect();
        if pruned == 0 {
            return Ok(Outcome::NothingToDo(
                "there is no long tool output before the protected messages".into(),
            ));
        }
        Ok(Outcome::Compacted(Compaction {
            notes: vec![format!(
                "{pruned} old tool calls and results were shortened"
            )],
            ..Compaction::new(entries)
        }))
    }

    fn committed(&mut self, compaction: u64) {
        let Some(proposal) = self.proposal.take() else {
            return;
        };
        self.progress
            .compacted(proposal.before, proposal.after, proposal.threshold);
        self.compactions += 1;
        self.degraded += u64::from(proposal.degraded);
        self.last_compaction = Some(json!({
            "id": compaction,
            "at_ms": self.services.now_ms(),
            "tokens_before": proposal.before,
            "tokens_after": proposal.after,
            "messages_before": proposal.messages.0,
            "messages_after": proposal.messages.1,
            "degraded": proposal.degraded,
        }));
        let later: Vec<Noted> = self
            .log
            .drain(..)
            .filter(|note| !proposal.seen.contains(&note.id))
            .collect();
        self.log = proposal.kept;
        self.log.extend(later);
        // The usage was that of another prompt.
        self.reported_tokens = None;
        if let Some(body) = proposal.body {
            self.previous = Some(body);
            self.redo = proposal.redo;
            self.improved = None;
            self.staged = None;
            self.pending = None;
        }
    }

    fn discarded(&mut self, compaction: u64, reason: &str) {
        if let Some(proposal) = self.proposal.take() {
            self.services.log(
                LogLevel::Warn,
                &format!("compaction {compaction} was refused: {reason}"),
            );
            // Proposed again and again, it would be a loop as well.
            self.progress
                .compacted(proposal.before, proposal.before, proposal.threshold);
        }
    }

    fn background(&mut self) -> Vec<BackgroundCall> {
        let Some(model) = self.services.model() else {
            return Vec::new();
        };
        if self.cool_downs.of(&model.name).is_some() {
            return Vec::new();
        }
        if self.pending.is_none() {
            self.pending = self.next_background(&model);
        }
        match &mut self.pending {
            Some(pending) => pending.calls(&mut self.last_call),
            None => Vec::new(),
        }
    }

    fn background_done(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
        let Some(pending) = &mut self.pending else {
            return;
        };
        let Some(finished) = pending.answered(id, answer) else {
            return;
        };
        let Some(pending) = self.pending.take() else {
            return;
        };
        match finished {
            Ok(text) => {
                self.cool_downs.succeeded();
                match pending.purpose {
                    Purpose::Next { previous } => {
                        self.staged = Some(Staged {
                            text,
                            covers: pending.covers,
                            previous,
                        });
                    }
                    Purpose::Redo { of } => {
                        self.redo = None;
                        if self.previous.as_deref() == Some(&of) {
                            self.previous = Some(text.clone());
                        }
                        self.improved = Some((of, text));
                    }
                }
            }
            // The host gave the call up for reasons of its own; the model is not to blame.
            Err(failure) if failure.kind == FailureKind::Cancelled => {}
            Err(failure) => self.cool_downs.failed(&pending.model, &failure),
        }
    }

    fn model_changed(&mut self, window: &WindowState) {
        self.window = window.clone();
        self.reported_tokens = None;
        self.progress.things_changed();
    }

    fn branched(&mut self, last: Option<MessageId>) {
        match last.and_then(|last| self.log.iter().position(|note| note.id == last)) {
            Some(at) => self.log.truncate(at + 1),
            None => self
                .log
                .retain(|note| last.is_some_and(|last| note.id <= last)),
        }
        self.pending = None;
        self.staged = None;
        self.redo = None;
        self.proposal = None;
        self.reported_tokens = None;
        self.progress.things_changed();
    }

    fn reset(&mut self) -> Result<(), EngineError> {
        self.branched(None);
        self.previous = None;
        self.improved = None;
        self.last_compaction = None;
        self.compactions = 0;
        self.degraded = 0;
        Ok(())
    }

    fn status(&self) -> Value {
        let model = self.services.model();
        let cool_down = model
            .as_ref()
            .and_then(|model| self.cool_downs.of(&model.name));
        json!({
            "settings": self.settings,
            "budgets": Budgets::for_window(&self.settings, &self.window),
            "compactions": self.compactions,
            "degraded": self.degraded,
            "last_compaction": self.last_compaction,
            "stopped": self.progress.reason(),
            "summary_model": model.map(|model| model.name),
            "cool_down": cool_down,
            "background": {
                "summary_in_the_making": self.pending.is_some(),
                "summary_ready": self.staged.is_some(),
                "summary_to_redo": self.redo.is_some(),
            },
        })
    }
}

impl Compressor {
    /// The window of a request; where the request does not say, the one last told.
    fn window_of(&mut self, order: &CompressOrder) -> WindowState {
        if order.window.context_length > 0 {
            self.window = order.window.clone();
        }
        self.window.clone()
    }

    fn protection(&self, outline: &Outline<'_, '_>, window: &WindowState) -> Protection {
        Protection {
            first: outline.protected_first(window.fixed_tokens > 0),
            last: self.settings.protect_last_n,
            tail_tokens: Budgets::for_window(&self.settings, window).tail_token_budget,
        }
    }

    /// Why nothing is even tried.
    fn refusal(&self, order: &CompressOrder, window: &WindowState, before: u64) -> Option<Outcome> {
        if window.context_length == 0 {
            return Some(Outcome::NothingToDo(
                "the model's context length is not known: set `model.context_length`".into(),
            ));
        }
        if order.force {
            return None;
        }
        if !self.settings.enabled {
            return Some(Outcome::NothingToDo(
                "compaction is off (`compression.enabled: false`)".into(),
            ));
        }
        let prompt = order.window.reported_tokens.unwrap_or(before);
        self.progress
            .stopped(prompt)
            .map(|reason| Outcome::Deferred(reason.to_owned()))
    }

    /// The limits in the units of the views' counts, and the floor that no compaction gets below.
    fn limits(
        &self,
        window: &WindowState,
        outline: &Outline<'_, '_>,
        before: u64,
    ) -> (Limits, u64) {
        let mut budgets = Budgets::for_window(&self.settings, window);
        // The provider may count otherwise than the host. What it reported is right, so the limits are
        // put into the host's units.
        let scale = window.reported_tokens.map_or(1.0, |reported| {
            (before as f64 / reported.max(1) as f64).clamp(0.5, 2.0)
        });
        budgets.threshold_tokens = share(budgets.threshold_tokens, scale);
        budgets.tail_token_budget = share(budgets.tail_token_budget, scale);
        let room_for_prompt = share(room_for_prompt(window), scale);

        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .map_or(0, |at| outline.tokens[at]);
        let floor = window.fixed_tokens + user + outline.tokens[in_flight].iter().sum::<u64>();
        let trigger = match floor < budgets.threshold_tokens {
            true => budgets.threshold_tokens,
            false => share(room_for_prompt, LAST_CALL),
        };
        let limits = Limits {
            fixed: window.fixed_tokens,
            trigger,
            room_for_prompt,
            budgets,
            protect_last_n: self.settings.protect_last_n,
            cleared_tokens: self.services.count_tokens(CLEARED_TOOL_OUTPUT) + FRAMING_TOKENS,
        };
        (limits, floor)
    }

    fn floor_too_high(
        &mut self,
        floor_tokens: u64,
        before: u64,
        threshold: u64,
        reason: String,
    ) -> Outcome {
        self.progress.stop(reason.clone(), before, threshold);
        Outcome::FloorTooHigh {
            floor_tokens,
            reason,
        }
    }

    /// The summary's text: the model's where it can be had, else the digest.
    fn write(
        &mut self,
        covered: &Covered<'_>,
        tokens: u64,
        order: &CompressOrder,
    ) -> Result<Written, EngineError> {
        let tokens = tokens.saturating_sub(self.services.count_tokens(&marked("")));
        // From the originals, before anything of them is cleared or cut.
        let digest = Digest::of(&covered.messages, covered.previous.as_deref());
        let services = self.services.clone();
        let without_model = || match order.focus.as_deref() {
            Some(topic) => {
                digested_with_focus(&digest, &covered.messages, topic, tokens, &services)
            }
            None => digested(&digest, tokens, &services),
        };
        let Some(model) = self.services.model() else {
            return Ok(Written {
                body: without_model(),
                degraded: false,
                note:
                    "no summary model is configured, so the summary was extracted from the messages"
                        .into(),
            });
        };
        let answer = match self.staged_for(covered, tokens) {
            Some(prepared) => Ok(prepared),
            None if order.may_wait_for_model => {
                self.ask_now(&model, covered, &digest, tokens, order)?
            }
            None => {
                Err("the summary model's answer was not ready, and nobody may wait for it".into())
            }
        };
        Ok(match answer {
            Ok(notes) => Written {
                body: with_facts(notes, &digest, tokens, &self.services),
                degraded: false,
                note: format!("{} wrote the summary", model.name),
            },
            Err(reason) => Written {
                body: without_model(),
                degraded: true,
                note: format!(
                    "the summary was extracted from the messages without a model: {reason}"
                ),
            },
        })
    }

    /// The summary that was prepared in the background, where it is about this middle. What it does not
    /// cover yet is digested into it.
    fn staged_for(&self, covered: &Covered<'_>, tokens: u64) -> Option<String> {
        let staged = self.staged.as_ref()?;
        let ids: HashSet<MessageId> = covered.messages.iter().map(MessageView::id).collect();
        if staged.previous != covered.previous || !staged.covers.iter().all(|id| ids.contains(id)) {
            return None;
        }
        let done: HashSet<MessageId> = staged.covers.iter().copied().collect();
        let rest: Vec<MessageView<'_>> = covered
            .messages
            .iter()
            .filter(|message| !done.contains(&message.id()))
            .copied()
            .collect();
        if rest.is_empty() {
            return Some(staged.text.clone());
        }
        let update = Digest::of(&rest, Some(&staged.text));
        Some(digested(&update, tokens, &self.services))
    }

    /// Asks the model while the caller waits. The inner error says, for a person, why there is no answer.
    fn ask_now(
        &mut self,
        model: &ModelInfo,
        covered: &Covered<'_>,
        digest: &Digest<'_>,
        tokens: u64,
        order: &CompressOrder,
    ) -> Result<Result<String, String>, EngineError> {
        // Who forces a compaction may just have mended what was wrong.
        if let Some(cool_down) = self.cool_downs.of(&model.name).filter(|_| !order.force) {
            let seconds = (cool_down.until_ms - self.services.now_ms()) / 1_000;
            return Ok(Err(format!(
                "{} failed ({}) and is left alone for another {seconds} s",
                model.name, cool_down.message
            )));
        }
        let brief = Brief {
            previous: covered.previous.clone(),
            facts: Some(digested(digest, tokens / 2, &self.services)),
            memory: order.memory.clone(),
            focus: order.focus.clone(),
            budget: tokens,
        };
        let units = material::units(&covered.notes(&self.log));
        let mut summariser =
            Summariser::new(brief, units, model.context_length, self.services.clone());
        loop {
            if self.services.is_cancelled() {
                return Err(EngineError::Cancelled);
            }
            let requests = summariser.requests();
            let answers = match requests.as_slice() {
                [one] => vec![self.services.complete(one)],
                many => self.services.complete_many(many),
            };
            match summariser.answered(answers) {
                Ok(Some(notes)) => {
                    self.cool_downs.succeeded();
                    return Ok(Ok(notes));
                }
                Ok(None) => {}
                Err(failure) if failure.kind == FailureKind::Cancelled => {
                    return Err(EngineError::Cancelled);
                }
                Err(failure) => {
                    self.cool_downs.failed(&model.name, &failure);
                    return Ok(Err(failure.message));
                }
            }
        }
    }

    /// Checks that the plan is worth it, and puts it into entries.
    #[allow(clippy::too_many_arguments)]
    fn propose(
        &mut self,
        outline: &Outline<'_, '_>,
        plan: &Plan,
        covered: Covered<'_>,
        written: Option<Written>,
        order: &CompressOrder,
        before: u64,
        limits: &Limits,
    ) -> Result<Outcome, EngineError> {
        let threshold = limits.budgets.threshold_tokens;
        let summary = written.as_ref().map(|written| marked(&written.body));
        let summary_tokens = summary
            .as_deref()
            .map_or(0, |text| self.services.count_tokens(text) + FRAMING_TOKENS);
        let entries = entries(outline, plan, summary);
        let after = plan.kept_tokens + summary_tokens + self.added_tokens(outline, &entries);
        let saved = before.saturating_sub(after);
        if saved == 0 || (!order.force && saved < share(before, MIN_SAVING)) {
            let reason = format!(
                "a compaction would take the prompt from {before} to {after} tokens, which is not worth it"
            );
            if before >= limits.trigger {
                self.progress.stop(reason.clone(), before, threshold);
            }
            return Ok(Outcome::NothingToDo(reason));
        }

        let mut notes = self.settings.warnings().to_vec();
        let degraded = written.as_ref().is_some_and(|written| written.degraded);
        let body = written.map(|written| {
            notes.push(written.note);
            body_of(&written.body)
        });
        if !plan.replaced.is_empty() {
            notes.push(format!(
                "{} of the protected messages were shortened, since those did not fit",
                plan.replaced.len()
            ));
        }
        if after >= limits.trigger {
            notes.push(format!(
                "the prompt still has {after} tokens and is above the threshold of {threshold}: what is left \
                 may not be removed"
            ));
        }

        let (kept, redo) = match self.services.model() {
            None => (Vec::new(), None),
            Some(_) => {
                let kept: Vec<usize> = (0..outline.messages.len())
                    .filter(|at| plan.split.keeps(*at) && !is_orphan(outline, *at))
                    .collect();
                let redo = body.as_ref().filter(|_| degraded).map(|body| Redo {
                    of: body.clone(),
                    covers: covered.messages.iter().map(MessageView::id).collect(),
                    previous: covered.previous.clone(),
                    budget: plan.summary_tokens,
                    units: material::units(&covered.notes(&self.log)),
                });
                (noted(outline, kept, &self.log), redo)
            }
        };
        let messages_after = entries
            .iter()
            .filter(|entry| !matches!(entry, Entry::Drop { .. }))
            .count();
        self.proposal = Some(Proposal {
            before,
            after,
            threshold,
            body,
            degraded,
            redo,
            kept,
            seen: outline.messages.iter().map(MessageView::id).collect(),
            messages: (outline.messages.len(), messages_after),
        });
        Ok(Outcome::Compacted(Compaction {
            entries,
            system_note: Some(COMPACTION_NOTE.to_owned()),
            degraded,
            notes,
        }))
    }

    /// What a proposal adds beside its summary, in tokens: answers that are made up, and the note in the
    /// system prompt, the first time.
    fn added_tokens(&self, outline: &Outline<'_, '_>, entries: &[Entry]) -> u64 {
        let stubs = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::StubResult { .. }))
            .count() as u64;
        let stub_tokens = match stubs {
            0 => 0,
            _ => stubs * (self.services.count_tokens(STUB) + FRAMING_TOKENS),
        };
        let note_tokens = match outline.was_compacted() {
            true => 0,
            false => self.services.count_tokens(COMPACTION_NOTE),
        };
        stub_tokens + note_tokens
    }

    /// What to have made in the background now, if anything: first what was made without the model,
    /// then the next summary, once the threshold is near.
    fn next_background(&self, model: &ModelInfo) -> Option<Pending> {
        if let Some(redo) = &self.redo {
            let brief = Brief {
                previous: redo.previous.clone(),
                facts: Some(redo.of.clone()),
                budget: redo.budget,
                ..Brief::default()
            };
            let purpose = Purpose::Redo {
                of: redo.of.clone(),
            };
            return Some(self.pending(
                purpose,
                redo.covers.clone(),
                model,
                brief,
                redo.units.clone(),
            ));
        }
        if self.staged.is_some() || !self.settings.enabled || self.window.context_length == 0 {
            return None;
        }
        let budgets = Budgets::for_window(&self.settings, &self.window);
        let summary = self
            .previous
            .as_deref()
            .map_or(0, |text| self.services.count_tokens(text));
        let counted = self.window.fixed_tokens
            + summary
            + self.log.iter().map(|note| note.tokens).sum::<u64>();
        let filled = counted.max(self.reported_tokens.unwrap_or(0));
        if filled < share(budgets.threshold_tokens, PREPARE_FROM) {
            return None;
        }

        let calls = material::call_views(&self.log);
        let views = material::views(&self.log, &calls);
        let outline = Outline::of(&views);
        let mut protection = self.protection(&outline, &self.window);
        if self.previous.is_some() {
            protection.first = 0;
        }
        let middle: Vec<Noted> = outline
            .split(protection)
            .middle()
            .map(|at| self.log[at].clone())
            .collect();
        let content: u64 = middle.iter().map(|note| note.tokens).sum();
        if middle.is_empty() {
            return None;
        }
        let brief = Brief {
            previous: self.previous.clone(),
            budget: budgets.summary_tokens(content + summary),
            ..Brief::default()
        };
        let covers = middle.iter().map(|note| note.id).collect();
        let purpose = Purpose::Next {
            previous: self.previous.clone(),
        };
        Some(self.pending(purpose, covers, model, brief, material::units(&middle)))
    }

    fn pending(
        &self,
        purpose: Purpose,
        covers: Vec<MessageId>,
        model: &ModelInfo,
        brief: Brief,
        units: Vec<String>,
    ) -> Pending {
        let summariser = Summariser::new(brief, units, model.context_length, self.services.clone());
        Pending::new(purpose, covers, model.name.clone(), summariser)
    }
}

/// What a summary is made from.
struct Covered<'a> {
    /// The messages that leave or are cleared, earlier summaries not among them.
    messages: Vec<MessageView<'a>>,
    /// For each of them that is a tool result: the message with its call, where that is known.
    callers: HashMap<MessageId, MessageView<'a>>,
    /// The earlier summaries that leave.
    previous: Option<String>,
}

impl<'a> Covered<'a> {
    fn of(outline: &Outline<'_, 'a>, plan: &Plan, improved: Option<&(String, String)>) -> Self {
        let mut taken: Vec<usize> = plan.split.middle().collect();
        // A cleared result loses its text as much as one that leaves; its call says what it was.
        for (at, _) in &plan.replaced {
            taken.push(*at);
            taken.extend(outline.call_of[*at]);
        }
        taken.sort_unstable();
        taken.dedup();
        let (summaries, taken): (Vec<usize>, Vec<usize>) = taken
            .into_iter()
            .partition(|at| outline.messages[*at].kind() == MessageKind::Summary);
        let previous = joined(summaries.into_iter().map(|at| {
            let body = body_of(outline.messages[at].text());
            match improved {
                Some((made_without, better)) if *made_without == body => better.clone(),
                _ => body,
            }
        }));
        Self {
            callers: taken
                .iter()
                .filter_map(|at| {
                    let caller = outline.messages[outline.call_of[*at]?];
                    Some((outline.messages[*at].id(), caller))
                })
                .collect(),
            messages: taken.into_iter().map(|at| outline.messages[at]).collect(),
            previous,
        }
    }

    /// The compact forms of the messages: those in the log, the others made now.
    fn notes(&self, log: &[Noted]) -> Vec<Noted> {
        let known: HashMap<MessageId, &Noted> = log.iter().map(|note| (note.id, note)).collect();
        self.messages
            .iter()
            .map(|message| match known.get(&message.id()) {
                Some(note) => (*note).clone(),
                None => Noted::of(message, self.callers.get(&message.id())),
            })
            .collect()
    }
}

fn noted(outline: &Outline<'_, '_>, indices: Vec<usize>, log: &[Noted]) -> Vec<Noted> {
    let known: HashMap<MessageId, &Noted> = log.iter().map(|note| (note.id, note)).collect();
    indices
        .into_iter()
        .filter(|at| outline.messages[*at].kind() != MessageKind::Summary)
        .map(|at| match known.get(&outline.messages[at].id()) {
            Some(note) => (*note).clone(),
            None => {
                let caller = outline.call_of[at].map(|call| &outline.messages[call]);
                Noted::of(&outline.messages[at], caller)
            }
        })
        .collect()
}

/// A tool result whose call is nowhere before it.
fn is_orphan(outline: &Outline<'_, '_>, at: usize) -> bool {
    outline.messages[at].role() == "tool" && outline.call_of[at].is_none()
}

/// The new window: the head, the summary, what is kept after it.
fn entries(outline: &Outline<'_, '_>, plan: &Plan, summary: Option<String>) -> Vec<Entry> {
    let messages = outline.messages;
    let mut entries = Vec::with_capacity(messages.len());
    let mut replaced: HashMap<usize, &str> = plan
        .replaced
        .iter()
        .map(|(at, text)| (*at, text.as_str()))
        .collect();
    let mut summary = summary.map(|text| Entry::Summary {
        text,
        covers: plan.split.middle().map(|at| messages[at].id()).collect(),
    });
    let summarised = summary.is_some();
    for (at, message) in messages.iter().enumerate() {
        if at == plan.split.head {
            entries.extend(summary.take());
        }
        if summarised && !plan.split.keeps(at) {
            continue;
        }
        if is_orphan(outline, at) {
            entries.push(Entry::Drop {
                id: message.id(),
                reason: format!(
                    "the call {:?} that this is the result of is not part of the conversation",
                    message.tool_call_id().unwrap_or_default()
                ),
            });
            continue;
        }
        match replaced.remove(&at) {
            Some(text) => entries.push(Entry::Replace(Replacement {
                id: message.id(),
                text: Some(text.to_owned()),
                arguments: Vec::new(),
            })),
            None => entries.push(Entry::Keep(message.id())),
        }
        let from = outline.unanswered.partition_point(|(call, _)| *call < at);
        for (_, index) in outline.unanswered[from..]
            .iter()
            .take_while(|(call, _)| *call == at)
        {
            entries.push(Entry::StubResult {
                call: message.id(),
                index: *index,
                text: STUB.to_owned(),
            });
        }
    }
    entries
}

/// The shorter form of a message outside the protected ones, where it has one.
fn pruned_form(message: &MessageView<'_>, caller: Option<&MessageView<'_>>) -> Option<Replacement> {
    let text = is_clearable(message, caller).then(|| CLEARED_TOOL_OUTPUT.to_owned());
    // A message with thinking is kept whole or leaves whole.
    let arguments: Vec<ShortArguments> = message
        .tool_calls()
        .iter()
        .enumerate()
        .filter(|_| !message.has_thinking())
        .filter_map(|(index, call)| {
            let arguments = shorten_arguments(call.arguments())?;
            Some(ShortArguments { index, arguments })
        })
        .collect();
    (text.is_some() || !arguments.is_empty()).then(|| Replacement {
        id: message.id(),
        text,
        arguments,
    })
}

fn nothing_to_do(outline: &Outline<'_, '_>, settings: &CompressionSettings) -> String {
    if outline.was_compacted() {
        return "nothing new stands between the summary and the protected messages".into();
    }
    format!(
        "all {} messages are protected (`compression.protect_last_n` is {})",
        outline.messages.len(),
        settings.protect_last_n
    )
}

fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<String> = texts.filter(|text| !text.is_empty()).collect();
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}
