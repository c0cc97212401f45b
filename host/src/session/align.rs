//! Alignment: which messages of a request the session knows already, which are new, which are revisions
//! of known ones, and where the conversation was cut back.
//!
//! Messages are told apart by where they stand, never by a lookup of their text: equal messages said six
//! times are six messages. First comes what both histories begin with, by the raw hashes alone; only
//! wire messages whose bytes are not known are read at all.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::MessageId;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::formats::Message;

/// How many messages must follow the place at which messages vanished for it to be a gap and not a cut:
/// this many, or as many as vanished. A single "go on" after a rewind proves nothing.
const ANCHOR: usize = 3;

/// The hash of a wire message's bytes: equal bytes need no second look.
pub fn raw_hash(raw: &str) -> u64 {
    xxh3_64(raw.as_bytes())
}

/// What tells one message from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// The hash of its canonical content, see [`Message::identity`].
    pub identity: u128,
    /// A hash of its role and of the call it answers. A revision of a message has the same.
    pub shape: u64,
}

impl Mark {
    /// The mark of a message.
    pub fn of(message: &Message) -> Self {
        let mut shape = Xxh3::new();
        shape.update(message.role.as_bytes());
        if let Some(call) = &message.tool_call_id {
            shape.update(&[0]);
            shape.update(call.as_bytes());
        }
        Self {
            identity: message.identity,
            shape: shape.digest(),
        }
    }
}

/// A message that was read, and the wire messages that it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// What tells it from others.
    pub mark: Mark,
    /// Its wire messages, among those that were to be read.
    pub wires: Range<usize>,
}

impl Unit {
    /// The unit of a message.
    pub fn of(message: &Message) -> Self {
        Self {
            mark: Mark::of(message),
            wires: message.items.clone(),
        }
    }
}

/// A message that has its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its id.
    pub id: MessageId,
    /// What tells it from others.
    pub mark: Mark,
    /// The wire messages it stands in: one, but for formats that spread a message over several.
    pub wires: Range<usize>,
}

/// A history as it crossed the wire last: the raw hash of each wire message, and the messages in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    raw: Vec<u64>,
    /// Ordered by where they begin.
    messages: Vec<Known>,
}

impl Trail {
    /// The raw hashes of the wire messages.
    pub fn raw(&self) -> &[u64] {
        &self.raw
    }

    /// The messages, in order.
    pub fn messages(&self) -> &[Known] {
        &self.messages
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Adds wire messages at the end, and the messages in them; `messages` count their wire messages
    /// from the first of `raw`.
    pub fn push(&mut self, raw: &[u64], messages: impl IntoIterator<Item = (MessageId, Unit)>) {
        let first = self.raw.len();
        self.raw.extend_from_slice(raw);
        self.messages
            .extend(messages.into_iter().map(|(id, unit)| Known {
                id,
                mark: unit.mark,
                wires: first + unit.wires.start..first + unit.wires.end,
            }));
    }

    /// Forgets the wire messages from the place `wire` on, and every message that reaches beyond it.
    pub fn truncate(&mut self, wire: usize) {
        self.raw.truncate(wire);
        self.messages.truncate(self.messages_within(wire));
    }

    /// How many wire messages the two histories begin with in common, byte for byte.
    pub fn common(&self, raw: &[u64]) -> usize {
        self.raw.iter().zip(raw).take_while(|(a, b)| a == b).count()
    }

    /// How many of these wire messages it holds somewhere.
    pub fn shared(&self, raw: &[u64]) -> usize {
        let mut counts: HashMap<u64, usize> = HashMap::with_capacity(self.raw.len());
        for hash in &self.raw {
            *counts.entry(*hash).or_default() += 1;
        }
        raw.iter()
            .filter(|hash| match counts.get_mut(hash) {
                Some(left) if *left > 0 => {
                    *left -= 1;
                    true
                }
                _ => false,
            })
            .count()
    }

    /// How many messages end at or before the wire message `wire`.
    fn messages_within(&self, wire: usize) -> usize {
        self.messages
            .partition_point(|message| message.wires.end <= wire)
    }

    /// The messages that begin in the wire message `wire`.
    pub(super) fn beginning_in(&self, wire: usize) -> &[Known] {
        let begin_before = |wire| {
            self.messages
                .partition_point(|message: &Known| message.wires.start < wire)
        };
        let range = begin_before(wire)..begin_before(wire + 1);
        self.messages.get(range).unwrap_or(&[])
    }
}

/// What a message of a request is to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A message that it knows.
    Same(MessageId),
    /// Another form of a message that it knows, for which it is to have a new id.
    Revises(MessageId),
    /// A message that it has not seen.
    New,
}

