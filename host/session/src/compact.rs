//! One compaction, from the request to the commit: ask the engine, check its proposal, put it in
//! force and say so, or leave everything as it was and say why.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use contexture_config::OnFailure;
use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, Decision, Entry, MessageId, MessageView,
    Outcome, WindowState, grouped,
};
use contexture_formats::prompt_cache;
use contexture_runtime::engines::Opened;
use contexture_runtime::supervision::{CallError, Pace};
use serde_json::Value;

use super::hand_out::summary_text;
use super::ids::Ids;
use super::record::InForce;
use super::report::{CompactionReport, OutcomeKind};
use super::slot::Slot;
use super::window::Window;
use super::written::IdSet;
use super::{Session, SessionError};
use contexture_contract::{self as contract, Checked, Limits};

/// What is asked of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ask {
    /// Compact even below the threshold and during a cool-down.
    pub(super) force: bool,
    /// Nobody asked for it: session hygiene forces it, or a prompt that does not fit.
    pub(super) by_hygiene: bool,
    /// A topic to keep in more detail.
    pub(super) focus: Option<String>,
    /// Text from a memory system that a summary may draw on.
    pub(super) memory: Option<String>,
    /// Someone waits for the best result, so a model may be called now.
    pub(super) may_wait_for_model: bool,
    /// Only what stands before this message is compacted.
    pub(super) keep_from: Option<MessageId>,
}

/// Which of its two ways to a smaller window an engine is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Compress,
    Prune,
}

impl Way {
    fn method(self) -> &'static str {
        match self {
            Self::Compress => "compress",
            Self::Prune => "prune_tool_results",
        }
    }
}

/// The result of an engine's answer.
enum Answer {
    Checked(Box<Compaction>, Checked),
    Unchanged(OutcomeKind, String),
}

