//! Proposals: how a plan becomes entries, and what happens to them once the host has decided.
//!
//! `propose` counts what the compaction really saves, now that the summary is written, and refuses
//! it if that is too little. Otherwise it leaves a [`Proposal`] on the engine and returns the
//! entries with notes for the user. The host then validates them. If it commits, `adopt` records
//! the sizes and puts the summary in force. If it discards them, the proposal is dropped and
//! `Headroom` remembers that this attempt did not work. The entries themselves are built in
//! `entries`.

use contexture_engine_api::{COMPACTION_NOTE, Compaction, Entry, MISSING_RESULT, Outcome, grouped};
use contexture_summaries::{SEAL_TOKENS, Sizes, WrittenSummary, framing_tokens, marked};
use serde_json::json;

use super::Compressor;
use crate::boundaries::Outline;
use crate::entries::entries;
use crate::plan::{Limits, Plan};
use crate::settings::share;

/// The share of the prompt that a compaction must save to be proposed unless it is forced.
const MIN_SAVING: f64 = 0.03;

/// A proposal that the host has neither committed nor discarded: its sizes, the summary if one was
/// written, and the number of messages before and after.
pub(super) struct Proposal {
    sizes: Sizes,
    written: Option<WrittenSummary>,
    messages: (usize, usize),
}

/// Everything that a proposal is made from. `before` is the current prompt in tokens, and `written`
/// is `None` if nothing is summarised.
pub(super) struct Draft<'r, 'm, 'a> {
    pub(super) outline: &'r Outline<'m, 'a>,
    pub(super) plan: &'r Plan,
    pub(super) limits: &'r Limits,
    pub(super) before: u64,
    pub(super) force: bool,
    pub(super) written: Option<WrittenSummary>,
}

impl Compressor {
    /// Turns a plan into a compaction, unless it is not worth it. The outcome is `NothingToDo` if
    /// nothing is saved, or if less than 3 % of the prompt is saved and the order is not forced.
    pub(super) fn propose(&mut self, draft: Draft<'_, '_, '_>) -> Outcome {
        let Draft {
            outline,
            plan,
            limits,
            before,
            force,
            written,
        } = draft;
        let threshold = limits.budgets.threshold_tokens;
        let summary = written.as_ref().map(|written| marked(&written.text));
        let summary_tokens = summary.as_deref().map_or(0, |text| {
            self.services.count_tokens(text) + framing_tokens(&self.services)
        });
        let entries = entries(outline, plan, summary);
        let after = plan.kept_tokens + summary_tokens + self.added_tokens(outline, &entries);
        // The plan assumed a summary of full length. Only now is the real size known.
        let saved = before.saturating_sub(after);
        if saved == 0 || (!force && saved < share(before, MIN_SAVING)) {
            let reason = format!(
                "a compaction would take the prompt from {} to {} tokens, which is not worth it",
                grouped(before),
                grouped(after)
            );
            // Above the trigger the next turn would ask again with the same result, so the engine
            // waits until the prompt has grown.
            if before >= limits.trigger {
                self.headroom.stop(reason.clone(), &self.window);
            }
            return Outcome::NothingToDo(reason);
        }

        let degraded = written.as_ref().is_some_and(|written| written.degraded);
        let mut notes: Vec<String> = written.iter().map(|written| written.note.clone()).collect();
        if !plan.replaced.is_empty() {
            notes.push(format!(
                "{} of the protected messages were shortened, since they left too little room",
                plan.replaced.len()
            ));
        }
        let tail = outline.messages.len() - plan.split.tail;
        if tail < limits.protect_last_n.min(outline.messages.len()) {
            notes.push(format!(
                "the last {} messages (`compression.protect_last_n`) leave less than a quarter of the trigger free: \
                 {tail} of them are kept as the tail",
                limits.protect_last_n
            ));
        }
        if outline.was_compacted() && plan.takes_the_first_exchange(outline) {
            notes.push(
                "the first exchange is part of the summary from the second compaction on"
                    .to_owned(),
            );
        }
        if after >= limits.trigger {
            notes.push(format!(
                "the prompt still has {} tokens and is above the threshold of {}: what is left may not be removed",
                grouped(after),
                grouped(threshold)
            ));
        }

        let messages_after = entries
            .iter()
            .filter(|entry| !matches!(entry, Entry::Drop(_)))
            .count();
        self.proposal = Some(Proposal {
            sizes: Sizes {
                before,
                after,
                trigger: limits.trigger,
            },
            written,
            messages: (outline.messages.len(), messages_after),
        });
        Outcome::Compacted(
            Compaction::default()
                .entries(entries)
                .system_note(Some(COMPACTION_NOTE.to_owned()))
                .degraded(degraded)
                .notes(notes),
        )
    }

    /// The tokens that a proposal adds besides its summary: stub results for calls without one, and
    /// the note in the system prompt. The note counts only at the first compaction, since later
    /// ones find it in place.
    fn added_tokens(&self, outline: &Outline<'_, '_>, entries: &[Entry]) -> u64 {
        let stubs = entries
            .iter()
            .filter(|entry| matches!(entry, Entry::StubResult(_)))
            .count() as u64;
        let stub_tokens = match stubs {
            0 => 0,
            _ => stubs * (self.services.count_tokens(MISSING_RESULT) + SEAL_TOKENS),
        };
        let note_tokens = match outline.was_compacted() {
            true => 0,
            false => self.services.count_tokens(COMPACTION_NOTE),
        };
        stub_tokens + note_tokens
    }

    /// Records a committed proposal: its sizes for `Headroom`, the figures for the status, and the
    /// summary that is now in force. `compaction` is the id that the host gave it.
    pub(super) fn adopt(&mut self, proposal: Proposal, compaction: u64) {
        self.headroom.committed(&self.window, proposal.sizes);
        self.compactions += 1;
        self.last_compaction = Some(json!({
            "id": compaction,
            "at_ms": self.services.now_ms(),
            "tokens_before": proposal.sizes.before,
            "tokens_after": proposal.sizes.after,
            "messages_before": proposal.messages.0,
            "messages_after": proposal.messages.1,
            "degraded": proposal.written.as_ref().is_some_and(|written| written.degraded),
        }));
        // The reported usage belongs to the prompt before the compaction.
        self.reported_tokens = None;
        self.cycle.committed(proposal.written);
    }
}
