//! Marks texts that the host wrote, so that it recognises them when a client sends them back.
//!
//! A seal is a checksum in the mark at the end of a text. By it a host knows its own text without any
//! stored record. A text that merely begins like a summary, for example because
//! a user quotes one, is not sealed.
//!
//! [`sealed_summary`], [`sealed_notice`] and [`sealed_short`] add a seal. Clients may join
//! adjacent messages of one role, so a sealed text may be anywhere inside another text.
//! [`sealed_parts`] finds all of them. The checksum is not a signature, so it does not protect
//! against forgery.

use std::ops::Range;

use contexture_engine_api::{CLEARED_TOOL_OUTPUT, SUMMARY_END_MARK, SUMMARY_MARK};
use xxhash_rust::xxh3::xxh3_64;

/// The number of hexadecimal digits of a checksum. It is written after its mark as a space, `#`
/// and the digits.
const DIGITS: usize = 8;

fn checksum(text: &str) -> String {
    format!("#{:0DIGITS$x}", xxh3_64(text.trim().as_bytes()) as u32)
}

/// Returns a summary in its wire form: between the start mark and the end mark, which carries
/// the checksum. If the text is already sealed, it stays the same, and so do several sealed
/// summaries and notices.
pub fn sealed_summary(text: &str) -> String {
    if is_sealed(text) {
        return text.trim().to_owned();
    }
    // An end mark inside the summary would end it too early when it is read back.
    let text = text.replace(SUMMARY_END_MARK, "");
    let text = text.trim();
    let text = match begins_with_a_mark(text) {
        true => text.to_owned(),
        false => format!("{SUMMARY_MARK}\n{text}").trim_end().to_owned(),
    };
    let checksum = checksum(&text);
    format!("{text}\n\n{SUMMARY_END_MARK} {checksum}")
}

/// Whether a text is nothing but sealed summaries and notices.
fn is_sealed(text: &str) -> bool {
    let parts = sealed_parts(text);
    let mut end = 0;
    let mut follows = |part: &SealedPart| {
        let between = text.get(end..part.range.start).unwrap_or_default();
        end = part.range.end;
        part.kind != Sealed::Short && between.trim().is_empty()
    };
    let has_parts = !parts.is_empty();
    has_parts
        && parts.iter().all(&mut follows)
        && text.get(end..).is_some_and(|rest| rest.trim().is_empty())
}

/// Returns the sealed summary at the start of a text, without its end mark, and the text that
/// follows it. The second is `None` if nothing follows. A notice never has text after it and is
/// returned with its seal. `None` if the text does not start with a sealed text.
pub(super) fn leading_summary(text: &str) -> Option<(&str, Option<&str>)> {
    if !begins_with_a_mark(text) {
        return None;
    }
    if unsealed_notice(text).is_some() {
        return Some((text, None));
    }
    text.match_indices(SUMMARY_END_MARK).find_map(|(at, mark)| {
        let summary = text.get(..at)?.trim_end();
        let rest = text.get(at + mark.len()..)?.strip_prefix(' ')?;
        let rest = rest.strip_prefix(&checksum(summary))?;
        let joined = rest.strip_prefix("\n\n").unwrap_or(rest);
        Some((summary, (!rest.is_empty()).then_some(joined)))
    })
}

/// The kind of a text that the host sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sealed {
    Summary,
    Notice,
    /// The shortened form of a message.
    Short,
}

/// A text of the host inside another text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SealedPart {
    pub(super) kind: Sealed,
    /// The byte range of the text, including the seal.
    pub(super) range: Range<usize>,
    /// The end of the content in bytes. A summary ends before its end mark, while a notice and
    /// a shortened form are read with their seal.
    pub(super) until: usize,
}

/// Finds every sealed text inside a text, in order, regardless of what surrounds it. If a
/// hostile text exhausts the time budget, the rest of it counts as unsealed.
pub(super) fn sealed_parts(text: &str) -> Vec<SealedPart> {
    let mut found: Vec<SealedPart> = Vec::new();
    let mut beginnings = None;
    let mut from = 0;
    while let Some(at) = text.get(from..).and_then(|rest| rest.find('#')) {
        let sum = from + at;
        from = sum + 1;
        let Some((kind, body_end, until, end)) = seal_at(text, sum) else {
            continue;
        };
        let floor = found.last().map_or(0, |part| part.range.end);
        // Most texts contain no seal, so the marks are located only when the first one is
        // found.
        let beginnings = beginnings.get_or_insert_with(|| Beginnings::of(text));
        let digits = text.get(sum..sum + 1 + DIGITS).unwrap_or_default();
        match beginnings.find(floor..body_end, digits) {
            Ok(Some(start)) => {
                let until = until.unwrap_or(end);
                let range = start..end;
                from = end;
                found.push(SealedPart { kind, range, until });
            }
            Ok(None) => {}
            Err(Exhausted) => break,
        }
    }
    found
}

