//! Comparing a request with the conversation: which of its messages are known, which are another
//! form of a known one, which the host wrote, and which are new.
//!
//! Read [`compare`] first. It has a fast path for the usual request, which repeats
//! the last one and adds messages at the end: only what follows the common bytes is parsed. Any
//! other request goes through [`compare_at_large`]. That puts the host's summaries in the place of
//! the messages that they cover, takes out what else the host wrote, finds the messages behind
//! shortened forms, and aligns the result with the conversation.
//!
//! Nothing is changed here apart from the tool names that are learned while parsing. The alignment
//! itself is in `align`, and `ingest` applies the result.

use std::collections::HashMap;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, MessageId, MessageKind};
use contexture_formats::FormatError;

use contexture_transcript::{Fingerprint, IdMap, IdSet, Ids, Known, Origin, WireEntry, WireLog};

use crate::align::{Alignment, Match, align};
use crate::history::History;
use crate::options::Comparison;
use crate::request::{ReadMessage, Request};

/// A message of a request that may not have an id yet.
pub(crate) struct Incoming {
    /// What the message is to the session. Set early only if its bytes are known or if the host
    /// wrote it.
    pub(crate) origin: Option<Origin>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) wires: std::ops::Range<usize>,
    pub(crate) kind: MessageKind,
    pub(crate) read: Option<ReadMessage>,
}

impl Incoming {
    pub(crate) fn known(unit: &WireEntry) -> Self {
        Self {
            origin: Some(unit.origin),
            fingerprint: unit.fingerprint,
            wires: unit.wires.clone(),
            kind: MessageKind::Original,
            read: None,
        }
    }

    /// Whether the message was parsed and comes from the model.
    pub(crate) fn is_an_answer(&self) -> bool {
        let message = self.read.as_ref().and_then(ReadMessage::message);
        message.is_some_and(|message| message.role == "assistant")
    }

    /// Whether it is a cleared tool result. Only its text hints that the host may have written it,
    /// since a cleared result has no seal.
    pub(crate) fn is_cleared(&self) -> bool {
        let message = self.read.as_ref().and_then(ReadMessage::message);
        message.is_some_and(|message| message.text == CLEARED_TOOL_OUTPUT)
    }

    /// Whether it is a summary without a record. It is not known what such a summary covers.
    pub(crate) fn is_foreign_summary(&self) -> bool {
        self.kind == MessageKind::Summary && self.origin.is_none()
    }

    /// Whether it is a notice without a record. A notice covers nothing.
    pub(crate) fn is_foreign_notice(&self) -> bool {
        self.kind == MessageKind::Notice && self.origin.is_none()
    }
}

/// The result of comparing a request with the conversation.
pub(crate) struct Compared {
    /// How many leading messages of what the client sent last are there again. `incoming` holds the
    /// others.
    pub(crate) kept: usize,
    pub(crate) incoming: Vec<Incoming>,
    pub(crate) alignment: Alignment,
    /// The indexes into `incoming` that the matches of the alignment belong to.
    pub(crate) aligned: Vec<usize>,
    /// Whether the request holds the whole conversation and adds messages only at the end.
    pub(crate) appends: bool,
}

impl Compared {
    /// How many matches satisfy the condition.
    fn count(&self, is: impl Fn(&Match) -> bool) -> usize {
        self.alignment
            .matches
            .iter()
            .filter(|matched| is(matched))
            .count()
    }

    /// Whether the request holds anything of the conversation. If not, it begins a new one.
    pub(crate) fn is_related(&self) -> bool {
        self.kept > 0
            || self
                .incoming
                .iter()
                .any(|incoming| incoming.origin.is_some())
            || self.count(|matched| matches!(matched, Match::Same(_))) > 0
            || !self.alignment.said_again.is_empty()
            || !self.alignment.abridged.is_empty()
    }
}

/// Compares a request with the conversation, in numbers for the caller. Only the names of tools
/// are updated.
///
/// # Errors
/// A message of the request cannot be read.
pub(crate) fn comparison(
    history: &mut History,
    request: &Request<'_>,
) -> Result<Comparison, FormatError> {
    let held = history.branch().len();
    let compared = compare(history, request)?;
    let new = compared.count(|matched| *matched == Match::New);
    let revised = compared.count(|matched| matches!(matched, Match::Revises(_)));
    let said = compared.kept + compared.incoming.len() - compared.aligned.len();
    let same = compared.count(|matched| matches!(matched, Match::Same(_)));
    Ok(Comparison {
        held,
        common: said + same,
        revised,
        new,
        cut: match compared.alignment.cut {
            true => compared.alignment.unmatched.len(),
            false => 0,
        },
    })
}

