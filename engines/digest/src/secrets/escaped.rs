//! Text without its escapes, and the way back to the places in the original.

use std::ops::Range;

use crate::arguments::unicode_escape;

/// A text whose escapes are resolved.
pub(super) struct Decoded {
    pub(super) text: String,
    /// Behind each escape: the byte in `text`, and the byte in the original.
    behind: Vec<(usize, usize)>,
}

impl Decoded {
    /// None for a text without a backslash.
    pub(super) fn of(original: &str) -> Option<Self> {
        let bytes = original.as_bytes();
        let mut next = memchr::memchr(b'\\', bytes)?;
        let mut text = String::with_capacity(original.len());
        let mut behind = Vec::new();
        let mut copied = 0;
        loop {
            text.push_str(&original[copied..next]);
            let mut rest = original[next + 1..].chars();
            match rest.next() {
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('r') => text.push('\r'),
                Some('b' | 'f') => text.push(' '),
                Some('u') => {
                    let (character, used) = unicode_escape(rest.as_str());
                    text.push(character);
                    rest = rest.as_str()[used..].chars();
                }
                Some(other) => text.push(other),
                None => text.push('\\'),
            }
            copied = original.len() - rest.as_str().len();
            behind.push((text.len(), copied));
            match memchr::memchr(b'\\', &bytes[copied..]) {
                Some(step) => next = copied + step,
                None => break,
            }
        }
        text.push_str(&original[copied..]);
        Some(Self { text, behind })
    }

    /// The bytes of the original that became these.
    pub(super) fn original(&self, decoded: &Range<usize>) -> Range<usize> {
        self.at(decoded.start)..self.at(decoded.end)
    }

    fn at(&self, decoded: usize) -> usize {
        let before = self.behind.partition_point(|(at, _)| *at <= decoded);
        match before.checked_sub(1).map(|before| self.behind[before]) {
            Some((at, original)) => original + (decoded - at),
            None => decoded,
        }
    }
}
