//! A history as it crossed the wire: the hash of each wire message, and what each message in them is.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::{MessageId, MessageKind};

use super::align::Mark;
use super::ids::IdMap;

/// What a message on the wire is to the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// A message of the conversation, unchanged.
    Said(MessageId),
    /// A shorter form of the message of this id, which the host wrote.
    Shortened(MessageId),
    /// The host put it in: a summary or a made-up result, under an id of its own.
    Host(MessageId),
}

impl Origin {
    /// What a message is that `looks` like this. One that only looks like the host's is the client's, and one
    /// that the host wrote has not got the words that were said.
    pub(super) fn kind_of(self, looks: MessageKind) -> MessageKind {
        match (self, looks) {
            (Self::Said(_), _) => MessageKind::Original,
            (Self::Host(_), MessageKind::Summary | MessageKind::Notice) => looks,
            (Self::Host(_) | Self::Shortened(_), _) => MessageKind::Replaced,
        }
    }

    pub(super) fn id(self) -> MessageId {
        match self {
            Self::Said(id) | Self::Shortened(id) | Self::Host(id) => id,
        }
    }
}

/// A message on the wire, and what it is to the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) origin: Origin,
    /// As it stands on the wire: that of a shorter form differs from the message's own.
    pub(super) mark: Mark,
    /// The wire messages it stands in: one, but for formats that spread a message over several.
    pub(super) wires: Range<usize>,
}

impl Unit {
    /// Whether it is a message of the conversation, unchanged.
    pub(super) fn is_said(&self) -> bool {
        matches!(self.origin, Origin::Said(_))
    }
}

/// A history as it crossed the wire last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Trail {
    pub(super) raw: Vec<u64>,
    /// Ordered by where they begin.
    pub(super) units: Vec<Unit>,
}

impl Trail {
    /// Gives its messages the new ids that `renamed` has for them.
    pub(super) fn rename(&mut self, renamed: &IdMap<MessageId>) {
        for unit in &mut self.units {
            if let Origin::Said(id) | Origin::Shortened(id) | Origin::Host(id) = &mut unit.origin
                && let Some(new) = renamed.get(id)
            {
                *id = *new;
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Adds wire messages at the end; `units` count theirs from the first of `raw`.
    pub(super) fn push(&mut self, raw: &[u64], units: impl IntoIterator<Item = Unit>) {
        let first = self.raw.len();
        self.raw.extend_from_slice(raw);
        self.units.extend(units.into_iter().map(|unit| Unit {
            wires: first + unit.wires.start..first + unit.wires.end,
            ..unit
        }));
    }

    /// Whether the message at this place is a shorter form, which the host wrote.
    pub(super) fn is_short(&self, at: usize) -> bool {
        let unit = self.units.get(at);
        unit.is_some_and(|unit| matches!(unit.origin, Origin::Shortened(_)))
    }

    /// How many wire messages the two histories begin with in common, byte for byte.
    pub(super) fn common(&self, raw: &[u64]) -> usize {
        self.raw.iter().zip(raw).take_while(|(a, b)| a == b).count()
    }

    /// How many messages end at or before the wire message `wire`.
    pub(super) fn units_within(&self, wire: usize) -> usize {
        self.units.partition_point(|unit| unit.wires.end <= wire)
    }

    /// The messages that begin in the wire message `wire`.
    pub(super) fn beginning_in(&self, wire: usize) -> &[Unit] {
        let before = |wire| self.units.partition_point(|unit| unit.wires.start < wire);
        self.units
            .get(before(wire)..before(wire + 1))
            .unwrap_or(&[])
    }

    /// Adds a wire message of this history to another one.
    pub(super) fn copy_wire(&self, wire: usize, to: &mut Self) {
        let Some(raw) = self.raw.get(wire) else {
            return;
        };
        let units = self.beginning_in(wire).iter().map(|unit| Unit {
            wires: 0..unit.wires.len(),
            ..unit.clone()
        });
        to.push(&[*raw], units);
    }

    /// The wire messages from `first` on, by their hashes.
    pub(super) fn by_hash(&self, first: usize) -> HashMap<u64, usize> {
        let places = (first..self.raw.len()).filter_map(|wire| Some((*self.raw.get(wire)?, wire)));
        places.collect()
    }
}
