//! What an engine has under ids of its own: after one of the two stores was lost or put back from an older copy, the
//! same message has another id here and there.

use std::collections::{BTreeSet, HashMap};

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
        let mut places = Places::after(last, self.history.branch());
        // The same words may stand alone, and beside others in one wire message, which are found together first.
        wires.sort_by_key(|wire| wire.len() == 1);
        for wire in &mut wires {
            let all = wire.len();
            let marks = wire.iter().map(|read| read.message().map(Mark::of));
            let found = places.take(&marks.collect::<Vec<_>>());
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
            let mut recalled = recall(&mut self.engine, piece.to_vec(), self.history.format());
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

    /// Which messages of the conversation these are: where all of them stand together, those; else of equal words
    /// the nearest.
    fn take(&mut self, wire: &[Option<Mark>]) -> Vec<Option<MessageId>> {
        let known = |mark: &&Mark| self.free.contains_key(*mark);
        let known: Vec<Mark> = wire.iter().flatten().filter(known).copied().collect();
        let first = known.first().and_then(|first| self.free.get(first));
        let together = (first.into_iter().flatten().copied())
            .filter(|place| self.stand_at(*place, &known))
            .min_by_key(|place| place.abs_diff(self.next));
        self.next = together.unwrap_or(self.next);
        wire.iter()
            .map(|mark| self.take_nearest((*mark)?))
            .collect()
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
