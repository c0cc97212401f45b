//! Alignment: which messages of a request the session knows already, which are new, which are revisions of
//! known ones, and where the conversation was cut back.
//!
//! Messages are told apart by where they stand, never by a lookup of their text: equal messages said six
//! times are six messages.

use std::collections::HashMap;

use contexture_engine_api::MessageId;
use contexture_formats::Message;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::ids::Ids;

/// How many messages must follow the place at which messages vanished for it to be a gap and not a cut:
/// this many, or as many as vanished. A single "go on" after a rewind proves nothing.
const ANCHOR: usize = 3;

/// The hash of a wire message's bytes: equal bytes need no second look.
pub(super) fn raw_hash(raw: &str) -> u64 {
    xxh3_64(raw.as_bytes())
}

/// What tells one message from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    /// The hash of its canonical content, see [`Message::identity`].
    pub(super) identity: u128,
    /// A hash of its role and of the call it answers. A revision of a message has the same.
    pub(super) shape: u64,
}

impl Mark {
    /// The mark of a message.
    pub(super) fn of(message: &Message) -> Self {
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

/// A message that has its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) id: MessageId,
    pub(super) mark: Mark,
}

/// What a message of a request is to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// A message that it knows.
    Same(MessageId),
    /// Another form of a message that it knows, for which it is to have a new id.
    Revises(MessageId),
    /// A message that it has not seen.
    New,
}

/// How a request continues a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// What each message of the request is, in order. What is new stands behind all that is known.
    pub(super) fates: Vec<Fate>,
    /// Known messages that the request no longer holds; revised ones are not among them.
    pub(super) lost: Vec<MessageId>,
    /// Whether the conversation was cut back: what was lost is its end. (Otherwise it is a gap.)
    pub(super) cut: bool,
    /// Messages behind one that came in between: they were cut off, and are said again at these places.
    pub(super) said_again: Vec<(MessageId, usize)>,
    /// Known messages that a summary of unknown extent stands for.
    pub(super) abridged: Vec<MessageId>,
}

/// Aligns the messages of a request with the known ones.
///
/// What both begin with is the same. Of the rest, what follows the place where they differ is found again
/// where enough of it follows. In between, messages are paired in order: equal ones are the same, ones of
/// the same role (and answering the same call) are revisions. Known messages that are left over with nothing
/// known after them were cut off. A message that came in between begins a branch.
///
/// Where the request is `abridged` (it holds a summary of unknown extent, behind so many of its messages) what is
/// missing may be under the summary.
///
/// Messages that are `absent` were missing before, so that they are not what the client changed now.
pub(super) fn align(
    old: &[Known],
    new: &[Mark],
    abridged: Option<usize>,
    absent: &Ids,
) -> Alignment {
    let mut alignment = Alignment::default();
    let same = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old.mark.identity == new.identity)
        .count();
    // A summary with the same messages before and behind it hides nothing.
    let hides = |before: &usize| same < before + ANCHOR;
    if let Some(before) = abridged.filter(hides) {
        alignment = pair_abridged(old, new, same, before);
    } else {
        (alignment.fates, alignment.lost, alignment.cut) = pair(old, new, same, absent);
    }
    alignment.branch_at_insertion();
    alignment
}

impl Alignment {
    /// Ids follow the order of the conversation, so that what stands behind a new message is new too.
    fn branch_at_insertion(&mut self) {
        let is_new = |fate: &Fate| *fate == Fate::New;
        let Some(first_new) = self.fates.iter().position(is_new) else {
            return;
        };
        if self.fates.iter().skip(first_new).all(is_new) {
            return;
        }
        for (at, fate) in self.fates.iter_mut().enumerate().skip(first_new) {
            if let Fate::Same(id) | Fate::Revises(id) = *fate {
                self.lost.push(id);
                if *fate == Fate::Same(id) {
                    self.said_again.push((id, at));
                }
                *fate = Fate::New;
            }
        }
        self.cut = true;
    }
}

