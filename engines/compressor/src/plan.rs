//! Decides what a compaction keeps, clears and summarizes, so that the result fits.
//!
//! [`Plan::of`] starts with the protection that the settings ask for. A compaction has to leave a
//! quarter of its trigger free, so that the next one is not due at once. If the protected messages
//! are too large for that, as with twenty giant messages, protection is relaxed step by step:
//!
//! 1. Old tool results inside the tail become previews: repeated ones first, then from the oldest
//!    on. Results that the model has not seen are left alone. Every message stays, and
//!    `protect_last_n` holds.
//! 2. The tail shrinks to its token budget.
//! 3. Head and tail shrink to the minimum: the last turn, the user's last message and the last
//!    answer.
//! 4. If the window itself and not just the trigger is exceeded, results that the model has not
//!    seen yet become previews. Then other messages do, and the user's last one comes at the end. Only
//!    its middle is left out, since what the user wants may stand at either end.
//!
//! The first step that makes enough room is the last one taken. If none does, the engine waits
//! ([`Headroom`](contexture_summaries::Headroom)) until the window requires a compaction, and then
//! uses the step that leaves the fewest tokens.

use std::collections::HashSet;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageKind, SHORTENED_MARK, Services, roomy};
use contexture_summaries::{excerpt_within, framing_tokens, keep_rules};

use crate::boundaries::{MIN_TAIL, Outline, Protection, Split};
use crate::clearing::{is_clearable, preview};
use crate::settings::Budgets;

/// The share of the room for the prompt at which a conversation is compacted if its floor is above
/// the threshold.
pub(crate) const LAST_CALL: f64 = 0.85;
/// The fewest tokens of a preview. If less than this would be left per result, a preview is too short
/// to be useful.
const MIN_PREVIEW_TOKENS: u64 = 100;
/// The number of characters in the preview of an old tool result that stands among the protected
/// messages.
const OLD_PREVIEW_CHARS: u64 = 400;

/// The limits of one compaction, in tokens as the message views count them. `fixed` is the system
/// prompt with the tools, `trigger` the size at which a compaction is due, `room_for_prompt` the
/// window less the reserved answer, and `cleared_tokens` the size of a cleared tool result with its
/// framing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) fixed: u64,
    pub(crate) first: usize,
    pub(crate) trigger: u64,
    pub(crate) room_for_prompt: u64,
    pub(crate) budgets: Budgets,
    pub(crate) protect_last_n: usize,
    pub(crate) cleared_tokens: u64,
}

/// What to do with each message, and the sizes that result from it in tokens.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) split: Split,
    /// Kept messages with their shortened text, sorted by position.
    pub(crate) replaced: Vec<(usize, String)>,
    /// What the summary may take. It is 0 if nothing is summarised.
    pub(crate) summary_tokens: u64,
    /// The prompt after the compaction, if the summary takes all that it may.
    pub(crate) total: u64,
    /// The part of the prompt that stays: `fixed` and the kept messages, with shortened ones at
    /// their new size.
    pub(crate) kept_tokens: u64,
}

impl Plan {
    /// Returns the plan that the settings ask for if it leaves enough room. Otherwise returns the
    /// first relaxed plan that does, or the one that leaves the fewest tokens if none does.
    pub(crate) fn of(outline: &Outline<'_, '_>, limits: &Limits, services: &Services) -> Self {
        let goal = roomy(limits.trigger);
        let first = limits.first;
        let rungs = [
            (
                first,
                limits.protect_last_n,
                limits.budgets.tail_token_budget,
            ),
            (first, MIN_TAIL, limits.budgets.tail_token_budget),
            (0, MIN_TAIL, 0),
        ];
        let mut best: Option<Self> = None;
        for (rung, (first, last, tail_tokens)) in rungs.into_iter().enumerate() {
            let protection = Protection {
                first,
                last,
                tail_tokens,
            };
            let mut plan = Self::unforced(outline, outline.split(protection), limits);
            // If nothing is summarised here, the next rung may summarise, and a summary keeps more of a
            // result than a preview. Only the last rung may clear without one.
            if plan.total > goal && (plan.summary_tokens > 0 || rung == 2) {
                plan.shorten_old(outline, limits, goal);
            }
            let fits = plan.total <= goal;
            if best.as_ref().is_none_or(|best| plan.total < best.total) {
                best = Some(plan);
            }
            if fits {
                break;
            }
        }
        // `rungs` is never empty, so this branch only satisfies the type.
        let mut plan = best.unwrap_or_else(|| {
            let everything = Split {
                head: 0,
                anchors: Vec::new(),
                tail: 0,
                summary_before: 0,
            };
            Self::unforced(outline, everything, limits)
        });
        if plan.total > limits.room_for_prompt {
            plan.shorten_unseen(outline, limits, services);
        }
        if plan.total > limits.room_for_prompt {
            plan.shorten_kept(outline, limits, services);
        }
        plan
    }

