//! Removes a text from the JSON that contains it, so that it is stored once.
//!
//! A message's wire JSON contains its text as an escaped string. If one of the usual escapings reproduces
//! that string exactly, only the text's position is stored; otherwise the JSON keeps its own copy.

use std::fmt::Write as _;

/// How a text was escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escaping {
    /// Not at all.
    None,
    /// As JavaScript and serde do: quotes, backslashes and control characters.
    Minimal,
    /// As Python does: everything outside ASCII as `\uXXXX` too.
    Ascii,
}

impl Escaping {
    const ALL: [Self; 3] = [Self::Minimal, Self::Ascii, Self::None];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::None),
            1 => Some(Self::Minimal),
            2 => Some(Self::Ascii),
            _ => None,
        }
    }

    /// Appends `text`, escaped, to `out`.
    pub(crate) fn write(self, text: &str, out: &mut String) {
        if self == Self::None {
            out.push_str(text);
            return;
        }
        let escaped = |byte: u8| {
            matches!(byte, b'"' | b'\\' | 0..=0x1f) || (byte >= 0x7f && self == Self::Ascii)
        };
        let mut rest = text;
        // What needs no escape is copied in whole runs; each ends in front of a character.
        while let Some(at) = rest.bytes().position(escaped) {
            let (plain, tail) = rest.split_at(at);
            out.push_str(plain);
            let mut chars = tail.chars();
            let Some(c) = chars.next() else { break };
            rest = chars.as_str();
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\x08' => out.push_str("\\b"),
                '\x0c' => out.push_str("\\f"),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a string cannot fail.
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
            }
        }
        out.push_str(rest);
    }
}

/// The first occurrence of `text` in `raw` at or after `from`: the escaping and the byte range.
pub(crate) fn find(
    raw: &str,
    from: usize,
    text: &str,
) -> Option<(Escaping, std::ops::Range<usize>)> {
    let haystack = raw.as_bytes().get(from..)?;
    let mut escaped = String::with_capacity(text.len() + text.len() / 16 + 8);
    let mut previous: Option<String> = None;
    for escaping in Escaping::ALL {
        escaped.clear();
        escaping.write(text, &mut escaped);
        if previous.as_deref() == Some(escaped.as_str()) {
            continue;
        }
        if let Some(at) = find_long(haystack, escaped.as_bytes()) {
            let start = from + at;
            return Some((escaping, start..start + escaped.len()));
        }
        previous = Some(escaped.clone());
    }
    None
}

/// The first occurrence of `needle`. Preparing a search for a long one costs as much as comparing it, and
/// the first candidate is nearly always a match.
fn find_long(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let head = &needle[..needle.len().min(HEAD_BYTES)];
    let at = memchr::memmem::find(haystack, head)?;
    if haystack[at..].starts_with(needle) {
        return Some(at);
    }
    let later = memchr::memmem::find(&haystack[at..], needle)?;
    Some(at + later)
}

const HEAD_BYTES: usize = 32;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_serde_wrote_is_found_and_written_again(text in "\\PC{0,20}[\\x00-\\x20\"\\\\]{0,4}[а-я中-国😀-😄]{0,5}\\PC{0,9}") {
            let raw = serde_json::json!({"role": "user", "content": text}).to_string();
            let (escaping, range) = find(&raw, 0, &text).unwrap();
            let mut again = String::new();
            escaping.write(&text, &mut again);
            prop_assert_eq!(&raw[range], again);
        }
    }

    #[test]
    fn a_long_text_is_found_behind_one_that_begins_like_it() {
        let text = "begins like the other one, and goes on differently";
        let raw = format!(r#"{{"a": "{}", "b": "{text}"}}"#, &text[..40]);
        let (_, range) = find(&raw, 0, text).unwrap();
        assert_eq!(&raw[range], text);
        assert_eq!(find(&raw, 0, &format!("{text}!")), None);
    }

    #[test]
    fn what_python_wrote_is_found() {
        let raw = r#"{"content": "a \u4f60\ud83d\ude00\n\"b\""}"#;
        let (escaping, range) = find(raw, 0, "a 你😀\n\"b\"").unwrap();
        assert_eq!(escaping, Escaping::Ascii);
        assert_eq!(range, 13..raw.len() - 2);
    }
}
