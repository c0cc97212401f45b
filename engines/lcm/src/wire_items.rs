//! Reading the JSON values of a message on the wire.
//!
//! Most messages are one JSON value, but some consist of several, one per line or separated by
//! commas. The functions here read them without knowing which format a message has. They do not
//! interpret the values.

use serde_json::Value;
use serde_json::value::RawValue;

/// Returns the JSON values in the wire JSON of a message. Several values may be separated by white
/// space or commas, as in a log or a list. Reading stops without an error at the first value that
/// cannot be parsed.
pub(crate) fn wire_items(raw: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut rest = raw;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<&RawValue>();
        let Some(Ok(item)) = values.next() else {
            return items;
        };
        let item = item.get();
        let parsed = serde_json::from_str(item);
        items.extend(parsed.or_else(|_| serde_json::from_str(&without_half_surrogates(item))));
        rest = &rest[values.byte_offset()..];
    }
}

/// Replaces escapes of lone surrogates by U+FFFD. JavaScript writes them if it cuts a text inside a
/// character. They are valid JSON, but a string cannot hold them.
fn without_half_surrogates(json: &str) -> String {
    let unit = |at: usize| -> Option<u32> {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let mut out = String::with_capacity(json.len());
    let (mut copied, mut at) = (0, 0);
    while let Some(step) = memchr::memchr(b'\\', &json.as_bytes()[at..]) {
        at += step;
        match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => at += 12,
            Some(0xd800..=0xdfff) => {
                out.push_str(&json[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            _ => at += 2,
        }
    }
    out.push_str(&json[copied..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_character_is_replaced_and_a_whole_one_stays() {
        let items = wire_items(r#"{"a":"\ud83d \\ud83d \ud83d\ude00"}, {"b":"\ude00"}"#);
        assert_eq!(items[0]["a"], "\u{fffd} \\ud83d \u{1f600}");
        assert_eq!(items[1]["b"], "\u{fffd}");
    }

    #[test]
    fn items_of_a_log_and_of_a_list_are_told_apart() {
        for (raw, expected) in [
            ("", 0),
            ("no json", 0),
            ("{}", 1),
            ("{\n \"a\": [1, 2]\n}", 1),
            ("{}\n{}", 2),
            ("{},\n  {}", 2),
            ("{} , {\"cut\": ", 1),
        ] {
            assert_eq!(wire_items(raw).len(), expected, "{raw}");
        }
    }
}