/// A message of a request, past the part that was known byte for byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aligned {
    /// What it is.
    pub fate: Fate,
    /// What tells it from others; its wire messages count from the first of the request.
    pub unit: Unit,
}

/// How a request continues a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// The wire messages at the head that are known byte for byte, and so are their messages.
    pub wires: usize,
    /// The messages in these.
    pub known: usize,
    /// The messages of the rest of the request, in order.
    pub rest: Vec<Aligned>,
    /// Known messages that the request no longer holds, revised ones not among them.
    pub lost: Vec<MessageId>,
    /// Whether the conversation was cut back: what was lost is its end. (Otherwise it is a gap.)
    pub cut: bool,
}

impl Alignment {
    /// The history after this request: the known part keeps its ids, each other message gets one.
    /// `fresh` gives new ids, in order.
    pub fn advance(
        &self,
        known: &Trail,
        raw: &[u64],
        mut fresh: impl FnMut() -> MessageId,
    ) -> Trail {
        let mut next = Trail {
            raw: raw.to_vec(),
            messages: Vec::with_capacity(self.known + self.rest.len()),
        };
        next.messages
            .extend_from_slice(known.messages.get(..self.known).unwrap_or(&[]));
        for aligned in &self.rest {
            next.messages.push(Known {
                id: match aligned.fate {
                    Fate::Same(id) => id,
                    Fate::Revises(_) | Fate::New => fresh(),
                },
                mark: aligned.unit.mark,
                wires: aligned.unit.wires.clone(),
            });
        }
        next
    }
}

/// Aligns a request, given as the raw hashes of its wire messages, with a history.
///
/// `joins` says that a message of this format may stand in several wire messages. `read` reads the wire
/// messages of these places, all of them together, and is called at most once.
///
/// What both begin with keeps its ids. Of the rest, what follows the place where they differ is found
/// again where enough of it follows. In between, messages are paired in order: equal ones are the same,
/// ones of the same role (and answering the same call) are revisions. Known messages that are left over
/// with nothing known after them were cut off.
///
/// # Errors
/// What `read` answers.
pub fn align<E>(
    known: &Trail,
    raw: &[u64],
    joins: bool,
    read: impl FnOnce(&[usize]) -> Result<Vec<Unit>, E>,
) -> Result<Alignment, E> {
    let mut wires = known.common(raw);
    let ends_alike = wires == known.raw.len() && wires == raw.len();
    if joins && !ends_alike {
        // What follows may belong to the message that the common part ends with.
        wires = known
            .messages
            .get(known.messages_within(wires).saturating_sub(1))
            .map_or(0, |last| last.wires.start.min(wires));
    }
    let kept = known.messages_within(wires);
    let old = known.messages.get(kept..).unwrap_or(&[]);
    let units = incoming(known, raw, wires, joins || old.is_empty(), read)?;
    let (fates, lost, cut) = pair(old, &units);
    Ok(Alignment {
        wires,
        known: kept,
        rest: fates
            .into_iter()
            .zip(units)
            .map(|(fate, unit)| Aligned { fate, unit })
            .collect(),
        lost,
        cut,
    })
}

/// The messages of a request from the wire message `first` on. Those whose bytes are known are taken from
/// the history, unless `all` are to be read.
fn incoming<E>(
    known: &Trail,
    raw: &[u64],
    first: usize,
    all: bool,
    read: impl FnOnce(&[usize]) -> Result<Vec<Unit>, E>,
) -> Result<Vec<Unit>, E> {
    let known_bytes: HashMap<u64, usize> = if all {
        HashMap::new()
    } else {
        (first..known.raw.len())
            .filter_map(|wire| Some((*known.raw.get(wire)?, wire)))
            .collect()
    };
    let rest = raw.get(first..).unwrap_or(&[]);
    let unknown: Vec<usize> = rest
        .iter()
        .enumerate()
        .filter(|(_, hash)| !known_bytes.contains_key(hash))
        .map(|(at, _)| first + at)
        .collect();
    let read = if unknown.is_empty() {
        Vec::new()
    } else {
        read(&unknown)?
    };
    let mut units = Vec::new();
    let mut read = read.into_iter().peekable();
    for (at, hash) in rest.iter().enumerate() {
        let wire = first + at;
        if let Some(same) = known_bytes.get(hash) {
            for message in known.beginning_in(*same) {
                units.push(Unit {
                    mark: message.mark,
                    wires: wire..wire + 1,
                });
            }
            continue;
        }
        while let Some(unit) = read.next_if(|unit| unknown.get(unit.wires.start) == Some(&wire)) {
            units.push(Unit {
                mark: unit.mark,
                wires: wire..wire + unit.wires.len(),
            });
        }
    }
    Ok(units)
}

