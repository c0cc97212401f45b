//! Quotes the words around facts.

use std::ops::Range;

use crate::span::Span;
use crate::text::{chars, clean_line};

/// A quote has at most this many characters, and reaches this many bytes to either side of its facts.
const QUOTE_CHARS: usize = 130;
const QUOTE_SIDE: usize = 48;
/// The lines around facts.
pub(crate) struct Surroundings<'d> {
    span: &'d Span<'d>,
}

impl<'d> Surroundings<'d> {
    pub(crate) fn of(span: &'d Span<'d>) -> Self {
        Self { span }
    }

    /// The words around bytes of a source, unchanged; none if they are too many.
    pub(crate) fn words(&self, source: usize, place: Range<usize>) -> Option<&'d str> {
        if place.len() > 2 * QUOTE_CHARS {
            return None;
        }
        let window = self.window(source, place, QUOTE_SIDE);
        Some(trim_to_words(&self.span.sources[source].text, window))
    }

    /// The words around bytes of a source as a quote of at most `most` characters.
    pub(crate) fn quote(&self, source: usize, place: Range<usize>, most: usize) -> Option<String> {
        let quote = clean_line(self.words(source, place)?);
        (chars(&quote) <= most.min(QUOTE_CHARS)).then_some(quote)
    }

    /// These bytes of a source and up to `side` more on either side, within the line.
    fn window(&self, source: usize, place: Range<usize>, side: usize) -> Range<usize> {
        let text: &str = &self.span.sources[source].text;
        let start = text.floor_char_boundary(place.start.saturating_sub(side));
        let end = text.ceil_char_boundary(place.end + side);
        let bytes = text.as_bytes();
        let first = memchr::memrchr(b'\n', &bytes[start..place.start])
            .map_or(start, |newline| start + newline + 1);
        let last = memchr::memchr(b'\n', &bytes[place.end..end])
            .map_or(end, |newline| place.end + newline);
        first..last
    }
}

/// The words of a window into a text that were not cut in two at its ends.
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
