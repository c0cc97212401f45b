//! One compaction, from the request to the commit: ask the engine, check its proposal, put it in
//! force and say so, or leave everything as it was and say why.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use contexture_engine_api::{
    Compaction, CompressOrder, CompressRequest, Decision, MessageId, MessageView, Outcome,
};

use super::report::{CompactionReport, OutcomeKind};
use super::store::InForce;
use super::window::{Slot, Window};
use super::{Session, SessionError};
use crate::config::OnFailure;
use crate::contract::{self, Checked, Limits, Purpose};
use crate::engines::Opened;
use crate::supervision::{CallError, Pace};

/// What is asked of a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ask {
    /// Compact even below the threshold and during a cool-down.
    pub force: bool,
    /// A topic to keep in more detail.
    pub focus: Option<String>,
    /// Text from a memory system that a summary may draw on.
    pub memory: Option<String>,
    /// Someone waits for the best result, so a model may be called now.
    pub may_wait_for_model: bool,
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

/// What an engine's answer came to.
enum Answer {
    Checked(Box<Compaction>, Checked),
    Unchanged(OutcomeKind, String),
}

impl Session {
    /// Compacts the window. On anything but success the window is as it was.
    ///
    /// # Errors
    /// The engine failed and `context.on_failure` is `fail`.
    pub fn compact(&mut self, ask: &Ask) -> Result<CompactionReport, SessionError> {
        self.timed(ask, Way::Compress)
    }

    /// Does the cheap part of a compaction alone: old tool results are shortened, nothing is summarised,
    /// no model is called. An agent may do so every turn; the result has only to be smaller.
    ///
    /// # Errors
    /// As [`compact`](Self::compact).
    pub fn prune_tool_results(&mut self) -> Result<CompactionReport, SessionError> {
        let ask = Ask {
            force: true,
            ..Ask::default()
        };
        self.timed(&ask, Way::Prune)
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
        let failure = match self.attempt(ask, way, false) {
            Ok(report) => return Ok(report),
            Err(failure) => failure,
        };
        tracing::warn!("{failure}");
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
        let state = self.state();
        let order = CompressOrder {
            window: state,
            force: ask.force,
            focus: ask.focus.clone(),
            memory: ask.memory.clone(),
            may_wait_for_model: ask.may_wait_for_model,
        };
        let window = Arc::clone(&self.window);
        let engine = match &mut self.fallback {
            Some(standing_in) if fallback => standing_in,
            _ => &mut self.engine,
        };
        let asked = engine.call(way.method(), Pace::Long, move |engine| {
            let calls = window.call_views(0);
            let views = window.views(0, &calls);
            let request = CompressRequest {
                messages: &views,
                order: &order,
            };
            match way {
                Way::Prune => engine.prune_tool_results(&request),
                // A prompt that the provider would refuse is worth every attempt, and a reason.
                Way::Compress
                    if order.force
                        || order.window.best_prompt_tokens() > order.window.usable_tokens()
                        || engine.has_content_to_compress(&views) =>
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
            Outcome::Compacted(proposal) => self.check(proposal, ask, fallback)?,
            Outcome::NothingToDo(reason) => Answer::Unchanged(OutcomeKind::NothingToDo, reason),
            Outcome::Deferred(reason) => Answer::Unchanged(OutcomeKind::Deferred, reason),
            Outcome::FloorTooHigh {
                floor_tokens,
                reason,
            } => {
                let reason = format!("{reason} (the floor is {floor_tokens} tokens)");
                Answer::Unchanged(OutcomeKind::FloorTooHigh, reason)
            }
        };
        Ok(match answer {
            Answer::Unchanged(kind, reason) => self.unchanged(self.runner(fallback), kind, reason),
            Answer::Checked(proposal, checked) => self.commit(*proposal, &checked, fallback),
        })
    }

    /// Holds a proposal to the contract; one that breaks it is discarded, and the engine is told.
    fn check(&mut self, proposal: Compaction, ask: &Ask, fallback: bool) -> Result<Answer, String> {
        let calls = self.window.call_views(0);
        let views = self.window.views(0, &calls);
        let usable = self.state().usable_tokens();
        let limits = Limits {
            grouping: self.grouping,
            purpose: if ask.force {
                Purpose::Forced
            } else {
                Purpose::Compaction
            },
            fixed_tokens: self.fixed_tokens,
            trigger_tokens: usable,
            usable_tokens: usable,
            may_shorten_last_user: self.floor_tokens(&views) > usable,
        };
        let counter = self.counter;
        let checked = contract::check(&views, &proposal, &limits, |text| counter.count_text(text));
        match checked {
            Ok(checked) => Ok(Answer::Checked(Box::new(proposal), checked)),
            Err(violation) => {
                let number = self.compactions + 1;
                let reason = violation.to_string();
                let told = reason.clone();
                let engine = self.runner_mut(fallback);
                // The engine is only told; if that fails too, the first failure is the one to report.
                let _ = engine.call("discarded", Pace::Short, move |engine| {
                    engine.discarded(number, &told);
                    Ok(())
                });
                Err(format!(
                    "engine `{}` proposed a compaction that breaks the contract, so it was discarded: \
                     {reason}.",
                    self.runner(fallback).name()
                ))
            }
        }
    }

    /// What no compaction may remove: system prompt, tools and the last real user message.
    fn floor_tokens(&self, views: &[MessageView<'_>]) -> u64 {
        let user = views.iter().rfind(|message| message.is_real_user());
        self.fixed_tokens + user.map_or(0, MessageView::tokens)
    }

    fn commit(
        &mut self,
        proposal: Compaction,
        checked: &Checked,
        fallback: bool,
    ) -> CompactionReport {
        let messages_before = self.window.len();
        let tokens_before = self.counted_tokens();
        let next = Arc::new(self.window.apply(&proposal, &self.counter));
        let before = std::mem::replace(&mut self.window, next);
        self.compactions += 1;
        self.put_in_force(&before, fallback);
        self.reported = None;
        self.new_since_compaction = false;
        let number = self.compactions;
        let state = self.state();
        let engine = self.runner_mut(fallback);
        let told = engine.call("committed", Pace::Short, move |engine| {
            engine.committed(number);
            Ok(engine.should_compress(&state))
        });
        let mut notes = proposal.notes;
        let mut reason = format!("{} → {} tokens", tokens_before, self.counted_tokens());
        match told {
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
        }
    }

    /// Writes the compaction down, before the engine is told that it is in force.
    fn put_in_force(&mut self, before: &Window, fallback: bool) {
        let stays: HashSet<MessageId> = (self.window.slots().iter())
            .filter(|slot| slot.is_verbatim())
            .map(Slot::id)
            .collect();
        let earlier = self
            .history
            .in_force
            .as_ref()
            .map(|earlier| earlier.through);
        let covered = (before.slots().iter().map(Slot::id)).filter(|id| !stays.contains(id));
        let in_force = InForce {
            number: self.compactions,
            engine: self.runner(fallback).name().to_owned(),
            through: covered.chain(earlier).max().unwrap_or(MessageId(0)),
            carried_on: false,
            window: self.window.save(),
        };
        let next_id = self.window.next_id();
        if let Some(warning) = self.history.set_in_force(in_force, next_id) {
            tracing::warn!("{warning}");
            self.warnings.push(warning);
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

    fn unchanged(&self, engine: &Opened, outcome: OutcomeKind, reason: String) -> CompactionReport {
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
        }
    }
}
