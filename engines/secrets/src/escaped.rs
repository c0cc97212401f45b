//! Text without its escapes, and the way back to the places in the original.

use std::cell::OnceCell;
use std::ops::Range;

/// How a text becomes another: `behind` is told of the end of each change, in the result and in the original.
type Way = fn(original: &str, behind: &mut dyn FnMut(usize, usize)) -> String;

/// A text whose escapes are resolved.
pub(crate) struct Decoded {
    pub(crate) text: String,
    way: Way,
    /// Behind each escape: the byte in `text`, and the byte in the original. Few texts hold a secret, so it
    /// is made when the first place is asked for.
    behind: OnceCell<Vec<(usize, usize)>>,
}

impl Decoded {
    /// None for a text without a backslash.
    pub(crate) fn of(original: &str) -> Option<Self> {
        memchr::memchr(b'\\', original.as_bytes())?;
        Some(Self {
            text: decode(original, &mut |_, _| {}),
            way: decode,
            behind: OnceCell::new(),
        })
    }

    /// The text without what a reader does not see, of which [`hidden`] tells the places. None if there is nothing of
    /// it.
    pub(crate) fn visible(original: &str) -> Option<Self> {
        (!hidden(original).is_empty()).then(|| Self {
            text: without_invisible(original, &mut |_, _| {}),
            way: without_invisible,
            behind: OnceCell::new(),
        })
    }

    /// The bytes of the original that became these.
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

/// Characters without a width.
fn is_without_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}')
}

/// How long the escape of a terminal may be, in bytes.
const SEQUENCE: usize = 512;

/// Where there is something that a reader does not see: the colours of a terminal, characters without a width, the
/// escapes of HTML and URLs, the marks of a quotation, what joins two strings of code.
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

/// How many bytes at the beginning of a text a reader does not see, and the character that they stand for.
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
        // A colour whose first byte is lost.
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

/// The character of an escape of HTML.
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

/// The length of what joins two strings of code at the beginning of a text, their quotes with it: `" + "`, or nothing
/// but a line's end.
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

/// The text without its escapes. `behind` is told of the end of each, in the result and in the original.
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

/// The character of ASCII of an escape at a place: `\x3d`, `\075`.
fn numbered(text: &str, at: usize) -> Option<char> {
    let (from, radix) = match text.as_bytes().get(at + 1)? {
        b'x' => (at + 2, 16),
        _ => (at + 1, 8),
    };
    let code = u8::from_str_radix(text.get(from..at + 4)?, radix).ok()?;
    code.is_ascii().then(|| char::from(code))
}

/// The character of a JSON escape `\u`, behind which `rest` begins, and how many bytes of `rest` it takes: 4, or 10
/// for a pair of surrogates. A replacement character if there are no four digits, or half a pair.
pub fn unicode_escape(rest: &str) -> (char, usize) {
    let unit = |from: usize| {
        let digits = rest.get(from..from + 4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(0) else {
        return (char::REPLACEMENT_CHARACTER, 0);
    };
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
