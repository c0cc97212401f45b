//! Reads JSON whose texts contain half of a surrogate pair.
//!
//! JavaScript counts in UTF-16, in which an emoji is a pair of two units. A server written in it may
//! split the pair, so that one delta ends with the escape `\ud83c` and the next one begins with
//! `\udfa8`. Rust's strings cannot hold half of a pair. [`parse`] puts a stand-in in its place, which
//! is a character for private use. [`restore`] joins two halves that met when the texts were joined,
//! and writes any other half as the escape that the provider sent.

use std::borrow::Cow;

use contexture::formats::replace_half_surrogates;
use serde_json::Value;

/// What the stand-in of a half has more than its unit. The stand-ins are the last 2,048 characters
/// of Unicode.
const OFFSET: u32 = 0x10_ffff - 0xdfff;

/// Parses JSON, which may begin with a byte order mark. Returns the value, and whether it contains
/// stand-ins. None if it is not JSON.
pub(crate) fn parse(text: &str) -> Option<(Value, bool)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Ok(value) = serde_json::from_str(text) {
        return Some((value, false));
    }
    let with_stand_ins = replace_half_surrogates(text, |written, half| {
        written.extend(char::from_u32(half + OFFSET));
    });
    let Cow::Owned(text) = with_stand_ins else {
        return None;
    };
    Some((serde_json::from_str(&text).ok()?, true))
}

/// Replaces the stand-ins in JSON text.
pub(super) fn restore(json: &str) -> String {
    let half = |c: char| {
        let unit = u32::from(c).checked_sub(OFFSET)?;
        (unit >= 0xd800).then_some(unit)
    };
    let mut written = String::with_capacity(json.len());
    let mut rest = json.chars().peekable();
    while let Some(c) = rest.next() {
        let Some(unit) = half(c) else {
            written.push(c);
            continue;
        };
        let low = rest.peek().and_then(|next| half(*next));
        match low.filter(|low| unit < 0xdc00 && *low >= 0xdc00) {
            Some(low) => {
                rest.next();
                let whole = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
                written.extend(char::from_u32(whole));
            }
            None => written.push_str(&format!("\\u{unit:04x}")),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        /// Whatever texts a character of two units is cut into, it is whole once they are joined, and
        /// half of one comes back as it was sent.
        #[test]
        fn halves_are_joined_or_come_back(units in prop::collection::vec(
            prop_oneof![0xd800u16..0xe000, 0x20u16..0x100, Just(0xd83cu16), Just(0xdfa8u16), Just(0x5cu16)], 0..12,
        ), cut in any::<prop::sample::Index>()) {
            let cut = cut.index(units.len() + 1);
            let quoted = |units: &[u16]| units.iter().fold(String::new(), |text, unit| format!("{text}\\u{unit:04x}"));
            let read = |units: &[u16]| parse(&format!("[\"{}\"]", quoted(units))).unwrap().0[0].as_str().unwrap().to_owned();
            let joined = read(&units[..cut]) + &read(&units[cut..]);
            let restored = restore(&json!(joined).to_string());
            let again = parse(&restored).unwrap().0;
            prop_assert_eq!(again.as_str().unwrap(), read(&units));
            if let Ok(text) = String::from_utf16(&units) {
                prop_assert_eq!(again, json!(text));
            }
        }
    }
}
