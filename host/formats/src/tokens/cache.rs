//! Remembers token counts that are needed again.
//!
//! Text repeats: a [`PieceCache`] remembers the counts of short pieces, a [`LineCache`] those
//! of lines, and [`LongTexts`] those of the last long texts. All of them have a fixed size,
//! because they live as long as the process.
//!
//! Counting runs on several threads. A [`CachePool`] hands a cache to each count, so that no
//! lock is held while counting. A wrong count could only come from two texts with the same
//! hash, except for pieces, which are compared byte for byte.

use std::collections::VecDeque;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// The maximum length of a piece that is remembered, in bytes.
const LONGEST: usize = 30;

/// The number of slots. They take 2 MiB and suffice for the vocabulary of a conversation.
const SLOTS: usize = 1 << 16;

/// A piece of at most [`LONGEST`] bytes with its count. The length 0 marks an empty slot.
#[derive(Clone, Copy)]
struct CachedCount {
    bytes: [u8; LONGEST],
    len: u8,
    count: u8,
}

/// The counts of pieces, with one slot for each hash. A later piece replaces an earlier one, so
/// the size is fixed.
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

    /// Returns the count of `piece` from the cache, or else computes it with `count` and
    /// remembers it. A long piece is never remembered.
    pub(super) fn get_or_count(&mut self, piece: &str, count: impl Fn(&str) -> u64) -> u64 {
        let bytes = piece.as_bytes();
        if bytes.len() > LONGEST {
            return count(piece);
        }
        let slot = &mut self.0[xxh3_64(bytes) as usize % SLOTS];
        if usize::from(slot.len) != bytes.len() || slot.bytes[..bytes.len()] != *bytes {
            slot.bytes[..bytes.len()].copy_from_slice(bytes);
            slot.len = bytes.len() as u8;
            // A token has at least one byte, so the count is at most `LONGEST` and fits.
            slot.count = count(piece) as u8;
        }
        u64::from(slot.count)
    }
}

/// The lengths in bytes of the lines that are remembered. A shorter line consists of a few
/// pieces, which are cached anyway.
const LINE: std::ops::RangeInclusive<usize> = 24..=4096;

/// The number of slots. They take 512 KiB, which is enough for the lines of a few hundred
/// pages.
const LINE_SLOTS: usize = 1 << 15;

/// The counts of lines by hash, with one slot for each hash. If a text is counted again, such
/// as a file that was read twice, each of its lines costs only a hash.
pub(super) struct LineCache(Box<[(u64, u64)]>);

impl LineCache {
    pub(super) fn new() -> Self {
        Self(vec![(0, 0); LINE_SLOTS].into_boxed_slice())
    }

    /// Returns the count of `line` from the cache, or else computes it with `count` and
    /// remembers it.
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

/// How many caches of a kind there are at most. Counting takes a core for itself, so more would
/// only take memory, 3 MB each.
static MOST: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The caches that counts share. A count takes one and returns it, so no lock is held while
/// counting.
pub(super) struct CachePool<C> {
    caches: Mutex<Pooled<C>>,
    returned: Condvar,
}

struct Pooled<C> {
    idle: Vec<C>,
    /// How many there are, with those that are in use.
    made: usize,
}

impl<C> CachePool<C> {
    pub(super) const fn new() -> Self {
        Self {
            caches: Mutex::new(Pooled {
                idle: Vec::new(),
                made: 0,
            }),
            returned: Condvar::new(),
        }
    }

    /// Calls `work` with an idle cache, or with a new one. If there are as many as cores and all are
    /// in use, waits until one is returned.
    pub(super) fn with<R>(&self, new: impl FnOnce() -> C, work: impl FnOnce(&mut C) -> R) -> R {
        let mut caches = self.caches();
        while caches.idle.is_empty() && caches.made >= *MOST {
            let waited = self.returned.wait(caches);
            caches = waited.unwrap_or_else(PoisonError::into_inner);
        }
        let taken = caches.idle.pop();
        caches.made += usize::from(taken.is_none());
        drop(caches);
        let mut lent = LentCache {
            pool: self,
            cache: None,
        };
        let mut cache = taken.unwrap_or_else(new);
        let result = work(&mut cache);
        lent.cache = Some(cache);
        result
    }

    fn caches(&self) -> MutexGuard<'_, Pooled<C>> {
        self.caches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a cache in its pool while a count uses it.
struct LentCache<'p, C> {
    pool: &'p CachePool<C>,
    /// The cache once the count is done. A count that panics may leave a wrong entry, so its cache
    /// is not used again.
    cache: Option<C>,
}

impl<C> Drop for LentCache<'_, C> {
    fn drop(&mut self) {
        let mut caches = self.pool.caches();
        match self.cache.take() {
            Some(cache) => caches.idle.push(cache),
            None => caches.made -= 1,
        }
        drop(caches);
        self.pool.returned.notify_one();
    }
}

/// The minimum length in bytes of a text whose count is remembered as a whole.
const LONG_TEXT: usize = 64 << 10;

/// The number of long texts that are remembered.
const LONG_TEXTS: usize = 64;

/// The counts of the last long texts, by hash. The host counts such a text, and an engine that
/// shortens it counts it again.
pub(super) struct LongTexts(Mutex<VecDeque<(u128, u64)>>);

impl LongTexts {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Returns the count of `text` if it is among the last ones, or else computes it with
    /// `count` and remembers it. A short text is never remembered.
    pub(super) fn get_or_count(&self, text: &str, count: impl FnOnce() -> u64) -> u64 {
        if text.len() < LONG_TEXT {
            return count();
        }
        let hash = xxh3_128(text.as_bytes());
        let known = self
            .last()
            .iter()
            .find(|(other, _)| *other == hash)
            .copied();
        if let Some((_, tokens)) = known {
            return tokens;
        }
        // Two threads may count the same text at once, which costs time but no correctness.
        let tokens = count();
        let mut last = self.last();
        last.truncate(LONG_TEXTS - 1);
        last.push_front((hash, tokens));
        tokens
    }

    fn last(&self) -> MutexGuard<'_, VecDeque<(u128, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
