//! Summaries that are prepared between turns.

use contexture_engine_api::{
    BackgroundCall, Cut, FailureKind, MessageId, ModelAnswer, ModelFailure, ModelInfo,
};
use contexture_summaries::{Brief, Noted, Pending, Staged, Summariser, call_views, units, views};

use super::Compressor;
use crate::background::Purpose;
use crate::boundaries::Outline;
use crate::headings::HEADINGS;
use crate::settings::Budgets;

/// The share of the threshold from which the next summary is prepared in the background.
const PREPARE_FROM: f64 = 0.80;

/// What a summary that was made without the model could be made from again.
pub(super) struct Redo {
    pub(super) of: String,
    pub(super) covers: Vec<MessageId>,
    pub(super) previous: Option<String>,
    pub(super) budget: u64,
    pub(super) units: Vec<String>,
}

impl Compressor {
    /// Forgets what was said behind a cut, and what was prepared from it.
    pub(super) fn cut(&mut self, cut: Cut) {
        let last = self.log.iter().position(|note| Some(note.id) == cut.last);
        match last {
            Some(at) => self.log.truncate(at + 1),
            None => self.log.retain(|note| cut.keeps(note.id)),
        }
        self.readings.cut(cut);
        self.pending = None;
        self.staged = None;
        self.redo = None;
        self.proposal = None;
        self.reported_tokens = None;
        self.headroom.things_changed();
    }

    /// The model calls for the summary in the making, or for the one to make next.
    pub(super) fn calls_to_make(&mut self) -> Vec<BackgroundCall> {
        let Some(model) = self.services.model() else {
            return Vec::new();
        };
        if self.cool_downs.in_force().is_some() {
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

    /// Stages what an answer completes.
    pub(super) fn take_answer(&mut self, id: u64, answer: Result<ModelAnswer, ModelFailure>) {
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

    /// What to have made in the background now, if anything: first what was made without the model,
    /// then the next summary, once the threshold is near.
    fn next_background(&self, model: &ModelInfo) -> Option<Pending<Purpose>> {
        if let Some(redo) = &self.redo {
            let brief = Brief {
                previous: redo.previous.clone(),
                facts: Some(redo.of.clone()),
                ..Brief::new(&HEADINGS, redo.budget)
            };
            let purpose = Purpose::Redo {
                of: redo.of.clone(),
            };
            // What it covers has left the window.
            let summariser = self.summariser(model, brief, redo.units.clone());
            let covers = redo.covers.clone();
            return Some(Pending::new(
                purpose,
                covers,
                model.name.clone(),
                summariser,
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
        let window = self.window.clone().reported_tokens(Some(filled));
        let after = budgets.likely_after(&window);
        if !window.is_near(budgets.threshold_tokens, after, PREPARE_FROM) {
            return None;
        }

        let calls = call_views(&self.log);
        let views = views(&self.log, &calls);
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
            ..Brief::new(&HEADINGS, budgets.summary_tokens(content + summary))
        };
        let covers = middle.iter().map(|note| note.id).collect();
        let purpose = Purpose::Next {
            previous: self.previous.clone(),
        };
        let last = middle.last().map(|note| note.id);
        let summariser = self
            .summariser(model, brief, units(&middle))
            .in_window(last);
        Some(Pending::new(
            purpose,
            covers,
            model.name.clone(),
            summariser,
        ))
    }

    fn summariser(&self, model: &ModelInfo, brief: Brief, units: Vec<String>) -> Summariser {
        Summariser::new(
            Box::new(brief),
            units,
            model.context_length,
            self.services.clone(),
        )
    }
}
