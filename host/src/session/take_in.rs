//! Taking a request in: what of it is new, another form of something, the host's own words sent back, or
//! missing; and what the window is after it.
//!
//! A client may send everything again, carry on from what was handed out, or mix both. What the host wrote is
//! recognised by its hash and stands for what it covers, so that all of them are one case: the messages that a
//! request has beside what its summaries cover are aligned with the conversation.

use std::collections::{HashMap, HashSet};

use contexture_engine_api::{MessageId, MessageKind};

use super::align::{Alignment, Fate, Known, Mark, align};
use super::record::InForce;
use super::request::{Read, Request};
use super::trail::{Origin, Unit};
use super::window::{Slot, Window};
use super::written::{Ids, Text};
use super::{Comparison, Session, SessionError, Unrelated};
use crate::formats::FormatError;

/// What a request brought.
#[derive(Debug, Default)]
pub(super) struct Arrival {
    /// The messages that were not known before, revisions among them.
    pub(super) new: Vec<MessageId>,
    /// The revisions: the new id, and that of the message that it replaces.
    pub(super) revised: Vec<(MessageId, MessageId)>,
    /// Whether the conversation was cut back, and the last message before the cut.
    pub(super) branched: Option<Option<MessageId>>,
    /// Whether the request has nothing in common with the conversation before.
    pub(super) new_root: bool,
}

/// A message of a request on its way to its id.
struct Incoming {
    /// Known where the bytes are, or where the host wrote it.
    origin: Option<Origin>,
    mark: Mark,
    wires: std::ops::Range<usize>,
    kind: MessageKind,
    read: Option<Read>,
}

impl Incoming {
    fn known(unit: &Unit) -> Self {
        Self {
            origin: Some(unit.origin),
            mark: unit.mark,
            wires: unit.wires.clone(),
            kind: MessageKind::Original,
            read: None,
        }
    }

    fn is_foreign_summary(&self) -> bool {
        self.kind == MessageKind::Summary && self.origin.is_none()
    }
}

/// A request compared with the conversation.
struct Compared {
    /// How many messages at the head of what the client sent last stand there again; `incoming` are the rest.
    kept: usize,
    incoming: Vec<Incoming>,
    alignment: Alignment,
    /// Which of the incoming messages the fates of the alignment are for.
    aligned: Vec<usize>,
    /// Whether all of the conversation is in it, and what is new stands at the end.
    appends: bool,
}

impl Compared {
    fn count(&self, is: impl Fn(&Fate) -> bool) -> usize {
        self.alignment.fates.iter().filter(|fate| is(fate)).count()
    }

    /// Whether anything of the conversation is in the request.
    fn is_related(&self) -> bool {
        self.kept > 0
            || self
                .incoming
                .iter()
                .any(|incoming| incoming.origin.is_some())
            || self.count(|fate| matches!(fate, Fate::Same(_))) > 0
            || !self.alignment.abridged.is_empty()
    }
}

/// What a request changes.
struct Changes {
    lost: HashSet<MessageId>,
    cut: bool,
    /// The new ids of messages that have another form now, by the old.
    revised: HashMap<MessageId, MessageId>,
    /// The new ids of messages that are said again, by the old.
    said_again: HashMap<MessageId, MessageId>,
    appends: bool,
}

impl Session {
    /// How a request compares with the conversation; nothing is changed but the names of tools.
    pub(super) fn comparison(&mut self, request: &Request<'_>) -> Result<Comparison, SessionError> {
        let held = self.history.branch().len();
        let compared = self.compare_with(request)?;
        let new = compared.count(|fate| *fate == Fate::New);
        let revised = compared.count(|fate| matches!(fate, Fate::Revises(_)));
        let said = compared.kept + compared.incoming.len() - compared.aligned.len();
        let same = compared.count(|fate| matches!(fate, Fate::Same(_)));
        Ok(Comparison {
            held,
            common: said + same,
            revised,
            new,
            cut: match compared.alignment.cut {
                true => compared.alignment.lost.len(),
                false => 0,
            },
        })
    }

