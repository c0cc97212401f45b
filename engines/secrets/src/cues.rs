//! Finds the cues of the rules in a text.
//!
//! A cue is a short text that makes a position a candidate, such as `sk-ant-` or `password`. Few
//! positions have one, so almost all of the time is spent on rejecting positions. [`find`]
//! therefore looks up three bytes per position in a small table that stays in the processor's
//! cache, and compares whole cues only if the table permits one. [`at`] then returns all cues at a
//! position. The rules behind the cues are in `rules`.

use std::ops::Range;
use std::sync::LazyLock;

use crate::rules::RULES;

/// The number of bytes by which a cue is looked up. No cue is shorter.
const BEGINNING: usize = 3;
const HASH_BITS: u32 = 14;
/// Turns capitals into small letters. Other bytes may become equal too, so the whole cue is
/// compared afterwards.
const FOLD: u64 = 0x2020_2020_2020_2020;

static CUES: LazyLock<Cues> = LazyLock::new(Cues::new);

struct Cues {
    /// For the hash of each beginning, the kinds that the fourth byte of its cues may have, as
    /// bits. It is 0 if no cue has this hash.
    beginnings: [u8; 1 << HASH_BITS],
    /// For the same hash, the index of its group in `groups`. If there are more beginnings than
    /// groups, some share one, which only costs time.
    group_of: [u8; 1 << HASH_BITS],
    /// The cues of each group, the longest first, with their indices in the table of rules.
    groups: Vec<Vec<(&'static [u8], usize)>>,
}

/// Returns the first position at byte `from` or later at which a cue begins.
pub(crate) fn find(text: &str, from: usize) -> Option<usize> {
    let cues = &*CUES;
    let bytes = text.as_bytes();
    let mut at = from;
    // Eight bytes are one load, and hold five beginnings each with the byte behind it.
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let eight = u64::from_le_bytes(*eight) | FOLD;
        let begins = |step: usize| {
            let here = eight >> (8 * step);
            cues.beginnings[hash(here as u32)] & kind((here >> 24) as u8)
        };
        let any = begins(0) | begins(1) | begins(2) | begins(3) | begins(4);
        if any != 0 {
            let found = (at..at + 5).find(|at| cues.at(bytes, *at).next().is_some());
            if found.is_some() {
                return found;
            }
        }
        at += 5;
    }
    (at..bytes.len().saturating_sub(BEGINNING - 1)).find(|at| cues.at(bytes, *at).next().is_some())
}

/// Returns the cues at a position, the longest first: their indices in the table of rules, and
/// their bytes.
pub(crate) fn at(text: &str, place: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    CUES.at(text.as_bytes(), place)
}

impl Cues {
    fn new() -> Self {
        let mut beginnings = [0; 1 << HASH_BITS];
        let mut group_of = [0; 1 << HASH_BITS];
        let mut groups = vec![Vec::new()];
        for (which, rule) in RULES.iter().enumerate() {
            let cue = rule.cue.as_bytes();
            let hash = hash(folded(cue));
            beginnings[hash] |= cue.get(BEGINNING).map_or(u8::MAX, |byte| kind(*byte));
            let group: &mut u8 = &mut group_of[hash];
            if *group == 0 {
                *group = match u8::try_from(groups.len()) {
                    Ok(next) => {
                        groups.push(Vec::new());
                        next
                    }
                    Err(_) => (which % 255) as u8 + 1,
                };
            }
            groups[usize::from(*group)].push((cue, which));
        }
        for group in &mut groups {
            // A long cue says more about a secret than a short one that begins it, so it is tried
            // first.
            group.sort_by_key(|(cue, _)| std::cmp::Reverse(cue.len()));
        }
        Self {
            beginnings,
            group_of,
            groups,
        }
    }

    fn at(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let hash = hash(folded(&bytes[at..]));
        let kind = bytes
            .get(at + BEGINNING)
            .map_or(u8::MAX, |byte| kind(*byte));
        let group = match self.beginnings[hash] & kind {
            0 => 0,
            _ => usize::from(self.group_of[hash]),
        };
        self.groups[group].iter().filter_map(move |(cue, which)| {
            let here = bytes.get(at..at + cue.len())?;
            here.eq_ignore_ascii_case(cue)
                .then(|| (*which, at..at + cue.len()))
        })
    }
}

/// One of eight kinds of bytes, as a bit. A small letter and its capital are of the same kind.
fn kind(byte: u8) -> u8 {
    1 << ((byte | 0x20) & 7)
}

/// The first three bytes as one number, which is the same for small letters and capitals.
fn folded(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) | (FOLD as u32 & 0x00ff_ffff)
}

/// Hashes the lowest three bytes. The factor shifts the highest one out.
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9e37_7900) >> (32 - HASH_BITS)) as usize
}
