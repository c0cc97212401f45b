//! The piece of a text that a hit shows.
//!
//! A snippet consists of the line of the first match and some lines of context. Lines can be very
//! long, in minified code or JSON, so each is cut around the match. [`snippet`] creates it and
//! records the position of the match, so that a reader can continue there.

use std::ops::Range;

/// A piece of a text around its first match, with the position of that match in the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snippet {
    /// The line of the match and its context. If a line is too long, it is cut and `…` marks the
    /// cuts.
    pub text: String,
    /// The byte in `text` at which the match begins, for highlighting it.
    pub focus: usize,
    /// The line of the match, counted from 1. The text of a message is followed by its calls on
    /// separate lines.
    pub line: usize,
    /// The byte at which the match begins, counted from 0 in the same text.
    pub byte: usize,
    /// The number of matches in the text. It is at most 100, because counting stops there.
    pub matches: usize,
}

/// The number up to which the matches of one text are counted. Counting all would take long for a
/// common word in a large text.
pub(super) const MAX_COUNTED: usize = 100;

/// About how many bytes of a line are shown around the match if the line is longer.
const LINE_BYTES: usize = 240;

/// Returns the lines of `text` around the first of `places`, with `context` lines before and after.
/// If there are no places, it returns the beginning of the text.
pub(super) fn snippet(text: &str, places: &[Range<usize>], context: usize) -> Snippet {
    let place = places.first().cloned().unwrap_or(0..0);
    let start = text.floor_char_boundary(place.start);
    let line = memchr::memchr_iter(b'\n', &text.as_bytes()[..start]).count();
    let mut out = String::new();
    let mut focus = 0;
    for (number, content) in text
        .split('\n')
        .enumerate()
        .skip(line.saturating_sub(context))
        .take(line.min(context) + 1 + context)
    {
        if !out.is_empty() {
            out.push('\n');
        }
        // `split` returns slices of `text`, so the difference of the pointers is the offset.
        let offset = content.as_ptr() as usize - text.as_ptr() as usize;
        if number == line {
            focus = push_line(content, start - offset, &mut out);
        } else {
            push_line(content, 0, &mut out);
        }
    }
    Snippet {
        text: out,
        focus,
        line: line + 1,
        byte: start,
        matches: places.len(),
    }
}

/// Appends a line to `out`. If the line is too long, it is cut around the byte `focus`. Returns the
/// position of that byte in `out`.
fn push_line(line: &str, focus: usize, out: &mut String) -> usize {
    if line.len() <= LINE_BYTES {
        out.push_str(line);
        return out.len() - line.len() + focus;
    }
    // Show more of the line after the start of the match than before it.
    let from = line.floor_char_boundary(focus.saturating_sub(LINE_BYTES / 3));
    let to = line.floor_char_boundary(from + LINE_BYTES);
    if from > 0 {
        out.push('…');
    }
    let focus = out.len() + focus.min(to) - from;
    out.push_str(&line[from..to]);
    if to < line.len() {
        out.push('…');
    }
    focus
}

impl Snippet {
    /// Returns the byte of `text` at which a shorter snippet can start. It is a few characters
    /// before the match and in the same line.
    pub(crate) fn short_start(&self) -> usize {
        let line = self.text[..self.focus].rfind('\n').map_or(0, |at| at + 1);
        let start = self.focus.saturating_sub(SHORT_BYTES);
        line.max(self.text.floor_char_boundary(start))
    }
}

/// How many bytes before the match a shortened snippet shows.
const SHORT_BYTES: usize = 24;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shows_the_line_and_its_context() {
        let found = snippet("one\ntwo\nthree\nfour", &[9..11, 15..16], 1);
        assert_eq!(found.text, "two\nthree\nfour");
        assert_eq!((found.line, found.byte, found.matches), (3, 9, 2));
    }

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let text = format!("{}NEEDLE{}", "世".repeat(500), "x".repeat(500));
        let found = snippet(&text, std::slice::from_ref(&(1500..1506)), 0);
        assert!(found.text[found.focus..].starts_with("NEEDLE") && found.text.len() < 300);
        assert!(found.text[found.short_start()..].starts_with("世世世世世世世世NEEDLE"));
        assert!(found.text.starts_with('…') && found.text.ends_with('…'));
    }

    proptest! {
        #[test]
        fn any_place_can_be_shown(text in "(\\PC|\\n){0,600}", at in 0usize..700, context in 0usize..4) {
            let shown = snippet(&text, std::slice::from_ref(&(at..at + 3)), context);
            prop_assert!(shown.text.lines().count() <= 2 * context + 1);
            let focused = text.get(shown.byte..).unwrap_or_default().chars().next();
            if focused.is_some_and(|c| c != '\n') {
                prop_assert_eq!(shown.text[shown.focus..].chars().next(), focused);
            }
            prop_assert!(shown.short_start() <= shown.focus);
        }
    }
}