/// Compares a request with the conversation, for `ingest` to apply.
///
/// # Errors
/// A message of the request cannot be read.
pub(crate) fn compare(
    history: &mut History,
    request: &Request<'_>,
) -> Result<Compared, FormatError> {
    let (log, mut wires) = history.nearest(&request.raw);
    let ends_alike = wires == log.raw.len() && wires == request.raw.len();
    if request.joins() && !ends_alike {
        // In formats that spread a message over several wire messages, the next one may belong
        // to the message at the end of the common part. So that message is parsed again.
        let last = log.units_within(wires).saturating_sub(1);
        wires = log
            .units
            .get(last)
            .map_or(0, |unit| unit.wires.start.min(wires));
    }
    let within = log.units_within(wires);
    let (head, expected) = log.units.split_at(within);
    let kept = match std::ptr::eq(log, &history.sent) {
        true => within,
        false => 0,
    };
    let head: Vec<Incoming> = head.iter().skip(kept).map(Incoming::known).collect();
    let expected = expected.to_vec();
    let mut rest = incoming(history, request, wires)?;
    let repeats_last = rest.len() >= expected.len()
        && expected
            .iter()
            .zip(rest.iter())
            .all(|(unit, new)| unit.fingerprint.identity == new.fingerprint.identity);
    let echoes = expected.len().min(rest.len());
    let (echoed, added) = rest.split_at_mut(echoes);
    let is_plain = |new: &Incoming| new.origin.is_none() && new.kind == MessageKind::Original;
    // The usual request: it repeats what crossed the wire last and adds messages at the end.
    if repeats_last && added.iter().all(is_plain) && !(within == 0 && expected.is_empty()) {
        for (unit, new) in expected.iter().zip(echoed) {
            new.origin = Some(unit.origin);
        }
        let first = head.len() + expected.len();
        let incoming: Vec<Incoming> = head.into_iter().chain(rest).collect();
        let aligned: Vec<usize> = (first..incoming.len()).collect();
        return Ok(Compared {
            kept,
            alignment: Alignment {
                matches: vec![Match::New; aligned.len()],
                ..Alignment::default()
            },
            aligned,
            incoming,
            appends: true,
        });
    }
    let sent = history.sent.units.iter().take(kept);
    let head = sent.map(Incoming::known).chain(head);
    Ok(compare_at_large(
        history,
        head.chain(rest).collect(),
        within,
    ))
}

/// Parses the messages of a request from the wire message `first` on. Wire messages with known
/// bytes are not parsed.
///
/// # Errors
/// A message of the request cannot be read.
fn incoming(
    history: &mut History,
    request: &Request<'_>,
    first: usize,
) -> Result<Vec<Incoming>, FormatError> {
    let logs = match request.bytes_tell() {
        true => [&history.sent, history.rendered()]
            .into_iter()
            .map(|log| (log, log.by_hash(first.saturating_sub(1))))
            .collect(),
        false => Vec::new(),
    };
    let rest = request.raw.get(first..).unwrap_or(&[]);
    let mut unknown = Vec::new();
    let mut incoming: Vec<Incoming> = Vec::new();
    for (at, hash) in rest.iter().enumerate() {
        let wire = first + at;
        let found = logs
            .iter()
            .find_map(|(log, places)| Some(log.beginning_in(*places.get(hash)?)));
        match found {
            // Equal bytes are an equal message, but they need not be the same one: a user may
            // repeat it. Only what the host wrote occurs once.
            Some(units) => incoming.extend(units.iter().map(|unit| Incoming {
                origin: Some(unit.origin).filter(|origin| matches!(origin, Origin::Host(_))),
                wires: wire..wire + 1,
                ..Incoming::known(unit)
            })),
            None => unknown.push(wire),
        }
    }
    let read = request.read(unknown, &mut history.calls)?;
    incoming.extend(read.into_iter().filter_map(|read| {
        let message = read.message()?;
        Some(Incoming {
            origin: None,
            fingerprint: Fingerprint::of(message),
            wires: read.wires.clone(),
            kind: message.kind,
            read: Some(read),
        })
    }));
    // The sort is stable, so messages of one wire message keep their order.
    incoming.sort_by_key(|incoming| incoming.wires.start);
    for new in incoming.iter_mut().filter(|new| new.origin.is_none()) {
        // Shorter forms are found by their place, since two messages may have the same one.
        let newest = history.host_texts.find(new.fingerprint.identity).next();
        let newest = newest.filter(|text| !text.shortens);
        new.origin = newest.map(|text| Origin::Host(text.id));
    }
    Ok(incoming)
}

