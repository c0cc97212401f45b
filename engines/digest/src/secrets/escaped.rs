//! Text without its escapes, and the way back to the places in the original.

use std::cell::OnceCell;
use std::ops::Range;

use crate::arguments::unicode_escape;

/// A text whose escapes are resolved.
pub(super) struct Decoded {
    pub(super) text: String,
    /// Behind each escape: the byte in `text`, and the byte in the original. Few texts hold a secret, so it
    /// is made when the first place is asked for.
    behind: OnceCell<Vec<(usize, usize)>>,
}

impl Decoded {
    /// None for a text without a backslash.
    pub(super) fn of(original: &str) -> Option<Self> {
        memchr::memchr(b'\\', original.as_bytes())?;
        Some(Self {
            text: decode(original, |_, _| {}),
            behind: OnceCell::new(),
        })
    }

    /// The bytes of the original that became these.
    pub(super) fn original(&self, original: &str, decoded: &Range<usize>) -> Range<usize> {
        let behind = self.behind.get_or_init(|| {
            let mut behind = Vec::new();
            decode(original, |decoded, original| {
                behind.push((decoded, original))
            });
            behind
        });
        let place = |decoded: usize| {
            let before = behind.partition_point(|(at, _)| *at <= decoded);
            match before.checked_sub(1).map(|before| behind[before]) {
                Some((at, original)) => original + (decoded - at),
                None => decoded,
            }
        };
        place(decoded.start)..place(decoded.end)
    }
}

/// The text without its escapes. `behind` is told of the end of each, in the result and in the original.
fn decode(original: &str, mut behind: impl FnMut(usize, usize)) -> String {
    let bytes = original.as_bytes();
    let mut text = String::with_capacity(original.len());
    let mut copied = 0;
    while let Some(step) = memchr::memchr(b'\\', &bytes[copied..]) {
        let next = copied + step;
        text.push_str(&original[copied..next]);
        copied = next + 2;
        match bytes.get(next + 1) {
            Some(b'n') => text.push('\n'),
            Some(b't') => text.push('\t'),
            Some(b'r') => text.push('\r'),
            Some(b'b' | b'f') => text.push(' '),
            Some(b'u') => {
                let (character, used) = unicode_escape(&original[copied..]);
                text.push(character);
                copied += used;
            }
            Some(byte) if byte.is_ascii() => text.push(char::from(*byte)),
            // The backslash goes, the character stays.
            Some(_) => {
                let character = original[next + 1..].chars().next();
                text.extend(character);
                copied = next + 1 + character.map_or(1, char::len_utf8);
            }
            None => {
                text.push('\\');
                copied = next + 1;
            }
        }
        behind(text.len(), copied);
    }
    text.push_str(&original[copied..]);
    text
}
