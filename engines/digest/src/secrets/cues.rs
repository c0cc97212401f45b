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

static CUES: LazyLock<Cues> = LazyLock::new(Cues::new);

struct Cues {
    /// For the hash of each beginning, which of `groups` has it; 0 for none. There may be more beginnings than
    /// groups: a cue is compared as a whole.
    beginnings: [u8; 1 << HASH_BITS],
    /// Cues, the longest first, with their places in the table of rules.
    groups: Vec<Vec<(&'static [u8], usize)>>,
}

/// The first place at byte `from` or later where a cue begins.
pub(super) fn find(text: &str, from: usize) -> Option<usize> {
    let cues = &*CUES;
    let bytes = text.as_bytes();
    let mut at = from;
    // Eight bytes are one load and hold six beginnings.
    while let Some(eight) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let eight = u64::from_le_bytes(*eight) | FOLD;
        let begins = |step: usize| cues.beginnings[hash((eight >> (8 * step)) as u32)];
        let any = begins(0) | begins(1) | begins(2) | begins(3) | begins(4) | begins(5);
        if any != 0 {
            let found = (at..at + 6).find(|at| cues.at(bytes, *at).next().is_some());
            if found.is_some() {
                return found;
            }
        }
        at += 6;
    }
    (at..bytes.len().saturating_sub(BEGINNING - 1)).find(|at| cues.at(bytes, *at).next().is_some())
}

/// The cues at a place, the longest first: their places in the table of rules, and their bytes.
pub(super) fn at(text: &str, place: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    CUES.at(text.as_bytes(), place)
}

impl Cues {
    fn new() -> Self {
        let mut beginnings = [0; 1 << HASH_BITS];
        let mut groups = vec![Vec::new()];
        for (which, rule) in RULES.iter().enumerate() {
            let cue = rule.cue.as_bytes();
            let group = &mut beginnings[hash(folded(cue))];
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
            group.sort_by_key(|(cue, _)| std::cmp::Reverse(cue.len()));
        }
        Self { beginnings, groups }
    }

    fn at(&self, bytes: &[u8], at: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        let group = usize::from(self.beginnings[hash(folded(&bytes[at..]))]);
        self.groups[group].iter().filter_map(move |(cue, which)| {
            let here = bytes.get(at..at + cue.len())?;
            here.eq_ignore_ascii_case(cue)
                .then(|| (*which, at..at + cue.len()))
        })
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