/// Pairs with a conversation of which summaries of unknown extent hide parts: the common `head`, the longest
/// common end, and between them whatever is found again in order. What is not found is under the summaries, the last
/// of which stands behind `before` messages.
fn pair_abridged(old: &[Known], new: &[Mark], head: usize, before: usize) -> Alignment {
    let (same, known) = old.split_at(head);
    let (_, visible) = new.split_at(head);
    let (suffix, end) = anchor(known, visible);
    if suffix == 0 {
        return pair_with_end_cut_off(old, new, head, before);
    }
    let (known, tail) = known.split_at(known.len() - suffix);
    let between = visible.get(..end - suffix).unwrap_or(&[]);
    let (found, hidden) = find_in_order(known, between);
    let mut fates: Vec<Fate> = same.iter().map(|old| Fate::Same(old.id)).collect();
    fates.extend(found);
    fates.extend(tail.iter().map(|old| Fate::Same(old.id)));
    fates.resize(new.len(), Fate::New);
    Alignment {
        fates,
        abridged: hidden,
        ..Alignment::default()
    }
}

/// Finds messages again, in order; and those of `old` that are not found. What was said once tells where its
/// neighbours belong: a "go on" that came in between is not the one that a summary hides.
fn find_in_order(old: &[Known], new: &[Mark]) -> (Vec<Fate>, Vec<MessageId>) {
    let mut fates = vec![Fate::New; new.len()];
    let mut hidden: Vec<MessageId> = Vec::new();
    let (mut old_end, mut new_end) = (old.len(), new.len());
    let mut certain = said_once_in_order(old, new);
    loop {
        let last = certain.pop();
        let (old_from, new_from) = last.map_or((0, 0), |(old, new)| (old + 1, new + 1));
        find_backwards(
            old.get(old_from..old_end).unwrap_or(&[]),
            new.get(new_from..new_end).unwrap_or(&[]),
            fates.get_mut(new_from..new_end).unwrap_or(&mut []),
            &mut hidden,
        );
        let Some((in_old, in_new)) = last else {
            return (fates, hidden);
        };
        if let (Some(fate), Some(old)) = (fates.get_mut(in_new), old.get(in_old)) {
            *fate = Fate::Same(old.id);
        }
        (old_end, new_end) = (in_old, in_new);
    }
}

/// The places, in `old` and in `new`, of what stands once in each: as many as keep the order of both (a longest
/// increasing subsequence, by patience sorting).
fn said_once_in_order(old: &[Known], new: &[Mark]) -> Vec<(usize, usize)> {
    let mut places: HashMap<u128, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (at, old) in old.iter().enumerate() {
        places.entry(old.mark.identity).or_default().0.push(at);
    }
    for (at, new) in new.iter().enumerate() {
        places.entry(new.identity).or_default().1.push(at);
    }
    let once = |(old, new): (Vec<usize>, Vec<usize>)| match (&old[..], &new[..]) {
        ([old], [new]) => Some((*old, *new)),
        _ => None,
    };
    let mut pairs: Vec<(usize, usize)> = places.into_values().filter_map(once).collect();
    pairs.sort_unstable();
    // The pair on top of each pile, and for each pair the one that it follows.
    let mut tops: Vec<usize> = Vec::new();
    let mut follows: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (at, (_, place)) in pairs.iter().enumerate() {
        let pile = tops.partition_point(|top| pairs[*top].1 < *place);
        follows.push(pile.checked_sub(1).map(|below| tops[below]));
        match tops.get_mut(pile) {
            Some(top) => *top = at,
            None => tops.push(at),
        }
    }
    let chain = std::iter::successors(tops.last().copied(), |at| follows[*at]);
    let mut longest: Vec<(usize, usize)> = chain.map(|at| pairs[at]).collect();
    longest.reverse();
    longest
}

