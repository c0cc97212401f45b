//! Large messages that stay in the window, as previews.

use std::collections::HashSet;

use contexture_engine_api::MessageKind;

use super::Compactor;
use super::arrange::Arrangement;
use crate::assemble::shortened;
use crate::dag::outline::Outline;
use crate::dag::plan::Segment;
use crate::preview::preview;
use crate::transcript::fit;

/// The most tokens of a preview of a large message, and the least worth showing.
const PREVIEW_TOKENS: u64 = 600;
const LEAST_PREVIEW: u64 = 60;

impl Compactor<'_, '_> {
    /// Large messages that stay and that the model has seen, with what is to stand in their place.
    pub(super) fn large(
        &self,
        arrangement: &Arrangement,
        outline: &Outline,
    ) -> Vec<(usize, String)> {
        let limit = self.settings.large_message_tokens;
        let kept = arrangement
            .segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Keep(places) => Some(places.clone()),
                Segment::Run(_) => None,
            });
        kept.flatten()
            .filter(|at| *at < outline.last_turn && Some(*at) != outline.last_user)
            .filter(|at| self.views[*at].tokens() > limit)
            .filter_map(|at| Some((at, self.shortened(at, PREVIEW_TOKENS)?)))
            .collect()
    }

    /// The preview of a message, where it may be shortened and the preview is shorter.
    fn shortened(&self, at: usize, max_tokens: u64) -> Option<String> {
        let view = &self.views[at];
        let whole = view.kind() == MessageKind::Original
            && !view.has_thinking()
            && !view.has_media()
            && !view.text().is_empty();
        if !whole {
            return None;
        }
        let text = view.text();
        let services = &self.session.services;
        let shown = fit(
            &preview(text, max_tokens as usize * 4),
            max_tokens,
            services,
        );
        let short = shortened(view.id(), view.tokens(), text.len(), &shown);
        (short.len() < text.len() && services.count_tokens(&short) < view.tokens()).then_some(short)
    }

    /// Results that the model has not seen are shortened only where there is no other way below the hard
    /// threshold; so is, at the very last, the user's own message.
    pub(super) fn shorten_unseen(&self, arrangement: &mut Arrangement, outline: &Outline) {
        let in_flight = outline.in_flight.clone().unwrap_or(0..0);
        let done: HashSet<usize> = arrangement.replaced.iter().map(|(at, _)| *at).collect();
        let mut results: Vec<usize> = (0..self.views.len())
            .filter(|at| !done.contains(at) && !in_flight.contains(at))
            .filter(|at| self.stays(arrangement, *at))
            .filter(|at| self.views[*at].role() == "tool" || self.views[*at].role() == "assistant")
            .collect();
        // The largest first.
        results.sort_by_key(|at| std::cmp::Reverse(self.views[*at].tokens()));
        let last_user = outline
            .last_user
            .filter(|at| !in_flight.contains(at))
            .filter(|_| self.floor(outline) > self.budgets.usable);
        for at in results.into_iter().chain(last_user) {
            if arrangement.estimate < self.budgets.hard {
                break;
            }
            let most = (self.views[at].tokens() / 4).clamp(LEAST_PREVIEW, PREVIEW_TOKENS);
            if let Some(text) = self.shortened(at, most) {
                arrangement.replaced.push((at, text));
                self.estimate(arrangement);
            }
        }
        arrangement.replaced.sort_unstable_by_key(|(at, _)| *at);
    }

    fn stays(&self, arrangement: &Arrangement, at: usize) -> bool {
        arrangement
            .segments
            .iter()
            .any(|segment| matches!(segment, Segment::Keep(places) if places.contains(&at)))
    }
}
