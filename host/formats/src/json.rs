//! JSON that is scanned but never rebuilt. Every value is a slice of the text that contains it,
//! so whatever is kept can leave byte for byte.
//!
//! [`Raw`] is a value in its text, with access to its members and elements. [`walk_object`] and
//! [`walk_array`] scan and validate in one pass, for callers that need the places of the parts.
//! [`Edits`] collects replacements of spans and applies them together.
//!
//! The scanner validates strictly, in one pass, without recursion and with bounded nesting. It
//! is fast because almost all bytes of a conversation are inside strings, which it crosses in
//! blocks. A member is found by a linear search, so a caller that needs many members walks the
//! object once.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::{Map, Value};
use wide::u8x32;
use xxhash_rust::xxh3::Xxh3;

/// The maximum nesting depth of values. It is the limit of `serde_json`, so both accept the
/// same documents.
const MAX_DEPTH: u32 = 128;

/// What is wrong with a JSON text, and the byte offset of the defect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonError {
    pub(super) at: usize,
    pub(super) what: &'static str,
}

fn error<T>(at: usize, what: &'static str) -> Result<T, JsonError> {
    Err(JsonError { at, what })
}

/// Returns the offset of the first byte at or after `at` that is not JSON white space. It is
/// the length of the text if there is none.
pub(super) fn skip_space(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let mut at = at;
    while matches!(bytes.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// Returns the end of the value that starts at byte `at`.
///
/// # Errors
/// Fails at the first byte that is not valid JSON, or if values are nested too deep.
pub(super) fn value_end(text: &str, at: usize) -> Result<usize, JsonError> {
    let bytes = text.as_bytes();
    let mut at = at;
    // One bit for each open container, the innermost lowest, and 1 stands for an object. A bit
    // set replaces the recursion, so that a hostile document cannot overflow the stack.
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
        // A value ended here, and the containers around it may end too.
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

/// Skips a key and its colon. Returns the start of the value.
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

/// Returns the offset after the closing quote of the string that opens at `open`. Fails if the
/// string is never closed or contains an invalid escape or a bare control character.
fn string_end(bytes: &[u8], open: usize) -> Result<usize, JsonError> {
    let mut at = open + 1;
    loop {
        let rest = bytes.get(at..).unwrap_or(&[]);
        let mut specials = match rest.first_chunk() {
            Some(block) => specials(*block),
            None => specials(with_zeros(rest)),
        };
        let mut next = at + BLOCK;
        while specials != 0 {
            let special = at + specials.trailing_zeros() as usize;
            let end = match bytes.get(special) {
                Some(b'"') => return Ok(special + 1),
                Some(b'\\') => escape_end(bytes, special, open)?,
                Some(_) => {
                    return error(special, "a string contains an unescaped control character");
                }
                None => return error(open, "this string is never closed"),
            };
            if end >= next {
                next = end;
                break;
            }
            specials &= u32::MAX << (end - at);
        }
        at = next;
    }
}

/// How many bytes of a string are examined at once.
const BLOCK: usize = 32;

/// Marks the quotes, backslashes and control characters of a block, the first byte in the lowest bit.
/// The vectors are explicit, because the compiler vectorises no loop in a program that is built for
/// size.
#[inline]
fn specials(block: [u8; BLOCK]) -> u32 {
    let bytes = u8x32::new(block);
    let is_control = bytes.min(u8x32::splat(0x1f)).simd_eq(bytes);
    let is_special =
        is_control | bytes.simd_eq(u8x32::splat(b'"')) | bytes.simd_eq(u8x32::splat(b'\\'));
    is_special.to_bitmask()
}

/// Fills a block with what is left of a text. The zeros count as control characters, so the scan
/// ends there.
#[cold]
fn with_zeros(rest: &[u8]) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    for (to, from) in block.iter_mut().zip(rest) {
        *to = *from;
    }
    block
}

/// Returns the end of the escape whose backslash is at `at`, in the string that opens at `open`.
fn escape_end(bytes: &[u8], at: usize, open: usize) -> Result<usize, JsonError> {
    let is_hexadecimal = |digits: &[u8]| digits.iter().all(u8::is_ascii_hexdigit);
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') if bytes.get(at + 2..at + 6).is_some_and(is_hexadecimal) => Ok(at + 6),
        Some(_) => error(at, "this is not a JSON escape"),
        None => error(open, "this string is never closed"),
    }
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
        return error(start, "this is not a JSON number");
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return error(start, "this is not a JSON number");
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return error(start, "this is not a JSON number");
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

/// Walks the object that starts at `at`. `visit` is called with each key and the start of its
/// value, and returns the end of the value. Returns the end of the object.
///
/// # Errors
/// Fails if the text is not valid JSON up to that end, or if `visit` fails.
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

/// Walks the remaining members of an object, after a value that ends at `at`. Use it to
/// continue a scan that an earlier version of the text has already covered.
///
/// # Errors
/// Fails for the same reasons as [`walk_object`].
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

/// Walks the array that starts at `at` and calls `visit` with the span of each element. Returns
/// the end of the array.
///
/// # Errors
/// Fails if an element or the array is not valid JSON.
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

/// Walks the remaining elements of an array, after one that ends at `at`. Use it to continue a
/// scan that an earlier version of the text has already covered.
///
/// # Errors
/// Fails for the same reasons as [`walk_array`].
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

/// A valid JSON value in its text. It is only a slice and an offset, so it is copied freely.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Raw<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Raw<'a> {
    /// Parses a text that holds a single value, with optional white space around it.
    ///
    /// # Errors
    /// Fails if `text` is not valid JSON, or if anything follows the value.
    pub(super) fn parse(text: &'a str) -> Result<Self, JsonError> {
        let start = skip_space(text, 0);
        let end = value_end(text, start)?;
        if skip_space(text, end) != text.len() {
            return error(end, "unexpected text follows the end of the value");
        }
        Ok(Self::trusted(text, start..end))
    }

    /// Returns the value that is the whole text, without validating it again.
    pub(super) fn whole(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// Returns the value at `span` of `text` without validating it again. The caller must have
    /// the span from a scan of this text.
    pub(super) fn trusted(text: &'a str, span: Range<usize>) -> Self {
        Self {
            text: text.get(span.clone()).unwrap_or(""),
            at: span.start,
        }
    }

    pub(super) fn text(self) -> &'a str {
        self.text
    }

    /// The byte range of the value in the text that it was found in. For a value of a parsed
    /// text this is relative to that text, not to the enclosing value.
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

    /// The kind of the value with its article, for error messages.
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

    /// The text of a string with its escapes resolved, or `None` for any other value. An
    /// unpaired surrogate becomes U+FFFD.
    pub(super) fn string(self) -> Option<Cow<'a, str>> {
        let inner = self.inner()?;
        Some(if inner.contains('\\') {
            Cow::Owned(unescape(inner))
        } else {
            Cow::Borrowed(inner)
        })
    }

    /// The text between the quotes of a string, with escapes left as they are. `None` for any
    /// other value.
    pub(super) fn inner(self) -> Option<&'a str> {
        self.text.strip_prefix('"')?.strip_suffix('"')
    }

    pub(super) fn number(self) -> Option<f64> {
        self.text.parse().ok()
    }

    /// The members of an object in order. For any other value there are none.
    pub(super) fn members(self) -> Members<'a> {
        Members(Walk::new(self, self.is_object()))
    }

    /// The elements of an array in order. For any other value there are none.
    pub(super) fn elements(self) -> Elements<'a> {
        Elements(Walk::new(self, self.is_array()))
    }

    /// The member `key` of an object. If several members share the key, the last one counts, as
    /// in other JSON parsers.
    pub(super) fn get(self, key: &str) -> Option<Raw<'a>> {
        self.members()
            .filter(|(name, _)| name == key)
            .map(|(_, value)| value)
            .last()
    }

    /// The member `key`, if it is a string that is not empty.
    pub(super) fn get_string(self, key: &str) -> Option<String> {
        Some(self.get(key)?.string()?.into_owned()).filter(|text| !text.is_empty())
    }

    /// Whether the member `key` is this string.
    pub(super) fn has(self, key: &str, text: &str) -> bool {
        self.get(key).and_then(Raw::string).as_deref() == Some(text)
    }

    /// The comma before another entry of this container. Empty if it has no entry yet.
    pub(super) fn comma(self) -> &'static str {
        let is_empty = self.members().next().is_none() && self.elements().next().is_none();
        if is_empty { "" } else { "," }
    }

    /// The value, with what [`Value`] cannot hold replaced: half of a surrogate pair by U+FFFD, and a
    /// number beyond the range of `f64` by a string. The recursion is bounded by the maximum nesting
    /// depth.
    pub(super) fn value(self) -> Value {
        if self.is_object() {
            let members = self.members();
            let members = members.map(|(key, value)| (key.into_owned(), value.value()));
            Value::Object(members.collect::<Map<_, _>>())
        } else if self.is_array() {
            self.elements().map(Self::value).collect()
        } else if let Some(text) = self.string() {
            Value::String(text.into_owned())
        } else {
            serde_json::from_str(self.text).unwrap_or_else(|_| Value::String(self.text.to_owned()))
        }
    }

    /// Feeds the meaning of the value to a hash. Key order, white space, escapes and
    /// `cache_control` members make no difference. The recursion is bounded by the maximum
    /// nesting depth.
    pub(super) fn hash_meaning(self, hash: &mut Xxh3) {
        if self.is_object() {
            let mut members: Vec<_> = self
                .members()
                .filter(|(key, _)| key != "cache_control")
                .collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            hash.update(b"{");
            for (at, (key, value)) in members.iter().enumerate() {
                // If members share a key, the last one counts. The sort is stable, so the last
                // one stays last.
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
            // Two numbers in a list must not hash like one longer number.
            hash.update(b",");
        }
    }
}