/// What each incoming message is, which of the old ones are lost, and whether that is a cut.
fn pair(old: &[Known], new: &[Unit]) -> (Vec<Fate>, Vec<MessageId>, bool) {
    let same = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old.mark.identity == new.mark.identity)
        .count();
    let mut fates: Vec<Fate> = old
        .iter()
        .take(same)
        .map(|old| Fate::Same(old.id))
        .collect();
    let (old, new) = (
        old.get(same..).unwrap_or(&[]),
        new.get(same..).unwrap_or(&[]),
    );
    // Everything where it stood, or shifted by what vanished or came in between.
    let in_place = Gap::between(old, new, 0, new.len());
    let (suffix, end) = anchor(old, new);
    let shifted = Gap::between(old, new, suffix, end);
    let holds = shifted.lost.is_empty() || suffix >= shifted.lost.len().min(ANCHOR);
    let better = !in_place.lost.is_empty() || shifted.same() + suffix > in_place.same();
    let (mut gap, suffix) = if holds && better {
        (shifted, suffix)
    } else {
        (in_place, 0)
    };
    let cut = suffix == 0 && !gap.lost.is_empty();
    if cut {
        gap.cut_after_last_same(old);
    }
    fates.append(&mut gap.fates);
    if suffix > 0 {
        let tail = old.get(old.len() - suffix..).unwrap_or(&[]);
        fates.extend(tail.iter().map(|old| Fate::Same(old.id)));
        fates.extend(std::iter::repeat_n(Fate::New, new.len() - end));
    }
    (fates, gap.lost, cut)
}

/// The longest end of `old` that `new` holds, and where in `new` it ends; of equally long ones the one that
/// stands where it stood.
fn anchor(old: &[Known], new: &[Unit]) -> (usize, usize) {
    // The Z function over both, backwards: for each place, how far it agrees with the beginning.
    let backwards: Vec<u128> = (old.iter().rev().map(|old| old.mark.identity))
        .chain(new.iter().rev().map(|new| new.mark.identity))
        .collect();
    let mut agrees = vec![0; backwards.len()];
    let (mut left, mut right) = (0, 0);
    for at in 1..backwards.len() {
        let mut length = if at < right {
            usize::min(agrees[at - left], right - at)
        } else {
            0
        };
        while at + length < backwards.len() && backwards[length] == backwards[at + length] {
            length += 1;
        }
        agrees[at] = length;
        if at + length > right {
            (left, right) = (at, at + length);
        }
    }
    let mut best = (0, new.len());
    for end in 1..=new.len() {
        let length = agrees[old.len() + new.len() - end].min(old.len());
        let nearer = end.abs_diff(old.len()) < best.1.abs_diff(old.len());
        if length > best.0 || (length == best.0 && length > 0 && nearer) {
            best = (length, end);
        }
    }
    best
}

/// What lies between the common beginning and the common end.
struct Gap {
    fates: Vec<Fate>,
    lost: Vec<MessageId>,
}

impl Gap {
    /// Pairs the messages before the last `suffix` of `old` with those before the last `suffix` of the
    /// first `end` of `new`, in order, for as long as they can be the same or a revision.
    fn between(old: &[Known], new: &[Unit], suffix: usize, end: usize) -> Self {
        let old = old.get(..old.len() - suffix).unwrap_or(&[]);
        let new = new.get(..end - suffix).unwrap_or(&[]);
        let mut fates = Vec::with_capacity(new.len());
        for (old, new) in old.iter().zip(new) {
            fates.push(if old.mark.identity == new.mark.identity {
                Fate::Same(old.id)
            } else if old.mark.shape == new.mark.shape {
                Fate::Revises(old.id)
            } else {
                break;
            });
        }
        let lost = old.iter().skip(fates.len()).map(|old| old.id).collect();
        fates.resize(new.len(), Fate::New);
        Self { fates, lost }
    }

