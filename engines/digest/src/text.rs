//! Cuts and cleans text: lines, sentences, excerpts.
//!
//! [`clip`] and [`shorten_middle`] shorten a text to a number of characters, without splitting an
//! emoji or an accented letter. [`clean_line`] turns a line of output or Markdown into one that can
//! be quoted, and [`one_line`] joins several. [`sentences`] splits prose. All lengths are Unicode
//! scalar values unless a name says bytes.

use std::borrow::Cow;
use std::ops::Range;

use contexture_engine_api::{SUMMARY_END_MARK, SUMMARY_MARK};

use crate::scan::looks_encoded;

/// The mark for the omitted middle of a quote.
pub(crate) const LEFT_OUT: &str = " […] ";

pub(crate) fn chars(text: &str) -> usize {
    text.chars().count()
}

/// Returns the text of a summary without the host's marks. They are removed wherever they stand, so
/// that no summary is ever wrapped in another, or ends early.
pub fn unmarked(summary: &str) -> String {
    let text = summary.replace(SUMMARY_END_MARK, "");
    text.replace(SUMMARY_MARK, "").trim().to_owned()
}

/// Returns at most the first `max` characters. If something was cut off, the result ends with `…`.
pub(crate) fn clip(text: &str, max: usize) -> Cow<'_, str> {
    // The length in bytes is at least that in characters, so counting is rarely needed.
    if text.len() <= max || chars(text) <= max {
        return Cow::Borrowed(text);
    }
    let end = byte_of_char(text, max.saturating_sub(1));
    // Do not cut a word in two, unless it is most of the text.
    let end = match text[..end].rfind(' ') {
        Some(space) if space * 3 > end * 2 => space,
        _ => end,
    };
    Cow::Owned(format!("{}…", text[..end].trim_end()))
}

/// Returns at most `max` characters: the beginning and the end, with a mark between them. The
/// beginning gets two thirds.
pub(crate) fn shorten_middle(text: &str, max: usize) -> Cow<'_, str> {
    let total = chars(text);
    if total <= max {
        return Cow::Borrowed(text);
    }
    let room = max.saturating_sub(chars(LEFT_OUT));
    let head = byte_of_char(text, room * 2 / 3);
    let tail = byte_after_char(text, total - (room - room * 2 / 3));
    Cow::Owned(format!(
        "{}{LEFT_OUT}{}",
        text[..head].trim_end(),
        text[tail..].trim_start()
    ))
}

/// Returns the byte at which the character with this number begins, moved back so that emoji and
/// accented letters stay whole.
fn byte_of_char(text: &str, count: usize) -> usize {
    let mut at = byte_of_nth(text, count);
    while let Some(before) = text[..at].chars().next_back().filter(|_| tears(text, at)) {
        at -= before.len_utf8();
    }
    at
}

/// Like [`byte_of_char`], but moves forward instead of back.
fn byte_after_char(text: &str, count: usize) -> usize {
    let mut at = byte_of_nth(text, count);
    while let Some(next) = text[at..].chars().next().filter(|_| tears(text, at)) {
        at += next.len_utf8();
    }
    at
}

fn byte_of_nth(text: &str, count: usize) -> usize {
    text.char_indices()
        .nth(count)
        .map_or(text.len(), |(at, _)| at)
}

/// Whether a cut at this byte would split a grapheme. Only accents, joiners, variation selectors
/// and skin tones are recognised.
fn tears(text: &str, at: usize) -> bool {
    let joins = |character: char| matches!(character, '\u{300}'..='\u{36f}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}');
    text[at..].chars().next().is_some_and(joins) || text[..at].ends_with('\u{200d}')
}

/// Returns the text in one line, with runs of white space collapsed. Encoded bytes are replaced by
/// `…`.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let holds_data = contains(text, ";base64,");
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        let data = match holds_data {
            true => word.find(";base64,"),
            false => None,
        };
        match data {
            Some(data) => {
                line.push_str(&word[..data]);
                line.push('…');
            }
            None if looks_encoded(word.as_bytes()) => line.push('…'),
            None => line.push_str(word),
        }
    }
    line
}

/// Returns the bytes of the line around byte `at`, without its line ends.
pub(crate) fn line_around(text: &str, at: usize) -> Range<usize> {
    let bytes = text.as_bytes();
    let start = memchr::memrchr(b'\n', &bytes[..at]).map_or(0, |end| end + 1);
    let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |len| at + len);
    start..end
}

/// Whether a text contains a short part. Unlike `str::contains`, it has no set-up cost, which
/// matters for many short texts.
pub(crate) fn contains(text: &str, part: &str) -> bool {
    memchr::memmem::find(text.as_bytes(), part.as_bytes()).is_some()
}

/// Returns a line as a person would quote it: without list marks, table bars, emphasis or line
/// numbers.
pub(crate) fn clean_line(line: &str) -> String {
    let mut rest = line.trim();
    // File tools number lines as `   12→code` or `12:code`.
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0
        && let Some(code) = rest[digits..].strip_prefix(['→', ':'])
        && !code.starts_with(|c: char| c.is_ascii_digit())
    {
        rest = code.trim_start();
    }
    rest = rest.trim_start_matches([
        '#', '>', '|', '*', '-', '•', '│', '├', '└', '─', ' ', '\u{a0}',
    ]);
    rest = rest.trim_end_matches(['|', '*', '\\', '{', ' ', '\r']);
    // The character `│` begins with byte 0xE2 in UTF-8.
    let is_plain = !rest
        .bytes()
        .any(|byte| matches!(byte, b'*' | b'`' | b'|' | 0xE2));
    if is_plain {
        return one_line(rest);
    }
    let plain = rest
        .replace("**", "")
        .replace('`', "")
        .replace(" | ", ", ")
        .replace('│', " ");
    one_line(&plain)
}

/// Returns the sentences of `text`, in order and trimmed. A sentence ends at the end of a line, at
/// 。！？, at `.`, `!` or `?` before white space, or at `!` or `?` before Chinese or Japanese.
pub(crate) fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = sentence_end(rest);
            let (sentence, after) = rest.split_at(end);
            rest = after;
            if !sentence.trim().is_empty() {
                return Some(sentence.trim());
            }
        }
        None
    })
}

fn sentence_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 0;
    // The lead bytes of `。`, `！` and `？` are among the bytes that are looked for.
    while let Some(offset) = bytes[at..]
        .iter()
        .position(|byte| matches!(byte, b'\n' | b'.' | b'!' | b'?' | 0xE3 | 0xEF))
    {
        at += offset;
        let rest = &text[at..];
        let end = match bytes[at] {
            b'\n' => Some(1),
            b'.' | b'!' | b'?' => {
                let next = rest[1..].chars().next();
                let is_wide =
                    |c: char| matches!(c, '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}');
                let ends = |c: char| c.is_whitespace() || bytes[at] != b'.' && is_wide(c);
                next.is_none_or(ends).then_some(1)
            }
            _ => ["。", "！", "？"]
                .iter()
                .find(|stop| rest.starts_with(**stop))
                .map(|stop| stop.len()),
        };
        match end {
            Some(length) => return at + length,
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    text.len()
}

#[cfg(test)]
mod tests;
