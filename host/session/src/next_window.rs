//! The window after a request: what was in it, with what the request changed and added.

use contexture_engine_api::{MessageId, MessageKind};

use super::ids::{IdMap, Ids};
use super::record::InForce;
use super::request::{Request, keep_what_was_said};
use super::slot::Slot;
use super::trail::Unit;
use super::window::Window;
use super::written::IdSet;
use super::{Session, SessionError};

/// What a request changes.
pub(super) struct Changes {
    pub(super) lost: Ids,
    pub(super) cut: bool,
    /// The new ids of messages that have another form now, by the old.
    pub(super) revised: IdMap<MessageId>,
    /// The new ids of messages that are said again, by the old.
    pub(super) said_again: IdMap<MessageId>,
    pub(super) appends: bool,
}

impl Session {
    /// Makes the window what the request makes of it. `read` holds what was read of the request.
    pub(super) fn bring_window_up_to_date(
        &mut self,
        request: &Request<'_>,
        changes: &Changes,
        read: &IdMap<Slot>,
        new: &[MessageId],
        next_id: u64,
    ) -> Result<(), SessionError> {
        let resumed = self.history.resumed;
        if changes.appends && !resumed && !self.window.is_empty() {
            let window = std::sync::Arc::make_mut(&mut self.window);
            window.set_next_id(next_id);
            for slot in new.iter().filter_map(|id| read.get(id)) {
                window.push_slot(slot.clone());
            }
            return Ok(());
        }
        let in_force = self.history.in_force().cloned();
        let is_in_force = in_force.is_some() && !self.is_void(changes);
        self.layout = None;
        let mut applied = None;
        if let Some(in_force) = in_force.filter(|_| is_in_force) {
            let slots = self.window_in_force(request, &in_force, changes, read)?;
            // A rewind may make a message the user's last that a summary covers; it has to be there in full.
            let hides_the_user = changes.cut
                && self.history.sent.units.iter().all(Unit::is_said)
                && self.hides_last_user(request, read, &slots)?;
            let note = in_force.window.system_note().map(str::to_owned);
            applied = (!hides_the_user).then_some((slots, note, Some(in_force)));
        }
        let (slots, note, mut in_force) = match applied {
            Some(applied) => applied,
            None => {
                let slots = self.window_as_sent(request, read)?;
                let said_all = self.history.sent.units.iter().all(Unit::is_said);
                let derived = (!said_all).then(|| InForce {
                    number: self.history.compactions,
                    engine: String::new(),
                    window: Default::default(),
                });
                (slots, None, derived)
            }
        };
        let window = Window::of(slots, note, next_id);
        if let Some(in_force) = &mut in_force {
            let left_out = self.left_out(&window, in_force, changes);
            in_force.window = window.save(left_out);
        }
        self.window = std::sync::Arc::new(window);
        self.history.set_in_force(in_force);
        Ok(())
    }

