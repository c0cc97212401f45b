//! What an engine lacks of the conversation, for its text was nowhere when the engine was to be shown it; and the
//! ids by which an engine knows the places of messages.

use std::sync::Arc;

use contexture_engine_api::MessageId;

use super::Session;
use super::ids::{IdMap, Ids};
use super::record::InForce;
use super::show::Start;
use super::slot::Slot;

impl Session {
    /// Where the client has sent messages now that the engine lacks, for they were nowhere when it was to be shown
    /// them, it is shown the conversation again from the first of these on. Says whether that is so.
    pub(super) fn show_again_what_it_lacked(&mut self, start: &mut Start) -> bool {
        if self.history.lacking().is_empty() {
            return false;
        }
        let sent = self.history.sent.units.iter().filter(|unit| unit.is_said());
        let sent: Ids = sent.map(|unit| unit.origin.id()).collect();
        let found: Ids = self
            .history
            .lacking()
            .intersection(&sent)
            .copied()
            .collect();
        // One that was edited has a later id than those behind it.
        let (mut first, mut least) = (None, MessageId(u64::MAX));
        for known in self.history.branch().iter().rev() {
            least = least.min(known.id);
            if found.contains(&known.id) {
                first = Some(least);
            }
        }
        let Some(first) = first else {
            return false;
        };
        let before = self.history.before(first).min(start.after);
        *start = Start {
            after: before,
            cut: Some(before),
        };
        true
    }

    /// Gives new ids to messages that stand in the places of others which the engine neither has nor is to be
    /// `shown`: it can only know their places by their ids.
    pub(super) fn renumber_after(&mut self, last: Option<MessageId>, shown: &mut Vec<Slot>) {
        let (believed, remembers) = self.history.shown();
        if (believed.is_some() && !remembers) || !self.history.has_revisions_after(last) {
            return;
        }
        let ids: Ids = shown.iter().map(Slot::id).collect();
        let is_known = |id| self.has_seen(id, last) || ids.contains(&id);
        let has_no_place = |id: MessageId| {
            let mut forms = self.history.earlier_forms(id).peekable();
            forms.peek().is_some() && !forms.any(is_known)
        };
        // Mostly none, and then the whole conversation need not be looked at.
        let unplaced: Vec<MessageId> = shown
            .iter()
            .map(Slot::id)
            .filter(|id| has_no_place(*id))
            .collect();
        if unplaced.is_empty() {
            return;
        }
        let branch = self.history.branch();
        let from = branch.iter().position(|known| unplaced.contains(&known.id));
        // The engine knows what it has seen by the ids that it was shown.
        let Some(from) = from.filter(|from| {
            let mut behind = branch.iter().skip(*from);
            behind.all(|known| Some(known.id) > last)
        }) else {
            return;
        };
        // An engine that keeps nothing has no places, and has not been shown anything yet that would tell.
        if believed.is_none() && !self.engine.about().keeps_sessions {
            return;
        }
        let window = Arc::make_mut(&mut self.window);
        let renamed: IdMap<MessageId> = (branch.iter().skip(from))
            .map(|known| (known.id, window.fresh_id()))
            .collect();
        window.rename(&renamed);
        let rename = |slot: Slot| match renamed.get(&slot.id()) {
            Some(new) => slot.renamed(*new),
            None => slot,
        };
        self.unshown = std::mem::take(&mut self.unshown)
            .into_values()
            .map(rename)
            .map(|slot| (slot.id(), slot))
            .collect();
        self.history.rename(from, &renamed);
        let mut by_id: IdMap<Slot> = (std::mem::take(shown).into_iter().map(rename))
            .map(|slot| (slot.id(), slot))
            .collect();
        *shown = (self.history.after(last).iter())
            .filter_map(|logged| by_id.remove(&logged.id))
            .collect();
        if let Some(in_force) = self.history.in_force().cloned() {
            let left_out = in_force.window.left_out().renamed(&renamed);
            let window = self.window.save(left_out);
            self.history
                .set_in_force(Some(InForce { window, ..in_force }));
        }
        self.save();
    }

    /// Whether an engine that was shown the conversation up to `last` has seen this message of it.
    fn has_seen(&self, id: MessageId, last: Option<MessageId>) -> bool {
        Some(id) <= last && !self.history.lacking().contains(&id)
    }

    /// Those of the messages to be shown that are another form of one which the engine has or is shown too, each
    /// with the latest such form.
    pub(super) fn revisions_in(
        &self,
        shown: &[Slot],
        last: Option<MessageId>,
    ) -> Vec<(MessageId, MessageId)> {
        if !self.history.has_revisions_after(last) {
            return Vec::new();
        }
        let ids: Ids = shown.iter().map(Slot::id).collect();
        let is_known = |id: &MessageId| self.has_seen(*id, last) || ids.contains(id);
        let earlier = |id| self.history.earlier_forms(id).find(is_known);
        let revisions = shown.iter().map(Slot::id);
        revisions
            .filter_map(|id| Some((id, earlier(id)?)))
            .collect()
    }
}
