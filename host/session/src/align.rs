//! Alignment: which messages of a request the session knows already, which are new, which are
//! revisions of known ones, and whether the conversation was cut back.
//!
//! Messages are identified by their position, never by a lookup of their text: a user may say "yes"
//! six times, and these are six messages. [`align`] compares the known messages with those of the
//! request. Both usually share a beginning. After it, a gap or an insertion shifts the rest, so the
//! longest common end is searched too, and what lies between the two is paired in order.
//!
//! If the request holds a summary whose extent is unknown, the messages that are not found are
//! assumed to be under that summary.
//!
//! Start with [`align`] and [`Alignment`]. Everything here works on hashes ([`Fingerprint`]), so no text is
//! compared. Assigning ids and updating the session is left to `ingest`.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use contexture_engine_api::MessageId;
use contexture_transcript::{Fingerprint, IdMap, Ids, Known};
use xxhash_rust::xxh3::xxh3_64;

/// How many messages must follow the position of vanished messages for it to be a gap and not a
/// cut: this many, or as many as have vanished if these are fewer. A single "go on" after a rewind
/// proves nothing.
const ANCHOR: usize = 3;

/// The hash of a wire message's bytes. A wire message with known bytes need not be parsed again.
pub(super) fn raw_hash(raw: &str) -> u64 {
    xxh3_64(raw.as_bytes())
}

/// What a message of a request is to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Match {
    /// The known message with this id, unchanged.
    Same(MessageId),
    /// Another form of the known message with this id. It gets a new id.
    Revises(MessageId),
    /// A message that the session has not seen.
    New,
}

/// How a request continues a conversation: the result of [`align`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The match of each message of the request, in order. New messages always follow all known
    /// ones.
    pub(super) matches: Vec<Match>,
    /// Known messages that the request no longer holds. Revised messages are not among them.
    pub(super) unmatched: Vec<MessageId>,
    /// Whether the conversation was cut back, so that `unmatched` is its end. If false, `unmatched`
    /// is a gap in the middle or at the beginning.
    pub(super) cut: bool,
    /// Known messages that follow an inserted one. They count as cut off and as said again, at
    /// these positions of the request.
    pub(super) said_again: Vec<(MessageId, usize)>,
    /// Known messages that summaries hide and that follow an inserted one. They count as cut off
    /// and as said again too, each after the message at this position of the request.
    pub(super) hidden_again: Vec<(Known, usize)>,
    /// Known messages that a summary of unknown extent stands for.
    pub(super) abridged: Vec<MessageId>,
}

/// Aligns the messages of a request with the known ones.
///
/// Messages at the beginning that are equal in both are the same. After the first difference, the
/// known messages are found again further on if enough of them follow. Between these two parts,
/// messages are paired in order: equal ones are the same, and ones of the same role that answer the
/// same call are revisions. Known messages that remain, with nothing known after them, were cut
/// off. A message that was inserted begins a new branch.
///
/// `abridged` is set if the request holds a summary of unknown extent, and is the number of
/// messages before that summary. Missing messages may then be under it.
///
/// `unsent` are messages that were missing from earlier requests too. The client did not remove
/// them now, so they are not paired if enough others are left. If the common beginning holds one of
/// them, the client has its originals again, and has removed whatever else is missing.
pub(super) fn align(
    old: &[Known],
    new: &[Fingerprint],
    abridged: Option<usize>,
    unsent: &Ids,
) -> Alignment {
    let same = old
        .iter()
        .zip(new)
        .take_while(|(old, new)| old.fingerprint.identity == new.identity)
        .count();
    // If the same messages stand before and after a summary, nothing is missing that it could hide.
    if abridged.is_some_and(|before| same < before + ANCHOR) {
        return pair_abridged(old, new, same);
    }
    // A client that sends some of them again leaves none out any more.
    let is_sent_again = |old: &Known| unsent.contains(&old.id);
    let unsent = match old.iter().take(same).any(is_sent_again) {
        true => &Ids::default(),
        false => unsent,
    };
    pair(old, new, same, unsent)
}

