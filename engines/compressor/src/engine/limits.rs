//! Whether a compaction may be tried, and how far it may go.
//!
//! The host asks `due` before each turn, which looks only at sizes. Once the messages are at hand,
//! `refusal` says why a compaction is not even tried, and `limits` computes the [`Limits`] that the
//! plan has to respect together with the *floor*: the tokens that no compaction gets below, since
//! the system prompt, the tools, the user's last message and calls in flight have to stay.
//! `Budgets` holds the configured thresholds, and [`Headroom`](contexture_summaries::Headroom)
//! remembers when an earlier attempt could not make room.

use contexture_engine_api::{
    CLEARED_TOOL_OUTPUT, CompressOrder, Decision, Floor, Outcome, WindowState, grouped,
};

use contexture_summaries::{SEAL_TOKENS, to_host_tokens};

use super::Compressor;
use crate::boundaries::{Outline, Protection};
use crate::plan::{LAST_CALL, Limits};
use crate::settings::{Budgets, share};

impl Compressor {
    /// Whether a compaction is due in this window, with the reason in words. The answer is no if
    /// compaction is off, if the context length is unknown, if the prompt is below the threshold,
    /// or if a compaction could not get below it.
    pub(super) fn due(&self, window: &WindowState) -> Decision {
        if !self.settings.enabled {
            return Decision::No("compaction is off (`compression.enabled: false`)".into());
        }
        let Some(room_for_prompt) = window.room_for_prompt() else {
            return Decision::No("the model's context length is not known".into());
        };
        let prompt = window.best_prompt_tokens();
        let budgets = Budgets::for_window(&self.settings, window);
        let threshold = budgets.threshold_tokens;
        if prompt < threshold {
            let is_rough = window.estimated && window.reported_tokens.is_none();
            return Decision::No(format!(
                "the prompt has {}{} tokens; a compaction is due from {}",
                if is_rough { "about " } else { "" },
                grouped(prompt),
                grouped(threshold)
            ));
        }
        // If the fixed part alone exceeds the threshold, compacting at the threshold is useless.
        // Near the end of the window it still helps to make room for the answer.
        let last_call = share(room_for_prompt, LAST_CALL);
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
            // A decision timed by price carries its own reason, so it is passed on unchanged.
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

    /// Returns the window of a request and remembers it. If the request does not know its context
    /// length, the last reported window is used instead.
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

    /// The reason why nothing is even tried, or `None` if a plan should be made. A forced order is
    /// refused only if the context length is unknown.
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
        // A prompt that no longer fits is compacted even if an earlier attempt did not help.
        if !window.fits() {
            return None;
        }
        self.headroom
            .stopped(window)
            .map(|reason| Outcome::Deferred(reason.to_owned()))
    }

    /// Returns the limits and the floor that no compaction gets below, both in tokens as the
    /// message views count them. `before` is the prompt in the same unit. The budgets are
    /// converted, because the provider may count tokens differently from the host.
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
        let room_for_prompt = share(window.room_for_prompt().unwrap_or_default(), scale);

        // Calls in flight include everything after them, so the user's message is counted only if
        // it stands before them.
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

    /// Stops further attempts at this size of the prompt and reports the floor to the host, so that
    /// it can tell the user what to change.
    pub(super) fn floor_too_high(&mut self, floor_tokens: u64, reason: String) -> Outcome {
        self.headroom.stop(reason.clone(), &self.window);
        Outcome::FloorTooHigh(Floor::default().tokens(floor_tokens).reason(reason))
    }
}

/// Whether a system prompt precedes the history. If the host does not say, any fixed tokens count
/// as one, although they may be those of the tools alone.
fn has_system_prompt(window: &WindowState) -> bool {
    window.has_system_prompt.unwrap_or(window.fixed_tokens > 0)
}
