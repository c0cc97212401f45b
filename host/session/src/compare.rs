//! A request compared with the conversation: which of its messages are known, another form of a known one, the
//! host's own, or new.

use std::collections::HashMap;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageId, MessageKind};
use contexture_formats::FormatError;

use super::align::{Alignment, Fate, Known, Mark, align};
use super::ids::{IdMap, Ids};
use super::request::{ReadMessage, Request};
use super::trail::{Origin, Unit};
use super::written::IdSet;
use super::{Comparison, Session, SessionError};

/// A message of a request on its way to its id.
pub(super) struct Incoming {
    /// Known where the bytes are, or where the host wrote it.
    pub(super) origin: Option<Origin>,
    pub(super) mark: Mark,
    pub(super) wires: std::ops::Range<usize>,
    pub(super) kind: MessageKind,
    pub(super) read: Option<ReadMessage>,
}

impl Incoming {
    pub(super) fn known(unit: &Unit) -> Self {
        Self {
            origin: Some(unit.origin),
            mark: unit.mark,
            wires: unit.wires.clone(),
            kind: MessageKind::Original,
            read: None,
        }
    }

    /// Whether it was read, and the model said it.
    pub(super) fn is_an_answer(&self) -> bool {
        let message = self.read.as_ref().and_then(ReadMessage::message);
        message.is_some_and(|message| message.role == "assistant")
    }

    /// Whether it is a cleared result: its text alone says that the host may have written it.
    fn is_cleared(&self) -> bool {
        let message = self.read.as_ref().and_then(ReadMessage::message);
        message.is_some_and(|message| message.text == CLEARED_TOOL_OUTPUT)
    }

    pub(super) fn is_foreign_summary(&self) -> bool {
        self.kind == MessageKind::Summary && self.origin.is_none()
    }

    /// Whether it is a notice of which there is no record: it stands for nothing.
    pub(super) fn is_foreign_notice(&self) -> bool {
        self.kind == MessageKind::Notice && self.origin.is_none()
    }
}

/// A request compared with the conversation.
pub(super) struct Compared {
    /// How many messages at the head of what the client sent last stand there again; `incoming` are the rest.
    pub(super) kept: usize,
    pub(super) incoming: Vec<Incoming>,
    pub(super) alignment: Alignment,
    /// Which of the incoming messages the fates of the alignment are for.
    pub(super) aligned: Vec<usize>,
    /// Whether all of the conversation is in it, and what is new stands at the end.
    pub(super) appends: bool,
}

impl Compared {
    fn count(&self, is: impl Fn(&Fate) -> bool) -> usize {
        self.alignment.fates.iter().filter(|fate| is(fate)).count()
    }

    /// Whether anything of the conversation is in the request.
    pub(super) fn is_related(&self) -> bool {
        self.kept > 0
            || self
                .incoming
                .iter()
                .any(|incoming| incoming.origin.is_some())
            || self.count(|fate| matches!(fate, Fate::Same(_))) > 0
            || !self.alignment.abridged.is_empty()
    }
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

