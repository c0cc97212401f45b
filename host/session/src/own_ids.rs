//! What an engine has under ids of its own: after one of the two stores was lost or put back from an older copy, the
//! same message has another id here and there.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use contexture_engine_api::{MessageId, MessageKind, Observed};

use super::Session;
use super::align::{Known, Mark};
use super::recall::{PIECE, recall};
use super::request::{ReadMessage, keep_what_was_said};
use super::slot::Slot;

impl Session {
    /// Takes messages back that the engine has under other ids than the host, before it is told to cut them off:
    /// it may be the only one that has their words.
    pub(super) fn take_back_under_own_ids(
        &mut self,
        last: Option<MessageId>,
        seen: Option<Observed>,
    ) {
        let Some(seen) = seen else { return };
        let mut wires = self.recalled_after(last, seen.last);
        let marks = |wire: &Vec<ReadMessage>| -> Vec<Option<Mark>> {
            let messages = wire.iter().map(ReadMessage::message);
            messages.map(|message| message.map(Mark::of)).collect()
        };
        let marks: Vec<Vec<Option<Mark>>> = wires.iter().map(marks).collect();
        let mut places = Places::after(last, self.history.branch());
        // The same words may stand alone, and beside others in one wire message: those are found first, together.
        let together: Vec<Option<Range<usize>>> = (marks.iter())
            .map(|marks| places.take_together(marks))
            .collect();
        places.next = 0;
        for ((wire, marks), together) in wires.iter_mut().zip(marks).zip(together) {
            let all = wire.len();
            let found = places.ids_of(&marks, together);
            let mut said: Vec<(MessageId, &mut ReadMessage)> = wire
                .iter_mut()
                .zip(found)
                .filter_map(|(read, id)| Some((id?, read)))
                .collect();
            keep_what_was_said(said.iter_mut().map(|(_, read)| &mut **read).collect(), all);
            for (id, read) in said {
                let slot = Slot::new(id, MessageKind::Original, read, &self.counter);
                self.unshown.entry(id).or_insert(slot);
            }
        }
    }

    /// What the engine has between two ids of its own, wire message by wire message.
    fn recalled_after(
        &mut self,
        after: Option<MessageId>,
        last: MessageId,
    ) -> Vec<Vec<ReadMessage>> {
        let ids: Vec<MessageId> = (after.map_or(1, |after| after.0 + 1)..=last.0)
            .map(MessageId)
            .collect();
        let mut wires: Vec<Vec<ReadMessage>> = Vec::new();
        for piece in ids.chunks(PIECE) {
            let mut recalled = recall(&mut self.engine, piece.to_vec(), &self.history);
            for read in piece.iter().filter_map(|id| recalled.remove(id)) {
                match wires.last_mut() {
                    Some(wire) if wire.iter().any(|one| one.shares_wire(&read)) => wire.push(read),
                    _ => wires.push(vec![read]),
                }
            }
        }
        wires
    }
}

/// The places of the conversation that nothing was found for yet.
struct Places<'b> {
    branch: &'b [Known],
    free: HashMap<Mark, BTreeSet<usize>>,
    /// After what was found last.
    next: usize,
}

impl<'b> Places<'b> {
    fn after(last: Option<MessageId>, branch: &'b [Known]) -> Self {
        let mut free: HashMap<Mark, BTreeSet<usize>> = HashMap::new();
        for (place, known) in branch.iter().enumerate() {
            if Some(known.id) > last {
                free.entry(known.mark).or_default().insert(place);
            }
        }
        Self {
            branch,
            free,
            next: 0,
        }
    }

    /// Where several messages of one wire message stand together; those that are not of the conversation stand
    /// nowhere.
    fn take_together(&mut self, wire: &[Option<Mark>]) -> Option<Range<usize>> {
        if wire.len() < 2 {
            return None;
        }
        let known: Vec<Mark> = self.known(wire).copied().collect();
        let first = self.free.get(known.first()?)?.iter().copied();
        let place = first
            .filter(|place| self.stand_at(*place, &known))
            .min_by_key(|place| place.abs_diff(self.next))?;
        let taken = place..place + known.len();
        for (place, mark) in taken.clone().zip(&known) {
            self.free.get_mut(mark)?.remove(&place);
        }
        self.next = taken.end;
        Some(taken)
    }

    /// The ids of the messages of a wire message: those that stand together, else of equal words the nearest.
    fn ids_of(
        &mut self,
        wire: &[Option<Mark>],
        together: Option<Range<usize>>,
    ) -> Vec<Option<MessageId>> {
        let Some(together) = together else {
            return wire
                .iter()
                .map(|mark| self.take_nearest((*mark)?))
                .collect();
        };
        self.next = together.end;
        let branch = self.branch;
        let mut ids = together.map(|place| branch.get(place).map(|known| known.id));
        let is_known = |mark: &Option<Mark>| mark.is_some_and(|mark| self.free.contains_key(&mark));
        (wire.iter())
            .map(|mark| is_known(mark).then(|| ids.next()).flatten().flatten())
            .collect()
    }

    fn known<'w>(&self, wire: &'w [Option<Mark>]) -> impl Iterator<Item = &'w Mark> {
        wire.iter()
            .flatten()
            .filter(|mark| self.free.contains_key(*mark))
    }

    fn stand_at(&self, place: usize, marks: &[Mark]) -> bool {
        let is_free = |mark: &Mark, place| {
            self.free
                .get(mark)
                .is_some_and(|free| free.contains(&place))
        };
        (place..)
            .zip(marks)
            .all(|(place, mark)| is_free(mark, place))
    }

    fn take_nearest(&mut self, mark: Mark) -> Option<MessageId> {
        let free = self.free.get_mut(&mark)?;
        let (behind, before) = (
            free.range(self.next..).next(),
            free.range(..self.next).next_back(),
        );
        let nearest = behind.into_iter().chain(before);
        let place = *nearest.min_by_key(|place| place.abs_diff(self.next))?;
        free.remove(&place);
        self.next = place + 1;
        self.branch.get(place).map(|known| known.id)
    }
}
