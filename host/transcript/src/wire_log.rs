//! A wire log: a history as it crossed the wire, with the hash of each wire message and what each
//! message in it is to the session.
//!
//! A session keeps two of them, one for what the client sent and one for what went to the model
//! instead. With them, a request that begins with known bytes need not be parsed again, and a
//! client may continue from either.
//!
//! Start with [`WireLog`]. Its [`WireEntry`]s are the messages, and their [`Origin`] tells whether a
//! message is the client's, a shorter form, or the host's own.

use std::collections::HashMap;
use std::ops::Range;

use contexture_engine_api::{MessageId, MessageKind};

use crate::ids::IdMap;
use crate::message_log::Fingerprint;

/// What a message on the wire is to the session, with the id of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A message of the conversation, unchanged.
    Said(MessageId),
    /// A shorter form of the message with this id. The host wrote it.
    Shortened(MessageId),
    /// A message that the host added, such as a summary or a stub result, under an id of its own.
    Host(MessageId),
}

impl Origin {
    /// The kind of a message with this origin whose text `looks` like a kind. If it only looks like
    /// text of the host, it is the client's. If the host wrote it, it does not hold the original
    /// words.
    pub fn kind_of(self, looks: MessageKind) -> MessageKind {
        match (self, looks) {
            (Self::Said(_), _) => MessageKind::Original,
            (Self::Host(_), MessageKind::Summary | MessageKind::Notice) => looks,
            (Self::Host(_) | Self::Shortened(_), _) => MessageKind::Replaced,
        }
    }

    /// The id of the message.
    pub fn id(self) -> MessageId {
        match self {
            Self::Said(id) | Self::Shortened(id) | Self::Host(id) => id,
        }
    }
}

/// A message on the wire and what it is to the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireEntry {
    /// What the message is to the session.
    pub origin: Origin,
    /// The fingerprint as it is on the wire. For a shorter form it differs from the fingerprint of
    /// the message itself.
    pub fingerprint: Fingerprint,
    /// The indexes of the wire messages that hold it. Usually one, but some formats spread a
    /// message over several.
    pub wires: Range<usize>,
}

impl WireEntry {
    /// Whether it is a message of the conversation in its own words.
    pub fn is_said(&self) -> bool {
        matches!(self.origin, Origin::Said(_))
    }
}

/// The wire messages of a history and the messages in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireLog {
    /// The hash of each wire message's bytes.
    pub raw: Vec<u64>,
    /// The messages, ordered by the wire message in which they begin.
    pub units: Vec<WireEntry>,
}

impl WireLog {
    /// Whether it has no wire messages.
    pub fn is_empty(&self) -> bool {
        self.raw.is_empty()
    }

    /// Appends wire messages. The ranges of `units` count from the first element of `raw`.
    pub fn push(&mut self, raw: &[u64], units: impl IntoIterator<Item = WireEntry>) {
        let first = self.raw.len();
        self.raw.extend_from_slice(raw);
        self.units.extend(units.into_iter().map(|unit| WireEntry {
            wires: first + unit.wires.start..first + unit.wires.end,
            ..unit
        }));
    }

    /// Whether the message at index `at` is a shorter form. False if there is no such message.
    pub fn is_short(&self, at: usize) -> bool {
        let unit = self.units.get(at);
        unit.is_some_and(|unit| matches!(unit.origin, Origin::Shortened(_)))
    }

    /// The identities of the shorter forms on the wire, by the ids of their messages.
    pub fn short_forms(&self) -> IdMap<u128> {
        let form = |unit: &WireEntry| match unit.origin {
            Origin::Shortened(id) => Some((id, unit.fingerprint.identity)),
            Origin::Said(_) | Origin::Host(_) => None,
        };
        self.units.iter().filter_map(form).collect()
    }

    /// How many leading wire messages both histories have in common, byte for byte.
    pub fn common(&self, raw: &[u64]) -> usize {
        self.raw.iter().zip(raw).take_while(|(a, b)| a == b).count()
    }

    /// How many leading wire messages stay as they are, in bytes and in what they are, if these
    /// bytes take the place of all and these messages that of all but the first `kept`. Equal bytes
    /// need not be the same message: two forms of a message may be shortened to the same text.
    pub fn unchanged(&self, raw: &[u64], kept: usize, units: &[WireEntry]) -> usize {
        let before = self.units.get(kept..).unwrap_or(&[]);
        let same = before.iter().zip(units).take_while(|(a, b)| a == b).count();
        let other = [before.get(same), units.get(same)].into_iter().flatten();
        let first = other.map(|unit| unit.wires.start).min();
        self.common(raw).min(first.unwrap_or(usize::MAX))
    }

    /// How many messages end before the wire message `wire` begins.
    pub fn units_within(&self, wire: usize) -> usize {
        self.units.partition_point(|unit| unit.wires.end <= wire)
    }

    /// The messages that begin in the wire message `wire`. Empty if it only continues a message.
    pub fn beginning_in(&self, wire: usize) -> &[WireEntry] {
        let before = |wire| self.units.partition_point(|unit| unit.wires.start < wire);
        self.units
            .get(before(wire)..before(wire + 1))
            .unwrap_or(&[])
    }

    /// Appends a wire message of this log, with the messages that begin in it, to another log. Does
    /// nothing if there is no such wire message.
    pub fn copy_wire(&self, wire: usize, to: &mut Self) {
        let Some(raw) = self.raw.get(wire) else {
            return;
        };
        let units = self.beginning_in(wire).iter().map(|unit| WireEntry {
            wires: 0..unit.wires.len(),
            ..unit.clone()
        });
        to.push(&[*raw], units);
    }

    /// The index of each wire message from `first` on, by its hash. If two have equal bytes, the
    /// later one is found.
    pub fn by_hash(&self, first: usize) -> HashMap<u64, usize> {
        let places = (first..self.raw.len()).filter_map(|wire| Some((*self.raw.get(wire)?, wire)));
        places.collect()
    }
}

#[cfg(test)]
mod tests;