    /// Aligns a request with the conversation, gives its new messages their ids, writes that down, and brings
    /// the window up to date.
    pub(super) fn take_in(&mut self, request: &Request<'_>) -> Result<Arrival, SessionError> {
        let sent = self.history.sent.common(&request.raw);
        // A layout names the wire messages of the request that it was made for.
        self.layout = self.layout.take().filter(|layout| layout.wires <= sent);
        let mut compared = self.compare_with(request)?;
        let mut arrival = Arrival::default();
        // A single message may be the first one, edited.
        let single = compared.kept + compared.incoming.len() == 1;
        if !self.history.branch().is_empty() && !compared.is_related() && !single {
            if self.options.unrelated == Unrelated::Refuse {
                return Err(SessionError::Unrelated {
                    session: self.id.clone(),
                });
            }
            arrival.new_root = true;
            compared.alignment.lost = self.history.branch().iter().map(|known| known.id).collect();
            compared.alignment.cut = true;
            compared.alignment.fates.fill(Fate::New);
        }
        let provisional = std::mem::take(&mut self.provisional);
        let lost = &compared.alignment.lost;
        // Whoever marked a message may leave it out; that takes nothing back.
        let was_lent = !lost.is_empty()
            && compared.alignment.said_again.is_empty()
            && lost.iter().all(|id| provisional.contains(id));
        compared.alignment.cut &= !was_lent;
        if self.history.resumed {
            // Of a history that comes from the record only hashes are known: the calls are in the request.
            request.learn_names(&mut self.history.names)?;
        }
        self.settle(request, compared, arrival)
    }

    /// Compares a request with the conversation.
    fn compare_with(&mut self, request: &Request<'_>) -> Result<Compared, SessionError> {
        let (trail, mut wires) = self.history.nearest(&request.raw);
        let ends_alike = wires == trail.raw.len() && wires == request.raw.len();
        if request.joins() && !ends_alike {
            // What follows may belong to the message that the common part ends with.
            let last = trail.units_within(wires).saturating_sub(1);
            wires = trail
                .units
                .get(last)
                .map_or(0, |unit| unit.wires.start.min(wires));
        }
        let within = trail.units_within(wires);
        let (head, expected) = trail.units.split_at(within);
        let kept = match std::ptr::eq(trail, &self.history.sent) {
            true => within,
            false => 0,
        };
        let head: Vec<Incoming> = head.iter().skip(kept).map(Incoming::known).collect();
        let expected = expected.to_vec();
        let mut rest = self.incoming(request, wires)?;
        let goes_on = rest.len() >= expected.len()
            && expected
                .iter()
                .zip(rest.iter())
                .all(|(unit, new)| unit.mark.identity == new.mark.identity);
        let echoes = expected.len().min(rest.len());
        let (echoed, added) = rest.split_at_mut(echoes);
        let is_plain = |new: &Incoming| new.origin.is_none() && new.kind == MessageKind::Original;
        if goes_on && added.iter().all(is_plain) && !(within == 0 && expected.is_empty()) {
            for (unit, new) in expected.iter().zip(echoed) {
                new.origin = Some(unit.origin);
            }
            let first = head.len() + expected.len();
            let incoming: Vec<Incoming> = head.into_iter().chain(rest).collect();
            let aligned: Vec<usize> = (first..incoming.len()).collect();
            return Ok(Compared {
                kept,
                alignment: Alignment {
                    fates: vec![Fate::New; aligned.len()],
                    ..Alignment::default()
                },
                aligned,
                incoming,
                appends: true,
            });
        }
        let sent = self.history.sent.units.iter().take(kept);
        let head = sent.map(Incoming::known).chain(head);
        Ok(self.compare_at_large(head.chain(rest).collect(), within))
    }

