//! One case for every letter.

use std::ops::Range;

use super::terms::{Class, class};

/// The common form of `c` and all characters that differ from it only by case. Always exactly one
/// character, so that positions in a folded text can be mapped back.
#[inline]
pub(crate) fn fold_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    // Only word characters have a case. (The standard library may know newer letters than `regex`, which
    // must not turn into word characters.)
    if class(c) != Class::Word {
        return c;
    }
    match c {
        // Pairs that Unicode folds together although neither is the other's upper or lower case.
        '\u{1fd3}' => '\u{390}',
        '\u{1fe3}' => '\u{3b0}',
        '\u{fb05}' => '\u{fb06}',
        _ => single(
            single(c, c.to_uppercase()),
            single(c, c.to_uppercase()).to_lowercase(),
        ),
    }
}

/// The mapping if it is one character, else `c`.
fn single(c: char, mut mapped: impl ExactSizeIterator<Item = char>) -> char {
    match (mapped.len(), mapped.next()) {
        (1, Some(one)) => one,
        _ => c,
    }
}

/// Folds a whole text into `out`, which is cleared first.
pub(crate) fn fold_into(text: &str, out: &mut String) {
    out.clear();
    out.reserve(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let ascii = rest
            .bytes()
            .position(|byte| !byte.is_ascii())
            .unwrap_or(rest.len());
        let start = out.len();
        out.push_str(&rest[..ascii]);
        out[start..].make_ascii_lowercase();
        rest = &rest[ascii..];
        let mut chars = rest.chars();
        while let Some(c) = chars.clone().next().filter(|c| !c.is_ascii()) {
            out.push(fold_char(c));
            chars.next();
        }
        rest = chars.as_str();
    }
}

/// The folded text.
pub(crate) fn fold(text: &str) -> String {
    let mut out = String::new();
    fold_into(text, &mut out);
    out
}

/// Maps positions in the folded form of a text to positions in the text itself, in one pass.
pub(crate) fn in_original(text: &str, places: &mut [Range<usize>]) {
    let mut ends: Vec<&mut usize> = places
        .iter_mut()
        .flat_map(|place| [&mut place.start, &mut place.end])
        .collect();
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut folded = 0;
    for (at, c) in text.char_indices() {
        while let Some(end) = ends.next_if(|end| **end <= folded) {
            *end = at;
        }
        if ends.peek().is_none() {
            return;
        }
        folded += fold_char(c).len_utf8();
    }
    for end in ends {
        *end = text.len();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

    use super::*;

    /// Otherwise `(?i)` could match texts that the index does not find.
    #[test]
    fn folds_together_whatever_a_regular_expression_does() {
        for c in '\0'..=char::MAX {
            let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
            class.try_case_fold_simple().unwrap();
            for range in class.iter() {
                for other in range.start()..=range.end() {
                    assert_eq!(fold_char(c), fold_char(other), "{c:?} and {other:?}");
                }
            }
        }
    }

    #[test]
    fn offsets_lead_back() {
        let text = "aİK\u{212a}ß世B";
        let folded = fold(text);
        let mut places: Vec<Range<usize>> = text
            .char_indices()
            .map(|(at, c)| {
                let in_folded = fold(&text[..at]).len();
                assert!(folded[in_folded..].starts_with(fold_char(c)));
                in_folded..folded.len()
            })
            .collect();
        // In any order, and more than once.
        places.reverse();
        places.push(places[0].clone());
        in_original(text, &mut places);
        let mut expected: Vec<Range<usize>> =
            text.char_indices().map(|(at, _)| at..text.len()).collect();
        expected.reverse();
        expected.push(expected[0].clone());
        assert_eq!(places, expected);
    }
}
