//! Finds the secrets in JSON: in its strings as they read without escapes, with the key of each
//! value, and in JSON within them.
//!
//! [`scan`] goes from string to string without building values, so that it knows the position of
//! each and every other byte stays as it is. A key decides how strictly its value is checked. It
//! also follows structures in which the name and the value are in different places: pairs such as
//! `{"name": …, "value": …}`, an object below the name of a secret, the words of a command in a list,
//! the parts of a chat message, and secrets of Kubernetes. Whether a text is JSON at all is decided
//! by [`is_json`]. Other text goes through `shape`, and [`embedded`] finds the JSON in it.

use std::ops::Range;

use serde::de::IgnoredAny;

use crate::assigned::is_key_of;
use crate::cards::is_card;
use crate::escaped::Decoded;
use crate::names::{is_of_another_thing, may_name_a_container, named, of_container};
use crate::notation::{holds_the_value, names_a_pair};
use crate::rules::Value;
use crate::shape;
use crate::steps;
use crate::value::{is_inner_secret, is_placeholder};
use crate::{Secret, secrets_in};

/// Shorter texts have no secret of their own. Even `pwd=1234` is as long.
const LEAST: usize = 8;
/// A shorter key has no secret in it. Only a secret that is known by its beginning can be in a key.
const LEAST_KEY: usize = 14;
/// How many bytes at the edges of two adjacent texts are read together, and how many bytes the
/// words of a command may have together.
const EDGE: usize = 256;
const COMMAND: usize = 4_096;
/// How many objects and lists below the name of a secret are searched for its value.
const INHERITED: u8 = 4;

/// Whether a text is JSON. It may have several values, side by side or separated by commas, and the
/// first has to be an object, a list or a string.
pub(crate) fn is_json(text: &str) -> bool {
    let mut rest = text.trim_start();
    if !rest.starts_with(['{', '[', '"']) {
        return false;
    }
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        // If one value is not valid, the rest of the text cannot be told from other notations.
        if !matches!(values.next(), Some(Ok(_))) {
            return false;
        }
        rest = rest[values.byte_offset()..]
            .trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
    }
    true
}

/// Returns the objects and lists in a text that is not JSON itself, such as the output of a command
/// below a prompt. Only those that have the name of a secret in them are found. If one is cut off or
/// is not valid, its part before the error is returned. They do not overlap.
pub(crate) fn embedded(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let start = from + memchr::memchr2(b'{', b'[', bytes.get(from..)?)?;
            from = start + 1;
            // Most brackets of code and prose begin something else, so they are told by two bytes.
            let mut inner = bytes[from..].iter().filter(|b| !b.is_ascii_whitespace());
            let begins = match bytes[start] {
                b'{' => b'"',
                _ => b'{',
            };
            if inner.next() != Some(&begins) {
                continue;
            }
            let rest = &text[start..];
            let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
            let len = match values.next() {
                Some(Err(error)) => position(rest, &error),
                _ => values.byte_offset(),
            };
            let len = rest.floor_char_boundary(len.max(1));
            steps::add(len);
            from = start + len.max(1);
            // Everything else was found in the text around it.
            if may_name_a_container(&rest[..len]) {
                return Some(&rest[..len]);
            }
        }
    })
}

/// Returns how many bytes of a text were read before an error.
fn position(text: &str, error: &serde_json::Error) -> usize {
    if error.is_eof() {
        return text.len();
    }
    let line = match error.line().checked_sub(2) {
        Some(breaks) => memchr::memchr_iter(b'\n', text.as_bytes())
            .nth(breaks)
            .map_or(text.len(), |at| at + 1),
        None => 0,
    };
    // The byte at the error may begin the next value.
    (line + error.column()).saturating_sub(1).min(text.len())
}

/// An object or a list that is open at the current position.
#[derive(Debug, Default)]
struct Container {
    is_list: bool,
    /// What a string in it has to look like, if the name of a secret is that of this container or of
    /// one around it, and how many more levels that holds for.
    inherited: Option<(Value, u8)>,
    /// What the value of a pair has to look like, which is known once the string under `name` or
    /// `key` was read: `{"name": "TOKEN", "value": …}`. `value` is the string under `value`, which
    /// may come first.
    of_pair: Option<Value>,
    value: Option<Range<usize>>,
    /// In a list, its strings or the texts of its objects. In an object, the entries of a secret of
    /// Kubernetes if it is one.
    strings: Vec<Range<usize>>,
    is_data: bool,
    is_secret: bool,
}

/// A key of an object, and what its value has to look like to be secret.
#[derive(Debug, Default)]
struct Name {
    place: Range<usize>,
    value: Option<Value>,
    names_pair: bool,
    holds_value: bool,
    is_text: bool,
}