impl Session {
    /// Compacts the window. On anything but success the window is as it was.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub(super) fn compact(&mut self, ask: &Ask) -> Result<CompactionReport, SessionError> {
        self.timed(ask, Way::Compress)
    }

    /// Where a summary waits or failed and the prompt does not fit: old tool results are shortened, nothing is
    /// summarised, no model is called. A later summary reads pruned messages in full. (In front of every
    /// summary it does not pay: what it leaves is dearer than a summary, and says less.)
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub(super) fn prune(&mut self, ask: &Ask) -> Result<Option<CompactionReport>, SessionError> {
        let ask = Ask {
            force: true,
            by_hygiene: true,
            ..ask.clone()
        };
        let report = self.timed(&ask, Way::Prune)?;
        let worked = report.outcome == OutcomeKind::Compacted;
        Ok(worked.then_some(report))
    }

    fn timed(&mut self, ask: &Ask, way: Way) -> Result<CompactionReport, SessionError> {
        let began = Instant::now();
        let calls_before = self.model_calls();
        let result = self.compact_with_policy(ask, way);
        let calls = self.model_calls() - calls_before;
        let finish = |report: &mut CompactionReport| {
            report.elapsed_ms = began.elapsed().as_secs_f64() * 1000.0;
            report.model_calls = calls;
        };
        match result {
            Ok(mut report) => {
                finish(&mut report);
                Ok(report)
            }
            Err(SessionError::EngineFailed { reason, mut report }) => {
                finish(&mut report);
                Err(SessionError::EngineFailed { reason, report })
            }
            Err(error) => Err(error),
        }
    }

    fn compact_with_policy(
        &mut self,
        ask: &Ask,
        way: Way,
    ) -> Result<CompactionReport, SessionError> {
        let was_closed = self.engine.is_closed();
        let failure = match self.attempt(ask, way, false) {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        // The error was reported when the session was closed.
        if !was_closed {
            tracing::warn!("{failure}");
        }
        let failed = self.unchanged(&self.engine, OutcomeKind::Failed, failure.clone());
        match self.on_failure {
            OnFailure::Fail => Err(SessionError::EngineFailed {
                reason: failure,
                report: Box::new(failed),
            }),
            OnFailure::Fallback if !self.engine.is_builtin() => {
                self.fallback()?;
                match self.attempt(ask, way, true) {
                    Ok(mut report) => {
                        report.notes.insert(
                            0,
                            format!(
                                "{failure} The built-in compressor stood in for this compaction."
                            ),
                        );
                        Ok(report)
                    }
                    Err(second) => {
                        let both =
                            format!("{failure} The built-in compressor failed too: {second}");
                        Ok(self.unchanged(&self.engine, OutcomeKind::Failed, both))
                    }
                }
            }
            OnFailure::Fallback | OnFailure::Passthrough => Ok(failed),
        }
    }

    /// Asks the session's engine, or the fallback, and puts a proposal that holds in force.
    fn attempt(&mut self, ask: &Ask, way: Way, fallback: bool) -> Result<CompactionReport, String> {
        let order = (self.order(self.state()))
            .force(ask.force)
            .by_hygiene(ask.by_hygiene)
            .focus(ask.focus.clone())
            .memory(ask.memory.clone())
            .may_wait_for_model(ask.may_wait_for_model);
        let mut base = match way {
            Way::Compress if self.window.is_pruned() => {
                Arc::new(self.window.unpruned(&self.counter))
            }
            Way::Compress => Arc::clone(&self.window),
            Way::Prune => Arc::clone(&self.window),
        };
        let window = Arc::clone(&base);
        let upto = self.compacted_upto(ask);
        let engine = match &mut self.fallback {
            Some(standing_in) if fallback => standing_in,
            _ => &mut self.engine,
        };
        let allowance = Pace::Long.with(window.len(), order.window.prompt_tokens);
        let asked = engine.call(way.method(), allowance, move |engine| {
            let calls = window.call_views(0);
            let views = window.views(0, &calls);
            let views = views.get(..upto).unwrap_or(&views);
            let request = CompressRequest::new(views, &order);
            match way {
                Way::Prune => engine.prune_tool_results(&request),
                // A prompt that the provider would refuse is worth every attempt, and a reason.
                Way::Compress
                    if order.force
                        || order.window.best_prompt_tokens() > order.window.usable_tokens()
                        || engine.has_content_to_compress(views) =>
                {
                    engine.compress(&request)
                }
                Way::Compress => Ok(Outcome::NothingToDo(
                    "there is nothing in the window that a compaction would make smaller"
                        .to_owned(),
                )),
            }
        });
        let outcome = asked.map_err(|error: CallError| error.to_string())?;
        let answer = match outcome {
            Outcome::Compacted(mut proposal) => {
                let kept = self.window.slots().iter().skip(upto).map(Slot::id);
                proposal.entries.extend(kept.map(Entry::Keep));
                base = self
                    .with_originals(&base, &proposal.entries)
                    .map_err(|lost| self.lost_original(lost))?;
                self.check(&base, proposal, ask, fallback)?
            }
            Outcome::NothingToDo(reason) => Answer::Unchanged(OutcomeKind::NothingToDo, reason),
            Outcome::Deferred(reason) => Answer::Unchanged(OutcomeKind::Deferred, reason),
            Outcome::FloorTooHigh(floor) => {
                let tokens = grouped(floor.tokens);
                let reason = format!("{} (the floor is {tokens} tokens)", floor.reason);
                Answer::Unchanged(OutcomeKind::FloorTooHigh, reason)
            }
            unknown => Answer::Unchanged(
                OutcomeKind::Deferred,
                format!(
                    "the engine answered `{}`, which is of a later version of the interface",
                    unknown.name()
                ),
            ),
        };
        Ok(match answer {
            Answer::Unchanged(kind, reason) => self.unchanged(self.runner(fallback), kind, reason),
            Answer::Checked(proposal, checked) => {
                let marks = &self.runner(fallback).about().marks;
                let next = base.apply(&proposal, marks, &self.counter);
                let next = match way {
                    Way::Compress => next.pruned_as(&self.window),
                    Way::Prune => next.pruned_from(&self.window),
                };
                let (before, after) = (self.counted_tokens(), self.tokens_with(&next));
                if after >= before {
                    let reason = format!(
                        "a compaction would take the prompt from {} to {} tokens, its note in the system prompt among \
                         them",
                        grouped(before),
                        grouped(after)
                    );
                    self.discard(&reason, fallback);
                    let runner = self.runner(fallback);
                    return Ok(self.unchanged(runner, OutcomeKind::NothingToDo, reason));
                }
                self.commit(next, *proposal, &checked, fallback)
            }
        })
    }

    /// How many places of the window may be compacted.
    fn compacted_upto(&self, ask: &Ask) -> usize {
        let slots = self.window.slots();
        let lent = |first| slots.iter().position(|slot| slot.id() == first);
        ask.keep_from.and_then(lent).unwrap_or(slots.len())
    }

    /// Holds a proposal to the contract; one that breaks it is discarded, and the engine is told.
    fn check(
        &mut self,
        base: &Window,
        proposal: Compaction,
        ask: &Ask,
        fallback: bool,
    ) -> Result<Answer, String> {
        let calls = base.call_views(0);
        let views = base.views(0, &calls);
        let limits = self.limits(&views, ask.force, fallback);
        let counter = self.counter;
        let checked = contract::check(&views, &proposal, &limits, |text| counter.count_text(text));
        match checked {
            Ok(checked) => Ok(Answer::Checked(Box::new(proposal), checked)),
            Err(violation) => {
                let reason = violation.to_string();
                self.runner_mut(fallback).broke_the_contract();
                self.discard(&reason, fallback);
                Err(format!(
                    "engine `{}` proposed a compaction that breaks the contract, so it was discarded: \
                     {reason}.",
                    self.runner(fallback).name()
                ))
            }
        }
    }

    /// Tells an engine that its proposal was not applied, and why.
    fn discard(&mut self, reason: &str, fallback: bool) {
        let (number, told) = (self.history.compactions + 1, reason.to_owned());
        // This only informs the engine. If this call fails too, there is nothing to report.
        let _ = self
            .runner_mut(fallback)
            .call("discarded", Pace::Patient, move |engine| {
                engine.discarded(number, &told);
                Ok(())
            });
    }

    /// What an engine is asked with: the window as it is, and the system prompt.
    pub(super) fn order(&self, window: WindowState) -> CompressOrder {
        CompressOrder::default()
            .window(window)
            .system(self.system_prompt())
    }

    /// What a proposal of the session's engine, or of the fallback, is held to.
    pub(super) fn limits(&self, views: &[MessageView<'_>], force: bool, fallback: bool) -> Limits {
        let order = CompressOrder::default().window(self.state()).force(force);
        let about = self.runner(fallback).about();
        let limits = Limits::of(&order, views, self.grouping);
        Limits {
            may_shorten_last_user: limits.may_shorten_last_user || about.keeps_user_messages,
            marks: about.marks.clone(),
            ..limits
        }
    }

    pub(super) fn commit(
        &mut self,
        next: Window,
        proposal: Compaction,
        checked: &Checked,
        fallback: bool,
    ) -> CompactionReport {
        let messages_before = self.window.len();
        let tokens_before = self.counted_tokens();
        let before = std::mem::replace(&mut self.window, Arc::new(next));
        self.history.compactions += 1;
        self.put_in_force(&before, &proposal, fallback);
        self.reported = None;
        self.new_since_compaction = false;
        let is_warm = self.idle_ms.is_none_or(|idle| idle < self.cache_ttl.ms());
        let prices = prompt_cache::prices(&self.agent.model, self.cache_ttl);
        let sizes = [tokens_before, self.counted_tokens(), self.frame_tokens()];
        self.ledger.compacted(prices, is_warm, sizes);
        let new = self.window.slots().iter().map(Slot::id);
        let committed = Committed::new(self.history.compactions)
            .inserted(new.filter(|id| id.0 >= before.next_id()).collect())
            .entries(proposal.entries);
        let state = self.state();
        let engine = self.runner_mut(fallback);
        let told = engine.call("committed", Pace::Patient, move |engine| {
            engine.committed(&committed);
            Ok(engine.should_compress(&state))
        });
        let mut notes = proposal.notes;
        notes.extend(checked.previewed.map(|id| {
            format!(
                "{id}, the user's last message, is kept aside; a preview of it stands in its place"
            )
        }));
        let mut reason = format!(
            "{} → {} tokens",
            grouped(tokens_before),
            grouped(self.counted_tokens())
        );
        let usable = self.state().usable_tokens();
        match told {
            _ if usable > 0 && self.counted_tokens() > usable => {
                reason = format!(
                    "{reason}, still above the {} that the window has room for",
                    grouped(usable)
                );
            }
            Ok(Decision::Yes(still)) => {
                reason = format!("{reason}, still above the engine's own trigger: {still}");
            }
            Ok(_) => {}
            Err(error) => notes.push(error.to_string()),
        }
        let runner = self.runner(fallback);
        CompactionReport {
            engine: runner.name().to_owned(),
            source: runner.source(),
            outcome: OutcomeKind::Compacted,
            reason,
            messages_before,
            messages_after: self.window.len(),
            tokens_before,
            tokens_after: self.counted_tokens(),
            kept: checked.kept,
            replaced: checked.replaced,
            summarised: checked.summarised,
            inserted: checked.inserted,
            dropped: checked.dropped,
            degraded: proposal.degraded,
            model_calls: 0,
            elapsed_ms: 0.0,
            notes,
            states: self.states(),
        }
    }

    /// Writes the compaction down, before the engine is told that it is in force: the window that it left,
    /// and what each summary stands for.
    fn put_in_force(&mut self, before: &Window, proposal: &Compaction, fallback: bool) {
        let placed: Ids = self.window.slots().iter().map(Slot::id).collect();
        let mut dropped: Vec<MessageId> = Vec::new();
        // What each summary stands for, and nothing for a notice.
        let mut covered: Vec<Vec<MessageId>> = Vec::new();
        let mut first_summary = None;
        for entry in &proposal.entries {
            let said = entry.ids().iter().flat_map(|id| self.said_under(*id));
            match entry {
                Entry::Summary(_) => {
                    first_summary = first_summary.or(Some(covered.len()));
                    covered.push(said.collect());
                }
                Entry::Notice(_) => covered.push(Vec::new()),
                Entry::Drop(_) => dropped.extend(said),
                _ => {}
            }
        }
        // For a client that carries on, dropped messages count as covered by the first summary.
        if let Some(first) = first_summary.and_then(|at| covered.get_mut(at)) {
            first.append(&mut dropped);
        }
        let new = self
            .window
            .slots()
            .iter()
            .filter(|slot| slot.id().0 >= before.next_id());
        let summaries: Vec<(MessageId, String)> = new
            .filter_map(|slot| Some((slot.id(), slot.summary()?.to_owned())))
            .collect();
        let mut left_out: Vec<MessageId> = dropped;
        for ((id, text), covers) in summaries.into_iter().zip(covered) {
            left_out.extend(&covers);
            let covers: IdSet = covers.into_iter().collect();
            self.history.write(summary_text(id, &text, covers));
        }
        if let Some(earlier) = self.history.in_force() {
            left_out.extend(earlier.window.left_out().iter());
        }
        left_out.retain(|id| !placed.contains(id));
        let in_force = InForce {
            number: self.history.compactions,
            engine: self.runner(fallback).name().to_owned(),
            window: self.window.save(left_out.into_iter().collect()),
        };
        self.layout = None;
        self.history.set_in_force(Some(in_force));
        self.save();
    }

    /// The messages that an id of the window stands for: the message itself, or those that a summary covers.
    fn said_under(&self, id: MessageId) -> Vec<MessageId> {
        match self.history.written.covers(id) {
            Some(covers) => covers.iter().collect(),
            None => vec![id],
        }
    }

    fn runner(&self, fallback: bool) -> &Opened {
        match &self.fallback {
            Some(standing_in) if fallback => standing_in,
            _ => &self.engine,
        }
    }

    fn runner_mut(&mut self, fallback: bool) -> &mut Opened {
        match &mut self.fallback {
            Some(standing_in) if fallback => standing_in,
            _ => &mut self.engine,
        }
    }

    /// What the engine keeps with messages of the window.
    fn states(&self) -> BTreeMap<u64, Value> {
        // They were JSON when they came.
        let read = |state| serde_json::from_str(state).unwrap_or_default();
        let states = self.window.states();
        states.map(|(id, state)| (id.0, read(state))).collect()
    }

    pub(super) fn unchanged(
        &self,
        engine: &Opened,
        outcome: OutcomeKind,
        reason: String,
    ) -> CompactionReport {
        let messages = self.window.len();
        let tokens = self.counted_tokens();
        CompactionReport {
            engine: engine.name().to_owned(),
            source: engine.source(),
            outcome,
            reason,
            messages_before: messages,
            messages_after: messages,
            tokens_before: tokens,
            tokens_after: tokens,
            kept: messages,
            replaced: 0,
            summarised: 0,
            inserted: 0,
            dropped: 0,
            degraded: false,
            model_calls: 0,
            elapsed_ms: 0.0,
            notes: Vec::new(),
            states: self.states(),
        }
    }
}
