//! Whether a name is that of a secret, and what its value then has to look like.

use std::ops::Range;

use crate::cues::{self, find};
use crate::rules::{RULES, Shape, Value};
use crate::scan::begins_behind_an_escape;

/// How far from a name its value may be, and how long the rest of a name may be, in bytes.
pub(crate) const GAP: usize = 12;
pub(crate) const NAME_REST: usize = 32;

/// What the value after a name has to look like. Returns `None` if the name is not that of a
/// secret.
pub(crate) fn named(name: &str) -> Option<Value> {
    // The single letters are the private numbers of a JSON Web Key.
    if matches!(name, "d" | "k" | "p" | "q" | "dp" | "dq" | "qi") {
        return Some(Value::Jwk);
    }
    let mut value = None;
    // A name such as `access_key` says more than the `key` at its end, which therefore does not
    // replace it.
    names_in(name, |of, _| {
        value = value.filter(|_| of == Value::Random).or(Some(of))
    });
    value
}

/// Whether a name ends in one that says enough on its own. The word `key` does not.
pub(crate) fn ends_in_the_name_of_a_secret(name: &str) -> bool {
    let mut ends = false;
    names_in(name, |of, end| {
        ends |= of != Value::Random && end == name.len()
    });
    ends
}

/// What a string in an object or a list with this name has to look like to be the secret. Returns
/// `None` if the name does not say enough for all that may be in it.
pub(crate) fn of_container(name: &str) -> Option<Value> {
    let one = name.strip_suffix('s').unwrap_or(name);
    // A path, such as that of a package, is the name of a thing.
    let says = !name.contains('/')
        && (ends_in_the_name_of_a_secret(name) || ends_in_the_name_of_a_secret(one));
    named(name).filter(|value| says && names_containers(*value))
}

/// Whether a text may have the name of an object or a list with a secret in it.
pub(crate) fn may_name_a_container(text: &str) -> bool {
    let mut from = 0;
    while let Some(at) = find(text, from) {
        from = at + 1;
        let names = |which: usize| match RULES[which].shape {
            Shape::Named { value, .. } => names_containers(value),
            _ => false,
        };
        if cues::at(text, at).any(|(which, _)| names(which)) {
            return true;
        }
    }
    false
}

/// Whether a name of this kind says enough for all strings in an object.
fn names_containers(value: Value) -> bool {
    matches!(
        value,
        Value::Password | Value::Key | Value::Api | Value::Short
    )
}

/// Whether a name within the object of a secret is that of something about it: its type, its id, or
/// the user to whom it belongs.
pub(crate) fn is_of_another_thing(name: &str) -> bool {
    const ABOUT_IT: [&str; 13] = [
        "user", "login", "email", "scope", "host", "version", "format", "pattern", "regex",
        "descr", "title", "hash", "integrity",
    ];
    let name = name.to_ascii_lowercase();
    is_about_a_secret(&name) || ABOUT_IT.iter().any(|other| name.contains(other))
}

/// Calls `found` for each name of a secret inside a name, with what its value looks like and where
/// the inner name ends.
fn names_in(name: &str, mut found: impl FnMut(Value, usize)) {
    let mut from = 0;
    while let Some(at) = find(name, from) {
        from = at + 1;
        for (which, place) in cues::at(name, at) {
            if let Shape::Named { value, whole } = RULES[which].shape
                && names(name, &place, name.len(), whole)
            {
                found(value, place.end);
                break;
            }
        }
    }
}

/// Whether a name that ends at `end` and has a cue at `place` is the name of a secret. If `whole`
/// is true, the cue has to be a word at the end of the name.
pub(crate) fn names(text: &str, place: &Range<usize>, end: usize, whole: bool) -> bool {
    let rest = &text[place.end..end];
    let is_key = text[place.clone()]
        .trim_start_matches('_')
        .eq_ignore_ascii_case("key");
    // A `key` of one of these is a name in a data structure and no secret.
    if whole && is_key {
        const OF_OTHER_THINGS: [&str; 20] = [
            "cache", "primary", "foreign", "public", "sort", "partition", "object", "s3", "row",
            "index", "group", "hash", "lookup", "dedup", "idempotency", "routing", "range",
            "unique", "job", "translation",
        ];
        let start = text.floor_char_boundary(place.start.saturating_sub(GAP));
        let before = text[start..place.start].to_ascii_lowercase();
        let before = before.trim_end_matches([' ', '-', '_']);
        if !rest.is_empty() || OF_OTHER_THINGS.iter().any(|other| before.ends_with(other)) {
            return false;
        }
    }
    if whole && text.as_bytes()[place.start] == b'_' {
        return rest.is_empty();
    }
    if whole {
        let mut before = text[..place.start].bytes().rev();
        let starts_a_word = !text.as_bytes()[place.start].is_ascii_lowercase();
        return rest.is_empty()
            && match before.next() {
                Some(byte) if byte.is_ascii_lowercase() => {
                    starts_a_word || begins_behind_an_escape(text, place.start)
                }
                Some(byte) => !byte.is_ascii_alphanumeric(),
                None => true,
            };
    }
    !is_about_a_secret(&rest.to_ascii_lowercase())
}

/// Whether a name in lower case, or the rest of one, says that the value is not the secret itself.
fn is_about_a_secret(rest: &str) -> bool {
    const OF_OTHER_THINGS: [&str; 32] = [
        "length", "_len", "field", "input", "reset", "policy", "path", "file", "count", "strength",
        "label", "hint", "name", "url", "uri", "type", "expir", "less", "manager", "store",
        "stdin", "valid", "require", "error", "mismatch", "change", "forgot", "prompt", "ize",
        "endpoint", "authentication", "algo",
    ];
    OF_OTHER_THINGS.iter().any(|other| rest.contains(other)) || rest.ends_with("id")
}