/// Finds messages again, from the last on, each before the one that follows it.
fn find_backwards(old: &[Known], new: &[Mark], fates: &mut [Fate], hidden: &mut Vec<MessageId>) {
    let mut rest = old;
    for (fate, new) in fates.iter_mut().zip(new).rev() {
        let is_it = |old: &Known| old.mark.identity == new.identity;
        let Some(place) = rest.iter().rposition(is_it) else {
            continue;
        };
        let (earlier, later) = rest.split_at(place);
        if let [found, later @ ..] = later {
            *fate = Fate::Same(found.id);
            hidden.extend(later.iter().map(|old| old.id));
        }
        rest = earlier;
    }
    hidden.extend(rest.iter().map(|old| old.id));
}

/// As [`pair_abridged`], where the request does not hold the end of the conversation: what follows its last summary
/// stands somewhere before the end, and the rest was cut off. Where that is not found, all of it is new.
fn pair_with_end_cut_off(old: &[Known], new: &[Mark], head: usize, before: usize) -> Alignment {
    let before = before.max(head);
    let known = old.get(head..).unwrap_or(&[]);
    let visible = new.get(before..).unwrap_or(&[]);
    let both: Vec<u128> = (visible.iter().map(|new| new.identity))
        .chain(known.iter().map(|old| old.mark.identity))
        .collect();
    let agrees = agreement_with_beginning(&both);
    let lengths = agrees.get(visible.len()..).unwrap_or(&[]).iter();
    let longest = lengths
        .map(|length| (*length).min(visible.len()))
        .enumerate();
    // Of equally long ones, the last.
    let found = longest.max_by_key(|(_, length)| *length);
    let mut fates: Vec<Fate> = (old.iter().take(head))
        .map(|old| Fate::Same(old.id))
        .collect();
    let Some((at, length)) = found.filter(|(_, length)| *length >= ANCHOR) else {
        fates.resize(new.len(), Fate::New);
        return Alignment {
            fates,
            abridged: known.iter().map(|old| old.id).collect(),
            ..Alignment::default()
        };
    };
    let (earlier, rest) = known.split_at(at);
    let (again, after) = rest.split_at(length);
    let (between, hidden) = find_in_order(earlier, new.get(head..before).unwrap_or(&[]));
    fates.extend(between);
    fates.extend(again.iter().map(|old| Fate::Same(old.id)));
    fates.resize(new.len(), Fate::New);
    Alignment {
        fates,
        cut: !after.is_empty(),
        lost: after.iter().map(|old| old.id).collect(),
        abridged: hidden,
        ..Alignment::default()
    }
}

