//! JSON that is looked at but never rebuilt: every value is a slice of the text it came in, so what is
//! kept can leave byte for byte.
//!
//! The scanner validates strictly (one pass, no recursion, nesting bounded) and is fast because almost
//! all bytes of a conversation stand inside strings, which it crosses in blocks.

use std::borrow::Cow;
use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

/// How deep values may nest: as deep as `serde_json` allows.
const MAX_DEPTH: u32 = 128;

/// What is wrong with a JSON text, and at which byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

fn error<T>(at: usize, what: &'static str) -> Result<T, JsonError> {
    Err(JsonError { at, what })
}

/// The first byte at or after `at` that is not JSON whitespace.
pub(super) fn skip_space(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = at;
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// Where the value that starts at byte `at` ends.
///
/// # Errors
/// Where and why it is not valid JSON.
pub(super) fn value_end(text: &str, at: usize) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    let mut at = at;
    // One bit for each open container, the innermost lowest: 1 is an object.
    let (mut objects, mut depth) = (0u128, 0u32);
    loop {
        // A value starts here.
        match bytes.get(at) {
            Some(b'"') => at = string_end(bytes, at)?,
            Some(open @ (b'{' | b'[')) => {
                if depth == MAX_DEPTH {
                    return error(at, "values are nested more than 128 deep");
                }
                let object = *open == b'{';
                at = skip_space(text, at + 1);
                if bytes.get(at) == Some(if object { &b'}' } else { &b']' }) {
                    at += 1;
                } else {
                    objects = (objects << 1) | u128::from(object);
                    depth += 1;
                    if object {
                        at = key_end(text, at)?;
                    }
                    continue;
                }
            }
            Some(b'-' | b'0'..=b'9') => at = number_end(bytes, at)?,
            Some(b't') => at = literal_end(bytes, at, b"true")?,
            Some(b'f') => at = literal_end(bytes, at, b"false")?,
            Some(b'n') => at = literal_end(bytes, at, b"null")?,
            Some(_) => return error(at, "a value was expected here"),
            None => return error(at, "the text ends where a value was expected"),
        }
        // A value ended here; so may the containers around it.
        loop {
            if depth == 0 {
                return Ok(at);
            }
            let object = objects & 1 == 1;
            at = skip_space(text, at);
            match (bytes.get(at), object) {
                (Some(b','), true) => {
                    at = key_end(text, skip_space(text, at + 1))?;
                    break;
                }
                (Some(b','), false) => {
                    at = skip_space(text, at + 1);
                    break;
                }
                (Some(b'}'), true) | (Some(b']'), false) => {
                    at += 1;
                    depth -= 1;
                    objects >>= 1;
                }
                (Some(_), true) => return error(at, "`,` or `}` was expected here"),
                (Some(_), false) => return error(at, "`,` or `]` was expected here"),
                (None, true) => return error(at, "the text ends inside an object"),
                (None, false) => return error(at, "the text ends inside an array"),
            }
        }
    }
}

/// Crosses a key and its colon, to where the value starts.
fn key_end(text: &str, at: usize) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(b'"') => {}
        Some(_) => return error(at, "a key in double quotes was expected here"),
        None => return error(at, "the text ends where a key was expected"),
    }
    let at = skip_space(text, string_end(bytes, at)?);
    match bytes.get(at) {
        Some(b':') => Ok(skip_space(text, at + 1)),
        Some(_) => error(at, "`:` was expected here"),
        None => error(at, "the text ends after a key"),
    }
}

/// How many bytes of a string are looked at together.
const BLOCK: usize = 32;

/// Where the string that opens at `open` ends.
fn string_end(bytes: &[u8], open: usize) -> Result<usize, JsonError> {
    let mut at = open + 1;
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let mut specials = match rest.first_chunk() {
            Some(block) => specials(block),
            None => specials(&padded(rest)),
        };
        // The first byte that the block has nothing to say of.
        let mut next = at + BLOCK;
        while specials != 0 {
            let special = at + specials.trailing_zeros() as usize;
            let length = match bytes.get(special) {
                Some(b'"') => return Ok(special + 1),
                Some(b'\\') => match bytes.get(special + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
                    Some(b'u')
                        if bytes
                            .get(special + 2..special + 6)
                            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) =>
                    {
                        6
                    }
                    Some(_) => return error(special, "this is not an escape that JSON knows"),
                    None => return error(open, "this string is never closed"),
                },
                Some(_) => {
                    return error(special, "a control character stands unescaped in a string");
                }
                None => return error(open, "this string is never closed"),
            };
            let end = special + length;
            if end - at >= BLOCK {
                next = end;
                break;
            }
            specials &= u32::MAX << (end - at);
        }
        at = next;
    }
}

