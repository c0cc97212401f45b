//! Quotes the words around facts, and checks them for secrets.

use std::borrow::Cow;
use std::ops::Range;

use hashbrown::HashMap;

use crate::rank::Fact;
use crate::secrets::mask_secrets;
use crate::span::Span;
use crate::text::{chars, contains, without_marks};

/// A quote has at most this many characters, and reaches this many bytes to either side of its facts.
const QUOTE_CHARS: usize = 130;
const QUOTE_SIDE: usize = 48;
/// The largest distance between a secret and its cue, in bytes.
const SECRET_SIDE: usize = 3 * QUOTE_SIDE;
/// How many bytes of a line to either side are first searched for secrets.
const LINE_SIDE: usize = 400;

/// The lines around facts, with a cache of which were searched for secrets.
pub(crate) struct Surroundings<'d> {
    span: &'d Span<'d>,
    has_secret: HashMap<(usize, Range<usize>), bool>,
}

impl<'d> Surroundings<'d> {
    pub(crate) fn of(span: &'d Span<'d>) -> Self {
        Self {
            span,
            has_secret: HashMap::new(),
        }
    }

    /// Whether masking the fact's surroundings removes the fact.
    pub(crate) fn hide(&mut self, fact: &Fact) -> bool {
        if !self.hold_secret(fact.source, fact.start..fact.end) {
            return false;
        }
        match mask_secrets(self.around(fact.source, fact.start..fact.end, SECRET_SIDE)) {
            Cow::Borrowed(_) => false,
            Cow::Owned(masked) => !contains(&masked, fact.text(self.span)),
        }
    }

    /// Whether there is a secret in the line of these bytes.
    fn hold_secret(&mut self, source: usize, place: Range<usize>) -> bool {
        let window = self.window(source, place, LINE_SIDE);
        let text: &'d str = &self.span.sources[source].text;
        *self
            .has_secret
            .entry((source, window.clone()))
            .or_insert_with(|| matches!(mask_secrets(&text[window]), Cow::Owned(_)))
    }

    /// The words around bytes of a source, unchanged; none if they are too many.
    pub(crate) fn words(&self, source: usize, place: Range<usize>) -> Option<&'d str> {
        if place.len() > 2 * QUOTE_CHARS {
            return None;
        }
        let window = self.window(source, place, QUOTE_SIDE);
        Some(trim_to_words(&self.span.sources[source].text, window))
    }

    /// The words around bytes of a source as a quote of at most `most` characters; none if a secret is near
    /// whose cue the quote might cut off.
    pub(crate) fn quote(
        &mut self,
        source: usize,
        place: Range<usize>,
        most: usize,
    ) -> Option<String> {
        let words = self.words(source, place.clone())?;
        let is_near_a_secret = self.hold_secret(source, place.clone())
            && matches!(
                mask_secrets(self.around(source, place, SECRET_SIDE)),
                Cow::Owned(_)
            );
        if is_near_a_secret {
            return None;
        }
        let quote = without_marks(words);
        (chars(&quote) <= most.min(QUOTE_CHARS)).then_some(quote)
    }

    fn around(&self, source: usize, place: Range<usize>, side: usize) -> &'d str {
        &self.span.sources[source].text[self.window(source, place, side)]
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