impl Alignment {
    /// Turns every message after the first new one into a new message. Ids must rise in the order
    /// of the conversation, so a known message cannot follow a new one.
    ///
    /// `branch` are the known messages in order. Those that neither have a match nor are missing
    /// are hidden by summaries, and go with the message before them.
    pub(super) fn branch_at_insertion(&mut self, branch: &[Known]) {
        let is_new = |matched: &Match| *matched == Match::New;
        let Some(first_new) = self.matches.iter().position(is_new) else {
            return;
        };
        if self.matches.iter().skip(first_new).all(is_new) {
            return;
        }
        let place_of: IdMap<usize> = (self.matches.iter().enumerate())
            .filter_map(|(at, matched)| match matched {
                Match::Same(id) | Match::Revises(id) => Some((*id, at)),
                Match::New => None,
            })
            .collect();
        let unmatched: Ids = self.unmatched.iter().copied().collect();
        let mut before = None;
        for known in branch.iter().filter(|known| !unmatched.contains(&known.id)) {
            match (place_of.get(&known.id), before) {
                (Some(at), _) => before = Some(*at).filter(|at| *at > first_new),
                (None, Some(at)) => self.hidden_again.push((*known, at)),
                (None, None) => {}
            }
        }
        let hidden = self.hidden_again.iter().map(|(known, _)| known.id);
        self.unmatched.extend(hidden);
        for (at, matched) in self.matches.iter_mut().enumerate().skip(first_new) {
            if let Match::Same(id) | Match::Revises(id) = *matched {
                self.unmatched.push(id);
                if *matched == Match::Same(id) {
                    self.said_again.push((id, at));
                }
                *matched = Match::New;
            }
        }
        self.cut = true;
    }
}

/// Aligns with a request in which summaries of unknown extent hide parts of the conversation. The
/// common beginning of `head` messages and the longest common end are the same, and what lies
/// between is found again in order. Messages that are not found are under the summaries. If the end
/// of the conversation was cut off and fewer than `ANCHOR` messages of what stays match, all of the
/// request is new.
fn pair_abridged(old: &[Known], new: &[Fingerprint], head: usize) -> Alignment {
    let (same, known) = old.split_at(head);
    let (_, visible) = new.split_at(head);
    let mut matches: Vec<Match> = same.iter().map(|old| Match::Same(old.id)).collect();
    let common = CommonEnd::of(known, visible);
    let is_cut = !common.lost.is_empty();
    let (hidden, lost) = match is_cut && common.tail.len() < ANCHOR {
        true => (known.iter().map(|old| old.id).collect(), &[][..]),
        false => {
            let (found, hidden) = find_in_order(common.before, common.new_before);
            matches.extend(found);
            matches.extend(common.tail.iter().map(|old| Match::Same(old.id)));
            (hidden, common.lost)
        }
    };
    matches.resize(new.len(), Match::New);
    Alignment {
        matches,
        cut: !lost.is_empty(),
        unmatched: lost.iter().map(|old| old.id).collect(),
        abridged: hidden,
        ..Alignment::default()
    }
}

/// Finds messages of `old` again in `new`, in order. Returns the match of each new message, and the
/// old messages that were not found.
///
/// Messages that occur once in both are matched first, because they show which part their
/// neighbours belong to. Otherwise a "go on" that is new could be taken for one that a summary
/// hides.
fn find_in_order(old: &[Known], new: &[Fingerprint]) -> (Vec<Match>, Vec<MessageId>) {
    let mut matches = vec![Match::New; new.len()];
    let mut hidden: Vec<MessageId> = Vec::new();
    let (mut old_end, mut new_end) = (old.len(), new.len());
    let mut certain = said_once_in_order(old, new);
    loop {
        let last = certain.pop();
        let (old_from, new_from) = last.map_or((0, 0), |(old, new)| (old + 1, new + 1));
        find_backwards(
            old.get(old_from..old_end).unwrap_or(&[]),
            new.get(new_from..new_end).unwrap_or(&[]),
            matches.get_mut(new_from..new_end).unwrap_or(&mut []),
            &mut hidden,
        );
        let Some((in_old, in_new)) = last else {
            return (matches, hidden);
        };
        if let (Some(matched), Some(old)) = (matches.get_mut(in_new), old.get(in_old)) {
            *matched = Match::Same(old.id);
        }
        (old_end, new_end) = (in_old, in_new);
    }
}