    /// Whether the user's last message of a request has no place among these.
    fn hides_last_user(
        &mut self,
        request: &Request<'_>,
        read: &IdMap<Slot>,
        slots: &[Slot],
    ) -> Result<bool, SessionError> {
        let placed: IdMap<&Slot> = slots.iter().map(|slot| (slot.id(), slot)).collect();
        let units = self.history.sent.units.iter().rev();
        let ids: Vec<MessageId> = units.map(|unit| unit.origin.id()).collect();
        for id in ids {
            if let Some(slot) = placed.get(&id) {
                if slot.is_real_user() {
                    return Ok(false);
                }
                continue;
            }
            let hidden = self.slots_of(request, read, |other| other == id)?;
            if hidden.values().any(Slot::is_real_user) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a summary in force tells of messages that are cut off or read otherwise now.
    fn is_void(&self, changes: &Changes) -> bool {
        let Some(in_force) = self.history.in_force() else {
            return false;
        };
        if changes.appends {
            return false;
        }
        let is_gone = |id: MessageId| changes.cut && changes.lost.contains(&id);
        // The engine forgets what came after the cut, and the summaries of it, before it is shown it again.
        let cut = self.history.pending_cut.filter(|_| changes.cut);
        let comes_again = |id: MessageId| cut.is_some_and(|last| Some(id) > last);
        in_force.window.ids().any(|place| {
            let Some(covers) = self.history.written.covers(place) else {
                return false;
            };
            let touched = |id| is_gone(id) || comes_again(id) || changes.revised.contains_key(&id);
            // A summary of which every message is gone goes with them.
            covers.iter().any(touched) && !covers.iter().all(is_gone)
        })
    }

    /// The window of a compaction in force, after what the request changed.
    fn window_in_force(
        &mut self,
        request: &Request<'_>,
        in_force: &InForce,
        changes: &Changes,
        read: &IdMap<Slot>,
    ) -> Result<Vec<Slot>, SessionError> {
        let slots = match self.history.resumed {
            false => self.window.slots().to_vec(),
            true => {
                let wanted: Ids = in_force.window.ids().collect();
                let forms: IdMap<MessageId> = (changes.revised.iter())
                    .chain(&changes.said_again)
                    .map(|(old, new)| (*new, *old))
                    .collect();
                let then = |id: MessageId| forms.get(&id).copied().unwrap_or(id);
                let messages = self.slots_of(request, read, |id| wanted.contains(&then(id)))?;
                let messages = messages
                    .into_iter()
                    .map(|(id, slot)| (then(id), slot))
                    .collect();
                Window::restore(&in_force.window, &messages, &self.counter)
            }
        };
        // A client that sends what was said has no use for what a lost record cleared.
        let is_sent = |id| {
            let mut units = self.history.sent.units.iter();
            units.any(|unit| unit.origin.id() == id)
        };
        let mut next = Vec::with_capacity(slots.len());
        let mut placed = Ids::default();
        let mut last_went = false;
        let mut last_is_revised = false;
        for slot in slots {
            let id = slot.id();
            // A notice goes with the message that it follows, and where that reads otherwise now.
            if slot.is_notice() && (last_went && changes.cut || last_is_revised) {
                continue;
            }
            last_went |= !slot.is_notice();
            last_is_revised = changes.revised.contains_key(&id);
            if slot.is_of_lost_record() && !is_sent(id) {
                continue;
            }
            let moved = changes
                .revised
                .get(&id)
                .or_else(|| changes.said_again.get(&id));
            let slot = match moved.and_then(|new| read.get(new)) {
                Some(message) if changes.said_again.contains_key(&id) => {
                    slot.moved_to(message, &self.counter)
                }
                Some(message) => message.clone(),
                None if changes.lost.contains(&id) => continue,
                None => match self.history.written.covers(id) {
                    Some(covers)
                        if changes.cut
                            && !covers.is_empty()
                            && covers.iter().all(|id| changes.lost.contains(&id)) =>
                    {
                        continue;
                    }
                    _ => slot,
                },
            };
            last_went = false;
            placed.insert(slot.id());
            next.push(slot);
        }
        let left_out = in_force.window.left_out();
        let missing: Ids = (self.history.branch().iter())
            .map(|known| known.id)
            .filter(|id| !placed.contains(id) && !left_out.contains(*id))
            .collect();
        let mut since = self.slots_of(request, read, |id| missing.contains(&id))?;
        let branch = self.history.branch().iter().enumerate();
        let order: IdMap<usize> = branch.map(|(at, known)| (known.id, at)).collect();
        // What the client sends of the host's own stands behind the message that it is sent behind.
        let mut at = 0;
        let units = self.history.sent.units.iter().map(|unit| unit.origin.id());
        let as_sent: IdMap<usize> = units
            .map(|id| {
                at = order.get(&id).copied().unwrap_or(at);
                (id, at)
            })
            .collect();
        let mut at = 0;
        let mut places: Vec<usize> = Vec::with_capacity(next.len());
        for slot in &next {
            // A summary stands where the last message under it does.
            let covers = self.history.written.covers(slot.id());
            let id = covers.and_then(IdSet::last).unwrap_or(slot.id());
            let place = order.get(&id).or_else(|| as_sent.get(&id));
            at = place.copied().unwrap_or(at);
            places.push(at);
        }
        for known in self.history.branch() {
            let Some(slot) = since.remove(&known.id) else {
                continue;
            };
            let own = order.get(&known.id).copied().unwrap_or(usize::MAX);
            let before = places.iter().rposition(|place| *place < own);
            let at = before.map_or(0, |before| before + 1);
            next.insert(at, slot);
            places.insert(at, own);
        }
        Ok(next)
    }

    /// The window as the request shows it.
    fn window_as_sent(
        &mut self,
        request: &Request<'_>,
        read: &IdMap<Slot>,
    ) -> Result<Vec<Slot>, SessionError> {
        let mut slots: IdMap<Slot> = (self.window.slots().iter())
            .filter(|slot| slot.is_verbatim() || slot.is_summary())
            .map(|slot| (slot.id(), slot.clone()))
            .collect();
        let is_unread = |id| !slots.contains_key(&id) && !read.contains_key(&id);
        let unread = self.slots_of(request, read, is_unread)?;
        slots.extend(unread);
        // What stands there twice is one message.
        let mut placed = Ids::default();
        let units = self.history.sent.units.iter();
        Ok(units
            .map(|unit| unit.origin.id())
            .filter(|id| placed.insert(*id))
            .filter_map(|id| slots.remove(&id).or_else(|| read.get(&id).cloned()))
            .collect())
    }

    /// The messages of the request that are `wanted`; those that were not read yet are read.
    pub(super) fn slots_of(
        &mut self,
        request: &Request<'_>,
        read: &IdMap<Slot>,
        wanted: impl Fn(MessageId) -> bool,
    ) -> Result<IdMap<Slot>, SessionError> {
        let mut slots = IdMap::default();
        let mut wires = Vec::new();
        for unit in &self.history.sent.units {
            let id = unit.origin.id();
            if !wanted(id) {
                continue;
            }
            match read.get(&id) {
                Some(slot) => {
                    slots.insert(id, slot.clone());
                }
                None => wires.extend(unit.wires.clone()),
            }
        }
        wires.dedup();
        if wires.is_empty() {
            return Ok(slots);
        }
        let mut messages = request.read(&wires, &mut self.history.names)?;
        for run in messages.chunk_by_mut(|one, next| one.wires.start == next.wires.start) {
            let Some(first) = run.first() else { continue };
            let units = self.history.sent.beginning_in(first.wires.start);
            let all = run.len();
            let views = units.iter().zip(run.iter_mut());
            let said = views.filter(|(unit, _)| unit.is_said());
            keep_what_was_said(said.map(|(_, read)| read).collect(), all);
            for (unit, message) in units.iter().zip(run) {
                let id = unit.origin.id();
                let looks = message
                    .message()
                    .map_or(MessageKind::Original, |message| message.kind);
                let kind = unit.origin.kind_of(looks);
                if wanted(id) && !slots.contains_key(&id) {
                    slots.insert(id, Slot::new(id, kind, message, &self.counter));
                }
            }
        }
        Ok(slots)
    }

    /// The messages of the conversation that have no place in a window.
    fn left_out(&self, window: &Window, in_force: &InForce, changes: &Changes) -> IdSet {
        let covers = window
            .slots()
            .iter()
            .filter_map(|slot| self.history.written.covers(slot.id()));
        let earlier = in_force.window.left_out();
        let placed: Ids = window.slots().iter().map(Slot::id).collect();
        let has_no_place = |id: &MessageId| !changes.lost.contains(id) && !placed.contains(id);
        let ids = covers.flat_map(IdSet::iter).chain(earlier.iter());
        ids.filter(has_no_place).collect()
    }
}
