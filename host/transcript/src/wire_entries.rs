//! How the record stores a message on the wire: 41 bytes in the column `messages` of the table
//! `wire`.

use contexture_engine_api::MessageId;

use crate::message_log::Fingerprint;
use crate::wire_log::{Origin, WireEntry};

/// The length of a stored message in bytes: its origin (1), then id, shape and number of wire
/// messages (8 each), and its identity (16). Numbers are little-endian.
pub(crate) const UNIT_BYTES: usize = 41;

/// Appends a message to the value of the column.
pub(crate) fn encode(unit: &WireEntry, blob: &mut Vec<u8>) {
    blob.push(match unit.origin {
        Origin::Said(_) => 0,
        Origin::Shortened(_) => 1,
        Origin::Host(_) => 2,
    });
    blob.extend_from_slice(&unit.origin.id().0.to_le_bytes());
    blob.extend_from_slice(&unit.fingerprint.shape.to_le_bytes());
    blob.extend_from_slice(&(unit.wires.len() as u64).to_le_bytes());
    blob.extend_from_slice(&unit.fingerprint.identity.to_le_bytes());
}

/// Reads a message back. Its wire messages are counted from zero, because only their number is
/// stored. An unknown origin counts as the host's.
pub(crate) fn decode(record: &[u8; UNIT_BYTES]) -> WireEntry {
    let number = |at: usize| {
        // From the last byte to the first, because the numbers are little-endian.
        let bytes = record.iter().skip(at).take(8).rev();
        bytes.fold(0u64, |number, byte| number << 8 | u64::from(*byte))
    };
    let id = MessageId(number(1));
    WireEntry {
        origin: match record.first() {
            Some(0) => Origin::Said(id),
            Some(1) => Origin::Shortened(id),
            _ => Origin::Host(id),
        },
        fingerprint: Fingerprint {
            identity: u128::from(number(33)) << 64 | u128::from(number(25)),
            shape: number(9),
        },
        wires: 0..usize::try_from(number(17)).unwrap_or(1),
    }
}