/// What each incoming message is, which of the old ones are lost, and whether that is a cut. The first `same` of
/// both are the same.
fn pair(
    old: &[Known],
    new: &[Mark],
    same: usize,
    absent: &Ids,
) -> (Vec<Fate>, Vec<MessageId>, bool) {
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
    let in_place = Gap::between(old, new, &Ids::default());
    let (suffix, end) = anchor(old, new);
    let shifted = Gap::between(
        old.get(..old.len() - suffix).unwrap_or(&[]),
        new.get(..end - suffix).unwrap_or(&[]),
        absent,
    );
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
fn anchor(old: &[Known], new: &[Mark]) -> (usize, usize) {
    let backwards: Vec<u128> = (old.iter().rev().map(|old| old.mark.identity))
        .chain(new.iter().rev().map(|new| new.identity))
        .collect();
    let agrees = agreement_with_beginning(&backwards);
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

/// For each place of a sequence, how far what stands from there on agrees with its beginning (the Z function).
fn agreement_with_beginning(sequence: &[u128]) -> Vec<usize> {
    let mut agrees = vec![0; sequence.len()];
    let (mut left, mut right) = (0, 0);
    for at in 1..sequence.len() {
        let mut length = if at < right {
            usize::min(agrees[at - left], right - at)
        } else {
            0
        };
        while at + length < sequence.len() && sequence[length] == sequence[at + length] {
            length += 1;
        }
        agrees[at] = length;
        if at + length > right {
            (left, right) = (at, at + length);
        }
    }
    agrees
}

/// What lies between the common beginning and the common end.
struct Gap {
    fates: Vec<Fate>,
    lost: Vec<MessageId>,
}

impl Gap {
    /// Pairs messages in order, for as long as they can be the same or a revision; those that are `absent` with none
    /// where there are enough others.
    fn between(old: &[Known], new: &[Mark], absent: &Ids) -> Self {
        let (mut left_out, mut there): (Vec<&Known>, Vec<&Known>) =
            old.iter().partition(|old| absent.contains(&old.id));
        if there.len() < new.len() {
            (left_out, there) = (Vec::new(), old.iter().collect());
        }
        let mut fates = Vec::with_capacity(new.len());
        for (old, new) in there.iter().zip(new) {
            fates.push(if old.mark.identity == new.identity {
                Fate::Same(old.id)
            } else if old.mark.shape == new.shape {
                Fate::Revises(old.id)
            } else {
                break;
            });
        }
        let lost = there.into_iter().skip(fates.len()).chain(left_out);
        let lost = lost.map(|old| old.id).collect();
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

    /// A message of a made-up client.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Said {
        text: u64,
        role: u64,
    }

    impl Said {
        fn mark(&self) -> Mark {
            Mark {
                identity: u128::from(self.text) * 2 + u128::from(self.role),
                shape: self.role,
            }
        }
    }

    fn said(text: u64, role: u64) -> Said {
        Said { text, role }
    }

    /// What the session knows, and the next id.
    #[derive(Default)]
    struct Conversation {
        known: Vec<Known>,
        next: u64,
    }

    impl Conversation {
        fn advance(&mut self, history: &[Said]) -> Alignment {
            let marks: Vec<Mark> = history.iter().map(Said::mark).collect();
            let alignment = align(&self.known, &marks, None, &Ids::default());
            let ids = alignment.fates.iter().map(|fate| match fate {
                Fate::Same(id) => *id,
                Fate::New | Fate::Revises(_) => {
                    self.next += 1;
                    MessageId(self.next)
                }
            });
            let known = ids.zip(&marks).map(|(id, mark)| Known { id, mark: *mark });
            self.known = known.collect();
            alignment
        }

        fn ids(&self) -> Vec<u64> {
            self.known.iter().map(|known| known.id.0).collect()
        }
    }

    fn history(texts: &[u64]) -> Vec<Said> {
        let said = |(at, text): (usize, &u64)| said(*text, at as u64 % 2);
        texts.iter().enumerate().map(said).collect()
    }

    #[test]
    fn a_history_that_lost_its_oldest_messages_or_some_in_the_middle_is_not_cut() {
        let mut session = Conversation::default();
        let all = history(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        session.advance(&all);
        let alignment = session.advance(&all[2..]);
        assert!(!alignment.cut);
        assert_eq!(session.ids(), [3, 4, 5, 6, 7, 8, 9, 10]);
        let mut pruned = all[2..4].to_vec();
        pruned.extend_from_slice(&all[6..]);
        pruned.push(said(11, 0));
        let alignment = session.advance(&pruned);
        assert!(!alignment.cut);
        assert_eq!(alignment.lost, [MessageId(5), MessageId(6)]);
        assert_eq!(session.ids(), [3, 4, 7, 8, 9, 10, 11]);
    }

    #[test]
    fn the_same_word_after_a_rewind_is_a_new_message() {
        let mut session = Conversation::default();
        session.advance(&history(&[1, 2, 7, 4, 7, 6, 7]));
        let alignment = session.advance(&history(&[1, 2, 9, 8, 7]));
        assert!(alignment.cut);
        assert_eq!(session.ids(), [1, 2, 8, 9, 10]);
    }

    #[test]
    fn hostile_repetition_takes_linear_time() {
        let mut session = Conversation::default();
        let mut all = vec![said(1, 0)];
        all.resize(100_000, said(2, 0));
        session.advance(&all);
        all[0] = said(3, 0);
        all.push(said(4, 0));
        let alignment = session.advance(&all);
        assert!(!alignment.cut);
        assert_eq!(
            *alignment.fates.first().unwrap(),
            Fate::Revises(MessageId(1))
        );
        assert_eq!(session.ids()[1..100_000], (2..=100_000).collect::<Vec<_>>());
    }

    /// What a client may do between two requests.
    #[derive(Debug, Clone)]
    enum Act {
        Append(Vec<u64>),
        /// A message in between.
        Insert(prop::sample::Index),
        /// Another text in place, for several messages.
        Edit(Vec<prop::sample::Index>),
        Rewind(prop::sample::Index),
    }

    fn acts() -> impl Strategy<Value = Vec<Act>> {
        let act = prop_oneof![
            4 => prop::collection::vec(0..4u64, 1..4).prop_map(Act::Append),
            1 => any::<prop::sample::Index>().prop_map(Act::Insert),
            1 => prop::collection::vec(any::<prop::sample::Index>(), 1..3).prop_map(Act::Edit),
            1 => any::<prop::sample::Index>().prop_map(Act::Rewind),
        ];
        prop::collection::vec(act, 1..24)
    }

    proptest! {
        /// The model keeps each message's id beside it and does what the client does to both.
        #[test]
        fn ids_follow_what_the_client_did(acts in acts()) {
            let mut session = Conversation::default();
            let mut client: Vec<(Said, u64)> = Vec::new();
            let (mut model_next, mut unique) = (0, 1000);
            let mut branched_ids = HashSet::new();
            for act in acts {
                let before = session.ids();
                let mut edited = HashSet::new();
                match act {
                    Act::Append(texts) => for text in texts {
                        model_next += 1;
                        client.push((said(text, client.len() as u64 % 2), model_next));
                    },
                    // What stands behind it is said again.
                    Act::Insert(at) if !client.is_empty() => {
                        unique += 1;
                        let at = at.index(client.len());
                        client.insert(at, (said(unique, 0), 0));
                        for (_, id) in client.iter_mut().skip(at) {
                            model_next += 1;
                            *id = model_next;
                        }
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
                let alignment = session.advance(&sent);
                let expected: Vec<u64> = client.iter().map(|(_, id)| *id).collect();
                prop_assert_eq!(session.ids(), expected.clone());
                let revised: HashSet<u64> = alignment.fates.iter().filter_map(|fate| match fate {
                    Fate::Revises(id) => Some(id.0),
                    _ => None,
                }).collect();
                prop_assert_eq!(&revised, &edited);
                let gone: Vec<u64> = before.iter().copied()
                    .filter(|id| !expected.contains(id) && !edited.contains(id)).collect();
                prop_assert_eq!(alignment.cut, !gone.is_empty());
                let mut lost: Vec<u64> = alignment.lost.iter().map(|id| id.0).collect();
                lost.sort_unstable();
                let mut gone_sorted = gone.clone();
                gone_sorted.sort_unstable();
                prop_assert_eq!(&lost, &gone_sorted);
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
            let mut session = Conversation::default();
            session.advance(&history(&first));
            let alignment = session.advance(&history(&second));
            let now = session.ids();
            prop_assert_eq!(now.len(), second.len());
            prop_assert_eq!(now.iter().collect::<HashSet<_>>().len(), now.len());
            let old: Vec<u64> = now.iter().copied().filter(|id| *id <= first.len() as u64).collect();
            prop_assert!(old.is_sorted());
            let revised = alignment.fates.iter().filter(|fate| matches!(fate, Fate::Revises(_)));
            prop_assert_eq!(old.len() + revised.count() + alignment.lost.len(), first.len());
        }
    }
}
