//! Finds the escapes of half a surrogate pair in JSON text. JavaScript writes them if it cuts a text
//! inside a character. They are valid JSON, but UTF-8 text cannot hold them, and many JSON parsers
//! reject them.

use std::borrow::Cow;

/// Replaces each escape of half a surrogate pair by what `write` writes for its unit. The text is
/// borrowed if it has none.
pub fn replace_half_surrogates(
    json: &str,
    mut write: impl FnMut(&mut String, u32),
) -> Cow<'_, str> {
    let unit = |at: usize| -> Option<u32> {
        let hex = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(hex, 16).ok()
    };
    let mut written = String::new();
    let (mut copied, mut at) = (0, 0);
    while let Some(step) = memchr::memchr(b'\\', json.as_bytes().get(at..).unwrap_or(&[])) {
        at += step;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(half @ 0xd800..=0xdfff) => {
                written.push_str(&json[copied..at]);
                write(&mut written, half);
                at += 6;
                copied = at;
            }
            _ => at += 2,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(json);
    }
    written.push_str(&json[copied..]);
    Cow::Owned(written)
}
