//! Quotes the words around facts.
//!
//! A bare name tells a reader little, so with the rest of a budget names are replaced by the words
//! around them. [`words`] returns these words as they stand in the text, which shows how much room a
//! quote needs. [`quote`] returns them cleaned, if they fit. Quotes never leave the line of their
//! facts, and are cut only between words.

use std::ops::Range;

use crate::text::{chars, clean_line};

/// A quote has at most `QUOTE_CHARS` characters, and reaches at most `QUOTE_SIDE` bytes beyond its
/// facts on either side.
const QUOTE_CHARS: usize = 130;
const QUOTE_SIDE: usize = 48;

/// Returns the words around these bytes of a text, unchanged. Returns `None` if the bytes themselves
/// are too many for a quote.
pub(crate) fn words(text: &str, place: Range<usize>) -> Option<&str> {
    if place.len() > 2 * QUOTE_CHARS {
        return None;
    }
    let start = text.floor_char_boundary(place.start.saturating_sub(QUOTE_SIDE));
    let end = text.ceil_char_boundary(place.end + QUOTE_SIDE);
    let bytes = text.as_bytes();
    let first = memchr::memrchr(b'\n', &bytes[start..place.start])
        .map_or(start, |newline| start + newline + 1);
    let last =
        memchr::memchr(b'\n', &bytes[place.end..end]).map_or(end, |newline| place.end + newline);
    Some(trim_to_words(text, first..last))
}

/// Returns the words around these bytes of a text as a quote of at most `most` characters, or `None`
/// if it would be longer.
pub(crate) fn quote(text: &str, place: Range<usize>, most: usize) -> Option<String> {
    let quote = clean_line(words(text, place)?);
    (chars(&quote) <= most.min(QUOTE_CHARS)).then_some(quote)
}

/// Returns the words of a window into a text, without those that its ends cut in two.
fn trim_to_words(text: &str, window: Range<usize>) -> &str {
    let is_cut = |beside: Option<char>| beside.is_some_and(|c| !c.is_whitespace());
    let mut trimmed = &text[window.clone()];
    if is_cut(text[..window.start].chars().next_back())
        && let Some((_, rest)) = trimmed.split_once(' ')
    {
        trimmed = rest;
    }
    if is_cut(text[window.end..].chars().next())
        && let Some((rest, _)) = trimmed.rsplit_once(' ')
    {
        trimmed = rest;
    }
    trimmed
}