    /// The messages of a request from the wire message `first` on. Those whose bytes are known are not read.
    fn incoming(
        &mut self,
        request: &Request<'_>,
        first: usize,
    ) -> Result<Vec<Incoming>, FormatError> {
        let trails = match request.joins() {
            true => Vec::new(),
            false => [&self.history.sent, self.history.handed()]
                .into_iter()
                .map(|trail| (trail, trail.by_hash(first.saturating_sub(1))))
                .collect(),
        };
        let rest = request.raw.get(first..).unwrap_or(&[]);
        let mut unknown = Vec::new();
        let mut incoming: Vec<Incoming> = Vec::new();
        for (at, hash) in rest.iter().enumerate() {
            let wire = first + at;
            let found = trails
                .iter()
                .find_map(|(trail, places)| Some(trail.beginning_in(*places.get(hash)?)));
            match found {
                // Equal bytes are an equal message, but not the same one, unless the host wrote it.
                Some(units) => incoming.extend(units.iter().map(|unit| Incoming {
                    origin: Some(unit.origin).filter(|origin| matches!(origin, Origin::Host(_))),
                    wires: wire..wire + 1,
                    ..Incoming::known(unit)
                })),
                None => unknown.push(wire),
            }
        }
        let read = request.read(&unknown, &mut self.history.names)?;
        incoming.extend(read.into_iter().filter_map(|read| {
            let message = read.message()?;
            Some(Incoming {
                origin: None,
                mark: Mark::of(message),
                wires: read.wires.clone(),
                kind: message.kind,
                read: Some(read),
            })
        }));
        // Stable: the messages of one wire message stay in their order.
        incoming.sort_by_key(|incoming| incoming.wires.start);
        for new in incoming.iter_mut().filter(|new| new.origin.is_none()) {
            let host = |text: &&Text| !text.shortens;
            if let Some(text) = self.history.written.find(new.mark.identity).find(host) {
                new.origin = Some(Origin::Host(text.id));
            }
        }
        Ok(incoming)
    }

    /// Compares all messages of a request, the first `within` of which are known, with the conversation.
    fn compare_at_large(&self, mut incoming: Vec<Incoming>, within: usize) -> Compared {
        let covers: Vec<&Ids> = (incoming.iter())
            .filter_map(|incoming| match incoming.origin {
                Some(Origin::Host(id)) => self.history.written.covers(id),
                _ => None,
            })
            .collect();
        let branch = self.history.branch();
        let head: HashSet<MessageId> = (incoming.iter().take(within))
            .filter_map(|incoming| match incoming.origin? {
                Origin::Said(id) | Origin::Shortened(id) => Some(id),
                Origin::Host(_) => None,
            })
            .collect();
        let from = branch.iter().rposition(|known| head.contains(&known.id));
        let old: Vec<Known> = (branch.iter().skip(from.map_or(0, |at| at + 1)))
            .filter(|known| !covers.iter().any(|ids| ids.contains(known.id)))
            .copied()
            .collect();
        self.recognise_short_forms(&mut incoming, &old, within);
        let is_abridged = incoming.iter().any(Incoming::is_foreign_summary);
        let aligned: Vec<usize> = (incoming.iter().enumerate().skip(within))
            .filter(|(_, new)| {
                !matches!(new.origin, Some(Origin::Host(_))) && !new.is_foreign_summary()
            })
            .map(|(at, _)| at)
            .collect();
        let mark_of: HashMap<MessageId, Mark> =
            old.iter().map(|known| (known.id, known.mark)).collect();
        let marks: Vec<Mark> = aligned
            .iter()
            .filter_map(|at| incoming.get(*at))
            .map(|new| match new.origin {
                Some(Origin::Shortened(id)) => mark_of.get(&id).copied().unwrap_or(new.mark),
                _ => new.mark,
            })
            .collect();
        let alignment = align(&old, &marks, is_abridged && !branch.is_empty());
        let appends = alignment.lost.is_empty()
            && alignment.abridged.is_empty()
            && !is_abridged
            && !alignment
                .fates
                .iter()
                .any(|fate| matches!(fate, Fate::Revises(_)));
        Compared {
            kept: 0,
            incoming,
            alignment,
            aligned,
            appends,
        }
    }

    /// Finds the messages of which the host wrote shorter forms: by what it wrote, or, without a record of
    /// that, by the mark and the call that a result answers.
    fn recognise_short_forms(&self, incoming: &mut [Incoming], old: &[Known], within: usize) {
        let ids: HashSet<MessageId> = old.iter().map(|known| known.id).collect();
        let own: HashSet<u128> = old.iter().map(|known| known.mark.identity).collect();
        let mut taken: HashSet<MessageId> = HashSet::new();
        for new in incoming.iter_mut().skip(within) {
            // A tool may say what the host writes.
            if new.origin.is_some() || own.contains(&new.mark.identity) {
                continue;
            }
            let is_free = |id: &MessageId| ids.contains(id) && !taken.contains(id);
            let written = self.history.written.find(new.mark.identity);
            let written = written.filter(|text| text.shortens).map(|text| text.id);
            let by_mark = || {
                let is_marked = new.kind == MessageKind::Replaced;
                let same =
                    |known: &&Known| known.mark.shape == new.mark.shape && is_free(&known.id);
                old.iter()
                    .find(|known| is_marked && same(known))
                    .map(|known| known.id)
            };
            let known = written.filter(is_free).min().or_else(by_mark);
            if let Some(id) = known {
                taken.insert(id);
                new.origin = Some(Origin::Shortened(id));
            }
        }
    }