    /// How many messages stayed the same.
    fn same(&self) -> usize {
        let same = |fate: &&Fate| matches!(fate, Fate::Same(_));
        self.fates.iter().filter(same).count()
    }

    /// What follows the last message that stayed the same was not revised but cut off, and what stands
    /// there now is new. Messages that stayed count where they outnumber the revisions before them: the
    /// same word in the same place proves nothing.
    fn cut_after_last_same(&mut self, old: &[Known]) {
        let (mut same, mut stays) = (0, 0);
        for (at, fate) in self.fates.iter().take(old.len()).enumerate() {
            same += usize::from(matches!(fate, Fate::Same(_)));
            if matches!(fate, Fate::Same(_)) && same * 2 > at + 1 {
                stays = at + 1;
            }
        }
        self.fates
            .iter_mut()
            .skip(stays)
            .for_each(|fate| *fate = Fate::New);
        self.lost = old.iter().skip(stays).map(|old| old.id).collect();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// A message of a made-up client: what it says, and which bytes it says it with.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Said {
        text: u64,
        role: u64,
        bytes: u64,
    }

    impl Said {
        fn raw(&self) -> u64 {
            xxh3_64(format!("{self:?}").as_bytes())
        }

        fn mark(&self) -> Mark {
            Mark {
                identity: u128::from(self.text) * 2 + u128::from(self.role),
                shape: self.role,
            }
        }
    }

    fn said(text: u64, role: u64) -> Said {
        Said {
            text,
            role,
            bytes: 0,
        }
    }

    /// Aligns with a history, and checks that nothing is read whose bytes are known.
    fn step(known: &Trail, history: &[Said]) -> Alignment {
        let raw: Vec<u64> = history.iter().map(Said::raw).collect();
        align::<()>(known, &raw, false, |wires| {
            let common = known.common(&raw);
            let old: HashSet<u64> = known.raw()[common..].iter().copied().collect();
            if common < known.messages().len() {
                assert!(wires.iter().all(|wire| !old.contains(&raw[*wire])));
            }
            Ok(wires
                .iter()
                .enumerate()
                .map(|(at, wire)| Unit {
                    mark: history[*wire].mark(),
                    wires: at..at + 1,
                })
                .collect())
        })
        .unwrap()
    }

    fn advance(known: &mut Trail, history: &[Said], next_id: &mut u64) -> Alignment {
        let alignment = step(known, history);
        let raw: Vec<u64> = history.iter().map(Said::raw).collect();
        *known = alignment.advance(known, &raw, || {
            *next_id += 1;
            MessageId(*next_id)
        });
        alignment
    }

    fn ids(trail: &Trail) -> Vec<u64> {
        trail.messages().iter().map(|known| known.id.0).collect()
    }

    fn history(texts: &[u64]) -> Vec<Said> {
        let said = |(at, text): (usize, &u64)| said(*text, at as u64 % 2);
        texts.iter().enumerate().map(said).collect()
    }