/// Appends the secrets in JSON. Strings may contain JSON themselves, up to `depth` more levels. If
/// the text around it was searched already, so were its strings, and only those that may contain
/// JSON are searched again.
pub(crate) fn scan(json: &str, depth: usize, is_searched: bool, secrets: &mut Vec<Secret>) {
    let bytes = json.as_bytes();
    let mut at = 0;
    let mut name = Name::default();
    let mut open: Vec<Container> = Vec::new();
    while at < bytes.len() {
        let quote = memchr::memchr(b'"', &bytes[at..]).map_or(bytes.len(), |step| at + step);
        between(json, at..quote, &mut name, &mut open, secrets);
        if quote == bytes.len() {
            break;
        }
        let start = quote + 1;
        let end = string_end(bytes, start);
        at = end + 1;
        let content = &json[start..end];
        // If a colon follows, the string is a key.
        let is_key = bytes.get(at..).is_some_and(|rest| {
            rest.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
        });
        let decoded = Decoded::of(content);
        let text = decoded.as_ref().map_or(content, |decoded| &decoded.text);
        let mut found = Vec::new();
        let key = json
            .get(name.place.clone())
            .filter(|_| !is_key)
            .unwrap_or_default();
        let inherited = open.last().and_then(|container| container.inherited);
        match name.value.filter(|_| !is_key) {
            Some(value) if shape_of(text, value, &mut found) => {}
            _ if !is_key && inherited.is_some_and(|(value, _)| is_inner(key, text, value)) => {
                found.push(Secret::text(0..text.len()));
            }
            _ if is_key_of(key, text) => found.push(Secret::text(0..text.len())),
            _ if text.len() < if is_key { LEAST_KEY } else { LEAST } => {}
            _ if is_searched && !text.contains('{') => {}
            _ => secrets_in(text, depth, &mut found),
        }
        // The secret was found in the decoded string, so its bytes are mapped back to the original.
        secrets.extend(found.into_iter().map(|secret| {
            let place = match &decoded {
                Some(decoded) => decoded.original(content, &secret.place),
                None => secret.place,
            };
            let place = start + place.start..start + place.end;
            Secret { place, ..secret }
        }));
        let depth_of = open.len();
        let container = open.last_mut();
        if is_key {
            let of_pair = container.and_then(|container| container.of_pair);
            let holds_value = holds_the_value(text);
            name = Name {
                place: start..end,
                value: of_pair.filter(|_| holds_value).or_else(|| named(text)),
                names_pair: names_a_pair(text),
                holds_value,
                is_text: text == "text",
            };
        } else if let Some(container) = container {
            let key = &json[name.place.clone()];
            container.is_secret |= key == "kind" && text == "Secret";
            if container.is_list || container.is_data {
                container.strings.push(start..end);
            } else if name.names_pair && container.of_pair.is_none() {
                container.of_pair = named(text);
                // If the value came before its name, it is checked now.
                if let (Some(value), Some(place)) = (container.of_pair, container.value.take()) {
                    in_place(json, place, value, secrets);
                }
            } else if name.holds_value {
                container.value = Some(start..end);
            }
            if name.is_text
                && let Some(list) = depth_of.checked_sub(2).map(|at| &mut open[at])
                && list.is_list
            {
                list.strings.push(start..end);
                if let [.., before, text] = &list.strings[..] {
                    side_by_side(json, before, text, secrets);
                }
            }
        }
    }
    // JSON that is cut off leaves containers open.
    while !open.is_empty() {
        close(json, &mut open, secrets);
    }
}

/// Whether a string within the object or list of a secret's name is the secret. `key` is its own
/// name, such as `value`, or empty in a list.
fn is_inner(key: &str, text: &str, value: Value) -> bool {
    // A `key` of a password is the name under which a store has it.
    let holds = holds_the_value(key)
        || matches!(key, "current" | "previous")
        || (key == "key" && value != Value::Password);
    !is_of_another_thing(key) && is_inner_secret(text, value, holds)
}

/// Appends the secret in a string at this position, if the string is a secret of this kind.
fn in_place(json: &str, place: Range<usize>, value: Value, secrets: &mut Vec<Secret>) {
    let content = &json[place.clone()];
    let decoded = Decoded::of(content);
    let text = decoded.as_ref().map_or(content, |decoded| &decoded.text);
    let mut places = Vec::new();
    shape::in_value(text, value, &mut places);
    secrets.extend(places.into_iter().map(|found| {
        let found = decoded
            .as_ref()
            .map_or(found.clone(), |decoded| decoded.original(content, &found));
        Secret::text(place.start + found.start..place.start + found.end)
    }));
}

