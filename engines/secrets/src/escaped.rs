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
        (!hidden(original.as_bytes()).is_empty()).then(|| Self {
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

/// Whether the digits of an escape and what follows begin a colour: of `\x1b[` or `\033[`.
fn is_escape(digits: &[u8]) -> bool {
    matches!(digits, [b'1', b'b' | b'B', b'['] | [b'3', b'3', b'['])
}

/// Characters without a width.
fn is_without_width(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// The escapes of HTML that may stand around a value.
const ENTITIES: [(&str, char); 7] = [
    ("&quot;", '"'),
    ("&#34;", '"'),
    ("&#39;", '\''),
    ("&apos;", '\''),
    ("&lt;", '<'),
    ("&gt;", '>'),
    ("&amp;", '&'),
];

/// Where there is something that a reader does not see: the colours of a terminal, characters without a width, the
/// escapes of HTML, the marks of a quotation, what joins two strings of code.
pub(crate) fn hidden(bytes: &[u8]) -> Vec<usize> {
    let mut places: Vec<usize> = memchr::memchr3_iter(0x1b, 0xe2, b'&', bytes)
        .filter(|at| match &bytes[*at..] {
            [0x1b, ..]
            | [0xe2, 0x80, 0x8b..=0x8f | 0xaa..=0xae, ..]
            | [0xe2, 0x81, 0xa0..=0xa4, ..] => true,
            [b'&', ..] => ENTITIES
                .iter()
                .any(|(entity, _)| bytes[*at..].starts_with(entity.as_bytes())),
            _ => false,
        })
        .collect();
    let signs = memchr::memchr2_iter(b'+', b'\n', bytes);
    places.extend(signs.filter_map(|at| match &bytes[at..] {
        [b'\n', b'>', b' ', ..] => Some(at),
        _ => {
            let is_between = |byte: &u8| *byte == b' ' || b"+.\\".contains(byte);
            let before = &bytes[at.saturating_sub(8)..at];
            let quote = before.len()
                - before
                    .iter()
                    .rev()
                    .take_while(|byte| is_between(byte))
                    .count();
            let quote = at - before.len() + quote.checked_sub(1)?;
            (matches!(bytes[quote], b'"' | b'\'') && join(&bytes[quote..]).is_some())
                .then_some(quote)
        }
    }));
    if memchr::memchr2(0xef, 0xc2, bytes).is_some() {
        for sign in ["\u{feff}", "\u{ad}"] {
            places.extend(memchr::memmem::find_iter(bytes, sign));
        }
    }
    places.sort_unstable();
    places
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
    let hides = |c: char| matches!(c, '\u{1b}' | '&' | '"' | '\'' | '\n') || is_without_width(c);
    while let Some(step) = original[at..].find(hides) {
        at += step;
        let rest = &original[at..];
        let (hidden, shown) = match rest.as_bytes() {
            [b'&', ..] => match ENTITIES.iter().find(|(entity, _)| rest.starts_with(entity)) {
                Some((entity, character)) => (entity.len(), Some(*character)),
                None => (0, None),
            },
            [b'\n', b'>', b' ', ..] => (3, Some('\n')),
            [b'\n', ..] => (0, None),
            [b'"' | b'\'', ..] => (join(rest.as_bytes()).unwrap_or(0), None),
            [0x1b, b'[', parameters @ ..] => {
                let len = parameters
                    .iter()
                    .take_while(|byte| (b' '..=b'?').contains(byte))
                    .count();
                let last = parameters.get(len).is_some_and(u8::is_ascii);
                (2 + len + usize::from(last), None)
            }
            _ => (rest.chars().next().map_or(1, char::len_utf8), None),
        };
        if hidden == 0 {
            at += 1;
            continue;
        }
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
            Some(b'x' | b'0') if bytes.get(copied..copied + 3).is_some_and(is_escape) => {
                text.push('\u{1b}');
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