/// Returns the kind of the seal whose checksum begins at `sum`, the end of the text before the
/// seal, the end of the content if it differs from the end of the seal, and the end of the
/// seal. `None` if there is no seal.
fn seal_at(text: &str, sum: usize) -> Option<(Sealed, usize, Option<usize>, usize)> {
    let end = sum + 1 + DIGITS;
    let digits = text.get(sum + 1..end)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let before = text.get(..sum)?;
    if let Some(body) = before
        .strip_suffix(' ')
        .and_then(|rest| rest.strip_suffix(SUMMARY_END_MARK))
    {
        let body_end = body.trim_end().len();
        return Some((Sealed::Summary, body_end, Some(body_end), end));
    }
    let is_closed = text.as_bytes().get(end) == Some(&b']');
    let (kind, body) = match before.strip_suffix("\n[notice ") {
        Some(body) => (Sealed::Notice, body),
        None => (Sealed::Short, before.strip_suffix("\n[")?),
    };
    is_closed.then_some((kind, body.len(), None, end + 1))
}

/// The positions at which sealed texts may begin, the most likely ones first.
struct Beginnings<'t> {
    text: &'t str,
    /// The positions of the host's own summary marks, then of other marks at the start of a
    /// line, then of marks elsewhere.
    places: [Vec<usize>; 3],
    /// The number of bytes that may still be hashed. It limits the time that a hostile text
    /// with many marks and seals can take.
    budget: usize,
}

/// The error if more bytes would have to be hashed than the budget allows.
struct Exhausted;

impl<'t> Beginnings<'t> {
    fn of(text: &'t str) -> Self {
        let mut places = [Vec::new(), Vec::new(), Vec::new()];
        for (at, _) in text.match_indices(['[', '【']) {
            let before = text.get(..at).unwrap_or_default();
            let likely = match text.get(at..) {
                Some(rest) if rest.starts_with(SUMMARY_MARK) => 0,
                _ if before.is_empty() || before.ends_with('\n') => 1,
                _ => 2,
            };
            places[likely].push(at);
        }
        let budget = text.len().saturating_mul(32).saturating_add(1 << 16);
        Self {
            text,
            places,
            budget,
        }
    }

    /// Finds the mark in the range `within` from which the text up to the end of the range has
    /// this checksum. Tries the nearest mark first. Fails if the budget is exhausted.
    fn find(&mut self, within: Range<usize>, digits: &str) -> Result<Option<usize>, Exhausted> {
        for places in &self.places {
            let end = places.partition_point(|at| *at < within.end);
            let near = places.get(..end).unwrap_or_default().iter().rev();
            for at in near.take_while(|at| **at >= within.start) {
                let candidate = self.text.get(*at..within.end).unwrap_or_default();
                let cost = candidate.len() + DIGITS;
                self.budget = self.budget.checked_sub(cost).ok_or(Exhausted)?;
                if checksum(candidate) == digits {
                    return Ok(Some(*at));
                }
            }
        }
        Ok(None)
    }
}

/// Whether a text begins with a mark of the host or of an engine. The contract between them
/// defines which marks exist.
fn begins_with_a_mark(text: &str) -> bool {
    text.starts_with(['[', '【'])
}

/// Returns a notice in its wire form, with the seal at its end.
pub fn sealed_notice(text: &str) -> String {
    let text = text.trim();
    format!("{text}\n[notice {}]", checksum(text))
}

/// Returns a sealed notice without its seal, or `None` if the text is not a sealed notice.
pub fn unsealed_notice(text: &str) -> Option<&str> {
    let text = text.trim_end();
    if !begins_with_a_mark(text) || !text.ends_with(']') {
        return None;
    }
    let (notice, seal) = text.rsplit_once("\n[notice ")?;
    (seal.strip_suffix(']')? == checksum(notice)).then_some(notice)
}

/// Returns a shortened text in its wire form. It stays unchanged if it has no mark, if it is
/// the text of a cleared result, or if it is already sealed.
pub fn sealed_short(text: &str) -> String {
    let is_sealed = unsealed_short(text).is_some();
    if !begins_with_a_mark(text) || text == CLEARED_TOOL_OUTPUT || is_sealed {
        return text.to_owned();
    }
    format!("{text}\n[{}]", checksum(text))
}

/// Returns a sealed shortened text without its seal, or `None` if the text is not one.
pub fn unsealed_short(text: &str) -> Option<&str> {
    if !begins_with_a_mark(text) {
        return None;
    }
    let (short, seal) = text.trim_end().rsplit_once("\n[")?;
    (seal.strip_suffix(']')? == checksum(short)).then_some(short)
}

#[cfg(test)]
mod tests;