/// Appends the secrets that two adjacent texts of a message have together: one that is cut in two,
/// or one whose name is in the first text.
fn side_by_side(json: &str, before: &Range<usize>, text: &Range<usize>, secrets: &mut Vec<Secret>) {
    let mut start = json.ceil_char_boundary(before.start.max(before.end.saturating_sub(EDGE)));
    if start > before.start {
        // Begin at a word, because half a word may look like a secret.
        let word = json[start..before.end].find(char::is_whitespace);
        start = word.map_or(start, |word| start + word);
    }
    let end = json
        .floor_char_boundary(text.end.min(text.start + EDGE))
        .max(text.start);
    joined(json, &[start..before.end, text.start..end], "", secrets);
    // A cut may be inside a line or between two, so both ways are tried.
    joined(json, &[start..before.end, text.start..end], "\n", secrets);
}

/// Appends the secrets in strings that are read as one text, with `by` between them. They may be
/// the words of a command. A secret can span several strings, and each part of it is masked.
fn joined(json: &str, strings: &[Range<usize>], by: &str, secrets: &mut Vec<Secret>) {
    let mut whole = String::new();
    let parts: Vec<_> = strings
        .iter()
        .map(|place| {
            let content = &json[place.clone()];
            let decoded = Decoded::of(content);
            let from = whole.len();
            whole.push_str(decoded.as_ref().map_or(content, |decoded| &decoded.text));
            let part = from..whole.len();
            whole.push_str(by);
            (part, place, decoded)
        })
        .collect();
    let mut found = Vec::new();
    shape::scan(&whole, &mut found);
    for secret in found {
        for (part, place, decoded) in &parts {
            let within = secret.start.max(part.start)..secret.end.min(part.end);
            if within.is_empty() {
                continue;
            }
            let within = within.start - part.start..within.end - part.start;
            let within = match decoded {
                Some(decoded) => decoded.original(&json[(*place).clone()], &within),
                None => within,
            };
            secrets.push(Secret::text(
                place.start + within.start..place.start + within.end,
            ));
        }
    }
}

/// Appends the secret in a value whose key says what it is. Returns whether there is anything.
fn shape_of(text: &str, value: Value, secrets: &mut Vec<Secret>) -> bool {
    let mut places = Vec::new();
    shape::in_value(text, value, &mut places);
    secrets.extend(places.into_iter().map(Secret::text));
    !secrets.is_empty()
}

/// Reads what stands between two strings: appends secret numbers, and opens and closes containers.
fn between(
    json: &str,
    place: Range<usize>,
    name: &mut Name,
    open: &mut Vec<Container>,
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
            // After the name of a password, a number of four digits or more is one. After other
            // names it is more likely a size or a count.
            let is_secret = name.value == Some(Value::Password) || is_card(token);
            if is_secret {
                secrets.push(Secret {
                    place: at..at + len,
                    is_number: true,
                });
            }
        }
        match bytes[at] {
            is_list @ (b'[' | b'{') => {
                let is_list = is_list == b'[';
                let own = &json[name.place.clone()];
                let is_data = matches!(own, "data" | "stringData");
                let outer = open.last().and_then(|outer| outer.inherited);
                let inherited = (of_container(own).map(|value| (value, INHERITED)))
                    .or_else(|| Some((outer?.0, outer?.1.checked_sub(1)?)));
                open.push(Container {
                    is_list,
                    inherited,
                    is_data: is_data && !is_list,
                    ..Container::default()
                });
                if !is_list {
                    *name = Name::default();
                }
            }
            b']' | b'}' => {
                *name = Name::default();
                close(json, open, secrets);
            }
            _ => {}
        }
        at += len.max(1);
    }
}

/// Closes the innermost container, and appends the secrets that are known only now.
fn close(json: &str, open: &mut Vec<Container>, secrets: &mut Vec<Secret>) {
    let Some(closed) = open.pop() else { return };
    if closed.is_list && closed.strings.len() > 1 {
        words_of_a_command(json, &closed.strings, secrets);
    } else if closed.is_secret {
        let entries = closed.strings.into_iter();
        let entries = entries.filter(|entry| !is_placeholder(&json[entry.clone()]));
        secrets.extend(entries.map(Secret::text));
    // The object that says that it is a secret is the one around the entries.
    } else if closed.is_data
        && let Some(outer) = open.last_mut().filter(|outer| !outer.is_list)
    {
        outer.strings.extend(closed.strings);
    }
}

/// Appends the secrets in a list that may hold the words of a command. Long lists and long strings
/// are not commands.
fn words_of_a_command(json: &str, strings: &[Range<usize>], secrets: &mut Vec<Secret>) {
    let len = strings.iter().map(ExactSizeIterator::len).sum::<usize>();
    if len <= COMMAND && strings.iter().all(|string| string.len() <= EDGE) {
        joined(json, strings, " ", secrets);
    }
}

/// Returns the index of the quote that closes the string whose content begins at `from`. The text
/// has to be valid JSON.
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