/// Finds the messages that occur exactly once in `old` and once in `new`, and returns their
/// positions in both. If some are out of order, the largest set that keeps the order of both is
/// returned: a longest increasing subsequence, found by patience sorting.
fn said_once_in_order(old: &[Known], new: &[Fingerprint]) -> Vec<(usize, usize)> {
    let mut places: HashMap<u128, (Vec<usize>, Vec<usize>)> = HashMap::new();
    for (at, old) in old.iter().enumerate() {
        places
            .entry(old.fingerprint.identity)
            .or_default()
            .0
            .push(at);
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
    // The last pair of each pile, and for each pair its predecessor in the longest sequence that
    // ends with it.
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

/// Matches messages from the end backwards, each with the last equal message before the one matched
/// so far. Messages that are passed over go to `hidden`.
fn find_backwards(
    old: &[Known],
    new: &[Fingerprint],
    matches: &mut [Match],
    hidden: &mut Vec<MessageId>,
) {
    let mut rest = old;
    for (matched, new) in matches.iter_mut().zip(new).rev() {
        let is_it = |old: &Known| old.fingerprint.identity == new.identity;
        let Some(place) = rest.iter().rposition(is_it) else {
            continue;
        };
        let (earlier, later) = rest.split_at(place);
        if let [found, later @ ..] = later {
            *matched = Match::Same(found.id);
            hidden.extend(later.iter().map(|old| old.id));
        }
        rest = earlier;
    }
    hidden.extend(rest.iter().map(|old| old.id));
}

/// Aligns a request without unknown summaries. The first `same` messages of both are the same.
fn pair(old: &[Known], new: &[Fingerprint], same: usize, unsent: &Ids) -> Alignment {
    let (head, old) = old.split_at(same);
    let (_, new) = new.split_at(same);
    let mut matches: Vec<Match> = head.iter().map(|old| Match::Same(old.id)).collect();
    // Two readings compete: either everything is where it was, or what the request still has of the
    // end is shifted by what vanished or was inserted.
    let in_place = Gap::between(old, new, &Ids::default());
    let CommonEnd {
        before,
        new_before,
        tail,
        lost,
    } = CommonEnd::of(old, new);
    let shifted = Gap::between(before, new_before, unsent);
    // A short common end proves little if many messages vanished before it.
    let vanished = shifted.unmatched.iter().filter(|id| !unsent.contains(id));
    let vanished = vanished.count();
    let holds = vanished == 0 || lost.is_empty() && tail.len() >= vanished.min(ANCHOR);
    // If both readings explain the request, the one with more unchanged messages is right. Of two
    // with as many, the one that loses nothing.
    let better = match (shifted.same() + tail.len()).cmp(&in_place.same()) {
        Ordering::Greater => true,
        Ordering::Equal => lost.is_empty() && !in_place.unmatched.is_empty(),
        Ordering::Less => false,
    };
    let (unmatched, cut) = match holds && better {
        true => {
            matches.extend(shifted.matches);
            matches.extend(tail.iter().map(|old| Match::Same(old.id)));
            match lost.is_empty() {
                true => (shifted.unmatched, false),
                false => (lost.iter().map(|old| old.id).collect(), true),
            }
        }
        false => {
            let mut gap = in_place;
            let cut = !gap.unmatched.is_empty();
            if cut {
                gap.cut_after_last_same(old);
            }
            matches.extend(gap.matches);
            (gap.unmatched, cut)
        }
    };
    matches.resize(same + new.len(), Match::New);
    Alignment {
        matches,
        unmatched,
        cut,
        ..Alignment::default()
    }
}

/// What a request still has of the end of the conversation.
struct CommonEnd<'a> {
    /// The known messages before the common end.
    before: &'a [Known],
    /// The messages of the request before it.
    new_before: &'a [Fingerprint],
    /// The common end, as the conversation has it.
    tail: &'a [Known],
    /// Known messages after it. The request has none of them.
    lost: &'a [Known],
}

impl<'a> CommonEnd<'a> {
    /// Finds the longest sequence in `new` that ends with the last message of `old` that `new` has.
    /// If several are equally long, the first one.
    fn of(old: &'a [Known], new: &'a [Fingerprint]) -> Self {
        let there: HashSet<u128> = new.iter().map(|new| new.identity).collect();
        let is_there = |old: &Known| there.contains(&old.fingerprint.identity);
        let stays = old.iter().rposition(is_there).map_or(0, |last| last + 1);
        let (stay, lost) = old.split_at(stays);
        let backwards: Vec<u128> = (stay.iter().rev().map(|old| old.fingerprint.identity))
            .chain(new.iter().rev().map(|new| new.identity))
            .collect();
        let agrees = agreement_with_beginning(&backwards);
        let (mut length, mut from) = (0, new.len());
        for end in 1..=new.len() {
            let here = agrees[stays + new.len() - end].min(stays);
            if here > length {
                (length, from) = (here, end - here);
            }
        }
        let (before, tail) = stay.split_at(stays - length);
        Self {
            before,
            new_before: new.get(..from).unwrap_or(&[]),
            tail,
            lost,
        }
    }
}

/// For each position of a sequence, how many elements from there on equal its beginning (the Z
/// function). Takes linear time, even for a client that repeats one message many times.
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

/// The pairing of the messages between the common beginning and the common end.
struct Gap {
    matches: Vec<Match>,
    unmatched: Vec<MessageId>,
}

impl Gap {
    /// Pairs messages in order until two cannot be the same or a revision. Known messages that are
    /// `unsent` are left unpaired.
    fn between(old: &[Known], new: &[Fingerprint], unsent: &Ids) -> Self {
        let (unsent, there): (Vec<&Known>, Vec<&Known>) =
            old.iter().partition(|old| unsent.contains(&old.id));
        let mut matches = Vec::with_capacity(new.len());
        for (old, new) in there.iter().zip(new) {
            matches.push(if old.fingerprint.identity == new.identity {
                Match::Same(old.id)
            } else if old.fingerprint.shape == new.shape {
                Match::Revises(old.id)
            } else {
                break;
            });
        }
        let unmatched = there.into_iter().skip(matches.len()).chain(unsent);
        let unmatched = unmatched.map(|old| old.id).collect();
        matches.resize(new.len(), Match::New);
        Self { matches, unmatched }
    }

    /// How many messages are unchanged.
    fn same(&self) -> usize {
        let same = |matched: &&Match| matches!(matched, Match::Same(_));
        self.matches.iter().filter(same).count()
    }

    /// Ends the pairing after the last message that is unchanged. What follows was not revised but
    /// cut off, and the messages of the request from there on are new. An unchanged message counts
    /// only if, up to it, most messages are unchanged: the same word at the same position proves
    /// nothing.
    fn cut_after_last_same(&mut self, old: &[Known]) {
        let (mut same, mut stays) = (0, 0);
        for (at, matched) in self.matches.iter().take(old.len()).enumerate() {
            same += usize::from(matches!(matched, Match::Same(_)));
            if matches!(matched, Match::Same(_)) && same * 2 > at + 1 {
                stays = at + 1;
            }
        }
        self.matches
            .iter_mut()
            .skip(stays)
            .for_each(|matched| *matched = Match::New);
        let last = stays.checked_sub(1).and_then(|last| self.matches.get(last));
        let is_last = |old: &Known| last == Some(&Match::Same(old.id));
        let from = old.iter().position(is_last).map_or(0, |last| last + 1);
        self.unmatched = old.iter().skip(from).map(|old| old.id).collect();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;

    use super::*;

    /// A message of the simulated client. `role` is 0 or 1.
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Said {
        text: u64,
        role: u64,
    }

    impl Said {
        fn fingerprint(&self) -> Fingerprint {
            Fingerprint {
                identity: u128::from(self.text) * 2 + u128::from(self.role),
                shape: self.role,
            }
        }
    }

    fn said(text: u64, role: u64) -> Said {
        Said { text, role }
    }

    /// A minimal session: the known messages, and the id that was given last.
    #[derive(Default)]
    struct Conversation {
        known: Vec<Known>,
        next: u64,
    }

    impl Conversation {
        fn advance(&mut self, history: &[Said]) -> Alignment {
            let fingerprints: Vec<Fingerprint> = history.iter().map(Said::fingerprint).collect();
            let mut alignment = align(&self.known, &fingerprints, None, &Ids::default());
            alignment.branch_at_insertion(&self.known);
            let ids = alignment.matches.iter().map(|matched| match matched {
                Match::Same(id) => *id,
                Match::New | Match::Revises(_) => {
                    self.next += 1;
                    MessageId(self.next)
                }
            });
            let known = ids.zip(&fingerprints).map(|(id, fingerprint)| Known {
                id,
                fingerprint: *fingerprint,
            });
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
        assert_eq!(alignment.unmatched, [MessageId(5), MessageId(6)]);
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
            *alignment.matches.first().unwrap(),
            Match::Revises(MessageId(1))
        );
        assert_eq!(session.ids()[1..100_000], (2..=100_000).collect::<Vec<_>>());
    }

    /// What the simulated client may do between two requests.
    #[derive(Debug, Clone)]
    enum Act {
        Append(Vec<u64>),
        /// Insert a message anywhere.
        Insert(prop::sample::Index),
        /// Replace the text of several messages in place.
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

    /// A word that is said again between messages beside a summary is not the one that the summary
    /// hides.
    #[test]
    fn what_a_summary_hides_is_not_found_in_a_new_word() {
        let mut session = Conversation::default();
        session.advance(&history(&[1, 9, 2, 3, 4, 5]));
        let sent = [said(2, 0), said(3, 1), said(9, 1), said(4, 0), said(5, 1)];
        let fingerprints = sent.each_ref().map(Said::fingerprint);
        let alignment = align(&session.known, &fingerprints, Some(0), &Ids::default());
        let same = |id| Match::Same(MessageId(id));
        let matches = [same(3), same(4), Match::New, same(5), same(6)];
        assert_eq!(alignment.matches, matches);
        assert_eq!(alignment.abridged, [MessageId(1), MessageId(2)]);
    }

    /// A message that is inserted stands before the one that the client put it before, whatever
    /// summaries hide around the two, and also if the client has not got the last answer.
    #[test]
    fn hidden_messages_keep_their_place_beside_an_insertion() {
        // Every second message is an answer, and only an answer is lost.
        for (count, lost) in (2..9).flat_map(|count| [(count, false), (count, true)]) {
            if lost && count % 2 == 1 {
                continue;
            }
            for (hidden, at) in
                (0..1 << count).flat_map(|hidden| (0..count).map(move |at| (hidden, at)))
            {
                let mut texts: Vec<u64> = (1..=count).collect();
                let known: Vec<Known> = (history(&texts).iter().zip(&texts))
                    .map(|(said, id)| Known {
                        id: MessageId(*id),
                        fingerprint: said.fingerprint(),
                    })
                    .collect();
                let is_shown = |known: &&Known| {
                    let is_hidden = hidden >> (known.id.0 - 1) & 1 == 1;
                    known.id.0 == 1 || !is_hidden || lost && known.id.0 == count
                };
                let shown: Vec<Known> = known.iter().filter(is_shown).copied().collect();
                let Some(next) = shown.get(at as usize) else {
                    continue;
                };
                let mut sent: Vec<Fingerprint> =
                    shown.iter().map(|known| known.fingerprint).collect();
                if lost {
                    sent.pop();
                    texts.pop();
                    sent.push(said(60, 1).fingerprint());
                    texts.push(60);
                }
                sent.insert(at as usize, said(50, 0).fingerprint());
                texts.insert(next.id.0 as usize - 1, 50);
                let mut alignment = align(&shown, &sent, None, &Ids::default());
                alignment.branch_at_insertion(&known);
                let stays = known
                    .iter()
                    .filter(|known| !alignment.unmatched.contains(&known.id));
                let mut now: Vec<u128> = stays.map(|known| known.fingerprint.identity).collect();
                for (place, matched) in alignment.matches.iter().enumerate() {
                    let again = alignment.hidden_again.iter();
                    let again = again.filter(|(_, before)| *before == place);
                    now.extend((*matched == Match::New).then_some(sent[place].identity));
                    now.extend(again.map(|(known, _)| known.fingerprint.identity));
                }
                let now: Vec<u64> = now.iter().map(|identity| (identity / 2) as u64).collect();
                assert_eq!(now, texts, "{shown:?} with a message at {at}, lost: {lost}");
            }
        }
    }

    proptest! {
        /// The reference model keeps each message's id beside the message and applies what the
        /// client does to both.
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
                    // Every message after the insertion is said again, under a new id.
                    Act::Insert(at) if !client.is_empty() => {
                        unique += 1;
                        let at = at.index(client.len());
                        client.insert(at, (said(unique, 0), 0));
                        for (_, id) in client.iter_mut().skip(at) {
                            model_next += 1;
                            *id = model_next;
                        }
                    }
                    // All texts are new: if an edit restored an earlier text, it would undo itself.
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
                let revised: HashSet<u64> = alignment.matches.iter().filter_map(|matched| match matched {
                    Match::Revises(id) => Some(id.0),
                    _ => None,
                }).collect();
                prop_assert_eq!(&revised, &edited);
                let cut_off: Vec<u64> = before.iter().copied()
                    .filter(|id| !expected.contains(id) && !edited.contains(id)).collect();
                prop_assert_eq!(alignment.cut, !cut_off.is_empty());
                let mut unmatched: Vec<u64> = alignment.unmatched.iter().map(|id| id.0).collect();
                unmatched.sort_unstable();
                let mut cut_sorted = cut_off.clone();
                cut_sorted.sort_unstable();
                prop_assert_eq!(&unmatched, &cut_sorted);
                branched_ids.extend(cut_off);
                prop_assert!(expected.iter().all(|id| !branched_ids.contains(id)));
            }
        }

        /// The same few words over and over do not hide which message was edited.
        #[test]
        fn an_edit_before_a_lost_answer_changes_one_message(
            texts in prop::collection::vec(0..2u64, 5..12),
            at in any::<prop::sample::Index>(),
        ) {
            let mut session = Conversation::default();
            let mut sent = history(&texts);
            session.advance(&sent);
            let mut expected = session.ids();
            let at = at.index(texts.len() / 2);
            sent[at].text = 8;
            let lost = sent.pop().unwrap();
            sent.push(said(9, 1 - lost.role));
            let alignment = session.advance(&sent);
            let next = texts.len() as u64 + 1;
            (expected[at], expected[texts.len() - 1]) = (next, next + 1);
            prop_assert_eq!(session.ids(), expected);
            prop_assert!(alignment.cut);
        }

        /// A client that went on from a summary, and now sends its originals up to the message that it
        /// goes back to, has removed all that follow, those that the summary stood for among them.
        #[test]
        fn a_rewind_of_the_originals_reaches_behind_a_summary(
            mut texts in prop::collection::vec(0..2u64, 3..12),
            summarised in 1..12usize,
            stays in any::<prop::sample::Index>(),
            words in prop::collection::vec(0..2u64, 1..3),
        ) {
            let stays = 1 + stays.index(texts.len() - 2);
            // Unless the last message is like no other, the new words may be the end of the conversation.
            texts.push(8);
            let mut session = Conversation::default();
            let mut sent = history(&texts);
            session.advance(&sent);
            let unsent = session.known.iter().take(summarised).map(|known| known.id).collect();
            sent.truncate(stays);
            sent.extend(words.iter().enumerate().map(|(at, word)| said(*word, (stays + at) as u64 % 2)));
            prop_assume!(sent[stays].text != texts[stays]);
            let fingerprints: Vec<Fingerprint> = sent.iter().map(Said::fingerprint).collect();
            let alignment = align(&session.known, &fingerprints, None, &unsent);
            let removed: Vec<MessageId> = session.known[stays..].iter().map(|known| known.id).collect();
            prop_assert!(alignment.cut);
            prop_assert_eq!(alignment.unmatched, removed);
        }

        /// For any two requests, every message has exactly one id, no id occurs twice, and old ids
        /// keep their order.
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
            let revised = alignment.matches.iter().filter(|matched| matches!(matched, Match::Revises(_)));
            prop_assert_eq!(old.len() + revised.count() + alignment.unmatched.len(), first.len());
        }
    }
}
