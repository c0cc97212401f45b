//! Shortens the arguments of tool calls without breaking their JSON.
//!
//! There are two ways. [`shorten_arguments`] cuts every long string and leaves the rest byte for
//! byte as the model wrote it. The result has no fixed size. [`cut_arguments`] guarantees a size,
//! and for that it may also drop members, so it writes the JSON anew. Both return `None` if nothing
//! would get shorter, so that a caller can keep the original.

use serde_json::{Map, Value};

/// Strings with more bytes than this are shortened to about `SHORT_STRING_BYTES` and the mark. The
/// gap makes sure that each cut saves something.
const LONG_STRING_BYTES: usize = 400;
const SHORT_STRING_BYTES: usize = 160;

/// Returns the arguments of a call with their long strings cut. The result is still valid JSON:
/// keys, numbers, booleans, nulls and short strings stay as they were written. `mark` ends each
/// string that was cut and must not contain anything that needs escaping in JSON. Returns `None` if
/// no string is long or if the text is not JSON.
pub fn shorten_arguments(arguments: &str, mark: &str) -> Option<String> {
    if arguments.len() <= LONG_STRING_BYTES {
        return None;
    }
    // The scan below relies on valid JSON. A raw value checks it without building anything.
    serde_json::from_str::<&serde_json::value::RawValue>(arguments).ok()?;
    let bytes = arguments.as_bytes();
    let mut short = String::new();
    let (mut at, mut copied) = (0, 0);
    while at < bytes.len() {
        if bytes[at] != b'"' {
            at += 1;
            continue;
        }
        let string = string_at(arguments, at);
        // A key has to stay whole, or the arguments would have another meaning.
        let is_key = arguments[string.end..].trim_start().starts_with(':');
        if !is_key && string.end - at > LONG_STRING_BYTES {
            short.push_str(&arguments[copied..string.cut]);
            short.push_str(mark);
            copied = string.end - 1;
        }
        at = string.end;
    }
    if copied == 0 {
        return None;
    }
    short.push_str(&arguments[copied..]);
    Some(short)
}

/// Returns the arguments of a call in at most `max_chars` characters. The result is still valid
/// JSON, and an object if they were one. Long strings are cut first, each with `mark` at its end,
/// and then the members or elements that do not fit are left out. Returns `None` if the arguments
/// are no longer than that, are not JSON, or would not get shorter.
pub fn cut_arguments(arguments: &str, max_chars: usize, mark: &str) -> Option<String> {
    arguments.chars().nth(max_chars)?;
    let value: Value = serde_json::from_str(arguments).ok()?;
    let mut limit = max_chars;
    // Halve the limit, so that many strings of different lengths need only a few rounds.
    let mut short = value.clone();
    while limit > 8 && written(&short).chars().count() > max_chars {
        limit /= 2;
        short = with_short_strings(&value, limit, mark);
    }
    let text = match written(&short) {
        text if text.chars().count() <= max_chars => text,
        _ => written(&first_of(short, max_chars, mark)),
    };
    (text.len() < arguments.len()).then_some(text)
}

fn written(value: &Value) -> String {
    value.to_string()
}

/// Returns the value with every string in it cut to at most `limit` characters and the mark.
fn with_short_strings(value: &Value, limit: usize, mark: &str) -> Value {
    match value {
        Value::String(text) => match text.char_indices().nth(limit) {
            Some((end, _)) => Value::String(format!("{}{mark}", &text[..end])),
            None => value.clone(),
        },
        Value::Array(items) => {
            let items = items.iter();
            Value::Array(
                items
                    .map(|item| with_short_strings(item, limit, mark))
                    .collect(),
            )
        }
        Value::Object(members) => {
            let members = members.iter();
            let members =
                members.map(|(key, value)| (key.clone(), with_short_strings(value, limit, mark)));
            Value::Object(members.collect())
        }
        _ => value.clone(),
    }
}

/// Returns the first members or elements that fit, and the mark as the last one. Other values are
/// returned unchanged.
fn first_of(value: Value, max_chars: usize, mark: &str) -> Value {
    let mut used = mark.chars().count() + 8;
    let mut fits = |text: usize| {
        used += text + 2;
        used <= max_chars
    };
    let size = |value: &Value| written(value).chars().count();
    match value {
        Value::Object(members) => {
            let members = members.into_iter();
            let mut first: Map<String, Value> = members
                .filter(|(key, value)| fits(key.chars().count() + 3 + size(value)))
                .collect();
            first.insert(mark.trim().to_owned(), Value::Bool(true));
            Value::Object(first)
        }
        Value::Array(items) => {
            let mut first: Vec<Value> = items.into_iter().filter(|item| fits(size(item))).collect();
            first.push(Value::String(mark.to_owned()));
            Value::Array(first)
        }
        Value::String(_) => Value::String(mark.to_owned()),
        other => other,
    }
}

/// The byte at which a JSON string can be cut, and the byte after its closing quote.
struct JsonString {
    cut: usize,
    end: usize,
}

