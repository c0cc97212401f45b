//! Maps and sets of message ids.
//!
//! Ids are given by the host in rising order, so no client can choose them to make hashes collide.
//! A hash that keeps neighbours together is enough, and a pass over a million messages in order
//! then walks through the table in order too.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use contexture_engine_api::MessageId;

/// A map from message ids to something that belongs to the message.
pub type IdMap<T> = HashMap<MessageId, T, BuildHasherDefault<IdHasher>>;

/// A set of message ids without an order. For a stored set that is mostly runs, see
/// [`IdSet`](crate::host_text::IdSet).
pub type Ids = HashSet<MessageId, BuildHasherDefault<IdHasher>>;

/// A hasher that returns an id nearly unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The table selects a group by the lowest bits and an entry in the group by the highest
        // seven, so the low bits go into both.
        self.0 = id ^ (id << 57);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