    /// Gives ids, and makes history, record and window what the request makes of them.
    fn settle(
        &mut self,
        request: &Request<'_>,
        compared: Compared,
        mut arrival: Arrival,
    ) -> Result<Arrival, SessionError> {
        let Compared {
            kept,
            mut incoming,
            alignment,
            aligned,
            appends,
        } = compared;
        let was_empty = self.history.branch().is_empty();
        let holds_marks = incoming.iter().any(|new| new.kind == MessageKind::Summary);
        let mut changes = Changes {
            lost: alignment.lost.iter().copied().collect(),
            cut: alignment.cut,
            revised: HashMap::new(),
            said_again: HashMap::new(),
            appends,
        };
        let mut next_id = self.window.next_id();
        let mut fresh = || {
            next_id += 1;
            MessageId(next_id - 1)
        };
        let mut log: Vec<(Known, Option<MessageId>)> = Vec::new();
        for (at, fate) in aligned.iter().zip(&alignment.fates) {
            let Some(new) = incoming.get_mut(*at) else {
                continue;
            };
            let short = matches!(new.origin, Some(Origin::Shortened(_)));
            new.origin = Some(match *fate {
                Fate::Same(id) | Fate::Revises(id) if short => Origin::Shortened(id),
                Fate::Same(id) => Origin::Said(id),
                // Without any record, what is marked as shorter is nobody's words.
                Fate::New if new.kind == MessageKind::Replaced && was_empty && holds_marks => {
                    let id = fresh();
                    self.history.write(Text {
                        identity: new.mark.identity,
                        id,
                        shortens: false,
                        covers: Ids::default(),
                    });
                    Origin::Host(id)
                }
                Fate::Revises(_) | Fate::New => {
                    let id = fresh();
                    let old = match *fate {
                        Fate::Revises(old) => Some(old),
                        _ => None,
                    };
                    if let Some(old) = old {
                        changes.revised.insert(old, id);
                        arrival.revised.push((id, old));
                    }
                    arrival.new.push(id);
                    let mark = new.mark;
                    log.push((Known { id, mark }, old));
                    Origin::Said(id)
                }
            });
        }
        for (old, at) in &alignment.said_again {
            let new = aligned.get(*at).and_then(|at| incoming.get(*at));
            if let Some(origin) = new.and_then(|new| new.origin) {
                changes.said_again.insert(*old, origin.id());
            }
        }
        let covers: Ids = alignment.abridged.iter().copied().collect();
        for new in incoming.iter_mut().filter(|new| new.origin.is_none()) {
            let id = fresh();
            new.origin = Some(Origin::Host(id));
            self.history.write(Text {
                identity: new.mark.identity,
                id,
                shortens: false,
                covers: covers.clone(),
            });
        }
        let mut units = Vec::with_capacity(incoming.len());
        let mut slots = HashMap::with_capacity(incoming.len());
        let new: HashSet<MessageId> = arrival.new.iter().copied().collect();
        for unit in incoming {
            let Some(origin) = unit.origin else { continue };
            // Somebody's words that only look like the host's are somebody's words.
            let kind = match origin {
                Origin::Said(_) => MessageKind::Original,
                Origin::Host(_) | Origin::Shortened(_) => unit.kind,
            };
            if let Some(read) = &unit.read {
                slots.insert(
                    origin.id(),
                    Slot::new(origin.id(), kind, read, &self.counter),
                );
            }
            units.push(Unit {
                origin,
                mark: unit.mark,
                wires: unit.wires,
            });
        }
        for (known, replaces) in log {
            self.history.append(known, replaces);
        }
        if changes.cut {
            arrival.branched = Some(self.history.cut(&alignment.lost));
            self.reported = None;
        }
        self.history
            .set_sent(&request.raw, kept, units, request.format);
        if !new.iter().all(|id| slots.contains_key(id)) {
            slots.extend(self.slots_of(request, &slots, |id| new.contains(&id))?);
        }
        self.bring_window_up_to_date(request, &changes, &slots, &arrival.new, next_id)?;
        slots.retain(|id, _| new.contains(id));
        match self.unshown.is_empty() {
            true => self.unshown = slots,
            false => self.unshown.extend(slots),
        }
        self.new_since_compaction |= !arrival.new.is_empty();
        self.history.resumed = false;
        self.save();
        Ok(arrival)
    }