/// Marks the quotes, backslashes and control characters of a block with a bit each, the first byte's lowest.
/// The loops are such that the compiler makes vector instructions of them.
#[inline(always)]
fn specials(block: &[u8; BLOCK]) -> u32 {
    let mut marks = [0u8; BLOCK];
    for (mark, byte) in marks.iter_mut().zip(block) {
        *mark = u8::from(*byte < 0x20 || *byte == b'"' || *byte == b'\\');
    }
    let mut bits = 0;
    for (at, word) in marks.as_chunks::<8>().0.iter().enumerate() {
        // The product gathers the lowest bits of the eight bytes in its highest byte.
        let gathered = u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= (gathered as u32) << (8 * at);
    }
    bits
}

/// The end of a text as a block, with control characters behind it.
#[cold]
fn padded(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    block
}

fn number_end(bytes: &[u8], start: usize) -> Result<usize, JsonError> {
    let digits = |at: usize| {
        bytes
            .iter()
            .skip(at)
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes.get(at) == Some(&b'0')) {
        return error(start, "this is not a number that JSON knows");
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return error(start, "this is not a number that JSON knows");
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return error(start, "this is not a number that JSON knows");
        }
        at += exponent;
    }
    Ok(at)
}

fn literal_end(bytes: &[u8], at: usize, literal: &[u8]) -> Result<usize, JsonError> {
    if bytes
        .get(at..)
        .is_some_and(|rest| rest.starts_with(literal))
    {
        Ok(at + literal.len())
    } else {
        error(at, "a value was expected here")
    }
}

/// Walks the object that starts at `at`: `visit` is given each key and where its value starts, and
/// answers where it ends. Answers where the object ends.
///
/// # Errors
/// Where and why it is not valid JSON.
pub(super) fn walk_object<'a>(
    text: &'a str,
    at: usize,
    mut visit: impl FnMut(Cow<'a, str>, usize) -> Result<usize, JsonError>,
) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    if bytes.get(at) != Some(&b'{') {
        return error(at, "an object was expected here");
    }
    let at = skip_space(text, at + 1);
    if bytes.get(at) == Some(&b'}') {
        return Ok(at + 1);
    }
    let end = walk_member(text, at, &mut visit)?;
    walk_object_on(text, end, visit)
}

/// As [`walk_object`], for the members behind a value that ends at `at`.
///
/// # Errors
/// As there.
pub(super) fn walk_object_on<'a>(
    text: &'a str,
    mut at: usize,
    mut visit: impl FnMut(Cow<'a, str>, usize) -> Result<usize, JsonError>,
) -> Result<usize, JsonError> {
    loop {
        at = skip_space(text, at);
        match text.as_bytes().get(at) {
            Some(b',') => at = walk_member(text, skip_space(text, at + 1), &mut visit)?,
            Some(b'}') => return Ok(at + 1),
            Some(_) => return error(at, "`,` or `}` was expected here"),
            None => return error(at, "the text ends inside an object"),
        }
    }
}

fn walk_member<'a>(
    text: &'a str,
    at: usize,
    visit: &mut impl FnMut(Cow<'a, str>, usize) -> Result<usize, JsonError>,
) -> Result<usize, JsonError> {
    let value = key_end(text, at)?;
    let key = Raw::trusted(text, at..string_end(text.as_bytes(), at)?);
    visit(key.string().unwrap_or_default(), value)
}

/// Walks the array that starts at `at`, handing out the span of each element. Answers where it ends.
///
/// # Errors
/// Where and why it is not valid JSON.
pub(super) fn walk_array(
    text: &str,
    at: usize,
    mut visit: impl FnMut(Range<usize>),
) -> Result<usize, JsonError> {
    let at = skip_space(text, at + 1);
    if text.as_bytes().get(at) == Some(&b']') {
        return Ok(at + 1);
    }
    let end = value_end(text, at)?;
    visit(at..end);
    walk_array_on(text, end, visit)
}

