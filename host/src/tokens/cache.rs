//! Token counts of short pieces and of lines, which repeat heavily in every text.

use std::sync::{Mutex, PoisonError};

/// The longest piece that is remembered, in bytes.
const LONGEST: usize = 30;

/// Slots: 2 MiB, enough for the vocabulary of a conversation.
const SLOTS: usize = 1 << 16;

#[derive(Clone, Copy)]
struct CachedCount {
    bytes: [u8; LONGEST],
    len: u8,
    count: u8,
}

/// Counts by piece, one slot for each hash: a later piece replaces an earlier one, so the size is fixed.
pub(super) struct PieceCache(Box<[CachedCount]>);

impl PieceCache {
    pub(super) fn new() -> Self {
        let empty = CachedCount {
            bytes: [0; LONGEST],
            len: 0,
            count: 0,
        };
        Self(vec![empty; SLOTS].into_boxed_slice())
    }

    /// The count of `piece`, from the cache or from `count`.
    pub(super) fn get_or_count(&mut self, piece: &str, count: impl Fn(&str) -> u64) -> u64 {
        let bytes = piece.as_bytes();
        if bytes.len() > LONGEST {
            return count(piece);
        }
        let slot = &mut self.0[xxhash_rust::xxh3::xxh3_64(bytes) as usize % SLOTS];
        if usize::from(slot.len) != bytes.len() || slot.bytes[..bytes.len()] != *bytes {
            slot.bytes[..bytes.len()].copy_from_slice(bytes);
            slot.len = bytes.len() as u8;
            // A token is a byte at least, so this is no more than `LONGEST`.
            slot.count = count(piece) as u8;
        }
        u64::from(slot.count)
    }
}

/// The lines that are remembered, in bytes: a shorter one is a few pieces.
const LINE: std::ops::RangeInclusive<usize> = 24..=4096;

/// Slots: 512 KiB, the lines of a few hundred pages.
const LINE_SLOTS: usize = 1 << 15;

/// Counts by the hash of a line, one slot for each as above. What is counted again, such as a summary at each
/// of its stations or a file that is read twice, costs a hash.
pub(super) struct LineCache(Box<[(u64, u64)]>);

impl LineCache {
    pub(super) fn new() -> Self {
        Self(vec![(0, 0); LINE_SLOTS].into_boxed_slice())
    }

    /// The count of `line`, from the cache or from `count`.
    pub(super) fn get_or_count(&mut self, line: &str, count: impl FnOnce(&str) -> u64) -> u64 {
        if !LINE.contains(&line.len()) {
            return count(line);
        }
        let hash = xxhash_rust::xxh3::xxh3_64(line.as_bytes());
        let slot = &mut self.0[hash as usize % LINE_SLOTS];
        if slot.0 != hash {
            *slot = (hash, count(line));
        }
        slot.1
    }
}

/// The idle caches, as many as there were ever concurrent counts. A count takes one and returns it, so no
/// lock is held while counting.
pub(super) struct CachePool<C>(Mutex<Vec<C>>);

impl<C> CachePool<C> {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Does `work` with an idle cache, or a new one.
    pub(super) fn with<R>(&self, new: impl FnOnce() -> C, work: impl FnOnce(&mut C) -> R) -> R {
        let taken = self.idle().pop();
        let mut cache = taken.unwrap_or_else(new);
        let result = work(&mut cache);
        self.idle().push(cache);
        result
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