/// Compares all messages of a request with the conversation. The first `within` messages are
/// known. Of the messages that the host wrote, only summaries take part in the alignment, instead of
/// the messages that they cover.
fn compare_at_large(history: &History, mut incoming: Vec<Incoming>, within: usize) -> Compared {
    let covers: Vec<&IdSet> = (incoming.iter())
        .filter_map(|incoming| match incoming.origin {
            Some(Origin::Host(id)) => history.host_texts.covers(id),
            _ => None,
        })
        .collect();
    let (head, behind) = split_at_known(history.branch(), incoming.get(..within).unwrap_or(&[]));
    let mut old: Vec<Known> = (behind.iter().copied())
        .filter(|known| !head.contains(&known.id) && !is_covered(&covers, known.id))
        .collect();
    recognise_short_forms(history, &mut incoming, &old, within);
    let summaries = insert_summaries(history, &incoming, &mut old, within);
    let is_abridged = incoming.iter().any(Incoming::is_foreign_summary);
    let aligned: Vec<usize> = (incoming.iter().enumerate().skip(within))
        .filter(|(_, new)| match new.origin {
            Some(Origin::Host(id)) => summaries.contains(&id),
            _ => !new.is_foreign_summary() && !new.is_foreign_notice(),
        })
        .map(|(at, _)| at)
        .collect();
    // A summary without a record may hide messages. This counts the aligned messages before the
    // last one.
    let last = incoming.iter().rposition(Incoming::is_foreign_summary);
    let before = last.map(|last| aligned.iter().filter(|at| **at < last).count());
    // A client that sends summaries of the host continues from the body that was rendered for it.
    let from_rendered = !covers.is_empty() && !history.rendered().units.is_empty();
    let log = match from_rendered {
        true => history.rendered(),
        false => &history.sent,
    };
    let mut alignment = align(
        &old,
        &fingerprints_of(&incoming, &aligned, &old),
        before,
        &unsent(history, log, &old),
        &summaries,
    );
    let appends = alignment.appends() && !is_abridged;
    let aligned = without_summaries(&mut alignment, aligned, &incoming, &summaries);
    for (at, matched) in aligned.iter().zip(&alignment.matches) {
        // Of some messages only a shorter form is left, by which they are known.
        if let (Match::Same(id), Some(new)) = (matched, incoming.get_mut(*at))
            && history.is_short_form(new.fingerprint, *id)
        {
            new.origin = Some(Origin::Shortened(*id));
        }
    }
    cut_covered_too(&mut alignment, history.branch(), &covers);
    alignment.branch_at_insertion(behind);
    Compared {
        kept: 0,
        appends,
        incoming,
        alignment,
        aligned,
    }
}

/// Splits the conversation at the last of the messages that are `known` to be in the request.
/// Returns the ids of these, and the part of the conversation behind them.
fn split_at_known<'h>(branch: &'h [Known], known: &[Incoming]) -> (Ids, &'h [Known]) {
    let head: Ids = (known.iter())
        .filter_map(|incoming| match incoming.origin? {
            Origin::Said(id) | Origin::Shortened(id) => Some(id),
            Origin::Host(_) => None,
        })
        .collect();
    let last = branch.iter().rposition(|known| head.contains(&known.id));
    let behind = branch.get(last.map_or(0, |at| at + 1)..);
    (head, behind.unwrap_or(&[]))
}

fn is_covered(covers: &[&IdSet], id: MessageId) -> bool {
    covers.iter().any(|ids| ids.contains(id))
}

/// The fingerprints by which the messages at `aligned` are compared with the `old` ones. A shorter
/// form has the one of its message.
fn fingerprints_of(incoming: &[Incoming], aligned: &[usize], old: &[Known]) -> Vec<Fingerprint> {
    let fingerprint_of: IdMap<Fingerprint> = old
        .iter()
        .map(|known| (known.id, known.fingerprint))
        .collect();
    let messages = aligned.iter().filter_map(|at| incoming.get(*at));
    let fingerprints = messages.map(|new| match new.origin {
        Some(Origin::Shortened(id)) => fingerprint_of.get(&id).copied().unwrap_or(new.fingerprint),
        _ => new.fingerprint,
    });
    fingerprints.collect()
}

/// Those of the `old` messages that the client did not send last either. `log` is what it continues.
fn unsent(history: &History, log: &WireLog, old: &[Known]) -> Ids {
    let sent: Ids = log.units.iter().map(|unit| unit.origin.id()).collect();
    // If a summary went, what it stood for went with it, or is sent in its own words again.
    let stood_for: Vec<&IdSet> = (log.units.iter())
        .filter_map(|unit| history.host_texts.covers(unit.origin.id()))
        .collect();
    (old.iter().map(|known| known.id))
        .filter(|id| !sent.contains(id) && !is_covered(&stood_for, *id))
        .collect()
}