/// As [`walk_array`], for the elements behind one that ends at `at`.
///
/// # Errors
/// As there.
pub(super) fn walk_array_on(
    text: &str,
    mut at: usize,
    mut visit: impl FnMut(Range<usize>),
) -> Result<usize, JsonError> {
    loop {
        at = skip_space(text, at);
        match text.as_bytes().get(at) {
            Some(b',') => {
                let start = skip_space(text, at + 1);
                at = value_end(text, start)?;
                visit(start..at);
            }
            Some(b']') => return Ok(at + 1),
            Some(_) => return error(at, "`,` or `]` was expected here"),
            None => return error(at, "the text ends inside an array"),
        }
    }
}

/// A JSON value as it stands in its text, known to be valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Raw<'a> {
    /// The one value that `text` holds, whitespace around it allowed.
    ///
    /// # Errors
    /// Where and why `text` is not one valid value.
    pub(super) fn parse(text: &'a str) -> Result<Self, JsonError> {
        let start = skip_space(text, 0);
        let end = value_end(text, start)?;
        if skip_space(text, end) != text.len() {
            return error(end, "something follows after the end of the value");
        }
        Ok(Self::trusted(text, start..end))
    }

    /// The value at `span` of `text`, which a scan has found there.
    pub(super) fn trusted(text: &'a str, span: Range<usize>) -> Self {
        Self {
            text: text.get(span.clone()).unwrap_or(""),
            at: span.start,
        }
    }

    /// Its text.
    pub(super) fn text(self) -> &'a str {
        self.text
    }

    /// Where it stands, in bytes of the text it was found in.
    pub(super) fn span(self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }

    fn first(self) -> u8 {
        self.text.bytes().next().unwrap_or(b' ')
    }

    pub(super) fn is_object(self) -> bool {
        self.first() == b'{'
    }

    pub(super) fn is_array(self) -> bool {
        self.first() == b'['
    }

    pub(super) fn is_string(self) -> bool {
        self.first() == b'"'
    }

    pub(super) fn is_null(self) -> bool {
        self.first() == b'n'
    }

    pub(super) fn is_true(self) -> bool {
        self.first() == b't'
    }

    /// What it is, for an error.
    pub(super) fn kind(self) -> &'static str {
        match self.first() {
            b'{' => "an object",
            b'[' => "a list",
            b'"' => "a string",
            b'n' => "null",
            b't' | b'f' => "a boolean",
            _ => "a number",
        }
    }

    /// The text of a string, escapes resolved; half a surrogate pair becomes U+FFFD.
    pub(super) fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.inner()?;
        Some(if inner.contains('\\') {
            Cow::Owned(unescape(inner))
        } else {
            Cow::Borrowed(inner)
        })
    }

    /// What stands between the quotes of a string, escapes as they are.
    pub(super) fn inner(self) -> Option<&'a str> {
        self.text.strip_prefix('"')?.strip_suffix('"')
    }

    pub(super) fn number(self) -> Option<f64> {
        self.text.parse().ok()
    }

    /// The members of an object, in order; nothing for any other value.
    pub(super) fn members(self) -> Members<'a> {
        Members(Walk::new(self, self.is_object()))
    }

    /// The elements of an array, in order; nothing for any other value.
    pub(super) fn elements(self) -> Elements<'a> {
        Elements(Walk::new(self, self.is_array()))
    }

    /// The member `key` of an object; of several the last, as other readers have it.
    pub(super) fn get(self, key: &str) -> Option<Raw<'a>> {
        self.members()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value)
            .last()
    }

    /// The member `key` as a string that is not empty.
    pub(super) fn get_string(self, key: &str) -> Option<String> {
        Some(self.get(key)?.string()?.into_owned()).filter(|text| !text.is_empty())
    }

    /// Feeds the meaning of the value to a hash: neither key order, whitespace, escapes nor
    /// `cache_control` members make a difference. Recurses no deeper than a value may nest.
    pub(super) fn hash_meaning(self, hash: &mut Xxh3) {
        if self.is_object() {
            let mut members: Vec<_> = self
                .members()
                .filter(|(key, _)| key != "cache_control")
                .collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            hash.update(b"{");
            for (at, (key, value)) in members.iter().enumerate() {
                // Of members that share a key the last counts; the sort is stable.
                if members.get(at + 1).is_none_or(|next| next.0 != *key) {
                    hash_text(key, hash);
                    value.hash_meaning(hash);
                }
            }
            hash.update(b"}");
        } else if self.is_array() {
            hash.update(b"[");
            for element in self.elements() {
                element.hash_meaning(hash);
            }
            hash.update(b"]");
        } else if let Some(text) = self.string() {
            hash_text(&text, hash);
        } else {
            hash.update(self.text.as_bytes());
            hash.update(b",");
        }
    }
}

