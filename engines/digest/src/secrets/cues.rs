//! Finds the cues of the rules in a text. Few texts hold many of them, so almost all of the time goes with
//! passing over what is none: three bytes are looked up at each place, in a table that stays in the cache.

use std::ops::Range;
use std::sync::LazyLock;

use super::rules::RULES;

/// The bytes that a cue is looked up by.
const BEGINNING: usize = 3;
const HASH_BITS: u32 = 16;
/// Makes small letters of capital ones. Other bytes it may make alike are told apart by the whole cue.
const FOLD: u32 = 0x0020_2020;

static CUES: LazyLock<Cues> = LazyLock::new(Cues::new);

struct Cues {
    /// A bit for the hash of each beginning.
    beginnings: [u64; 1 << (HASH_BITS - 6)],
    /// The beginning of each cue, and its place in the table of rules: by beginning, the longest cue first.
    cues: Vec<(u32, usize)>,
}

/// The first cue in a text at byte `from` or later: its place in the table of rules, and its bytes. Of
/// several at one place it is the longest.
pub(super) fn find(text: &str, from: usize) -> Option<(usize, Range<usize>)> {
    let cues = &*CUES;
    let bytes = text.as_bytes();
    let found = |at: usize, beginning: u32| {
        let hash = hash(beginning);
        let may_be = cues.beginnings[hash / 64] >> (hash % 64) & 1 == 1;
        may_be.then(|| cues.at(bytes, at, beginning)).flatten()
    };
    // Four bytes are one load; the last one is not used.
    for (at, window) in bytes.get(from..)?.windows(BEGINNING + 1).enumerate() {
        let four = u32::from_le_bytes([window[0], window[1], window[2], window[3]]);
        if let Some(found) = found(from + at, four & 0x00ff_ffff | FOLD) {
            return Some(found);
        }
    }
    let last = bytes
        .len()
        .checked_sub(BEGINNING)
        .filter(|last| *last >= from)?;
    found(last, folded(&bytes[last..]))
}

impl Cues {
    fn new() -> Self {
        let mut beginnings = [0; 1 << (HASH_BITS - 6)];
        let mut cues: Vec<(u32, usize)> = RULES
            .iter()
            .enumerate()
            .map(|(which, rule)| (folded(rule.cue.as_bytes()), which))
            .collect();
        cues.sort_by_key(|(beginning, which)| (*beginning, usize::MAX - RULES[*which].cue.len()));
        for (beginning, _) in &cues {
            let hash = hash(*beginning);
            beginnings[hash / 64] |= 1 << (hash % 64);
        }
        Self { beginnings, cues }
    }

    fn at(&self, bytes: &[u8], at: usize, beginning: u32) -> Option<(usize, Range<usize>)> {
        let first = self.cues.partition_point(|(other, _)| *other < beginning);
        let same = self.cues[first..]
            .iter()
            .take_while(|(other, _)| *other == beginning);
        for (_, which) in same {
            let cue = RULES[*which].cue.as_bytes();
            let place = at..at + cue.len();
            if bytes
                .get(place.clone())
                .is_some_and(|found| found.eq_ignore_ascii_case(cue))
            {
                return Some((*which, place));
            }
        }
        None
    }
}

/// The first three bytes as one number, the same for small and capital letters.
fn folded(bytes: &[u8]) -> u32 {
    (u32::from(bytes[0]) | u32::from(bytes[1]) << 8 | u32::from(bytes[2]) << 16) | FOLD
}

fn hash(beginning: u32) -> usize {
    (beginning.wrapping_mul(0x9e37_79b1) >> (32 - HASH_BITS)) as usize
}
