//! What a text must contain in order to match a pattern, and which texts of a segment contain it.
//!
//! A [`Need`] is derived from a literal or a regular expression. It is never stronger than its
//! pattern: every text that matches satisfies it. The reverse does not hold, so the texts that
//! satisfy it are read and matched afterwards, unless [`Need::is_exact`] says that this is not
//! necessary.
//!
//! [`Need::of_literal`] and [`Need::of_regex`] create needs, and [`Need::ordinals`] looks one up in
//! a segment. A whole word takes one look-up. A part of a word is found by scanning the terms. If a
//! pattern says nothing that the index knows, such as `\d{4}`, the need is [`Need::Anything`] and
//! all texts must be read.

use std::ops::ControlFlow;

use regex_syntax::hir::{Class as HirClass, Hir, HirKind, Look};
use rusqlite::Connection;

use super::chunks::broken;
use super::list::List;
use super::segment::{
    ListChunk, PlaceChunk, Segment, TermChunk, chunk_of, for_each_chunk, for_each_chunk_with,
};
use crate::error::StoreError;
use crate::text::fold::fold_char;
use crate::text::terms::{Class, LONG_WORD, MAX_WORD_BYTES, class, indexed_part, runs};

/// A condition that every matching text satisfies, as far as the index can check it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Need {
    /// The index cannot exclude any text.
    Anything,
    /// The text has a word that contains these characters. If `starts` is set, the word begins with
    /// them, and if `ends` is set, it ends with them.
    Word {
        text: String,
        starts: bool,
        ends: bool,
    },
    /// The text has these consecutive characters of a script without spaces.
    Stretch(String),
    All(Vec<Need>),
    Any(Vec<Need>),
}

/// The maximum number of parts of a pattern that are looked up in the index. The texts decide in
/// any case, so leaving parts out costs time and no correctness.
const LOOKED_UP: usize = 64;

/// If no more than this many candidates are left, reading them is cheaper than narrowing further.
const FEW: usize = 16;

impl Need {
    /// Creates the need of a folded piece of text. `starts` and `ends` say whether a word at its
    /// beginning or end is known to begin or end there. If not, it may be part of a longer word.
    pub(crate) fn of_literal(folded: &str, starts: bool, ends: bool) -> Self {
        let mut needs = Vec::new();
        for run in runs(folded) {
            if needs.len() == LOOKED_UP {
                break;
            }
            let text = &folded[run.range.clone()];
            if run.class == Class::Gram {
                needs.push(Self::Stretch(text.to_owned()));
                continue;
            }
            let word = Self::Word {
                text: text.to_owned(),
                starts: starts || run.range.start > 0,
                ends: ends || run.range.end < folded.len(),
            };
            if word.narrows() {
                needs.push(word);
            }
        }
        Self::all(needs)
    }

    /// Creates the need of a regular expression. It walks the parsed expression, collects literal
    /// text and gives up at whatever the index cannot express. Parts that must all occur are
    /// combined.
    pub(crate) fn of_regex(hir: &Hir) -> Self {
        let mut pieces = Vec::new();
        flatten(hir, &mut pieces);
        let mut needs = Vec::new();
        let mut literal = String::new();
        let mut starts = false;
        // Whether a word is known to begin or end at this point.
        let mut edge = false;
        for piece in pieces {
            match piece {
                RegexPart::Char(c) => {
                    if literal.is_empty() {
                        starts = edge;
                    }
                    literal.push(c);
                    edge = false;
                }
                RegexPart::Boundary => edge = true,
                RegexPart::Separator => {
                    flush(&mut literal, starts, true, &mut needs);
                    edge = true;
                }
                RegexPart::Gap => {
                    flush(&mut literal, starts, edge, &mut needs);
                    edge = false;
                }
                RegexPart::Need(need) => {
                    flush(&mut literal, starts, edge, &mut needs);
                    needs.push(need);
                    edge = false;
                }
            }
        }
        flush(&mut literal, starts, edge, &mut needs);
        needs.truncate(LOOKED_UP);
        Self::all(needs)
    }

    /// Returns how many look-ups the need takes in a segment. It is the sum over its parts.
    fn look_ups(&self) -> usize {
        match self {
            Self::Anything => 0,
            Self::Word { .. } | Self::Stretch(_) => 1,
            Self::All(needs) | Self::Any(needs) => needs.iter().map(Self::look_ups).sum(),
        }
    }

