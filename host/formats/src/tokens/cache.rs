//! Token counts that are asked for again: of short pieces and of lines, which repeat heavily in every text, and of
//! long texts.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

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
        let slot = &mut self.0[xxh3_64(bytes) as usize % SLOTS];
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

    fn idle(&self) -> MutexGuard<'_, Vec<C>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest text whose count is remembered, in bytes.
const LONG_TEXT: usize = 64 << 10;

/// How many of them are remembered.
const LONG_TEXTS: usize = 64;

/// The counts of the last long texts, by their hashes: the host counts one, and an engine that shortens it counts it
/// again.
pub(super) struct LongTexts(Mutex<VecDeque<(u128, u64)>>);

impl LongTexts {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// The count of `text`, from the last ones or from `count`.
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
mod tests {
    use super::*;

    #[test]
    fn the_last_long_texts_are_counted_once() {
        let texts = LongTexts::new();
        let long = |letter: char| letter.to_string().repeat(LONG_TEXT);
        assert_eq!(texts.get_or_count(&long('a'), || 1), 1);
        assert_eq!(texts.get_or_count(&long('a'), || 2), 1);
        assert_eq!(texts.get_or_count(&long('b'), || 3), 3);
        assert_eq!(texts.get_or_count("short", || 4), 4);
        assert_eq!(texts.get_or_count("short", || 5), 5);
        for _ in 0..LONG_TEXTS {
            texts.get_or_count(&long('c'), || 6);
        }
        assert_eq!(texts.get_or_count(&long('a'), || 7), 1);
        for letter in ('A'..='Z')
            .chain('1'..='9')
            .chain('Α'..='Ρ')
            .chain('А'..='П')
        {
            texts.get_or_count(&long(letter), || 8);
        }
        assert_eq!(texts.get_or_count(&long('a'), || 9), 9);
    }
}
