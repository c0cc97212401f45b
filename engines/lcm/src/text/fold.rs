//! Folds the different ways to write a letter to one form.
//!
//! A letter may be composed or decomposed, in upper or lower case, with or without accents. The
//! index stores folded text, and a full-text search folds its terms in the same way, so [`fold`]
//! decides what matches. The other [`Form`]s keep the accents, or only compose, for searches in which
//! case matters.
//!
//! Folding changes the length of some characters. [`Form::in_original`] maps the places of matches in
//! the folded text back to the text itself. The result equals what SQLite's tokenizer `unicode61`
//! makes of a composed text, and the tests compare the two.

use std::borrow::Cow;
use std::ops::Range;

use unicode_normalization::char::{canonical_combining_class, decompose_canonical};
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::terms::{Class, class};

/// Returns the form of `c` in the index and in a full-text search, or None for a combining mark
/// that is dropped. The form is in one case, and Latin letters lose their accents. It equals what
/// SQLite's tokenizer `unicode61` makes of a character of a composed text.
#[inline]
pub(crate) fn fold_char(c: char) -> Option<char> {
    if c.is_ascii() {
        return Some(c.to_ascii_lowercase());
    }
    if is_loose_mark(c) {
        return None;
    }
    Some(match c {
        // The ranges that contain Latin letters with accents. Other characters skip the
        // decomposition, which costs time.
        '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' | '\u{212a}' | '\u{212b}' => {
            latin_base(c).unwrap_or_else(|| fold_case_char(c))
        }
        _ => fold_case_char(c),
    })
}

/// Whether `c` is a combining mark that `unicode61` drops. The marks are a bit set for the 50
/// characters from U+0300 on.
const fn is_loose_mark(c: char) -> bool {
    const MARKS: [u32; 2] = [0x0802_9fdf, 0x0003_61f8];
    let at = c as u32;
    at >= 0x300 && at <= 0x331 && MARKS[(at - 0x300) as usize / 32] & 1 << (at % 32) != 0
}

/// Returns the lower-case ASCII letter that `c` is without its accents. Returns None if it is not
/// such a letter with accents.
fn latin_base(c: char) -> Option<char> {
    let mut base = None;
    let mut is_accented = true;
    decompose_canonical(c, |part| match base {
        None => base = Some(part),
        Some(_) => is_accented &= canonical_combining_class(part) != 0,
    });
    let base = base.filter(|_| is_accented).map(fold_case_char);
    base.filter(char::is_ascii_lowercase)
}

/// Returns one common form for `c` and all characters that differ from it only by case. It is a
/// single character, so that the number of characters stays the same.
#[inline]
pub(crate) fn fold_case_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    // Only word characters have a case here. The standard library may know newer letters than
    // `regex` does, and those must not turn into word characters.
    if class(c) != Class::Word {
        return c;
    }
    match c {
        // Unicode folds these pairs together, although neither is the upper or lower case of the
        // other.
        '\u{1fd3}' => '\u{390}',
        '\u{1fe3}' => '\u{3b0}',
        '\u{fb05}' => '\u{fb06}',
        _ => single(
            single(c, c.to_uppercase()),
            single(c, c.to_uppercase()).to_lowercase(),
        ),
    }
}

/// Returns the mapping if it is exactly one character, and `c` if it is not.
fn single(c: char, mut mapped: impl ExactSizeIterator<Item = char>) -> char {
    match (mapped.len(), mapped.next()) {
        (1, Some(one)) => one,
        _ => c,
    }
}

/// Returns a text in composed form (NFC), in which both ways to write a letter are equal. Most
/// texts are composed already and are returned as they are.
pub(crate) fn composed(text: &str) -> Cow<'_, str> {
    match is_composed(text) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(pieces(text).map(|(_, piece)| piece).collect::<String>()),
    }
}

fn is_composed(text: &str) -> bool {
    // The fast path for almost every text. Nothing below U+0300 composes further, and Han
    // characters do not change.
    let is_plain = |c: char| c < '\u{300}' || matches!(c, '\u{3400}'..='\u{9fff}');
    text.is_ascii()
        || is_nfc_quick(text.chars().filter(|c| !is_plain(*c))) == IsNormalized::Yes
            && text
                .chars()
                .all(|c| is_plain(c) || canonical_combining_class(c) == 0)
        || pieces(text).all(|(place, piece)| text[place] == piece)
}

