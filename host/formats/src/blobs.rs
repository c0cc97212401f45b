//! Finds base64 data in JSON that no message part declares as media, such as the screenshot of
//! a hosted tool or a picture in an MCP server's answer.
//!
//! The model sees a picture, so the data must be priced as one, and its characters must never
//! be counted as text. [`blobs`] finds the data, and [`without_blobs`] returns the rest of the
//! JSON for counting. Data is recognised by a `data:` URL, or by the first characters of the
//! base64 of common file types.
//!
//! The price of media is computed in `tokens`.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use memchr::memmem;

use super::json::Raw;
use super::message::{Media, MediaKind};
use super::tokens::{MediaSize, TokenCounter};

/// The first characters of a file's base64, and the kind and MIME type of file that they
/// indicate. A slash may be escaped in JSON.
const BEGINNINGS: [(&str, MediaKind, &str); 6] = [
    ("iVBORw0KGgo", MediaKind::Image, "image/png"),
    ("/9j/", MediaKind::Image, "image/jpeg"),
    ("\\/9j\\/", MediaKind::Image, "image/jpeg"),
    ("R0lGOD", MediaKind::Image, "image/gif"),
    ("PHN2Zy", MediaKind::Image, "image/svg+xml"),
    ("JVBERi0", MediaKind::Document, "application/pdf"),
];
/// The first characters of the base64 of a RIFF file, a container whose content is named later.
const RIFF: &str = "UklGR";
/// The minimum length in bytes. A shorter run that begins this way is treated as ordinary text.
const LEAST: usize = 64;

/// Returns the JSON text of a value without the base64 in it, which is what remains to be
/// counted as text.
pub(super) fn without_blobs(raw: Raw<'_>) -> String {
    let json = raw.text();
    let mut text = String::with_capacity(json.len().min(4_096));
    let mut copied = 0;
    for media in blobs(raw) {
        let place = media.data.start - raw.span().start..media.data.end - raw.span().start;
        text.push_str(&json[copied..place.start]);
        copied = place.end;
    }
    text.push_str(&json[copied..]);
    text
}

/// Returns the length of a JSON text in bytes, in which each file has four bytes for each token that it
/// costs. Two such lengths of requests compare as their tokens do, roughly.
pub fn text_bytes(json: &str, counter: &TokenCounter) -> u64 {
    // One of them is beside every file, and it takes long to look at each string.
    let mut words = [&b"base64"[..], b"mime"].into_iter();
    if !words.any(|word| memmem::find(json.as_bytes(), word).is_some()) {
        return json.len() as u64;
    }
    let (mut bytes, mut files) = (json.len(), 0);
    for media in files_in(json) {
        let data = &json[media.data.clone()];
        bytes -= data.len();
        files += counter.count_media(&MediaSize::of(&media, data)) * 4;
    }
    bytes as u64 + files
}

/// Finds the files in a JSON value, including those in strings that hold JSON: `data:` URLs,
/// and base64 that begins like a picture or a PDF. The ranges refer to the text that `raw` is
/// part of.
pub(super) fn blobs(raw: Raw<'_>) -> Vec<Media> {
    let mut found = files_in(raw.text());
    for media in &mut found {
        media.data = shifted(media.data.clone(), raw.span().start);
    }
    found
}

fn files_in(json: &str) -> Vec<Media> {
    let bytes = json.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    // Each string begins after a quote. In a string that holds JSON, the quote follows a
    // backslash. It is found all the same, so nested JSON needs no parsing.
    while let Some(step) = memchr::memchr(b'"', bytes.get(at..).unwrap_or(&[])) {
        at += step + 1;
        let rest = &json[at..];
        let (start, kind, mime) = if let Some(url) = rest.strip_prefix("data:") {
            // A MIME type is short, so a `;base64,` further on does not belong to this URL.
            let head = url.get(..url.floor_char_boundary(128)).unwrap_or("");
            let Some((mime, _)) = head.split_once(";base64,") else {
                continue;
            };
            let mime = mime.replace('\\', "");
            let kind = match mime.split('/').next() {
                Some("image") => MediaKind::Image,
                Some("audio") => MediaKind::Audio,
                _ => MediaKind::Document,
            };
            let head = at + "data:".len() + head.find(";base64,").unwrap_or(0);
            (head + ";base64,".len(), kind, mime)
        } else {
            let Some((kind, mime)) = file_type(rest) else {
                continue;
            };
            (at, kind, mime.to_owned())
        };
        let end = start + base64_len(&bytes[start..]);
        if end - at < LEAST {
            continue;
        }
        found.push(Media {
            kind,
            mime: Some(mime),
            item: 0,
            data: start..end,
            is_base64: true,
            width: None,
            height: None,
            detail: None,
        });
        at = end;
    }
    found
}

/// Returns the kind and the MIME type of the file whose base64 `text` begins with. `None` if it
/// begins like no known file.
fn file_type(text: &str) -> Option<(MediaKind, &'static str)> {
    if text.starts_with(RIFF) {
        return riff_type(text);
    }
    let known = BEGINNINGS.iter().find(|(head, ..)| text.starts_with(head));
    known.map(|(_, kind, mime)| (*kind, *mime))
}

/// Returns what a RIFF file contains. The 4 bytes after the file's size name it, which are in the
/// first 16 characters of the base64.
fn riff_type(text: &str) -> Option<(MediaKind, &'static str)> {
    let head: Vec<u8> = text
        .bytes()
        .filter(|byte| *byte != b'\\')
        .take(16)
        .collect();
    let head = STANDARD_NO_PAD.decode(head).ok()?;
    match head.get(8..)? {
        b"WEBP" => Some((MediaKind::Image, "image/webp")),
        b"WAVE" => Some((MediaKind::Audio, "audio/wav")),
        _ => None,
    }
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// Returns the length of the base64 at the start of `bytes`. A slash may be escaped, once for
/// each level of JSON strings around it.
fn base64_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match bytes.get(at) {
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') => {
                at += 1;
            }
            Some(b'\\') => {
                let slashes = bytes[at..]
                    .iter()
                    .take_while(|byte| **byte == b'\\')
                    .count();
                match bytes.get(at + slashes) {
                    Some(b'/') => at += slashes + 1,
                    _ => return at,
                }
            }
            _ => return at,
        }
    }
}

#[cfg(test)]
mod tests;
