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
mod tests;
