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
    /// Whether the client compacted the conversation itself: it sends other messages in the place of
    /// more known ones, and known ones behind them.
    pub(super) compacted: bool,
}

/// Aligns the messages of a request with the known ones.
///
/// Messages at the beginning that are equal in both are the same. After the first difference, the
/// known messages are found again further on if enough of them follow. Between these two parts,
/// messages are paired in order: equal ones are the same, and ones of the same role that answer the
/// same call are revisions. If messages vanished there and none is the same, the client compacted
/// them: whatever it has in their place is new. Known messages that remain, with nothing known after
/// them, were cut off. A message that was inserted begins a new branch.
///
/// `abridged` is set if the request holds a summary of unknown extent, and is the number of
/// messages before that summary. Missing messages may then be under it.
///
/// `unsent` are messages that were missing from earlier requests too. The client did not remove
/// them now, so they are not paired if enough others are left. If the common beginning holds one of
/// them, the client has its originals again, and has removed whatever else is missing.
///
/// `summaries` are summaries of the host that both hold, each at its place among the messages. Their
/// text does not recur by chance, so the conversation stays up to a summary that matches.
pub(super) fn align(
    old: &[Known],
    new: &[Fingerprint],
    abridged: Option<usize>,
    unsent: &Ids,
    summaries: &Ids,
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
    pair(old, new, same, unsent, summaries)
}

impl Alignment {
    /// Whether the request holds all known messages, unchanged, and new ones only behind them.
    pub(super) fn appends(&self) -> bool {
        let is_new = |matched: &&Match| **matched == Match::New;
        let mut known = self.matches.iter().rev().skip_while(is_new);
        self.unmatched.is_empty()
            && self.abridged.is_empty()
            && known.all(|matched| matches!(matched, Match::Same(_)))
    }

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
fn pair(
    old: &[Known],
    new: &[Fingerprint],
    same: usize,
    unsent: &Ids,
    summaries: &Ids,
) -> Alignment {
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
    let mut shifted = Gap::between(before, new_before, unsent);
    // A short common end proves little if many messages vanished before it.
    let vanished = shifted.unmatched.iter().filter(|id| !unsent.contains(id));
    let vanished = vanished.count();
    // The client compacted: what it put there stands for what vanished, and revises nothing.
    let is_compacted = vanished > 0 && shifted.same() == 0 && !new_before.is_empty();
    if is_compacted {
        shifted.matches.fill(Match::New);
        shifted.unmatched = before.iter().map(|old| old.id).collect();
    }
    let holds = vanished == 0 || lost.is_empty() && tail.len() >= vanished.min(ANCHOR);
    // If both readings explain the request, the one with more unchanged messages is right. Of two
    // with as many, the one that loses nothing.
    let better = match (shifted.same() + tail.len()).cmp(&in_place.same()) {
        Ordering::Greater => true,
        Ordering::Equal => lost.is_empty() && !in_place.unmatched.is_empty(),
        Ordering::Less => false,
    };
    let is_shifted = holds && better;
    let compacted = is_shifted && is_compacted;
    let (unmatched, cut) = match is_shifted {
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
                gap.cut_after_last_same(old, summaries);
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
        compacted,
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
    /// cut off, and the messages of the request from there on are new. A summary always counts. An
    /// unchanged message counts only if most of those since the last summary are unchanged: the same
    /// word at the same position proves nothing.
    fn cut_after_last_same(&mut self, old: &[Known], summaries: &Ids) {
        let (mut same, mut since, mut stays) = (0, 0, 0);
        for (at, matched) in self.matches.iter().take(old.len()).enumerate() {
            let Match::Same(id) = matched else { continue };
            same += 1;
            if summaries.contains(id) {
                (same, since, stays) = (0, at + 1, at + 1);
            } else if same * 2 > at + 1 - since {
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
mod tests;
