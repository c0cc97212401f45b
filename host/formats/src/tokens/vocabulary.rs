//! The vocabularies of the public encodings, and byte-pair encoding with them.
//!
//! [`Vocabulary`] counts the tokens of one piece of a text. [`o200k_base`] and [`cl100k_base`] are
//! read from the tables that the build script writes when they are first used, which takes some
//! ten milliseconds, and stay in memory.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::LazyLock;

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64;

static O200K_BASE: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::read(include_bytes!(concat!(env!("OUT_DIR"), "/o200k_base"))));
static CL100K_BASE: LazyLock<Vocabulary> =
    LazyLock::new(|| Vocabulary::read(include_bytes!(concat!(env!("OUT_DIR"), "/cl100k_base"))));

/// Pieces of fewer bytes are counted by [`Vocabulary::merge`], and others by
/// [`Vocabulary::merge_long`].
const SHORT_PIECE: usize = 100;

/// More bytes than a table has. They are reserved before it is read, and not used.
const LARGEST_TABLE: usize = 4 << 20;

/// Returns the vocabulary of `o200k_base`.
pub(super) fn o200k_base() -> &'static Vocabulary {
    &O200K_BASE
}

/// Returns the vocabulary of `cl100k_base`.
pub(super) fn cl100k_base() -> &'static Vocabulary {
    &CL100K_BASE
}

/// The tokens of an encoding. They take 3 MB, a tenth of what they take as tiktoken's maps.
pub(super) struct Vocabulary {
    /// The tokens in the order of their ranks, each after its length in one byte.
    table: Vec<u8>,
    /// Where each token is in the table, by its bytes. The places are in the order of the ranks,
    /// so they are compared instead.
    places: HashTable<u32>,
}

impl Vocabulary {
    /// Reads a compressed table. Nothing large is freed meanwhile, because the allocator of glibc
    /// would keep as much of each thread's freed memory from then on.
    fn read(compressed: &[u8]) -> Self {
        let mut table = match zstd::bulk::decompress(compressed, LARGEST_TABLE) {
            Ok(table) => table,
            Err(error) => unreachable!("the build script compressed the table: {error}"),
        };
        table.shrink_to_fit();
        let mut places = HashTable::with_capacity(each_place(&table).count());
        let hash = |place: &u32| xxh3_64(token(&table, *place));
        for place in each_place(&table) {
            places.insert_unique(hash(&place), place, hash);
        }
        Self { table, places }
    }

    /// Counts the tokens of a piece, as many as tiktoken's `encode` returns.
    pub(super) fn count(&self, piece: &str) -> u64 {
        let piece = piece.as_bytes();
        if piece.len() < 2 || self.place(piece).is_some() {
            return piece.len().min(1) as u64;
        }
        match piece.len() < SHORT_PIECE {
            true => self.merge(piece),
            false => self.merge_long(piece),
        }
    }

    /// The place of the token with these bytes. None if there is no such token.
    fn place(&self, bytes: &[u8]) -> Option<u32> {
        let is_it = |place: &u32| token(&self.table, *place) == bytes;
        self.places.find(xxh3_64(bytes), is_it).copied()
    }

    /// Counts the tokens of a piece that is none itself. At first, each byte is a part. Of all
    /// neighbours that make a token together, those with the lowest rank are merged, the first of
    /// them if there are several, until no neighbours make a token.
    ///
    /// The time grows with the square of the length. For short pieces it is less than that of
    /// [`merge_long`](Self::merge_long).
    fn merge(&self, piece: &[u8]) -> u64 {
        const NONE: u32 = u32::MAX;
        // Where each part starts, and the place of the token that it makes with the next one. The
        // last part is empty.
        let mut parts: Vec<(usize, u32)> = (0..=piece.len()).map(|at| (at, NONE)).collect();
        let update = |parts: &mut [(usize, u32)], at: usize| {
            let token = parts.get(at + 2).map(|(end, _)| &piece[parts[at].0..*end]);
            parts[at].1 = token.and_then(|token| self.place(token)).unwrap_or(NONE);
        };
        for at in 0..piece.len() {
            update(&mut parts, at);
        }
        let lowest = |parts: &[(usize, u32)]| {
            let lowest = parts.iter().enumerate().min_by_key(|(_, part)| part.1);
            lowest.filter(|(_, part)| part.1 != NONE).map(|(at, _)| at)
        };
        while let Some(at) = lowest(&parts) {
            parts.remove(at + 1);
            update(&mut parts, at);
            if at > 0 {
                update(&mut parts, at - 1);
            }
        }
        parts.len() as u64 - 1
    }

    /// Counts what [`merge`](Self::merge) counts. The time hardly grows faster than the length.
    fn merge_long(&self, piece: &[u8]) -> u64 {
        // For each part, by where it starts: its end, and the start of the part before it. The end
        // is 0 if the part was merged into the one before it.
        let mut ends: Vec<usize> = (1..=piece.len()).collect();
        let mut before: Vec<usize> = (0..piece.len()).map(|at| at.saturating_sub(1)).collect();
        let mut merges = BinaryHeap::with_capacity(piece.len());
        let offer = |merges: &mut BinaryHeap<_>, start: usize, end: usize| {
            if let Some(place) = self.place(&piece[start..end]) {
                merges.push(Reverse((place, start, end)));
            }
        };
        for start in 0..piece.len() - 1 {
            offer(&mut merges, start, start + 2);
        }
        let mut parts = piece.len();
        while let Some(Reverse((_, start, end))) = merges.pop() {
            let middle = ends[start];
            // One of the two parts may have been merged with another one in the meantime.
            if middle == 0 || ends.get(middle) != Some(&end) {
                continue;
            }
            (ends[start], ends[middle]) = (end, 0);
            parts -= 1;
            if end < piece.len() {
                before[end] = start;
                offer(&mut merges, start, ends[end]);
            }
            if start > 0 {
                offer(&mut merges, before[start], end);
            }
        }
        parts as u64
    }
}

/// The places of all tokens of a table.
fn each_place(table: &[u8]) -> impl Iterator<Item = u32> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let place = next;
        next += 1 + usize::from(*table.get(place)?);
        Some(place as u32)
    })
}

/// The token at a place of a table.
fn token(table: &[u8], place: u32) -> &[u8] {
    let start = place as usize + 1;
    let length = usize::from(table[start - 1]);
    &table[start..start + length]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn both_ways_to_merge_agree(piece in "[a-z]{2,60}|[ -~]{2,300}|\\PC{1,100}|(ab){1,200}|é{1,90}") {
            let piece = piece.as_bytes();
            for vocabulary in [o200k_base(), cl100k_base()] {
                prop_assert_eq!(vocabulary.merge(piece), vocabulary.merge_long(piece));
            }
        }
    }
}
