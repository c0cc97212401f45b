//! A message on the wire as the record keeps it.

use contexture_engine_api::MessageId;

use crate::align::Mark;
use crate::trail::{Origin, Unit};

/// Bytes of one: what it is (1), id, shape, wire messages (8 each) and identity (16).
pub(super) const UNIT_BYTES: usize = 41;

pub(super) fn encode(unit: &Unit, blob: &mut Vec<u8>) {
    blob.push(match unit.origin {
        Origin::Said(_) => 0,
        Origin::Shortened(_) => 1,
        Origin::Host(_) => 2,
    });
    blob.extend_from_slice(&unit.origin.id().0.to_le_bytes());
    blob.extend_from_slice(&unit.mark.shape.to_le_bytes());
    blob.extend_from_slice(&(unit.wires.len() as u64).to_le_bytes());
    blob.extend_from_slice(&unit.mark.identity.to_le_bytes());
}

pub(super) fn decode(record: &[u8; UNIT_BYTES]) -> Unit {
    let number = |at: usize| {
        let bytes = record.iter().skip(at).take(8).rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let id = MessageId(number(1));
    Unit {
        origin: match record.first() {
            Some(0) => Origin::Said(id),
            Some(1) => Origin::Shortened(id),
            _ => Origin::Host(id),
        },
        mark: Mark {
            identity: u128::from(number(33)) << 64 | u128::from(number(25)),
            shape: number(9),
        },
        wires: 0..usize::try_from(number(17)).unwrap_or(1),
    }
}