    #[test]
    fn a_history_that_lost_its_oldest_messages_or_some_in_the_middle_is_not_cut() {
        let (mut known, mut next) = (Trail::default(), 0);
        let all = history(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        advance(&mut known, &all, &mut next);
        let alignment = advance(&mut known, &all[2..], &mut next);
        assert!(!alignment.cut);
        assert_eq!(ids(&known), [3, 4, 5, 6, 7, 8, 9, 10]);
        let mut pruned = all[2..4].to_vec();
        pruned.extend_from_slice(&all[6..]);
        pruned.push(said(11, 0));
        let alignment = advance(&mut known, &pruned, &mut next);
        assert!(!alignment.cut);
        assert_eq!(alignment.lost, [MessageId(5), MessageId(6)]);
        assert_eq!(ids(&known), [3, 4, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn the_same_word_after_a_rewind_is_a_new_message() {
        let (mut known, mut next) = (Trail::default(), 0);
        advance(&mut known, &history(&[1, 2, 7, 4, 7, 6, 7]), &mut next);
        let alignment = advance(&mut known, &history(&[1, 2, 9, 8, 7]), &mut next);
        assert!(alignment.cut);
        assert_eq!(ids(&known), [1, 2, 8, 9, 10]);
    }

    #[test]
    fn hostile_repetition_takes_linear_time() {
        let (mut known, mut next) = (Trail::default(), 0);
        let mut all = vec![said(1, 0)];
        all.resize(100_000, said(2, 0));
        advance(&mut known, &all, &mut next);
        all[0] = said(3, 0);
        all.push(said(4, 0));
        let alignment = advance(&mut known, &all, &mut next);
        assert!(!alignment.cut);
        assert_eq!(
            alignment.rest.first().unwrap().fate,
            Fate::Revises(MessageId(1))
        );
        assert_eq!(ids(&known)[1..100_000], (2..=100_000).collect::<Vec<_>>());
    }

    /// What a client may do between two requests.
    #[derive(Debug, Clone)]
    enum Act {
        Append(Vec<u64>),
        /// Other bytes for the same content.
        Respell(prop::sample::Index),
        /// Another text in place, for several messages.
        Edit(Vec<prop::sample::Index>),
        Rewind(prop::sample::Index),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => prop::collection::vec(0..4u64, 1..4).prop_map(Act::Append),
            1 => any::<prop::sample::Index>().prop_map(Act::Respell),
            1 => prop::collection::vec(any::<prop::sample::Index>(), 1..3).prop_map(Act::Edit),
            1 => any::<prop::sample::Index>().prop_map(Act::Rewind),
        ];
        prop::collection::vec(act, 1..24)
    }

    proptest! {
        /// The model keeps each message's id beside it and does what the client does to both.
        #[test]
        fn ids_follow_what_the_client_did(acts in acts()) {
            let (mut known, mut next) = (Trail::default(), 0);
            let mut client: Vec<(Said, u64)> = Vec::new();
            let (mut model_next, mut unique) = (0, 1000);
            let mut branched_ids = HashSet::new();
            for act in acts {
                let before = ids(&known);
                let mut edited = HashSet::new();
                match act {
                    Act::Append(texts) => for text in texts {
                        model_next += 1;
                        client.push((said(text, client.len() as u64 % 2), model_next));
                    },
                    Act::Respell(at) if !client.is_empty() => {
                        unique += 1;
                        let at = at.index(client.len());
                        client[at].0.bytes = unique;
                    }
                    // New words, all of them, else an edit could undo itself.
                    Act::Edit(places) if !client.is_empty() => {
                        let places: std::collections::BTreeSet<usize> =
                            places.iter().map(|at| at.index(client.len())).collect();
                        for at in places {
                            unique += 1;
                            model_next += 1;
                            edited.insert(client[at].1);
                            client[at].0.text = unique;
                            client[at].1 = model_next;
                        }
                    }
                    Act::Rewind(at) if !client.is_empty() => client.truncate(at.index(client.len())),
                    _ => continue,
                }
                let sent: Vec<Said> = client.iter().map(|(said, _)| said.clone()).collect();
                let alignment = advance(&mut known, &sent, &mut next);
                let expected: Vec<u64> = client.iter().map(|(_, id)| *id).collect();
                prop_assert_eq!(ids(&known), expected.clone());
                let revised: HashSet<u64> = alignment.rest.iter().filter_map(|aligned| match aligned.fate {
                    Fate::Revises(id) => Some(id.0),
                    _ => None,
                }).collect();
                prop_assert_eq!(&revised, &edited);
                let gone: Vec<u64> = before.iter().copied()
                    .filter(|id| !expected.contains(id) && !edited.contains(id)).collect();
                prop_assert_eq!(alignment.cut, !gone.is_empty());
                let lost: Vec<u64> = alignment.lost.iter().map(|id| id.0).collect();
                prop_assert_eq!(&lost, &gone);
                branched_ids.extend(gone);
                prop_assert!(expected.iter().all(|id| !branched_ids.contains(id)));
            }
        }

        /// Whatever is sent, every message has one id, no id twice, and old ids keep their order.
        #[test]
        fn whatever_is_sent_ids_are_sound(
            first in prop::collection::vec(0..3u64, 0..12),
            second in prop::collection::vec(0..3u64, 0..12),
        ) {
            let (mut known, mut next) = (Trail::default(), 0);
            advance(&mut known, &history(&first), &mut next);
            let alignment = advance(&mut known, &history(&second), &mut next);
            let now = ids(&known);
            prop_assert_eq!(now.len(), second.len());
            prop_assert_eq!(now.iter().collect::<HashSet<_>>().len(), now.len());
            let old: Vec<u64> = now.iter().copied().filter(|id| *id <= first.len() as u64).collect();
            prop_assert!(old.is_sorted());
            let revised = alignment.rest.iter().filter(|aligned| matches!(aligned.fate, Fate::Revises(_)));
            prop_assert_eq!(old.len() + revised.count() + alignment.lost.len(), first.len());
        }
    }
}
