//! Reads the values in a tool call's arguments, which are unchecked JSON text.
//!
//! [`arguments`] scans from string to string instead of parsing, for two reasons. It also reads
//! JSON that is truncated or invalid, as it occurs when a model's answer was cut off. And every
//! value without an escape is borrowed from the text. The nesting of objects and arrays is ignored,
//! so a value is known by its nearest key alone.

use std::borrow::Cow;

use contexture_secrets::unicode_escape;

/// A value with the key that it stands under. The values of an array share the key of the array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument<'a> {
    pub(crate) key: &'a str,
    pub(crate) value: Cow<'a, str>,
}

/// Returns the strings and numbers in `json`, in order. Text that is not JSON is one value without
/// a key, and empty text has no values.
pub(crate) fn arguments(json: &str) -> Vec<Argument<'_>> {
    let trimmed = json.trim();
    if !trimmed.starts_with(['{', '[', '"']) {
        return match trimmed {
            "" => Vec::new(),
            _ => vec![Argument {
                key: "",
                value: Cow::Borrowed(trimmed),
            }],
        };
    }
    let bytes = json.as_bytes();
    let mut values = Vec::new();
    let mut key = "";
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                let end = string_end(bytes, at + 1);
                let raw = &json[at + 1..end];
                at = (end + 1).min(bytes.len());
                let next = bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                // Only a key is followed by a colon.
                if next == Some(&b':') {
                    key = raw;
                } else {
                    values.push(Argument {
                        key,
                        value: unescape(raw),
                    });
                }
            }
            b'0'..=b'9' | b'-' => {
                let len = bytes[at..]
                    .iter()
                    .position(|byte| {
                        !matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
                    })
                    .unwrap_or(bytes.len() - at);
                values.push(Argument {
                    key,
                    value: Cow::Borrowed(&json[at..at + len]),
                });
                at += len;
            }
            _ => at += 1,
        }
    }
    values
}

/// Returns the index of the quote that closes the string whose content begins at `from`. If it is
/// not closed, returns the end of the text.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(step) = memchr::memchr2(b'"', b'\\', &bytes[at.min(bytes.len())..]) {
        at += step;
        if bytes[at] == b'"' {
            return at;
        }
        // The byte after a backslash belongs to the escape, even if it is a quote.
        at += 2;
    }
    bytes.len()
}

/// Returns the content of a JSON string with its escapes resolved. Unknown escapes stand for the
/// character after the backslash.
pub(crate) fn unescape(raw: &str) -> Cow<'_, str> {
    let Some(first) = memchr::memchr(b'\\', raw.as_bytes()) else {
        return Cow::Borrowed(raw);
    };
    let mut text = String::with_capacity(raw.len());
    text.push_str(&raw[..first]);
    let mut rest = &raw[first..];
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        text.push_str(&rest[..at]);
        let mut chars = rest[at + 1..].chars();
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('r' | 'b' | 'f') | None => {}
            Some('u') => {
                let (character, used) = unicode_escape(chars.as_str());
                text.push(character);
                chars = chars.as_str()[used..].chars();
            }
            Some(other) => text.push(other),
        }
        rest = chars.as_str();
    }
    text.push_str(rest);
    Cow::Owned(text)
}

#[cfg(test)]
mod tests;