/// Feeds a text to a hash, with its length in front so that it cannot run into what follows.
pub(super) fn hash_text(text: &str, hash: &mut Xxh3) {
    hash.update(&(text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}

/// The position in a container at which the next entry is read. The container was validated, so
/// if a step fails, the container has ended.
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
        // The key is only compared, so its position does not matter.
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

/// Returns the character that the escape at the start of `text` stands for, and the length of
/// the escape in bytes. If the escape is broken, the character is U+FFFD.
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

/// Converts an offset into the text of a string to an offset into its escaped form `inner`.
/// Both are in bytes. An offset after the end of the text gives the end of `inner`.
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

/// `text` as a JSON string, including the quotes.
pub(super) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}

/// `text` with the escapes that it needs between the quotes of a JSON string.
pub(super) fn escape(text: &str) -> String {
    let quoted = quote(text);
    let inner = quoted.get(1..quoted.len() - 1);
    inner.unwrap_or_default().to_owned()
}

/// The same JSON on one line. A valid string contains no bare newline, so every newline is
/// white space between values and becomes a space.
pub(super) fn on_one_line(json: &str) -> Cow<'_, str> {
    // Two searches for a byte are faster than one for either of two.
    if json.contains('\n') || json.contains('\r') {
        Cow::Owned(json.replace(['\n', '\r'], " "))
    } else {
        Cow::Borrowed(json)
    }
}