    /// Compares a request with the conversation.
    pub(super) fn compare_with(&mut self, request: &Request<'_>) -> Result<Compared, SessionError> {
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
            // The same words may have been written twice: first without a record, later as a shorter form.
            let text = self.history.written.find(new.mark.identity).next();
            if let Some(text) = text.filter(|text| !text.shortens) {
                new.origin = Some(Origin::Host(text.id));
            }
        }
        Ok(incoming)
    }

    /// Compares all messages of a request, the first `within` of which are known, with the conversation.
    fn compare_at_large(&self, mut incoming: Vec<Incoming>, within: usize) -> Compared {
        let covers: Vec<&IdSet> = (incoming.iter())
            .filter_map(|incoming| match incoming.origin {
                Some(Origin::Host(id)) => self.history.written.covers(id),
                _ => None,
            })
            .collect();
        let branch = self.history.branch();
        let head: Ids = (incoming.iter().take(within))
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
                !matches!(new.origin, Some(Origin::Host(_)))
                    && !new.is_foreign_summary()
                    && !new.is_foreign_notice()
            })
            .map(|(at, _)| at)
            .collect();
        let mark_of: IdMap<Mark> = old.iter().map(|known| (known.id, known.mark)).collect();
        let marks: Vec<Mark> = aligned
            .iter()
            .filter_map(|at| incoming.get(*at))
            .map(|new| match new.origin {
                Some(Origin::Shortened(id)) => mark_of.get(&id).copied().unwrap_or(new.mark),
                _ => new.mark,
            })
            .collect();
        // How many messages stand before the last summary that may hide something.
        let last = incoming.iter().rposition(Incoming::is_foreign_summary);
        let hides = last.filter(|_| !branch.is_empty());
        let before = hides.map(|last| aligned.iter().filter(|at| **at < last).count());
        let sent: Ids = (self.history.sent.units.iter())
            .map(|unit| unit.origin.id())
            .collect();
        let absent: Ids = (old.iter().map(|known| known.id))
            .filter(|id| !sent.contains(id))
            .collect();
        let alignment = align(&old, &marks, before, &absent);
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
    /// that, by the mark, the call that a result answers, and where it stands. What a summary hides stands in front
    /// of it, so that places are then told from the end.
    fn recognise_short_forms(&self, incoming: &mut [Incoming], old: &[Known], within: usize) {
        let from_end = incoming.iter().any(Incoming::is_foreign_summary);
        let place_of: HashMap<MessageId, usize> = (old.iter().enumerate())
            .map(|(at, known)| (known.id, at))
            .collect();
        let mut places: HashMap<u128, Vec<usize>> = HashMap::new();
        for (at, known) in old.iter().enumerate() {
            places.entry(known.mark.identity).or_default().push(at);
        }
        let mut taken = Ids::default();
        // Where what is still to be found stands, as far as the order of those that were found tells.
        let mut rest = 0..old.len();
        let count = incoming.len();
        for step in within..count {
            let at = match from_end {
                true => count - 1 - (step - within),
                false => step,
            };
            let Some(new) = incoming.get_mut(at) else {
                continue;
            };
            if new.origin.is_some() {
                continue;
            }
            // A tool may say what the host writes.
            if let Some(same) = places.get(&new.mark.identity) {
                let mut within = same.iter().copied().filter(|at| rest.contains(at));
                match from_end {
                    true => rest.end = within.next_back().unwrap_or(rest.end),
                    false => rest.start = within.next().map_or(rest.start, |at| at + 1),
                }
                continue;
            }
            let is_free = |id: &MessageId| place_of.contains_key(id) && !taken.contains(id);
            let written = self.history.written.find(new.mark.identity);
            let written = written.filter(|text| text.shortens).map(|text| text.id);
            let by_mark = || {
                // A client may clear a result in the host's words; a seal is the host's alone.
                let is_sealed = !new.is_cleared();
                let same = |known: &&Known| {
                    known.mark.shape == new.mark.shape
                        && !taken.contains(&known.id)
                        && (is_sealed || self.history.is_recovered(known.id))
                };
                let mut near = old.get(rest.clone()).unwrap_or(&[]).iter();
                let found = match from_end {
                    true => near.rfind(same),
                    false => near.find(same),
                };
                found
                    .or_else(|| old.iter().find(same))
                    .map(|known| known.id)
            };
            let is_marked = new.kind == MessageKind::Replaced;
            let known = written.filter(is_free).min();
            let Some(id) = known.or_else(|| is_marked.then(by_mark).flatten()) else {
                continue;
            };
            taken.insert(id);
            new.origin = Some(Origin::Shortened(id));
            if let Some(place) = place_of.get(&id).filter(|place| rest.contains(place)) {
                match from_end {
                    true => rest.end = *place,
                    false => rest.start = place + 1,
                }
            }
        }
    }
}
