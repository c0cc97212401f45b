//! What a message must hold in order to match, and which messages of a segment have it.
//!
//! A need is never stronger than its pattern: every matching message satisfies it. So the texts of the
//! messages that satisfy it decide, and nothing is missed.

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

/// What a message must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing that the index can check.
    Anything,
    /// A word that contains this; at its beginning if `starts`, at its end if `ends`.
    Word {
        text: String,
        starts: bool,
        ends: bool,
    },
    /// These consecutive characters of a spaceless script.
    Stretch(String),
    /// All of these.
    All(Vec<Need>),
    /// One of these at least.
    Any(Vec<Need>),
}

/// How many parts of a pattern are looked up in the index at most. The texts decide in any case.
const LOOKED_UP: usize = 64;

/// With this few candidates left, reading them is cheaper than narrowing further.
const FEW: usize = 16;

impl Need {
    /// The need of a folded stretch of text. `starts` and `ends` say whether a word at its beginning or end
    /// is known to begin or end there.
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

    /// The need of a regular expression.
    pub(crate) fn of_regex(hir: &Hir) -> Self {
        let mut pieces = Vec::new();
        flatten(hir, &mut pieces);
        let mut needs = Vec::new();
        let mut literal = String::new();
        let mut starts = false;
        // Whether a word is known to end, or begin, next to a literal.
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

    /// How many look-ups it takes.
    fn look_ups(&self) -> usize {
        match self {
            Self::Anything => 0,
            Self::Word { .. } | Self::Stretch(_) => 1,
            Self::All(needs) | Self::Any(needs) => needs.iter().map(Self::look_ups).sum(),
        }
    }

    /// All of these, simplified.
    pub(crate) fn all(mut needs: Vec<Self>) -> Self {
        needs.retain(|need| *need != Self::Anything);
        match needs.len() {
            0 => Self::Anything,
            1 => needs.remove(0),
            _ => Self::All(needs),
        }
    }

    /// Whether satisfying it is an exact match, so that the text need not be read.
    pub(crate) fn is_exact(&self) -> bool {
        match self {
            // Close to the limit, the index cannot distinguish a word from the prefix of a longer one.
            Self::Word { text, starts, ends } => {
                *starts && *ends && text.len() <= MAX_WORD_BYTES - 4
            }
            Self::Stretch(_) => true,
            _ => false,
        }
    }

    /// Whether scanning the vocabulary for it would exclude enough to be worth it.
    fn narrows(&self) -> bool {
        match self {
            Self::Word { text, starts, ends } => {
                text.len() + usize::from(*starts) + usize::from(*ends) > 2
            }
            _ => true,
        }
    }

    /// The ordinals of the segment's messages that satisfy it, in order; none for all of them.
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

    /// The cost of a look-up: one list, a range of the vocabulary, or all of it.
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

fn all(
    connection: &Connection,
    segment: &Segment,
    needs: &[Need],
) -> Result<Option<Vec<u32>>, StoreError> {
    let mut order: Vec<&Need> = needs.iter().collect();
    // Among equals, long words first, because they are rarer.
    order.sort_by_key(|need| match need {
        Need::Word { text, .. } => (need.cost(), usize::MAX - text.len()),
        _ => (need.cost(), 0),
    });
    let mut found: Option<Vec<u32>> = None;
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

/// The intersection of two sorted lists.
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

fn exact(connection: &Connection, segment: &Segment, term: &str) -> Result<Vec<u32>, StoreError> {
    let mut out = Vec::new();
    if let Some((chunk, index)) = find(connection, segment, term)? {
        let lists = ListChunk::read(connection, chunk.id, chunk.iter().count())?;
        lists
            .list(index)?
            .ordinals(segment.ordinals.start, &mut out);
    }
    Ok(out)
}

/// The chunk of a term, and the term's index in it.
fn find(
    connection: &Connection,
    segment: &Segment,
    term: &str,
) -> Result<Option<(TermChunk, usize)>, StoreError> {
    let chunk = chunk_of(connection, segment.id, term.as_bytes())?;
    Ok(chunk.and_then(|chunk| chunk.find(term.as_bytes()).map(|index| (chunk, index))))
}

/// The messages that contain these consecutive characters: those in which the pairs have the same relative
/// positions.
fn stretch(connection: &Connection, segment: &Segment, text: &str) -> Result<Vec<u32>, StoreError> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let pairs = starts.len() - 1;
    if pairs < 2 {
        return exact(connection, segment, text);
    }
    // Every second pair covers all characters, if the last one is included.
    let mut found: Option<Vec<(u32, u32)>> = None;
    for pair in (0..pairs).step_by(2).chain([pairs - 1]) {
        let end = starts.get(pair + 2).copied().unwrap_or(text.len());
        // The end of the stretch if this pair is part of it.
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

/// The occurrences of a pair: the ordinals of the texts that contain it, with each position, in order.
fn places(
    connection: &Connection,
    segment: &Segment,
    pair: &str,
) -> Result<Vec<(u32, u32)>, StoreError> {
    let Some((chunk, index)) = find(connection, segment, pair)? else {
        return Ok(Vec::new());
    };
    let terms = chunk.iter().count();
    let lists = ListChunk::read(connection, chunk.id, terms)?;
    let places = PlaceChunk::read(connection, chunk.id, terms)?;
    lists
        .list(index)?
        .places(segment.ordinals.start, places.places(index)?)
        .ok_or_else(broken)
}

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
    for_each_term_like(connection, segment, text, starts, ends, |_, list| {
        list.ordinals(segment.ordinals.start, &mut out);
    })?;
    if !starts {
        // The rest of a long word is not indexed.
        out.extend(exact(connection, segment, LONG_WORD)?);
    }
    Ok(sorted(out))
}

/// Calls `each` with every term of the segment that contains `text` (at its beginning if `starts`, at its
/// end if `ends`), and its list.
pub(crate) fn for_each_term_like(
    connection: &Connection,
    segment: &Segment,
    text: &str,
    starts: bool,
    ends: bool,
    mut each: impl FnMut(&[u8], List<'_>),
) -> Result<(), StoreError> {
    let needle = text.as_bytes();
    let finder = memchr::memmem::Finder::new(needle);
    let mut look_through = |chunk: TermChunk| -> Result<(), StoreError> {
        if finder.find(&chunk.terms).is_none() {
            return Ok(());
        }
        let mut lists = None;
        let terms = chunk.iter().count();
        for (index, term) in chunk.iter().enumerate() {
            let like = match (starts, ends) {
                (true, _) => term.starts_with(needle),
                (false, true) => term.ends_with(needle),
                (false, false) => finder.find(term).is_some(),
            };
            if !like {
                continue;
            }
            if lists.is_none() {
                lists = Some(ListChunk::read(connection, chunk.id, terms)?);
            }
            if let Some(lists) = &lists {
                each(term, lists.list(index)?);
            }
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
    /// This character, in any case.
    Char(char),
    /// A boundary next to a character that is not part of a word.
    Boundary,
    /// One or more characters that are not part of a word.
    Separator,
    /// Anything, or nothing.
    Gap,
    /// Something with its own need, and unknown ends.
    Need(Need),
}

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
            // The others imply nothing: `\B` and ASCII word boundaries differ from ours.
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

/// A class with many characters is not enumerated.
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

fn flush(literal: &mut String, starts: bool, ends: bool, needs: &mut Vec<Need>) {
    if !literal.is_empty() {
        needs.push(Need::of_literal(literal, starts, ends));
        literal.clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::text::fold::fold;

    fn of(pattern: &str) -> Need {
        Need::of_regex(&regex_syntax::parse(pattern).unwrap())
    }

    fn word(text: &str, starts: bool, ends: bool) -> Need {
        Need::Word {
            text: text.into(),
            starts,
            ends,
        }
    }

    #[test]
    fn needs_of_regular_expressions() {
        assert_eq!(
            of(r"needle-[0-9]+-alpha"),
            Need::All(vec![
                word("needle", false, true),
                word("alpha", true, false)
            ])
        );
        assert_eq!(
            of(r"(?i)COPPER\s+LANTERN"),
            Need::All(vec![
                word("copper", false, true),
                word("lantern", true, false)
            ])
        );
        assert_eq!(of(r"\bepoch\b"), word("epoch", true, true));
        assert_eq!(of(r"(?-u:\b)epoch"), word("epoch", false, false));
        assert_eq!(
            of(r"Peregrine|epoch\.rs"),
            Need::Any(vec![
                word("peregrine", false, false),
                Need::All(vec![word("epoch", false, true), word("rs", true, false)])
            ])
        );
        assert_eq!(of("密碼是.{4}"), Need::Stretch("密碼是".into()));
        for anything in ["", "a*", "[a-z]+", "(foo|.)x?", "(a|b)+", r"\d{4}"] {
            assert_eq!(of(anything), Need::Anything, "{anything}");
        }
    }

    #[test]
    fn classes_survive_folding() {
        for c in '\0'..=char::MAX {
            assert!(
                fold_char(c).is_none_or(|folded| class(c) == class(folded)),
                "{c:?}"
            );
        }
        assert_eq!(fold("ÀΣ"), "aσ");
    }
}