/// Reads the string whose opening quote is at `start`. The text must be valid JSON.
fn string_at(json: &str, start: usize) -> JsonString {
    let bytes = json.as_bytes();
    let mut at = start + 1;
    let mut cut = at;
    while at < bytes.len() && bytes[at] != b'"' {
        // A surrogate pair consists of two escapes, so a cut between them would leave half a
        // character.
        let low_surrogate = json[at..].starts_with("\\u")
            && matches!(bytes.get(at + 2), Some(b'd' | b'D'))
            && matches!(bytes.get(at + 3), Some(b'c'..=b'f' | b'C'..=b'F'));
        if at - start <= SHORT_STRING_BYTES && !low_surrogate {
            cut = at;
        }
        at += match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => 6,
            (b'\\', _) => 2,
            (lead, _) => utf8_len(lead),
        };
    }
    JsonString {
        cut,
        end: (at + 1).min(bytes.len()),
    }
}

fn utf8_len(lead: u8) -> usize {
    match lead {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const MARK: &str = "… [shortened]";

    #[test]
    fn long_strings_are_cut_and_everything_else_stays_as_written() {
        let long = "x\\n\"é😀 ".repeat(100);
        let arguments = format!(
            r#"{{"n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short","deep":[{{"content": {}}}], "{}": 1e5}}"#,
            serde_json::to_string(&long).unwrap(),
            "k".repeat(500),
        );
        let short = shorten_arguments(&arguments, MARK).unwrap();
        assert!(short.len() < arguments.len() - 600);
        for kept in [
            r#""n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short""#,
            "1e5",
            &"k".repeat(500),
        ] {
            assert!(short.contains(kept), "{short}");
        }
        let value: Value = serde_json::from_str(&short).unwrap();
        let text = value["deep"][0]["content"].as_str().unwrap();
        assert!(text.ends_with(MARK));
        assert!(long.starts_with(text.strip_suffix(MARK).unwrap()));
    }

    #[test]
    fn what_is_no_json_or_short_stays() {
        assert_eq!(shorten_arguments(r#"{"a":"b"}"#, MARK), None);
        assert_eq!(
            shorten_arguments(&format!("{{\"a\":\"{}", "b".repeat(900)), MARK),
            None
        );
        assert_eq!(
            shorten_arguments(&json!({"n": vec![1; 900]}).to_string(), MARK),
            None
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,40}|[\"\\\\a\n😀]{300,700}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::vec(("\\PC{0,12}", inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
            ]
        })
    }

    /// Compares two values that must be equal except for strings, of which the shortened one is a
    /// prefix with the mark.
    fn same_shape(long: &Value, short: &Value) -> bool {
        match (long, short) {
            (Value::String(long), Value::String(short)) => {
                long == short
                    || short
                        .strip_suffix(MARK)
                        .is_some_and(|prefix| long.starts_with(prefix))
            }
            (Value::Array(long), Value::Array(short)) => {
                long.len() == short.len() && long.iter().zip(short).all(|(l, s)| same_shape(l, s))
            }
            (Value::Object(long), Value::Object(short)) => {
                long.len() == short.len()
                    && long
                        .iter()
                        .zip(short)
                        .all(|((lk, l), (sk, s))| lk == sk && same_shape(l, s))
            }
            _ => long == short,
        }
    }

    #[test]
    fn arguments_are_cut_to_size_and_stay_an_object() {
        let long = json!({"path": "src/lib.rs", "content": "x\n\"é😀 ".repeat(500)}).to_string();
        let short = cut_arguments(&long, 200, MARK).unwrap();
        assert!(short.chars().count() <= 200, "{short}");
        let value: Value = serde_json::from_str(&short).unwrap();
        assert_eq!(value["path"], "src/lib.rs");
        assert!(
            value["content"].as_str().unwrap().ends_with(MARK),
            "{short}"
        );

        let many = json!({"todos": [], "numbers": vec![7; 900]}).to_string();
        let short = cut_arguments(&many, 200, MARK).unwrap();
        assert_eq!(short, json!({"todos": [], MARK: true}).to_string());
        assert_eq!(cut_arguments(r#"{"a":"b"}"#, 200, MARK), None);
        assert_eq!(
            cut_arguments(&format!("{{\"a\":\"{}", "b".repeat(900)), 200, MARK),
            None
        );
    }

    proptest! {
        #[test]
        fn shortened_arguments_are_the_same_json_with_shorter_strings(value in any_json()) {
            for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                if let Some(short) = shorten_arguments(&json, MARK) {
                    prop_assert!(short.len() < json.len());
                    prop_assert!(same_shape(&value, &serde_json::from_str(&short).unwrap()));
                }
            }
        }

        #[test]
        fn shortening_survives_any_text(text in "[\"\\\\u{}:d8é, ]{0,900}") {
            shorten_arguments(&text, MARK);
        }
    }

    proptest! {
        #[test]
        fn cut_arguments_are_shorter_json_of_the_same_kind(value in any_json(), max in 0usize..600) {
            let text = value.to_string();
            if let Some(short) = cut_arguments(&text, max, MARK) {
                prop_assert!(short.len() < text.len());
                let short: Value = serde_json::from_str(&short).unwrap();
                prop_assert_eq!(short.is_object(), value.is_object());
            }
        }
    }
}
