//! Whether a compaction may be tried, and how far it may go.

use contexture_engine_api::{
    CLEARED_TOOL_OUTPUT, CompressOrder, Decision, Floor, Outcome, WindowState, grouped,
};

use contexture_summaries::{SEAL_TOKENS, to_host_tokens};

use super::Compressor;
use crate::boundaries::{Outline, Protection};
use crate::plan::{LAST_CALL, Limits};
use crate::settings::{Budgets, room_for_prompt, share};

impl Compressor {
    /// Whether a compaction is due in this window, and why.
    pub(super) fn due(&self, window: &WindowState) -> Decision {
        if !self.settings.enabled {
            return Decision::No("compaction is off (`compression.enabled: false`)".into());
        }
        if window.context_length == 0 {
            return Decision::No("the model's context length is not known".into());
        }
        let prompt = window.best_prompt_tokens();
        let budgets = Budgets::for_window(&self.settings, window);
        let threshold = budgets.threshold_tokens;
        if prompt < threshold {
            return Decision::No(format!(
                "the prompt has {} tokens; a compaction is due from {}",
                grouped(prompt),
                grouped(threshold)
            ));
        }
        let last_call = share(room_for_prompt(window), LAST_CALL);
        if threshold > 0
            && window.fixed_tokens >= threshold
            && (window.fixed_tokens >= last_call || prompt < last_call)
        {
            return Decision::No(format!(
                "the system prompt and the tools alone have {} tokens, and a compaction cannot get below \
                 them; the threshold is {}: raise `compression.threshold` or offer fewer tools",
                grouped(window.fixed_tokens),
                grouped(threshold)
            ));
        }
        match self.headroom.decide(window, budgets.likely_after(window)) {
            Decision::Yes(_) if !window.timed_by_price || window.requires_compaction() => {
                Decision::Yes(format!(
                    "the prompt has {} tokens; a compaction is due from {}, in a window of {}",
                    grouped(prompt),
                    grouped(threshold),
                    grouped(window.context_length)
                ))
            }
            decision => decision,
        }
    }

    /// The window of a request, or the last reported one.
    pub(super) fn window_of(&mut self, order: &CompressOrder) -> WindowState {
        if order.window.context_length > 0 {
            self.window = order.window.clone();
        }
        self.window.clone()
    }

    pub(super) fn protection(&self, outline: &Outline<'_, '_>, window: &WindowState) -> Protection {
        Protection {
            first: outline.protected_first(has_system_prompt(window)),
            last: self.settings.protect_last_n,
            tail_tokens: Budgets::for_window(&self.settings, window).tail_token_budget,
        }
    }

    /// Why nothing is even tried.
    pub(super) fn refusal(&self, order: &CompressOrder, window: &WindowState) -> Option<Outcome> {
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
        if !window.fits() {
            return None;
        }
        self.headroom
            .stopped(window)
            .map(|reason| Outcome::Deferred(reason.to_owned()))
    }

    /// The limits in the units of the views' counts, and the floor that no compaction gets below.
    pub(super) fn limits(
        &self,
        window: &WindowState,
        outline: &Outline<'_, '_>,
        before: u64,
    ) -> (Limits, u64) {
        let mut budgets = Budgets::for_window(&self.settings, window);
        let scale = to_host_tokens(before, window);
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
            first: outline.protected_first(has_system_prompt(window)),
            trigger,
            room_for_prompt,
            budgets,
            protect_last_n: self.settings.protect_last_n,
            cleared_tokens: self.services.count_tokens(CLEARED_TOOL_OUTPUT) + SEAL_TOKENS,
        };
        (limits, floor)
    }

    pub(super) fn floor_too_high(&mut self, floor_tokens: u64, reason: String) -> Outcome {
        self.headroom.stop(reason.clone(), &self.window);
        Outcome::FloorTooHigh(Floor::default().tokens(floor_tokens).reason(reason))
    }
}

/// Whether a system prompt stands before the history. A host that does not say has one, or tools alone,
/// where anything does.
fn has_system_prompt(window: &WindowState) -> bool {
    window.has_system_prompt.unwrap_or(window.fixed_tokens > 0)
}
