//! Finds the cues of the rules in a text. Few texts hold many of them, so almost all of the time goes with
//! passing over what is none: three bytes are looked up at each place, in a table that stays in the cache.

use std::ops::Range;
use std::sync::LazyLock;

use super::rules::RULES;

/// The bytes that a cue is looked up by.
const BEGINNING: usize = 3;
const HASH_BITS: u32 = 14;
/// Makes small letters of capital ones. Other bytes it may make alike are told apart by the whole cue.
const FOLD: u64 = 0x2020_2020_2020_2020;

/// A byte names each group of cues.
const _: () = assert!(RULES.len() < 256);

static CUES: LazyLock<Cues> = LazyLock::new(Cues::new);

struct Cues {
    /// For the hash of each beginning, which of `groups` has it; 0 for none.
    beginnings: [u8; 1 << HASH_BITS],
    /// The cues whose beginnings have one hash, the longest first, by their places in the table of rules.
    groups: Vec<Vec<(&'static [u8], usize)>>,
}

/// The first cue in a text at byte `from` or later: its place in the table of rules, and its bytes. Of
/// several at one place it is the longest.
pub(super) fn find(text: &str, from: usize) -> Option<(usize, Range<usize>)> {
    let cues = &*CUES;
    let bytes = text.as_bytes();
    let mut at = from;
    // Eight bytes are one load and hold six beginnings.
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let eight = u64::from_le_bytes(*eight) | FOLD;
        let begins = |step: usize| cues.beginnings[hash((eight >> (8 * step)) as u32)];
        let any = begins(0) | begins(1) | begins(2) | begins(3) | begins(4) | begins(5);
        if any != 0 {
            let found = (at..at + 6).find_map(|at| cues.at(bytes, at));
            if found.is_some() {
                return found;
            }
        }
        at += 6;
    }
    (at..bytes.len().saturating_sub(BEGINNING - 1)).find_map(|at| cues.at(bytes, at))
}

impl Cues {
    fn new() -> Self {
        let mut beginnings = [0; 1 << HASH_BITS];
        let mut groups = vec![Vec::new()];
        for (which, rule) in RULES.iter().enumerate() {
            let cue = rule.cue.as_bytes();
            let group = &mut beginnings[hash(folded(cue))];
            if *group == 0 {
                *group = groups.len() as u8;
                groups.push(Vec::new());
            }
            groups[usize::from(*group)].push((cue, which));
        }
        for group in &mut groups {
            group.sort_by_key(|(cue, _)| std::cmp::Reverse(cue.len()));
        }
        Self { beginnings, groups }
    }

    /// The longest cue at a place.
    fn at(&self, bytes: &[u8], at: usize) -> Option<(usize, Range<usize>)> {
        let group = usize::from(self.beginnings[hash(folded(&bytes[at..]))]);
        let is_here = |cue: &[u8]| {
            let here = bytes.get(at..at + cue.len());
            here.is_some_and(|here| here.eq_ignore_ascii_case(cue))
        };
        let (cue, which) = self.groups[group].iter().find(|(cue, _)| is_here(cue))?;
        Some((*which, at..at + cue.len()))
    }
}

/// The first three bytes as one number, the same for small and capital letters.
fn folded(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) | (FOLD as u32 & 0x00ff_ffff)
}

/// The hash of the lowest three bytes: the factor leaves the highest one out.
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9e37_7900) >> (32 - HASH_BITS)) as usize
}
