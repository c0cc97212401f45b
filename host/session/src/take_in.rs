//! Taking a request in: what of it is new, another form of something, the host's own words sent back, or
//! missing; and what the window is after it.
//!
//! A client may send everything again, carry on from what was handed out, or mix both. What the host wrote is
//! recognised by its hash and stands for what it covers, so that all of them are one case: the messages that a
//! request has beside what its summaries cover are aligned with the conversation.

use std::collections::HashMap;

use contexture_engine_api::{MessageId, MessageKind};

use super::align::{Fate, Known};
use super::compare::{Compared, Incoming};
use super::ids::{IdMap, Ids};
use super::next_window::Changes;
use super::request::{Request, Source, keep_what_was_said};
use super::slot::Slot;
use super::trail::{Origin, Unit};
use super::written::{IdSet, WrittenText};
use super::{Session, SessionError, Unrelated};

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

impl Session {
    /// Aligns a request with the conversation, gives its new messages their ids, writes that down, and brings
    /// the window up to date.
    pub(super) fn take_in(&mut self, request: &Request<'_>) -> Result<Arrival, SessionError> {
        let sent = self.history.sent.common(&request.raw);
        // A layout names the wire messages of the request that it was made for.
        self.layout = self.layout.take().filter(|layout| layout.wires <= sent);
        let mut compared = self.compare_with(request)?;
        let mut arrival = Arrival::default();
        // A single message may be the first one, edited; not behind a compaction of the provider's own.
        let is_compacted = request.is_compacted();
        let single = compared.kept + compared.incoming.len() == 1 && !is_compacted;
        if !self.history.branch().is_empty() && !compared.is_related() && !single {
            if self.options.unrelated == Unrelated::Refuse && !is_compacted {
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
        // A client may leave out messages that it marked with `keep_from`: that is no cut.
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
        let is_abridged = incoming.iter().any(Incoming::is_foreign_summary);
        let mut changes = Changes {
            lost: alignment.lost.iter().copied().collect(),
            cut: alignment.cut,
            revised: IdMap::default(),
            said_again: IdMap::default(),
            appends,
        };
        let mut next_id = self.window.next_id();
        let mut fresh = || {
            next_id += 1;
            MessageId(next_id - 1)
        };
        let again: HashMap<usize, MessageId> = (alignment.said_again.iter())
            .map(|(old, place)| (*place, *old))
            .collect();
        let before: IdMap<Known> = match again.is_empty() {
            true => IdMap::default(),
            false => (self.history.branch().iter())
                .map(|known| (known.id, *known))
                .collect(),
        };
        let said_before = |place: usize| before.get(again.get(&place)?).copied();
        let mut log: Vec<(Known, Option<MessageId>)> = Vec::new();
        // Messages that are said again, of which the client has only the host's shorter forms.
        let mut short_again: IdMap<MessageId> = IdMap::default();
        // What no answer follows yet has just been said, whatever it looks like.
        let answers = incoming.iter().rposition(Incoming::is_an_answer);
        for (place, (at, fate)) in aligned.iter().zip(&alignment.fates).enumerate() {
            let has_answer = answers.is_some_and(|answer| *at < answer);
            let Some(new) = incoming.get_mut(*at) else {
                continue;
            };
            let short = matches!(new.origin, Some(Origin::Shortened(_)));
            new.origin = Some(match *fate {
                Fate::Same(id) | Fate::Revises(id) if short => Origin::Shortened(id),
                Fate::Same(id) => Origin::Said(id),
                // Without a record, a message with the mark of a shorter form counts as the host's.
                Fate::New if new.kind == MessageKind::Replaced && is_abridged && has_answer => {
                    let id = fresh();
                    self.history.write(WrittenText {
                        identity: new.mark.identity,
                        id,
                        shortens: false,
                        covers: IdSet::default(),
                    });
                    Origin::Host(id)
                }
                Fate::New if short && said_before(place).is_some() => {
                    let id = fresh();
                    let old = said_before(place);
                    arrival.new.push(id);
                    short_again.extend(old.map(|old| (old.id, id)));
                    let mark = old.map_or(new.mark, |old| old.mark);
                    log.push((Known { id, mark }, None));
                    Origin::Shortened(id)
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
        let covers: IdSet = alignment.abridged.iter().copied().collect();
        let known = alignment.abridged.len();
        let mut foreign = 0;
        for new in incoming.iter_mut().filter(|new| new.origin.is_none()) {
            let id = fresh();
            let is_notice = new.is_foreign_notice();
            foreign += usize::from(!is_notice);
            new.origin = Some(Origin::Host(id));
            self.history.write(WrittenText {
                identity: new.mark.identity,
                id,
                shortens: false,
                covers: match is_notice {
                    true => IdSet::default(),
                    false => covers.clone(),
                },
            });
        }
        // If a session begins with a document, the reader knows that the document is complete.
        let begins =
            matches!(request.source, Source::Document(_)) && self.history.branch().is_empty();
        if foreign > 0 && !begins {
            self.warn(format!(
                "the request holds {foreign} summaries of which this session has no record. {known} messages that it \
                 knows are under them; of any others neither it nor the engine has the words"
            ));
        }
        let mut units = Vec::with_capacity(incoming.len());
        let mut slots = IdMap::with_capacity_and_hasher(incoming.len(), Default::default());
        let new: Ids = arrival.new.iter().copied().collect();
        for wire in incoming.chunk_by_mut(|one, next| one.wires.start == next.wires.start) {
            let all = wire.len();
            if all == 1 {
                continue;
            }
            let is_said = |unit: &&mut Incoming| matches!(unit.origin, Some(Origin::Said(_)));
            let said = wire.iter_mut().filter(is_said);
            keep_what_was_said(said.filter_map(|unit| unit.read.as_mut()).collect(), all);
        }
        for unit in incoming {
            let Some(origin) = unit.origin else { continue };
            let kind = origin.kind_of(unit.kind);
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
        slots.extend(self.originals_of(&short_again));
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
            let read = self.slots_of(request, &slots, |id| new.contains(&id))?;
            slots.extend(read.into_iter().filter(|(_, slot)| slot.is_original()));
        }
        self.bring_window_up_to_date(request, &changes, &slots, &arrival.new, next_id)?;
        self.keep_texts_of(request, &new, &slots)?;
        slots.retain(|id, _| new.contains(id));
        match self.unshown.is_empty() {
            true => self.unshown = slots,
            false => self.unshown.extend(slots),
        }
        self.new_since_compaction |= !arrival.new.is_empty();
        self.settled &= arrival.new.is_empty() && arrival.branched.is_none();
        self.history.resumed = false;
        Ok(arrival)
    }

    /// Stores the wire messages in which new messages stand, or messages that should be stored and are not.
    fn keep_texts_of(
        &mut self,
        request: &Request<'_>,
        new: &Ids,
        slots: &IdMap<Slot>,
    ) -> Result<(), SessionError> {
        let absent = self.history.without_text().clone();
        if !self.history.keeps_texts() || new.is_empty() && absent.is_empty() {
            return Ok(());
        }
        let late = match absent.is_empty() {
            true => IdMap::default(),
            false => self.slots_of(request, slots, |id| absent.contains(&id))?,
        };
        let slot = |id: MessageId| slots.get(&id).or_else(|| late.get(&id));
        let is_wanted = |id: MessageId| new.contains(&id) || absent.contains(&id);
        let units = &self.history.sent.units;
        let mut said: Vec<&Slot> = Vec::new();
        let mut placed = Ids::default();
        for wire in units.chunk_by(|one, next| one.wires.start == next.wires.start) {
            if wire.iter().any(|unit| is_wanted(unit.origin.id())) {
                let ids = wire.iter().filter(|unit| unit.is_said());
                let found = ids.filter_map(|unit| slot(unit.origin.id()));
                let before = said.len();
                said.extend(found.filter(|slot| slot.is_original()));
                placed.extend(said.iter().skip(before).map(|slot| slot.id()));
            }
        }
        // Messages that are said again, of which the client has only the host's shorter form.
        let others = slots.values().filter(|slot| {
            new.contains(&slot.id()) && !placed.contains(&slot.id()) && slot.is_original()
        });
        let mut others: Vec<&Slot> = others.collect();
        others.sort_by_key(|slot| slot.id());
        said.extend(others);
        self.history.keep(said);
        Ok(())
    }

    /// Messages under their new ids, from memory or from the engine, which still has them under the old ones.
    fn originals_of(&mut self, new_ids: &IdMap<MessageId>) -> IdMap<Slot> {
        if new_ids.is_empty() {
            return IdMap::default();
        }
        let in_window = self.window.slots().iter();
        let mut originals: IdMap<Slot> = in_window
            .filter(|slot| new_ids.contains_key(&slot.id()) && slot.message().is_some())
            .map(|slot| (slot.id(), slot.as_said(&self.counter)))
            .collect();
        let missing: Ids = (new_ids.keys().copied())
            .filter(|id| !originals.contains_key(id))
            .collect();
        if !missing.is_empty() {
            originals.extend(self.recalled(&missing));
        }
        let renamed = originals.into_iter().filter_map(|(old, slot)| {
            let new = *new_ids.get(&old)?;
            Some((new, slot.renamed(new)))
        });
        renamed.collect()
    }
}