    /// Combines needs that must all be satisfied. Needs that exclude nothing are dropped.
    pub(crate) fn all(mut needs: Vec<Self>) -> Self {
        needs.retain(|need| *need != Self::Anything);
        match needs.len() {
            0 => Self::Anything,
            1 => needs.remove(0),
            _ => Self::All(needs),
        }
    }

    /// Returns whether a text that satisfies the need certainly matches, so that it does not have
    /// to be read.
    pub(crate) fn is_exact(&self) -> bool {
        match self {
            // Close to the limit, the index cannot distinguish a word from the beginning of a
            // longer one.
            Self::Word { text, starts, ends } => {
                *starts && *ends && text.len() <= MAX_WORD_BYTES - 4
            }
            Self::Stretch(_) => true,
            _ => false,
        }
    }

    /// Returns whether scanning all terms for this need would exclude enough texts to be worth it.
    /// A single letter does not.
    fn narrows(&self) -> bool {
        match self {
            Self::Word { text, starts, ends } => {
                text.len() + usize::from(*starts) + usize::from(*ends) > 2
            }
            _ => true,
        }
    }

    /// Returns the ordinals of the segment's texts that satisfy the need, in order. None means all
    /// of them.
    pub(crate) fn ordinals(
        &self,
        connection: &Connection,
        segment: &Segment,
    ) -> Result<Option<Vec<u32>>, StoreError> {
        match self {
            Self::Anything => Ok(None),
            Self::Stretch(text) => stretch(connection, segment, text).map(Some),
            Self::Word { text, starts, ends } => {
                word(connection, segment, text, *starts, *ends).map(Some)
            }
            Self::Any(needs) => {
                let mut union = Vec::new();
                for need in needs {
                    match need.ordinals(connection, segment)? {
                        None => return Ok(None),
                        Some(ordinals) => union.extend(ordinals),
                    }
                }
                Ok(Some(sorted(union)))
            }
            Self::All(needs) => all(connection, segment, needs),
        }
    }

    /// Returns the cost of a look-up, for ordering: 0 for one list, 1 for a range of terms, 2 for a
    /// scan of all terms, more for a combination.
    fn cost(&self) -> u8 {
        match self {
            Self::Stretch(_) => 0,
            Self::Word { starts, ends, .. } => match (starts, ends) {
                (true, true) => 0,
                (true, false) => 1,
                _ => 2,
            },
            Self::All(_) | Self::Any(_) => 3,
            Self::Anything => 4,
        }
    }
}

/// Intersects the texts of several needs. Cheap needs are looked up first, and expensive ones only
/// if many candidates are left.
fn all(
    connection: &Connection,
    segment: &Segment,
    needs: &[Need],
) -> Result<Option<Vec<u32>>, StoreError> {
    let mut order: Vec<&Need> = needs.iter().collect();
    // If the cost is equal, long words come first because they are rarer. The lists to intersect
    // are then short.
    order.sort_by_key(|need| match need {
        Need::Word { text, .. } => (need.cost(), usize::MAX - text.len()),
        _ => (need.cost(), 0),
    });
    let mut found: Option<Vec<u32>> = None;
    // Needs are a filter, so it is correct to stop before all of them were looked up.
    for need in order {
        if found
            .as_ref()
            .is_some_and(|found| found.is_empty() || need.cost() > 0 && found.len() <= FEW)
        {
            break;
        }
        let Some(ordinals) = need.ordinals(connection, segment)? else {
            continue;
        };
        found = Some(match found {
            None => ordinals,
            Some(before) => intersection(&before, &ordinals),
        });
    }
    Ok(found)
}