/// Splits a text into the pieces that compose independently of each other. Each is returned
/// composed, with its byte range in the text.
fn pieces(text: &str) -> impl Iterator<Item = (Range<usize>, Cow<'_, str>)> {
    let quick = |c: &char| is_nfc_quick(std::iter::once(*c));
    let begins =
        move |c: &char| canonical_combining_class(*c) == 0 && quick(c) != IsNormalized::Maybe;
    let mut start = 0;
    std::iter::from_fn(move || {
        let mut rest = text.get(start..)?.char_indices();
        let (_, first) = rest.next()?;
        let end = rest
            .find(|(_, c)| begins(c))
            .map_or(text.len(), |(at, _)| start + at);
        let place = start..end;
        start = end;
        let piece = &text[place.clone()];
        // Most pieces are a single character that stays as it is, and those need no allocation.
        let stays = piece.len() == first.len_utf8() && quick(&first) == IsNormalized::Yes;
        let piece = match stays {
            true => Cow::Borrowed(piece),
            false => Cow::Owned(piece.nfc().collect()),
        };
        Some((place, piece))
    })
}

/// The form in which the texts and the pattern of a search are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Composed only, if case matters.
    Composed,
    /// Composed and in one case, with accents.
    OneCase,
    /// Composed, in one case and without accents, as [`fold`] returns it.
    Folded,
}

impl Form {
    /// Returns a text in this form. `scratch` is a buffer that the result may borrow from.
    pub(crate) fn of<'t>(self, text: &'t str, scratch: &'t mut String) -> Cow<'t, str> {
        match self {
            Self::Composed => return composed(text),
            Self::OneCase => fold_by(text, |c| Some(fold_case_char(c)), scratch),
            Self::Folded => fold_into(text, scratch),
        }
        Cow::Borrowed(scratch)
    }

    /// Maps places in this form of a text to places in the text itself, in one pass.
    pub(crate) fn in_original(self, text: &str, places: &mut [Range<usize>]) {
        match self {
            Self::Composed => in_original_of_composed(text, places),
            Self::OneCase => back(text, |c| fold_case_char(c).len_utf8(), places),
            Self::Folded => back(text, |c| fold_char(c).map_or(0, char::len_utf8), places),
        }
    }
}

/// Folds a text into `out`, which is cleared first. The result is composed, in one case and without
/// accents.
pub(crate) fn fold_into(text: &str, out: &mut String) {
    fold_by(text, fold_char, out);
}

fn fold_by(text: &str, fold: impl Fn(char) -> Option<char>, out: &mut String) {
    let text = composed(text);
    out.clear();
    out.reserve(text.len());
    let mut rest: &str = &text;
    while !rest.is_empty() {
        let ascii = rest
            .bytes()
            .position(|byte| !byte.is_ascii())
            .unwrap_or(rest.len());
        let start = out.len();
        out.push_str(&rest[..ascii]);
        out[start..].make_ascii_lowercase();
        rest = &rest[ascii..];
        let mut chars = rest.chars();
        while let Some(c) = chars.clone().next().filter(|c| !c.is_ascii()) {
            out.extend(fold(c));
            chars.next();
        }
        rest = chars.as_str();
    }
}

/// Returns a text in folded form. Use [`fold_into`] if many texts are folded, to reuse the buffer.
pub(crate) fn fold(text: &str) -> String {
    let mut out = String::new();
    fold_into(text, &mut out);
    out
}

/// Maps places in the folded form of a text to places in the text itself, in one pass.
pub(crate) fn in_original(text: &str, places: &mut [Range<usize>]) {
    Form::Folded.in_original(text, places);
}

fn in_original_of_composed(text: &str, places: &mut [Range<usize>]) {
    // A text that is composed already needs no mapping.
    if !is_composed(text) {
        let pieces = pieces(text).map(|(place, piece)| (place.start, piece.len()));
        map_back(pieces, text.len(), places);
    }
}

fn back(text: &str, len: impl Fn(char) -> usize, places: &mut [Range<usize>]) {
    let composed = composed(text);
    let chars = composed.char_indices().map(|(at, c)| (at, len(c)));
    map_back(chars, composed.len(), places);
    in_original_of_composed(text, places);
}

/// Maps places back over the pieces of a text. Each piece is given by its start in the original and
/// its length after folding. `end` is the length of the original.
fn map_back(pieces: impl Iterator<Item = (usize, usize)>, end: usize, places: &mut [Range<usize>]) {
    let mut ends: Vec<&mut usize> = places
        .iter_mut()
        .flat_map(|place| [&mut place.start, &mut place.end])
        .collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut folded = 0;
    for (at, length) in pieces {
        // A piece that became empty has no place of its own, so it belongs to the one before it.
        while let Some(end) = ends.next_if(|end| **end <= folded && length > 0) {
            *end = at;
        }
        if ends.peek().is_none() {
            return;
        }
        folded += length;
    }
    for rest in ends {
        *rest = end;
    }
}

#[cfg(test)]
mod tests;
