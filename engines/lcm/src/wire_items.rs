//! The items of a message on the wire.

use serde::de::IgnoredAny;
use serde_json::Value;

/// The JSON values in a message's wire JSON. Most messages have one; others have several, as in a log (one
/// per line) or in a list (separated by commas). Stops at the first that cannot be read.
pub(crate) fn wire_items(raw: &str) -> Vec<Value> {
    let mut items = Vec::new();
    let mut rest = raw;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let mut values = serde_json::Deserializer::from_str(rest).into_iter();
        let Some(Ok(item)) = values.next() else {
            return items;
        };
        items.push(item);
        rest = &rest[values.byte_offset()..];
    }
}

/// Whether a message's wire JSON can be read to its end.
pub(crate) fn is_whole(raw: &str) -> bool {
    let mut rest = raw;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) => rest = &rest[values.byte_offset()..],
            Some(Err(_)) => return false,
            None => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let is_cut = raw.contains("no json") || raw.contains("cut");
            assert_eq!(is_whole(raw), !is_cut, "{raw}");
        }
    }
}
