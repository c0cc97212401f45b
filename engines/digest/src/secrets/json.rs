//! Finds the secrets in JSON: in its strings as they read without escapes, with the key of each value, and
//! in JSON within them.

use serde::de::IgnoredAny;

use super::cards::is_card;
use super::escaped::Decoded;
use super::rules::Value;
use super::shape;
use super::{Secret, secrets_in};

/// Shorter texts hold no secret of their own: even `pwd=1234` is as long.
const LEAST: usize = 8;
/// A key holds none but one that is known by how it begins.
const LEAST_KEY: usize = 14;

/// Whether a text is JSON: values, side by side or separated by commas, of which the first is an object, a
/// list or a string.
pub(super) fn is_json(text: &str) -> bool {
    let mut rest = text.trim_start();
    if !rest.starts_with(['{', '[', '"']) {
        return false;
    }
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        if !matches!(values.next(), Some(Ok(_))) {
            return false;
        }
        rest = rest[values.byte_offset()..]
            .trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
    }
    true
}

/// Appends the secrets of JSON, which may lie in `depth` more strings of JSON.
pub(super) fn scan(json: &str, depth: usize, secrets: &mut Vec<Secret>) {
    let bytes = json.as_bytes();
    let mut at = 0;
    // What the value that follows has to be like to be secret, by its key.
    let mut value = None;
    // The same by the string under `name` or `key` beside it: `{"name": "TOKEN", "value": …}`.
    let mut of_pair = None;
    let mut names_pair = false;
    while at < bytes.len() {
        let quote = memchr::memchr(b'"', &bytes[at..]).map_or(bytes.len(), |step| at + step);
        between(json, at..quote, &mut value, secrets);
        if memchr::memchr(b'}', &bytes[at..quote]).is_some() {
            of_pair = None;
        }
        if quote == bytes.len() {
            return;
        }
        let start = quote + 1;
        let end = string_end(bytes, start);
        at = end + 1;
        let content = &json[start..end];
        let is_key = bytes.get(at..).is_some_and(|rest| {
            rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
        });
        let decoded = Decoded::of(content);
        let text = decoded.as_ref().map_or(content, |decoded| &decoded.text);
        let mut found = Vec::new();
        match value.filter(|_| !is_key) {
            Some(value) if shape_of(text, value, &mut found) => {}
            _ if text.len() < if is_key { LEAST_KEY } else { LEAST } => {}
            _ => secrets_in(text, depth, &mut found),
        }
        secrets.extend(found.into_iter().map(|secret| {
            let place = match &decoded {
                Some(decoded) => decoded.original(content, &secret.place),
                None => secret.place,
            };
            let place = start + place.start..start + place.end;
            Secret { place, ..secret }
        }));
        if is_key {
            names_pair = matches!(text, "name" | "key");
            value = match text {
                "value" => of_pair,
                _ => shape::named(text),
            };
        } else if names_pair {
            of_pair = shape::named(text);
            names_pair = false;
        }
    }
}

/// Appends what is secret of a value with a telling key. Whether there is anything.
fn shape_of(text: &str, value: Value, secrets: &mut Vec<Secret>) -> bool {
    let mut places = Vec::new();
    shape::in_value(text, value, &mut places);
    secrets.extend(places.into_iter().map(Secret::text));
    !secrets.is_empty()
}

/// Appends the secret numbers between two strings.
fn between(
    json: &str,
    place: std::ops::Range<usize>,
    value: &mut Option<Value>,
    secrets: &mut Vec<Secret>,
) {
    let bytes = &json.as_bytes()[..place.end];
    let mut at = place.start;
    while at < place.end {
        let len = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
            .count();
        let token = &bytes[at..at + len];
        if len >= 4 && token.iter().all(u8::is_ascii_digit) {
            let is_secret = *value == Some(Value::Password) || is_card(token);
            if is_secret {
                secrets.push(Secret {
                    place: at..at + len,
                    is_number: true,
                });
            }
        }
        at += len.max(1);
        if len == 0 && bytes[at - 1] == b'}' {
            *value = None;
        }
    }
}

/// The index of the quote that closes the string whose content begins at `from`. The text is JSON.
fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(step) = memchr::memchr2(b'"', b'\\', bytes.get(at..).unwrap_or_default()) {
        at += step;
        if bytes[at] == b'"' {
            return at;
        }
        at += 2;
    }
    bytes.len()
}
