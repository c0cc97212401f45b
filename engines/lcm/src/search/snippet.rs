//! The piece of a text that a hit shows.

use std::ops::Range;

/// A piece of a text around a match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snippet {
    /// Whole lines, long ones cut at `…`.
    pub text: String,
    /// Where in that the match begins.
    pub focus: usize,
    /// The line of the match, from 1, in the message's text followed by its calls on separate lines.
    pub line: usize,
    /// The start of the match in the same text, in bytes from 0.
    pub byte: usize,
    /// The number of matches in the text, counted up to 100.
    pub matches: usize,
}

/// Matches of one text are counted up to here.
pub(super) const MAX_COUNTED: usize = 100;

/// A line shows at most about this many bytes, around the match.
const LINE_BYTES: usize = 240;

/// The lines of `text` around the first of `places`, with `context` lines before and after.
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

/// Appends a line, cut around the byte `focus`; returns the new position of that byte.
fn push_line(line: &str, focus: usize, out: &mut String) -> usize {
    if line.len() <= LINE_BYTES {
        out.push_str(line);
        return out.len() - line.len() + focus;
    }
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
    /// The start of a shorter snippet: a few characters before the match, in its line.
    pub(crate) fn short_start(&self) -> usize {
        let line = self.text[..self.focus].rfind('\n').map_or(0, |at| at + 1);
        let start = self.focus.saturating_sub(SHORT_BYTES);
        line.max(self.text.floor_char_boundary(start))
    }
}

/// How much a shortened snippet shows before the match, in bytes.
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