    /// The plan that the boundaries alone give, before anything is shortened. If the middle holds
    /// nothing new, nothing is summarised and `total` stays the whole prompt.
    fn unforced(outline: &Outline<'_, '_>, split: Split, limits: &Limits) -> Self {
        let all: u64 = outline.tokens.iter().sum();
        let content: u64 = split.middle().map(|at| outline.tokens[at]).sum();
        let something_new = split.something_new(outline);
        let kept_tokens = limits.fixed + all - content;
        let summary_tokens = match something_new {
            true => limits.budgets.summary_tokens(content),
            false => 0,
        };
        let total = match something_new {
            true => kept_tokens + summary_tokens,
            false => limits.fixed + all,
        };
        Self {
            split,
            replaced: Vec::new(),
            summary_tokens,
            total,
            kept_tokens,
        }
    }

    pub(crate) fn does_something(&self) -> bool {
        self.summary_tokens > 0 || !self.replaced.is_empty()
    }

    /// Whether the plan removes messages that stand before the first summary. The first compaction
    /// kept those as its head, so the user is told when they go.
    pub(crate) fn takes_the_first_exchange(&self, outline: &Outline<'_, '_>) -> bool {
        let is_summary = |at: &usize| outline.messages[*at].kind() == MessageKind::Summary;
        let summary = (0..outline.messages.len()).find(is_summary);
        summary.is_some_and(|summary| self.split.middle().any(|at| at < summary))
    }

