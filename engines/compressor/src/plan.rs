//! Decides what a compaction keeps, clears and summarizes, so that the result fits.
//!
//! The boundaries of the document come first. A compaction has to leave a quarter of its trigger free, so that the next
//! one is not due at once. Sometimes the protected messages are too large for that, as with twenty giant messages.
//! Protection is then relaxed step by step, as far as needed:
//!
//! 1. Old tool results inside the tail become previews, repeated ones first, then from the oldest on. Results that the
//!    model has not seen are left alone. Every message stays, and `protect_last_n` holds.
//! 2. The tail shrinks to its token budget.
//! 3. Head and tail shrink to the minimum: the last turn, the user's last message and the last answer.
//! 4. Results that the model has not seen yet become previews, but only if the window itself, not just the trigger, is
//!    exceeded. Then other messages do, the user's last one at the end.
//!
//! The first step that makes enough room is the last one taken. If none does, the engine waits
//! ([`Headroom`](contexture_summaries::Headroom)) until the window requires a compaction, and then uses the step that
//! leaves the fewest tokens.

use std::collections::HashSet;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageKind, roomy};

use crate::boundaries::{MIN_TAIL, Outline, Protection, Split};
use crate::clearing::{is_clearable, preview};
use crate::settings::Budgets;

/// The share of the window at which a conversation whose floor is above the threshold is compacted.
pub(crate) const LAST_CALL: f64 = 0.85;
/// The least characters of a preview.
const MIN_PREVIEW_CHARS: u64 = 200;
/// How many characters the preview of an old tool result in the protected part has.
const OLD_PREVIEW_CHARS: u64 = 400;

/// The limits of one compaction, in tokens as the views count them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// System prompt and tools.
    pub(crate) fixed: u64,
    /// Messages of the history that are protected at its start.
    pub(crate) first: usize,
    /// Where compactions are due.
    pub(crate) trigger: u64,
    /// The window less the reserved answer.
    pub(crate) room_for_prompt: u64,
    pub(crate) budgets: Budgets,
    pub(crate) protect_last_n: usize,
    /// A cleared tool result, framing included.
    pub(crate) cleared_tokens: u64,
}

/// What to do with each message.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) split: Split,
    /// Kept tool results with their new text, in order of position.
    pub(crate) replaced: Vec<(usize, String)>,
    /// Tokens of what is summarised or cleared.
    pub(crate) content_tokens: u64,
    /// What the summary may take; 0 where nothing is summarised.
    pub(crate) summary_tokens: u64,
    /// The prompt after it, with a summary that takes all it may.
    pub(crate) total: u64,
    /// The kept messages and `fixed`, cleared results counted as such.
    pub(crate) kept_tokens: u64,
}

impl Plan {
    /// The plan that the settings ask for, if it leaves enough room. Otherwise the first relaxed plan that does, or
    /// else the one that leaves the fewest tokens.
    pub(crate) fn of(outline: &Outline<'_, '_>, limits: &Limits) -> Self {
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
            // Without a middle there is no summary to hold the facts of what is cleared.
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
            plan.shorten_unseen(outline, limits);
        }
        if plan.total > limits.room_for_prompt {
            plan.shorten_kept(outline, limits);
        }
        plan
    }

    /// What the boundaries give, nothing cleared.
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
            content_tokens: content,
            summary_tokens,
            total,
            kept_tokens,
        }
    }

    /// Whether it changes anything.
    pub(crate) fn does_something(&self) -> bool {
        self.summary_tokens > 0 || !self.replaced.is_empty()
    }

    /// Whether the plan removes messages before the first summary of the window, which the first compaction had kept.
    pub(crate) fn takes_the_first_exchange(&self, outline: &Outline<'_, '_>) -> bool {
        let is_summary = |at: &usize| outline.messages[*at].kind() == MessageKind::Summary;
        let summary = (0..outline.messages.len()).find(is_summary);
        summary.is_some_and(|summary| self.split.middle().any(|at| at < summary))
    }

    /// Replaces kept old results by previews until the plan ends at `goal`.
    fn shorten_old(&mut self, outline: &Outline<'_, '_>, limits: &Limits, goal: u64) {
        let seen_end = outline.last_turn.min(outline.messages.len());
        let candidates: Vec<usize> = (0..seen_end)
            .filter(|at| self.split.keeps(*at))
            .filter(|at| {
                is_clearable(&outline.messages[*at], outline.caller(*at))
                    && outline.tokens[*at] > limits.cleared_tokens
            })
            .collect();
        // A repeated output costs nothing to clear: the latest copy stays.
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
            if outline.messages[at].has_media() || repeated.binary_search(&at).is_ok() {
                let text = CLEARED_TOOL_OUTPUT.to_owned();
                self.replace(at, text, limits.cleared_tokens, outline);
            } else {
                self.shorten(at, OLD_PREVIEW_CHARS, limits, outline);
            }
        }
        self.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    /// The last batch of results, answered in full and too large for the window: the model cannot be
    /// asked at all unless they shrink.
    fn shorten_unseen(&mut self, outline: &Outline<'_, '_>, limits: &Limits) {
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
        // Two characters a token is on the safe side for all but dense scripts.
        let chars = room / (unseen.len() as u64).max(1);
        if chars < MIN_PREVIEW_CHARS {
            return;
        }
        for at in unseen {
            self.shorten(at, chars, limits, outline);
        }
    }

    /// Kept words that the window cannot hold: a preview stands in their place, of the largest first and
    /// of the user's last message only where it does not fit even alone.
    fn shorten_kept(&mut self, outline: &Outline<'_, '_>, limits: &Limits) {
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
            // Two characters a token, as for results; half of the room is left for the conversation.
            let chars = (room / 2).max(MIN_PREVIEW_CHARS);
            self.shorten(at, chars, limits, outline);
        }
        self.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    /// A preview of so many characters, where it is shorter: of a dense text it may not be, though it should
    /// have fewer tokens.
    fn shorten(&mut self, at: usize, chars: u64, limits: &Limits, outline: &Outline<'_, '_>) {
        let tokens = chars / 2 + limits.cleared_tokens;
        if tokens >= outline.tokens[at] {
            return;
        }
        let whole = outline.messages[at].text();
        let text = preview(whole, chars as usize);
        if text.len() < whole.len() {
            self.replace(at, text, tokens, outline);
        }
    }

    fn replace(&mut self, at: usize, text: String, tokens: u64, outline: &Outline<'_, '_>) {
        let saved = outline.tokens[at].saturating_sub(tokens);
        self.total -= saved;
        self.kept_tokens -= saved;
        self.content_tokens += saved;
        self.replaced.push((at, text));
    }
}
