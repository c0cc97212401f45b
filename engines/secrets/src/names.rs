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
    // A name with one of these in its rest is about a secret, but its value is none.
    const OF_OTHER_THINGS: [&str; 32] = [
        "length", "_len", "field", "input", "reset", "policy", "path", "file", "count", "strength",
        "label", "hint", "name", "url", "uri", "type", "expir", "less", "manager", "store",
        "stdin", "valid", "require", "error", "mismatch", "change", "forgot", "prompt", "ize",
        "endpoint", "authentication", "algo",
    ];
    let rest = rest.to_ascii_lowercase();
    !OF_OTHER_THINGS.iter().any(|other| rest.contains(other)) && !rest.ends_with("id")
}