/// Feeds a text to a hash so that it cannot run into what follows.
pub(super) fn hash_text(text: &str, hash: &mut Xxh3) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// Where in a container the next entry is looked for. The container was validated, so a failed step is
/// the end of it.
#[derive(Debug, Clone)]
struct Walk<'a> {
    container: Raw<'a>,
    next: usize,
}

impl<'a> Walk<'a> {
    fn new(container: Raw<'a>, matches: bool) -> Self {
        let next = if matches { 1 } else { container.text.len() };
        Self { container, next }
    }

    fn value_at(&mut self, start: usize) -> Option<Raw<'a>> {
        let text = self.container.text;
        let end = value_end(text, start).ok()?;
        let after = skip_space(text, end);
        self.next = after + 1;
        Some(Raw {
            text: text.get(start..end)?,
            at: self.container.at + start,
        })
    }
}

pub(super) struct Members<'a>(Walk<'a>);

impl<'a> Iterator for Members<'a> {
    type Item = (Cow<'a, str>, Raw<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.container.text;
        let start = skip_space(text, self.0.next);
        if text.as_bytes().get(start) != Some(&b'"') {
            return None;
        }
        let end = string_end(text.as_bytes(), start).ok()?;
        let key = Raw {
            text: text.get(start..end)?,
            at: 0,
        };
        let value = key_end(text, start).ok()?;
        Some((key.string()?, self.0.value_at(value)?))
    }
}

#[derive(Clone)]
pub(super) struct Elements<'a>(Walk<'a>);

impl<'a> Iterator for Elements<'a> {
    type Item = Raw<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.0.container.text;
        let start = skip_space(text, self.0.next);
        if start + 1 >= text.len() {
            return None;
        }
        self.0.value_at(start)
    }
}

fn unescape(inner: &str) -> String {
    let mut out = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, escape) = rest.split_at(at);
        out.push_str(plain);
        let (character, length) = read_escape(escape);
        out.push(character);
        rest = escape.get(length..).unwrap_or("");
    }
    out.push_str(rest);
    out
}

/// The character that the escape at the start of `text` stands for, and the escape's bytes.
fn read_escape(text: &str) -> (char, usize) {
    let unit = |at: usize| {
        let is_unicode = text.get(at..at + 2) == Some("\\u");
        let digits = text.get(at + 2..at + 6).filter(|_| is_unicode)?;
        u16::from_str_radix(digits, 16).ok()
    };
    match text.as_bytes().get(1) {
        Some(b'n') => ('\n', 2),
        Some(b't') => ('\t', 2),
        Some(b'r') => ('\r', 2),
        Some(b'b') => ('\u{8}', 2),
        Some(b'f') => ('\u{c}', 2),
        Some(b'u') => match (unit(0), unit(6)) {
            (Some(high @ 0xd800..=0xdbff), Some(low @ 0xdc00..=0xdfff)) => {
                let code = 0x10000 + ((u32::from(high) - 0xd800) << 10) + u32::from(low) - 0xdc00;
                (
                    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
                    12,
                )
            }
            (Some(unit), _) => (
                char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER),
                6,
            ),
            (None, _) => (char::REPLACEMENT_CHARACTER, 2),
        },
        Some(other) => (char::from(*other), 2),
        None => (char::REPLACEMENT_CHARACTER, 1),
    }
}

/// Where, in the escaped `inner` of a string, its text has reached `offset` bytes.
pub(super) fn escaped_offset(inner: &str, offset: usize) -> usize {
    let (mut at, mut reached) = (0, 0);
    while reached < offset {
        let rest = inner.get(at..).unwrap_or("");
        let Some(first) = rest.chars().next() else {
            break;
        };
        let (character, length) = if first == '\\' {
            read_escape(rest)
        } else {
            (first, first.len_utf8())
        };
        reached += character.len_utf8();
        at += length;
    }
    at
}

