//! Text without its escapes, and the way back to positions in the original.
//!
//! Secrets have to be found as a reader sees them, but masked in the original text. [`Decoded::of`]
//! resolves backslash escapes, and [`Decoded::visible`] removes what a reader does not see, such as
//! the colours of a terminal. Both return the resulting text together with the means to map a range
//! in it back ([`Decoded::original`]). The map is only built if a secret was found, which is rare.

use std::cell::OnceCell;
use std::ops::Range;

/// Turns a text into another one. `behind` is called with the end of each change, as a byte in the
/// result and a byte in the original.
type Way = fn(original: &str, behind: &mut dyn FnMut(usize, usize)) -> String;

/// A text whose escapes are resolved, or without what a reader does not see.
pub(crate) struct Decoded {
    pub(crate) text: String,
    way: Way,
    /// For each change, the byte after it in `text` and in the original. It is made when the first
    /// position is mapped, because few texts have a secret.
    behind: OnceCell<Vec<(usize, usize)>>,
}

impl Decoded {
    /// Resolves the backslash escapes of a text. Returns `None` if it has no backslash.
    pub(crate) fn of(original: &str) -> Option<Self> {
        memchr::memchr(b'\\', original.as_bytes())?;
        Some(Self {
            text: decode(original, &mut |_, _| {}),
            way: decode,
            behind: OnceCell::new(),
        })
    }

    /// Removes what a reader does not see, at the positions that [`hidden`] finds. Returns `None`
    /// if there is nothing of that kind.
    pub(crate) fn visible(original: &str) -> Option<Self> {
        (!hidden(original).is_empty()).then(|| Self {
            text: without_invisible(original, &mut |_, _| {}),
            way: without_invisible,
            behind: OnceCell::new(),
        })
    }

