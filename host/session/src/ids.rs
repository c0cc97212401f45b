//! Maps and sets of message ids.
//!
//! Ids come from the host, in rising order. So a hash that leaves neighbours neighbours is as good as any, and a
//! pass over a million messages in their order walks through the table in its order.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use contexture_engine_api::MessageId;

/// What belongs to messages, by their ids.
pub(super) type IdMap<T> = HashMap<MessageId, T, BuildHasherDefault<IdHasher>>;

/// Some messages.
pub(super) type Ids = HashSet<MessageId, BuildHasherDefault<IdHasher>>;

/// Hashes an id to itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // The table finds a group of places by the lowest bits, and a place in the group by the highest seven.
        self.0 = id ^ (id << 57);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
