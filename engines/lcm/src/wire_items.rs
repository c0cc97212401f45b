//! Reading the JSON values of a message on the wire.
//!
//! Most messages are one JSON value, but some consist of several, one per line or separated by
//! commas. The functions here read them without knowing which format a message has. They do not
//! interpret the values.

use serde_json::Value;

/// Returns the JSON values in the wire JSON of a message. Several values may be separated by white
/// space or commas, as in a log or a list. Reading stops without an error at the first value that
/// cannot be parsed.
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
        }
    }
}