    /// Makes the window what the request makes of it. `read` holds what was read of the request.
    fn bring_window_up_to_date(
        &mut self,
        request: &Request<'_>,
        changes: &Changes,
        read: &HashMap<MessageId, Slot>,
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
                && !slots.iter().any(Slot::is_real_user)
                && self.history.sent.units.iter().all(Unit::is_said);
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
            // One of which nothing is left leaves with what it covers.
            covers.iter().any(touched) && !covers.iter().all(is_gone)
        })
    }

    /// The window of a compaction in force, after what the request changed.
    fn window_in_force(
        &mut self,
        request: &Request<'_>,
        in_force: &InForce,
        changes: &Changes,
        read: &HashMap<MessageId, Slot>,
    ) -> Result<Vec<Slot>, SessionError> {
        let slots = match self.history.resumed {
            false => self.window.slots().to_vec(),
            true => {
                let wanted: HashSet<MessageId> = in_force.window.ids().collect();
                let forms: HashMap<MessageId, MessageId> = (changes.revised.iter())
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
        let mut next = Vec::with_capacity(slots.len());
        let mut placed = HashSet::new();
        for slot in slots {
            let id = slot.id();
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
            placed.insert(slot.id());
            next.push(slot);
        }
        let left_out = in_force.window.left_out();
        let missing: HashSet<MessageId> = (self.history.branch().iter())
            .map(|known| known.id)
            .filter(|id| !placed.contains(id) && !left_out.contains(*id))
            .collect();
        let mut since = self.slots_of(request, read, |id| missing.contains(&id))?;
        let branch = self.history.branch().iter().enumerate();
        let order: HashMap<MessageId, usize> = branch.map(|(at, known)| (known.id, at)).collect();
        let mut at = 0;
        let mut places: Vec<usize> = Vec::with_capacity(next.len());
        for slot in &next {
            // A summary stands where the last message under it does.
            let covers = self.history.written.covers(slot.id());
            let id = covers.and_then(Ids::last).unwrap_or(slot.id());
            at = order.get(&id).copied().unwrap_or(at);
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
        read: &HashMap<MessageId, Slot>,
    ) -> Result<Vec<Slot>, SessionError> {
        let mut slots: HashMap<MessageId, Slot> = (self.window.slots().iter())
            .filter(|slot| slot.is_verbatim() || slot.is_summary())
            .map(|slot| (slot.id(), slot.clone()))
            .collect();
        let is_unread = |id| !slots.contains_key(&id) && !read.contains_key(&id);
        let unread = self.slots_of(request, read, is_unread)?;
        slots.extend(unread);
        // What stands there twice is one message.
        let mut placed = HashSet::new();
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
        read: &HashMap<MessageId, Slot>,
        wanted: impl Fn(MessageId) -> bool,
    ) -> Result<HashMap<MessageId, Slot>, SessionError> {
        let mut slots = HashMap::new();
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
        let messages = request.read(&wires, &mut self.history.names)?;
        for run in messages.chunk_by(|one, next| one.wires.start == next.wires.start) {
            let Some(first) = run.first() else { continue };
            let units = self.history.sent.beginning_in(first.wires.start);
            for (unit, message) in units.iter().zip(run) {
                let id = unit.origin.id();
                let kind = match (unit.origin, message.message()) {
                    (Origin::Host(_) | Origin::Shortened(_), Some(message)) => message.kind,
                    _ => MessageKind::Original,
                };
                if wanted(id) && !slots.contains_key(&id) {
                    slots.insert(id, Slot::new(id, kind, message, &self.counter));
                }
            }
        }
        Ok(slots)
    }

    /// What of the conversation has no place in a window.
    fn left_out(&self, window: &Window, in_force: &InForce, changes: &Changes) -> Ids {
        let covers = window
            .slots()
            .iter()
            .filter_map(|slot| self.history.written.covers(slot.id()));
        let earlier = in_force.window.left_out();
        let placed: HashSet<MessageId> = window.slots().iter().map(Slot::id).collect();
        let has_no_place = |id: &MessageId| !changes.lost.contains(id) && !placed.contains(id);
        let ids = covers.flat_map(Ids::iter).chain(earlier.iter());
        ids.filter(has_no_place).collect()
    }
}