/// `text` as a JSON string, quotes included.
pub(super) fn quote(text: &str) -> String {
    format!("\"{}\"", escape(text))
}

/// `text` as it stands between the quotes of a JSON string.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(character))),
            other => out.push(other),
        }
    }
    out
}

/// The same JSON on one line: outside of strings a newline is but whitespace, inside it is escaped.
pub(super) fn on_one_line(json: &str) -> Cow<'_, str> {
    if json.contains(['\n', '\r']) {
        Cow::Owned(json.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(json)
    }
}

/// Changes to a text, by spans of it; applied together, so that every span is of the original.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    /// Puts `text` in place of `span`; an empty span inserts.
    pub(super) fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.0.push((span, text.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `part` of the text with the changes made in it. Of changes that overlap the earlier in the
    /// text wins.
    pub(super) fn apply(mut self, text: &str, part: Range<usize>) -> String {
        let grown: usize = self.0.iter().map(|(_, new)| new.len()).sum();
        let mut out = String::with_capacity(part.len() + grown);
        self.apply_to(&mut out, text, part);
        out
    }

    /// The same, at the end of `out`.
    pub(super) fn apply_to(&mut self, out: &mut String, text: &str, part: Range<usize>) {
        self.0.sort_by_key(|(span, _)| (span.start, span.end));
        let mut done = part.start;
        for (span, new) in &self.0 {
            if span.start < done || span.end > part.end {
                continue;
            }
            out.push_str(text.get(done..span.start).unwrap_or(""));
            out.push_str(new);
            done = span.end;
        }
        out.push_str(text.get(done..part.end).unwrap_or(""));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_json_forbids_is_refused_where_it_stands() {
        for (text, at) in [
            ("{\"a\":}", 5),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("{\"a\" 1}", 5),
            ("{a:1}", 1),
            ("\"open", 0),
            ("\"\\x\"", 1),
            ("\"\\u12g4\"", 1),
            ("\"a\u{0}b\"", 2),
            ("01", 0),
            ("1.", 0),
            ("1e", 0),
            ("-", 0),
            ("tru", 0),
            ("", 0),
            ("{} x", 2),
            ("[", 1),
        ] {
            assert_eq!(Raw::parse(text).unwrap_err().at, at, "{text}");
        }
        assert!(Raw::parse(&"[".repeat(1_000_000)).is_err());
        assert!(Raw::parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
        assert!(Raw::parse(&format!("{}{}", "[".repeat(129), "]".repeat(129))).is_err());
    }

    #[test]
    fn half_a_surrogate_pair_is_replaced_and_a_whole_one_joined() {
        let text = |json: &'static str| Raw::parse(json).unwrap().string().unwrap().into_owned();
        assert_eq!(text(r#""a\ud83d\ude00b""#), "a😀b");
        assert_eq!(text(r#""\ud800""#), "\u{fffd}");
        assert_eq!(text(r#""\ud800\u0041""#), "\u{fffd}A");
        assert_eq!(text(r#""\udc00x""#), "\u{fffd}x");
        assert_eq!(text(r#""\u0000\/\b\f""#), "\0/\u{8}\u{c}");
    }

    #[test]
    fn of_members_that_share_a_key_the_last_counts() {
        let raw = Raw::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap();
        assert_eq!(raw.get("a").unwrap().text(), "3");
    }

    proptest! {
        /// The scanner and serde_json agree on what is JSON (raw bytes, mutated).
        #[test]
        fn agrees_with_serde_json(text in "[\\[\\]{}:,\"\\\\a0-9.eE+u \n\u{1}é-]{0,40}") {
            let ours = Raw::parse(&text);
            let theirs: Result<Box<serde_json::value::RawValue>, _> = serde_json::from_str(&text);
            prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
        }

        #[test]
        fn quoting_and_reading_gives_the_text_back(text in any::<String>()) {
            let quoted = quote(&text);
            prop_assert_eq!(&serde_json::from_str::<String>(&quoted).unwrap(), &text);
            let raw = Raw::parse(&quoted).unwrap();
            prop_assert_eq!(raw.string().unwrap(), text.as_str());
            // Every prefix of the text ends at an escaped offset that splits the string there.
            let inner = raw.inner().unwrap();
            for (at, _) in text.char_indices() {
                prop_assert_eq!(unescape(&inner[..escaped_offset(inner, at)]), &text[..at]);
            }
        }
    }
}