/// Returns the ordinals that are in both sorted lists. The longer list is searched and not scanned,
/// because it is often much longer.
fn intersection(a: &[u32], b: &[u32]) -> Vec<u32> {
    let (short, mut long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let mut out = Vec::with_capacity(short.len());
    for ordinal in short {
        let at = long.partition_point(|other| other < ordinal);
        long = &long[at..];
        if long.first() == Some(ordinal) {
            out.push(*ordinal);
        }
    }
    out
}

fn sorted(mut ordinals: Vec<u32>) -> Vec<u32> {
    ordinals.sort_unstable();
    ordinals.dedup();
    ordinals
}

/// Returns the texts that contain exactly this term.
fn exact(connection: &Connection, segment: &Segment, term: &str) -> Result<Vec<u32>, StoreError> {
    let mut out = Vec::new();
    if let Some((chunk, index)) = find(connection, segment, term)? {
        let lists = ListChunk::read(connection, &chunk)?;
        lists
            .list(index)?
            .ordinals(segment.ordinals.start, &mut out);
    }
    Ok(out)
}

/// Finds a term in a segment. Returns its chunk and its index in the chunk, or None if no text
/// contains it.
fn find(
    connection: &Connection,
    segment: &Segment,
    term: &str,
) -> Result<Option<(TermChunk, usize)>, StoreError> {
    let chunk = chunk_of(connection, segment.id, term.as_bytes())?;
    Ok(chunk.and_then(|chunk| chunk.find(term.as_bytes()).map(|index| (chunk, index))))
}

/// Returns the texts that contain these consecutive characters. The index has pairs of characters
/// with their positions, so a text qualifies if its pairs have the same distances as in `text`.
fn stretch(connection: &Connection, segment: &Segment, text: &str) -> Result<Vec<u32>, StoreError> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let pairs = starts.len() - 1;
    if pairs < 2 {
        return exact(connection, segment, text);
    }
    // Every second pair covers all characters if the last pair is included.
    let mut found: Option<Vec<(u32, u32)>> = None;
    for pair in (0..pairs).step_by(2).chain([pairs - 1]) {
        let end = starts.get(pair + 2).copied().unwrap_or(text.len());
        // Where the whole run would end if this pair is part of it. All pairs must agree on it.
        let ends = places(connection, segment, &text[starts[pair]..end])?
            .into_iter()
            .map(|(ordinal, place)| (ordinal, place + (pairs - pair) as u32));
        let both: Vec<(u32, u32)> = match found {
            None => ends.collect(),
            Some(before) => {
                let mut ends = ends.peekable();
                before
                    .into_iter()
                    .filter(|end| {
                        while ends.next_if(|other| other < end).is_some() {}
                        ends.peek() == Some(end)
                    })
                    .collect()
            }
        };
        if both.is_empty() {
            return Ok(Vec::new());
        }
        found = Some(both);
    }
    let mut ordinals: Vec<u32> = found
        .into_iter()
        .flatten()
        .map(|(ordinal, _)| ordinal)
        .collect();
    ordinals.dedup();
    Ok(ordinals)
}

/// Returns all occurrences of a pair of characters, in order: the ordinal of the text, and the
/// position in it.
fn places(
    connection: &Connection,
    segment: &Segment,
    pair: &str,
) -> Result<Vec<(u32, u32)>, StoreError> {
    let Some((chunk, index)) = find(connection, segment, pair)? else {
        return Ok(Vec::new());
    };
    let lists = ListChunk::read(connection, &chunk)?;
    let places = PlaceChunk::read(connection, &chunk)?;
    lists
        .list(index)?
        .places(segment.ordinals.start, places.places(index)?)
        .ok_or_else(broken)
}

/// Returns the texts with a word that contains `text`. A whole word is one list. Otherwise the
/// terms are scanned, because there is no index of parts of words.
fn word(
    connection: &Connection,
    segment: &Segment,
    text: &str,
    starts: bool,
    ends: bool,
) -> Result<Vec<u32>, StoreError> {
    if starts && (ends || text.len() > MAX_WORD_BYTES) {
        return exact(connection, segment, indexed_part(text));
    }
    let mut out = Vec::new();
    for_each_term_like(connection, segment, text, starts, ends, |list| {
        list.ordinals(segment.ordinals.start, &mut out);
    })?;
    if !starts {
        // Only the beginning of a long word is indexed, so its rest may contain anything.
        out.extend(exact(connection, segment, LONG_WORD)?);
    }
    Ok(sorted(out))
}