/// Replacements of spans of a text. They are applied together, so that every span refers to the
/// original text.
#[derive(Debug, Default)]
pub(super) struct Edits(Vec<(Range<usize>, String)>);

impl Edits {
    /// Replaces `span` with `text`. An empty span inserts the text at its position.
    pub(super) fn replace(&mut self, span: Range<usize>, text: impl Into<String>) {
        self.0.push((span, text.into()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The replacements, in the order in which they were added.
    pub(super) fn into_parts(self) -> Vec<(Range<usize>, String)> {
        self.0
    }

    /// Returns `part` of the text with the replacements made in it. If two replacements
    /// overlap, the one that starts earlier wins. Replacements outside of `part` are ignored.
    pub(super) fn apply(mut self, text: &str, part: Range<usize>) -> String {
        let grown: usize = self.0.iter().map(|(_, new)| new.len()).sum();
        let mut out = String::with_capacity(part.len() + grown);
        self.apply_to(&mut out, text, part);
        out
    }

    /// Does the same as [`apply`](Self::apply), but appends the result to `out`.
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

/// Inserts a member at the end of an object. The caller makes sure that the object has no
/// member with this key.
pub(super) fn insert_member(object: Raw<'_>, key: &str, value: &str, edits: &mut Edits) {
    let (end, comma) = (object.span().end - 1, object.comma());
    edits.replace(end..end, format!("{comma}\"{key}\":{value}"));
}

#[cfg(test)]
mod tests;