    /// Returns the bytes of the original that became these bytes. The original must be the text
    /// that was decoded.
    pub(crate) fn original(&self, original: &str, decoded: &Range<usize>) -> Range<usize> {
        let behind = self.behind.get_or_init(|| {
            let mut behind = Vec::new();
            (self.way)(original, &mut |decoded, original| {
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

/// Whether a character has no width, so that a reader does not notice it inside a secret.
fn is_without_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// The longest escape sequence of a terminal, in bytes. A longer one is not recognised
/// as a whole, which bounds how much is read at each escape.
const SEQUENCE: usize = 512;

/// Returns the positions of everything that a reader does not see or sees as something else:
/// colours of a terminal, characters without a width, escapes of HTML and URLs, marks of a
/// quotation, and what joins two strings of code.
pub(crate) fn hidden(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let signs = memchr::memchr3_iter(0x1b, b'&', b'%', bytes);
    let brackets = memchr::memchr_iter(b'[', bytes);
    let wide = memchr::memchr3_iter(0xe1, 0xe2, 0xef, bytes);
    let others = memchr::memchr2_iter(0xc2, 0xd8, bytes);
    let mut places: Vec<usize> = (signs.chain(brackets).chain(wide).chain(others))
        .filter(|at| invisible(&text[*at..]).is_some())
        .collect();
    let joints = memchr::memchr2_iter(b'+', b'\n', bytes);
    places.extend(joints.filter_map(|at| match &bytes[at..] {
        [b'\n', b'>', b' ', ..] => Some(at),
        _ => {
            let is_between = |byte: &&u8| b" +.\\".contains(byte);
            let before = &bytes[at.saturating_sub(8)..at];
            let quote = at - before.iter().rev().take_while(is_between).count();
            let quote = quote.checked_sub(1)?;
            (matches!(bytes[quote], b'"' | b'\'') && join(&bytes[quote..]).is_some())
                .then_some(quote)
        }
    }));
    places.sort_unstable();
    places
}

/// Returns how many bytes at the beginning of a text a reader does not see, and the character that
/// they stand for, if any. `None` if the text begins with an ordinary character.
fn invisible(text: &str) -> Option<(usize, Option<char>)> {
    let parameters = |bytes: &[u8]| {
        let is_parameter = |byte: &&u8| (b' '..=b'?').contains(byte);
        bytes.iter().take(SEQUENCE).take_while(is_parameter).count()
    };
    match text.as_bytes() {
        [b'&', rest @ ..] => {
            let len = rest.iter().take(8).position(|byte| *byte == b';')?;
            Some((len + 2, Some(entity(text.get(1..=len)?)?)))
        }
        [b'%', rest @ ..] => {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            let sign = char::from(u8::from_str_radix(digits, 16).ok()?);
            "\"':={,".contains(sign).then_some((3, Some(sign)))
        }
        [b'\n', b'>', b' ', ..] => Some((3, Some('\n'))),
        [b'"' | b'\'', ..] => Some((join(text.as_bytes())?, None)),
        [0x1b, b'[', rest @ ..] | [0xc2, 0x9b, rest @ ..] => {
            let len = parameters(rest);
            let last = rest.get(len).is_some_and(u8::is_ascii);
            Some((2 + len + usize::from(last), None))
        }
        [0x1b, b']', rest @ ..] => {
            let rest = &rest[..rest.len().min(SEQUENCE)];
            let end = memchr::memchr2(0x07, 0x1b, rest)?;
            let is_long = rest[end..].starts_with(b"\x1b\\");
            Some((2 + end + 1 + usize::from(is_long), None))
        }
        [0x1b, ..] => Some((1, None)),
        // A colour whose first byte was lost, as in copied output.
        [b'[', digit, rest @ ..] if digit.is_ascii_digit() => {
            let is_parameter = |byte: &&u8| byte.is_ascii_digit() || **byte == b';';
            let len = rest.iter().take(12).take_while(is_parameter).count();
            (rest.get(len) == Some(&b'm')).then_some((len + 3, None))
        }
        _ => {
            let first = text.chars().next().filter(|c| is_without_width(*c))?;
            Some((first.len_utf8(), None))
        }
    }
}

/// The character that an escape of HTML stands for. Only names that occur around secrets are known,
/// and all numbers.
fn entity(name: &str) -> Option<char> {
    Some(match name {
        "quot" => '"',
        "apos" => '\'',
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "nbsp" => ' ',
        "equals" => '=',
        "colon" => ':',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => number.parse(),
            };
            char::from_u32(code.ok()?)?
        }
    })
}

/// Returns the length of what joins two strings of code at the beginning of a text, including their
/// quotes: `" + "`, or only the end of a line.
fn join(text: &[u8]) -> Option<usize> {
    const MOST: usize = 64;
    let (quote, rest) = text.split_first()?;
    let between = &rest[..rest.len().min(MOST)];
    let len = between
        .iter()
        .take_while(|byte| byte.is_ascii_whitespace() || b"+.\\".contains(byte))
        .count();
    let joins = between[..len]
        .iter()
        .any(|byte| matches!(byte, b'\n' | b'+' | b'.'));
    (joins && between.get(len) == Some(quote)).then_some(len + 2)
}

/// Returns the text as a reader sees it. `behind` is called for everything that was removed or
/// replaced.
fn without_invisible(original: &str, behind: &mut dyn FnMut(usize, usize)) -> String {
    let mut text = String::with_capacity(original.len());
    let mut copied = 0;
    let mut at = 0;
    let hides = |c: char| {
        matches!(c, '\u{1b}' | '\u{9b}' | '&' | '%' | '[' | '"' | '\'' | '\n')
            || is_without_width(c)
    };
    while let Some(step) = original[at..].find(hides) {
        at += step;
        let Some((hidden, shown)) = invisible(&original[at..]) else {
            at += original[at..].chars().next().map_or(1, char::len_utf8);
            continue;
        };
        text.push_str(&original[copied..at]);
        text.extend(shown);
        at += hidden;
        copied = at;
        behind(text.len(), copied);
    }
    text.push_str(&original[copied..]);
    text
}

/// Returns the text without its backslash escapes. `behind` is called with the end of each, in the
/// result and in the original.
fn decode(original: &str, behind: &mut dyn FnMut(usize, usize)) -> String {
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
            Some(b'e') if bytes.get(copied) == Some(&b'[') => text.push('\u{1b}'),
            Some(b'x' | b'0' | b'1') if numbered(original, next).is_some() => {
                text.extend(numbered(original, next));
                copied += 2;
            }
            Some(b'u') => {
                let (character, used) = unicode_escape(&original[copied..]);
                text.push(character);
                copied += used;
            }
            Some(byte) if byte.is_ascii() => text.push(char::from(*byte)),
            // An unknown escape loses its backslash and keeps the character.
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

/// Returns the ASCII character of a numeric escape at a position: `\x3d` or `\075`.
fn numbered(text: &str, at: usize) -> Option<char> {
    let (from, radix) = match text.as_bytes().get(at + 1)? {
        b'x' => (at + 2, 16),
        _ => (at + 1, 8),
    };
    let code = u8::from_str_radix(text.get(from..at + 4)?, radix).ok()?;
    code.is_ascii().then(|| char::from(code))
}

/// Decodes a JSON escape `\u`. `rest` begins after the `u`. Returns the character and the number of
/// bytes of `rest` that it takes: 4, or 10 for a pair of surrogates. If there are no four digits,
/// or only half a pair, it is a replacement character.
pub fn unicode_escape(rest: &str) -> (char, usize) {
    let unit = |from: usize| {
        let digits = rest.get(from..from + 4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(0) else {
        return (char::REPLACEMENT_CHARACTER, 0);
    };
    // A low surrogate counts only if it directly follows as another escape.
    let low = if rest[4..].starts_with("\\u") {
        unit(6)
    } else {
        None
    };
    match char::decode_utf16([first].into_iter().chain(low)).next() {
        Some(Ok(character)) => (character, if character > '\u{ffff}' { 10 } else { 4 }),
        _ => (char::REPLACEMENT_CHARACTER, 4),
    }
}