/// Removes the host's summaries from an alignment. They have done their part, and what follows is
/// about messages. Returns those of `aligned` that are left.
fn without_summaries(
    alignment: &mut Alignment,
    aligned: Vec<usize>,
    incoming: &[Incoming],
    summaries: &Ids,
) -> Vec<usize> {
    let is_message = |(at, _): &(usize, Match)| {
        let new = incoming.get(*at);
        new.is_some_and(|new| !matches!(new.origin, Some(Origin::Host(_))))
    };
    let matches = std::mem::take(&mut alignment.matches);
    let (aligned, matches) = (aligned.into_iter().zip(matches))
        .filter(is_message)
        .unzip();
    alignment.matches = matches;
    alignment.unmatched.retain(|id| !summaries.contains(id));
    alignment.abridged.retain(|id| !summaries.contains(id));
    alignment.cut &= !alignment.unmatched.is_empty();
    aligned
}

/// Adds to a cut what summaries cover behind its first message. A summary may cover messages behind
/// one that is shown, and they are cut off with it.
fn cut_covered_too(alignment: &mut Alignment, branch: &[Known], covers: &[&IdSet]) {
    if !alignment.cut {
        return;
    }
    let first = alignment.unmatched.first();
    let from = first.and_then(|first| branch.iter().position(|known| known.id == *first));
    let behind = branch.iter().skip(from.unwrap_or(branch.len()));
    let covered = behind.map(|known| known.id);
    let covered = covered.filter(|id| is_covered(covers, *id));
    alignment.unmatched.extend(covered);
}

/// Inserts the host's summaries that the request still holds into `old`, at the places at which they
/// were rendered, and returns their ids. Texts of the host that cover no messages are left out.
fn insert_summaries(
    history: &History,
    incoming: &[Incoming],
    old: &mut Vec<Known>,
    within: usize,
) -> Ids {
    let rendered = &history.rendered().units;
    let mut summaries = Ids::default();
    for new in incoming.iter().skip(within) {
        let Some(Origin::Host(id)) = new.origin else {
            continue;
        };
        let covers = history.host_texts.covers(id);
        if covers.is_none_or(IdSet::is_empty) || summaries.contains(&id) {
            continue;
        }
        let Some(at) = rendered.iter().position(|unit| unit.origin.id() == id) else {
            continue;
        };
        let before = (rendered.iter().take(at).rev())
            .find_map(|unit| old.iter().rposition(|known| known.id == unit.origin.id()));
        let fingerprint = new.fingerprint;
        old.insert(before.map_or(0, |at| at + 1), Known { id, fingerprint });
        summaries.insert(id);
    }
    summaries
}

/// Finds the messages whose shorter forms the request holds. The record of what the host wrote
/// tells which they are. Without a record, the fingerprint of the text, the call that a result
/// answers, and the position are used.
///
/// If the request has a summary of unknown extent, messages before it are hidden. Positions are
/// then counted from the end.
fn recognise_short_forms(
    history: &History,
    incoming: &mut [Incoming],
    old: &[Known],
    within: usize,
) {
    let from_end = incoming.iter().any(Incoming::is_foreign_summary);
    let place_of: HashMap<MessageId, usize> = (old.iter().enumerate())
        .map(|(at, known)| (known.id, at))
        .collect();
    let mut places: HashMap<u128, Vec<usize>> = HashMap::new();
    for (at, known) in old.iter().enumerate() {
        places
            .entry(known.fingerprint.identity)
            .or_default()
            .push(at);
    }
    let mut taken = Ids::default();
    // The range of the conversation in which the remaining messages must be, given the order of
    // those found so far.
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
        // The text is that of a message of the conversation, even if the host could have
        // written it: a tool may return the same words.
        if let Some(same) = places.get(&new.fingerprint.identity) {
            let mut within = same.iter().copied().filter(|at| rest.contains(at));
            let place = match from_end {
                true => within.next_back(),
                false => within.next(),
            };
            if let Some(place) = place {
                match from_end {
                    true => rest.end = place,
                    false => rest.start = place + 1,
                }
                taken.extend(old.get(place).map(|known| known.id));
            }
            continue;
        }
        let is_free = |id: &MessageId| place_of.contains_key(id) && !taken.contains(id);
        let written = history.host_texts.find(new.fingerprint.identity);
        let written = written.filter(|text| text.shortens).map(|text| text.id);
        let by_fingerprint = || {
            // A client may clear a result with the same words as the host. Only the host adds a
            // seal.
            let is_sealed = !new.is_cleared();
            let same = |known: &&Known| {
                known.fingerprint.shape == new.fingerprint.shape
                    && !taken.contains(&known.id)
                    && (is_sealed || history.is_recovered(known.id))
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
        let Some(id) = known.or_else(|| is_marked.then(by_fingerprint).flatten()) else {
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