/// Calls `each` with the list of every term of the segment that contains `text`. If `starts` is set,
/// the term must begin with `text`, and if only `ends` is set, it must end with it.
fn for_each_term_like(
    connection: &Connection,
    segment: &Segment,
    text: &str,
    starts: bool,
    ends: bool,
    mut each: impl FnMut(List<'_>),
) -> Result<(), StoreError> {
    let needle = text.as_bytes();
    let finder = memchr::memmem::Finder::new(needle);
    let mut look_through = |chunk: TermChunk| -> Result<(), StoreError> {
        if finder.find(&chunk.terms).is_none() {
            return Ok(());
        }
        let mut lists = None;
        for (index, term) in chunk.iter().enumerate() {
            let like = match (starts, ends) {
                (true, _) => term.starts_with(needle),
                (false, true) => term.ends_with(needle),
                (false, false) => finder.find(term).is_some(),
            };
            if !like {
                continue;
            }
            let lists = match &mut lists {
                Some(lists) => lists,
                none => none.insert(ListChunk::read(connection, &chunk)?),
            };
            each(lists.list(index)?);
        }
        Ok(())
    };
    if !starts {
        return for_each_chunk_with(connection, segment.id, needle, look_through);
    }
    for_each_chunk(connection, segment.id, needle, |chunk| {
        let is_behind = chunk
            .iter()
            .next()
            .is_some_and(|first| first > needle && !first.starts_with(needle));
        if is_behind {
            return Ok(ControlFlow::Break(()));
        }
        look_through(chunk)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// A part of a regular expression, as far as the index can use it.
enum RegexPart {
    Char(char),
    /// A place at which a word begins or ends.
    Boundary,
    /// One or more characters that are not part of a word.
    Separator,
    /// Something that the index knows nothing about, or nothing at all.
    Gap,
    /// Something with a need of its own, whose first and last characters are unknown.
    Need(Need),
}

/// Appends the parts of an expression in order. Whatever cannot be expressed becomes a gap, which
/// is always correct.
fn flatten(hir: &Hir, pieces: &mut Vec<RegexPart>) {
    match hir.kind() {
        HirKind::Empty => {}
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => pieces.extend(text.chars().map(|c| match fold_char(c) {
                Some(c) => RegexPart::Char(c),
                None => RegexPart::Gap,
            })),
            Err(_) => pieces.push(RegexPart::Gap),
        },
        HirKind::Class(class) => pieces.push(of_class(class)),
        HirKind::Look(look) => match look {
            Look::Start
            | Look::End
            | Look::StartLF
            | Look::EndLF
            | Look::StartCRLF
            | Look::EndCRLF
            | Look::WordUnicode
            | Look::WordStartUnicode
            | Look::WordEndUnicode => pieces.push(RegexPart::Boundary),
            // The other assertions imply nothing. `\B` and ASCII word boundaries differ from the
            // borders of indexed words.
            _ => {}
        },
        HirKind::Repetition(repetition) => {
            if repetition.min == 0 {
                pieces.push(RegexPart::Gap);
                return;
            }
            let before = pieces.len();
            flatten(&repetition.sub, pieces);
            let only_separators =
                pieces.len() == before + 1 && matches!(pieces[before], RegexPart::Separator);
            if repetition.max != Some(1) && !only_separators {
                pieces.push(RegexPart::Gap);
            }
        }
        HirKind::Capture(capture) => flatten(&capture.sub, pieces),
        HirKind::Concat(parts) => parts.iter().for_each(|part| flatten(part, pieces)),
        HirKind::Alternation(branches) => {
            let needs: Vec<Need> = branches.iter().map(Need::of_regex).collect();
            let look_ups: usize = needs.iter().map(Need::look_ups).sum();
            pieces.push(if look_ups > LOOKED_UP || needs.contains(&Need::Anything) {
                RegexPart::Gap
            } else {
                RegexPart::Need(Need::Any(needs))
            });
        }
    }
}

/// A class with more characters than this is not enumerated.
const CLASS_CHARS: u32 = 512;

fn of_class(hir: &HirClass) -> RegexPart {
    let ranges: Vec<(char, char)> = match hir {
        HirClass::Unicode(unicode) => unicode
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect(),
        HirClass::Bytes(bytes) => bytes
            .iter()
            .map(|range| (char::from(range.start()), char::from(range.end())))
            .collect(),
    };
    let size: u32 = ranges
        .iter()
        .map(|(start, end)| u32::from(*end) - u32::from(*start) + 1)
        .sum();
    if size == 0 || size > CLASS_CHARS {
        return RegexPart::Gap;
    }
    let mut chars = ranges.into_iter().flat_map(|(start, end)| start..=end);
    let first = chars.clone().next().map(fold_char);
    match first {
        Some(Some(first)) if chars.clone().all(|c| fold_char(c) == Some(first)) => {
            RegexPart::Char(first)
        }
        _ if chars.all(|c| class(c) == Class::Separator) => RegexPart::Separator,
        _ => RegexPart::Gap,
    }
}

/// Ends the literal that was being collected and adds its need.
fn flush(literal: &mut String, starts: bool, ends: bool, needs: &mut Vec<Need>) {
    if !literal.is_empty() {
        needs.push(Need::of_literal(literal, starts, ends));
        literal.clear();
    }
}

#[cfg(test)]
mod tests;
