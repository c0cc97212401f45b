//! The values of HTTP headers: a credential after its scheme, and cookies.

use std::ops::Range;

use crate::charset::{DOTTED, is_in};
use crate::steps;
use crate::value::{is_placeholder, is_plausible};

/// Returns the byte at which the credential in a header's value begins, after its scheme.
pub(crate) fn credential_start(text: &str, place: &Range<usize>) -> usize {
    let value = &text[place.start..text.floor_char_boundary(place.end.min(place.start + 64))];
    let scheme = value.find(' ').map_or(0, |space| space + 1);
    place.start + scheme + value[scheme..].len() - value[scheme..].trim_start().len()
}

/// Returns the bytes of a token in a header's value, if it looks like a credential.
pub(crate) fn credential(text: &str, place: Range<usize>) -> Option<Range<usize>> {
    let credential = &text[place.clone()];
    let fits = place.len() >= 8 && is_plausible(credential) && !is_placeholder(credential);
    fits.then_some(place)
}

/// Appends the values of the cookies in a header. Returns the end of the last cookie that was
/// examined.
pub(crate) fn cookies(text: &str, place: Range<usize>, secrets: &mut Vec<Range<usize>>) -> usize {
    const ATTRIBUTES: [&str; 7] = [
        "path", "domain", "expires", "max-age", "samesite", "version", "priority",
    ];
    const NAME: usize = 64;
    let bytes = &text.as_bytes()[..place.end];
    let mut at = place.start;
    loop {
        at += bytes[at..]
            .iter()
            .take(NAME)
            .take_while(|byte| **byte == b' ')
            .count();
        let name = bytes[at..]
            .iter()
            .take(NAME)
            .take_while(|byte| is_in(**byte, DOTTED))
            .count();
        let name = at..at + name;
        if bytes.get(name.end) != Some(&b'=') {
            return at;
        }
        let start = name.end + 1;
        let len = bytes[start..]
            .iter()
            .take_while(|byte| !byte.is_ascii_whitespace() && **byte != b';');
        let end = start + len.count();
        steps::add(end - at);
        let value = &text[start..end];
        // Attributes such as `Path` look like cookies, but have public values.
        let is_attribute = ATTRIBUTES
            .iter()
            .any(|other| text[name.clone()].eq_ignore_ascii_case(other));
        if !is_attribute && value.len() >= 8 && !is_placeholder(value) {
            secrets.push(start..end);
        }
        at = end;
        if bytes.get(at) != Some(&b';') {
            return at;
        }
        at += 1;
    }
}
