//! Summaries that are prepared between turns.

use contexture_engine_api::{
    BackgroundCall, CompressRequest, FailureKind, MessageId, ModelAnswer, ModelFailure, ModelInfo,
};
use contexture_summaries::{Pending, Summariser};

use super::writing::current_question;
use super::{TwoLayer, is_short};
use crate::wording::cut_to;

/// The share of the threshold from which the next summary is prepared,
const PREPARE_FROM: f64 = 0.8;
/// and from which those of single turns are.
const PREPARE_TURNS_FROM: f64 = 0.5;

/// Better texts of summaries that are remembered.
const REMEMBERED: usize = 32;

/// What a summary in the making is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The next compaction.
    Next,
    /// To stand in for this one, which was made without the model.
    Redo(String),
}

/// A summary that is ready for the next compaction.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) covers: Vec<MessageId>,
    pub(super) text: String,
}

/// What a summary that was made without the model could be made from again.
#[derive(Debug)]
pub(super) struct Redo {
    pub(super) of: String,
    pub(super) covers: Vec<MessageId>,
    pub(super) summariser: Summariser,
}

impl TwoLayer {
    /// Forgets what was prepared, of a conversation that is not as it was.
    pub(super) fn forget_prepared(&mut self) {
        self.pending.clear();
        self.staged.clear();
        self.redo.clear();
        self.improved.clear();
        self.proposal = None;
        self.headroom.things_changed();
    }

    /// The model calls for the summaries in the making, or for those to make next.
    pub(super) fn calls_to_make(&mut self, request: &CompressRequest<'_>) -> Vec<BackgroundCall> {
        let Some(model) = self.services.model() else {
            return Vec::new();
        };
        if self.cool_downs.in_force().is_some() {
            return Vec::new();
        }
        if self.pending.is_empty() {
            for redo in std::mem::take(&mut self.redo) {
                let purpose = Purpose::Redo(redo.of);
                let name = model.name.clone();
                (self.pending).push(Pending::new(purpose, redo.covers, name, redo.summariser));
            }
            self.prepare_next(request, &model);
        }
        let calls = self.pending.iter_mut();
        calls
            .flat_map(|pending| pending.calls(&mut self.last_call))
            .collect()
    }

    fn prepare_next(&mut self, request: &CompressRequest<'_>, model: &ModelInfo) {
        let per_turn = self.settings.per_turn_summaries;
        let share = if per_turn {
            PREPARE_TURNS_FROM
        } else {
            PREPARE_FROM
        };
        let threshold = self.settings.threshold(&self.window);
        if is_short(request) || (self.estimated() as f64) < threshold as f64 * share {
            return;
        }
        if !per_turn && !self.staged.is_empty() {
            return;
        }
        let read = self.read(request.messages, false);
        let split = self.split(&read, request.order);
        let current = current_question(&read, request.order);
        for covers in &split.summaries {
            let covered = self.covered(&read, covers);
            if self
                .staged
                .iter()
                .any(|staged| staged.covers == covered.ids)
            {
                continue;
            }
            let summariser = self.summariser(model, &covered, &current);
            let name = model.name.clone();
            (self.pending).push(Pending::new(Purpose::Next, covered.ids, name, summariser));
        }
    }

    /// Stages what an answer completes.
    pub(super) fn take_answer(&mut self, id: u64, answer: &Result<ModelAnswer, ModelFailure>) {
        let mut finished = None;
        for (at, pending) in self.pending.iter_mut().enumerate() {
            if let Some(result) = pending.answered(id, answer.clone()) {
                finished = Some((at, result));
                break;
            }
        }
        let Some((at, result)) = finished else { return };
        let pending = self.pending.remove(at);
        match (result, pending.purpose) {
            (Ok(text), Purpose::Next) => {
                self.cool_downs.succeeded();
                let covers = pending.covers;
                self.staged.push(Staged { covers, text });
            }
            (Ok(text), Purpose::Redo(of)) => {
                self.cool_downs.succeeded();
                let budget = self.services.count_tokens(&of).max(1);
                let text = cut_to(text, self.settings.summary_format, budget, &self.services);
                self.improved.push((of, text));
                if self.improved.len() > REMEMBERED {
                    self.improved.remove(0);
                }
            }
            // The host gave the call up for reasons of its own; the model is not to blame.
            (Err(failure), _) if failure.kind == FailureKind::Cancelled => {}
            (Err(failure), _) => self.cool_downs.failed(&pending.model, &failure),
        }
    }
}
