//! Large messages that stay in the window as previews.
//!
//! A single tool result can be larger than all other messages together. If it has to stay in the
//! window, it is replaced by a preview, and the model can read the rest with a tool. Messages with
//! thinking or media are never changed.
//!
//! There are three degrees. [`Compactor::large`] always shortens what is above the configured limit
//! and was seen by the model. [`Compactor::shorten_old`] goes on with older tool results if the
//! window is still too large. [`Compactor::shorten_unseen`] is the last resort.

use std::borrow::Cow;
use std::collections::HashSet;

use contexture_digest::{keep_rules, shorten_arguments};
use contexture_engine_api::{MessageKind, MessageView, Replacement, ShortArguments, roomy};
use contexture_summaries::excerpt_within;

use super::Compactor;
use super::arrange::Arrangement;
use crate::assemble::shortened;
use crate::dag::outline::Outline;
use crate::preview::preview;

/// The maximum number of tokens of a preview, not counting the line that says how to read the
/// message. The user's last message is not bound by it.
const PREVIEW_TOKENS: u64 = 600;
/// The minimum number of tokens of a preview. Less would not show what kind of text it is.
const LEAST_PREVIEW: u64 = 60;

impl Compactor<'_, '_> {
    /// Returns the large messages that stay and that the model has seen, with their shorter forms.
    /// The user's last message is not among them.
    pub(super) fn large(
        &self,
        arrangement: &Arrangement,
        outline: &Outline,
    ) -> Vec<(usize, Replacement)> {
        let limit = self.settings.large_message_tokens;
        arrangement
            .kept_places()
            .filter(|at| *at < outline.last_turn && Some(*at) != outline.last_user)
            .filter(|at| self.views[*at].tokens() > limit)
            .filter_map(|at| Some((at, self.shortened(at, PREVIEW_TOKENS)?)))
            .collect()
    }

    /// Replaces old tool results that stay by previews, from the oldest on, until the estimated
    /// prompt is not above `goal`. Results of less than twice the size of a preview are not worth
    /// it.
    pub(super) fn shorten_old(&self, arrangement: &mut Arrangement, outline: &Outline, goal: u64) {
        let done: HashSet<usize> = arrangement.replaced.iter().map(|(at, _)| *at).collect();
        let worth_it = |at: &usize| {
            self.views[*at].role() == "tool" && self.views[*at].tokens() > 2 * PREVIEW_TOKENS
        };
        let old: Vec<usize> = arrangement
            .kept_places()
            .filter(|at| *at < outline.last_turn && !done.contains(at) && worth_it(at))
            .collect();
        for at in old {
            if arrangement.estimate <= goal {
                break;
            }
            if let Some(short) = self.shortened(at, PREVIEW_TOKENS) {
                arrangement.replaced.push((at, short));
                self.estimate(arrangement);
            }
        }
        arrangement.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    /// Returns a shorter form of a message: its text as a preview, and the arguments of its calls
    /// without long strings. Returns None if the message must not be changed or would not become
    /// smaller.
    fn shortened(&self, at: usize, max_tokens: u64) -> Option<Replacement> {
        let view = &self.views[at];
        let may_be =
            view.kind() == MessageKind::Original && !view.has_thinking() && !view.has_media();
        if !may_be {
            return None;
        }
        let id = view.id();
        let mark = format!("… [shortened; lcm_expand with the id {id} gives it back]");
        let calls = view.tool_calls().iter().enumerate();
        let short = Replacement::new(id)
            .text(self.preview(view, max_tokens))
            .arguments(
                calls
                    .filter_map(|(index, call)| {
                        let arguments = shorten_arguments(call.arguments(), &mark)?;
                        Some(ShortArguments::new(index, arguments))
                    })
                    .collect(),
            );
        let changes = short.text.is_some() || !short.arguments.is_empty();
        (changes && self.tokens_of(view, &short) < view.tokens()).then_some(short)
    }

    fn preview(&self, view: &MessageView<'_>, max_tokens: u64) -> Option<String> {
        let text = view.text();
        let services = &self.session.services;
        let tokens = services.count_tokens(text);
        if tokens <= max_tokens {
            return None;
        }
        let shown = match view.role() {
            // What the user wants may stand at either end, whatever lies between.
            "user" => Cow::Borrowed(text),
            // A token has about four characters. The preview is made about that long and then cut
            // to its tokens.
            _ => Cow::Owned(preview(text, max_tokens as usize * 4)),
        };
        let shown = excerpt_within(&shown, max_tokens, services);
        let short = keep_rules(view, shortened(view.id(), tokens, text.len(), &shown));
        // The line that says how to read the message takes tokens, too.
        (short.len() < text.len() && services.count_tokens(&short) < tokens).then_some(short)
    }

    /// Returns the tokens of a message in its shorter form. Only the replaced parts are counted
    /// again.
    pub(super) fn tokens_of(&self, view: &MessageView<'_>, short: &Replacement) -> u64 {
        let count = |text: &str| self.session.services.count_tokens(text);
        let text = short.text.iter().map(|new| (view.text(), new.as_str()));
        let arguments = short.arguments.iter().filter_map(|new| {
            let call = view.tool_calls().get(new.index)?;
            Some((call.arguments(), new.arguments.as_str()))
        });
        text.chain(arguments)
            .fold(view.tokens(), |tokens, (old, new)| {
                (tokens + count(new)).saturating_sub(count(old))
            })
    }

    /// Shortens messages that the model has not seen, the largest first, until the prompt is below
    /// the hard threshold. The user's last message comes last, and only if the request could not be
    /// sent otherwise. It takes the room that the others leave below three quarters of that
    /// threshold.
    pub(super) fn shorten_unseen(&self, arrangement: &mut Arrangement, outline: &Outline) {
        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let done: HashSet<usize> = arrangement.replaced.iter().map(|(at, _)| *at).collect();
        let mut messages: Vec<usize> = arrangement
            .kept_places()
            .filter(|at| !done.contains(at) && !in_flight.contains(at))
            .filter(|at| Some(*at) != outline.last_user)
            .collect();
        // Shortening the largest messages first changes as few messages as possible.
        messages.sort_by_key(|at| std::cmp::Reverse(self.views[*at].tokens()));
        let last_user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .filter(|at| self.fixed + self.views[*at].tokens() > self.budgets.usable);
        for at in messages.into_iter().chain(last_user) {
            if arrangement.estimate < self.budgets.hard {
                break;
            }
            let tokens = self.views[at].tokens();
            let most = match Some(at) == last_user {
                true => roomy(self.budgets.hard)
                    .saturating_sub(arrangement.estimate.saturating_sub(tokens))
                    .max(LEAST_PREVIEW),
                false => (tokens / 4).clamp(LEAST_PREVIEW, PREVIEW_TOKENS),
            };
            if let Some(short) = self.shortened(at, most) {
                arrangement.replaced.push((at, short));
                self.estimate(arrangement);
            }
        }
        arrangement.replaced.sort_unstable_by_key(|(at, _)| *at);
    }
}