    /// Shortens kept tool results that the model has already seen, until the plan ends at `goal`
    /// tokens or no candidate is left.
    fn shorten_old(&mut self, outline: &Outline<'_, '_>, limits: &Limits, goal: u64) {
        let seen_end = outline.last_turn.min(outline.messages.len());
        let candidates: Vec<usize> = (0..seen_end)
            .filter(|at| self.split.keeps(*at))
            .filter(|at| {
                is_clearable(&outline.messages[*at], outline.caller(*at))
                    && outline.tokens[*at] > limits.cleared_tokens
            })
            .collect();
        // Clearing a repeated output loses nothing, because its latest copy stays.
        let mut later: HashSet<&str> = (seen_end..outline.messages.len())
            .map(|at| outline.messages[at].text())
            .collect();
        let mut repeated: Vec<usize> = candidates
            .iter()
            .rev()
            .copied()
            .filter(|at| !later.insert(outline.messages[*at].text()))
            .collect();
        repeated.reverse();
        let oldest_first = candidates
            .iter()
            .copied()
            .filter(|at| repeated.binary_search(at).is_err());
        let order: Vec<usize> = repeated.iter().copied().chain(oldest_first).collect();
        for at in order {
            if self.total <= goal {
                break;
            }
            // Media cannot be excerpted, and a repeated text survives in its later copy. Neither
            // needs a preview.
            if outline.messages[at].has_media() || repeated.binary_search(&at).is_ok() {
                let text = CLEARED_TOOL_OUTPUT.to_owned();
                self.replace(at, text, limits.cleared_tokens, outline);
            } else {
                self.shorten_old_result(at, limits, outline);
            }
        }
        self.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    /// Shortens the last batch of results if they are too large for the window. The model has not
    /// seen them, but it cannot be asked at all unless they shrink. Does nothing while calls are in
    /// flight, or if the room per result is too small for a preview.
    fn shorten_unseen(&mut self, outline: &Outline<'_, '_>, limits: &Limits, services: &Services) {
        if outline.in_flight.is_some() {
            return;
        }
        let unseen: Vec<usize> = (outline.last_turn..outline.messages.len())
            .filter(|at| {
                let message = &outline.messages[*at];
                message.role() == "tool" && !message.has_media()
            })
            .collect();
        let unseen_tokens: u64 = unseen.iter().map(|at| outline.tokens[*at]).sum();
        let room = limits
            .room_for_prompt
            .saturating_sub(self.total - unseen_tokens);
        // Half of the room is left for the conversation that follows.
        let tokens = room / (unseen.len() as u64).max(1) / 2;
        if tokens < MIN_PREVIEW_TOKENS {
            return;
        }
        for at in unseen {
            self.shorten(at, tokens, outline, services);
        }
    }

    /// Shortens kept messages of the user and the assistant that the window cannot hold, the
    /// largest first. The user's last message is shortened only if it does not fit even alone, and
    /// then as the last one.
    fn shorten_kept(&mut self, outline: &Outline<'_, '_>, limits: &Limits, services: &Services) {
        let fits_alone = |at: usize| limits.fixed + outline.tokens[at] <= limits.room_for_prompt;
        let last_user = outline.last_user;
        let untouched = last_user.filter(|at| fits_alone(*at));
        let mut kept: Vec<usize> = (0..outline.messages.len())
            .filter(|at| {
                let message = &outline.messages[*at];
                self.split.keeps(*at)
                    && Some(*at) != untouched
                    && matches!(message.role(), "user" | "assistant")
                    && message.kind() == MessageKind::Original
                    && message.tool_calls().is_empty()
                    && !message.has_thinking()
                    && !message.has_media()
            })
            .collect();
        kept.sort_by_key(|at| {
            let is_last_user = Some(*at) == last_user;
            (is_last_user, std::cmp::Reverse(outline.tokens[*at]))
        });
        for at in kept {
            if self.total <= limits.room_for_prompt {
                break;
            }
            let others = self.total - outline.tokens[at];
            let room = limits.room_for_prompt.saturating_sub(others);
            // The goal leaves room for the conversation that follows. If the others are above it
            // already, that is half of what is left.
            let goal = roomy(limits.trigger).saturating_sub(others);
            let tokens = goal.max(room / 2).max(MIN_PREVIEW_TOKENS);
            self.shorten(at, tokens, outline, services);
        }
        self.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    /// Replaces a message with both of its ends in at most `tokens` tokens and with the rules that a
    /// user states between them, if that saves tokens and bytes.
    fn shorten(&mut self, at: usize, tokens: u64, outline: &Outline<'_, '_>, services: &Services) {
        let message = &outline.messages[at];
        let shown = excerpt_within(message.text(), tokens, services);
        let text = keep_rules(message, format!("{SHORTENED_MARK}\n{shown}"));
        let tokens = services.count_tokens(&text) + framing_tokens(services);
        if tokens < outline.tokens[at] && text.len() < message.text().len() {
            self.replace(at, text, tokens, outline);
        }
    }

    /// Replaces an old result with a short preview, if that saves tokens and bytes. A preview of a
    /// dense text can be longer in bytes although the estimate says that it has fewer tokens.
    fn shorten_old_result(&mut self, at: usize, limits: &Limits, outline: &Outline<'_, '_>) {
        // Two characters a token is a safe estimate for all but dense scripts.
        let tokens = OLD_PREVIEW_CHARS / 2 + limits.cleared_tokens;
        if tokens >= outline.tokens[at] {
            return;
        }
        let whole = outline.messages[at].text();
        let text = preview(whole, OLD_PREVIEW_CHARS as usize);
        if text.len() < whole.len() {
            self.replace(at, text, tokens, outline);
        }
    }

    /// Records a shorter text of `tokens` tokens for a kept message.
    fn replace(&mut self, at: usize, text: String, tokens: u64, outline: &Outline<'_, '_>) {
        let saved = outline.tokens[at].saturating_sub(tokens);
        self.total -= saved;
        self.kept_tokens -= saved;
        self.replaced.push((at, text));
    }
}
