//! Base64 data in JSON that is not declared as media by any message part, such as the screenshot of a hosted tool or a
//! picture in an MCP server's answer. The model sees a picture, so the data is priced as one, and its characters are
//! never counted as text.

use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;

use super::conversation::Conversation;
use super::json::Raw;
use super::message::{Media, MediaKind};

/// The first characters of a file's base64, and the kind of file that they indicate.
const BEGINNINGS: [(&str, MediaKind, &str); 7] = [
    ("iVBORw0KGgo", MediaKind::Image, "image/png"),
    ("/9j/", MediaKind::Image, "image/jpeg"),
    ("\\/9j\\/", MediaKind::Image, "image/jpeg"),
    ("R0lGOD", MediaKind::Image, "image/gif"),
    ("UklGR", MediaKind::Image, "image/webp"),
    ("PHN2Zy", MediaKind::Image, "image/svg+xml"),
    ("JVBERi0", MediaKind::Document, "application/pdf"),
];
/// Shorter runs are treated as words.
const LEAST: usize = 64;

/// The text of a document whose base64 decodes to text.
pub fn text_in(conversation: &Conversation, media: &Media) -> Option<String> {
    let mime = media.mime.as_deref().filter(|_| media.is_base64)?;
    let is_text = mime.starts_with("text/")
        || ["application/json", "application/xml", "application/x-yaml"].contains(&mime);
    if media.kind != MediaKind::Document || !is_text {
        return None;
    }
    let data = conversation.media_data(media).bytes();
    let data: Vec<u8> = data.filter(|byte| !b"\\\r\n =".contains(byte)).collect();
    let bytes = STANDARD_NO_PAD.decode(data).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The text of a JSON value without the base64 in it.
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

/// The files in a JSON value, including strings that hold JSON: `data:` URLs, and base64 that begins like a picture or
/// a PDF. Positions refer to the text that `raw` is part of.
pub(super) fn blobs(raw: Raw<'_>) -> Vec<Media> {
    let json = raw.text();
    let bytes = json.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    // Each string begins after a quote. Inside a string of JSON, a backslash stands before the quote.
    while let Some(step) = memchr::memchr(b'"', bytes.get(at..).unwrap_or(&[])) {
        at += step + 1;
        let rest = &json[at..];
        let (start, kind, mime) = if let Some(url) = rest.strip_prefix("data:") {
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
            let known = BEGINNINGS.iter().find(|(head, ..)| rest.starts_with(head));
            let Some((_, kind, mime)) = known else {
                continue;
            };
            (at, *kind, (*mime).to_owned())
        };
        let end = start + base64_len(&bytes[start..]);
        if end - at < LEAST {
            continue;
        }
        found.push(Media {
            kind,
            mime: Some(mime),
            item: 0,
            data: shifted(start..end, raw.span().start),
            is_base64: true,
            width: None,
            height: None,
            detail: None,
        });
        at = end;
    }
    found
}

fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

/// The length of the base64 at the front. A slash may be escaped, once for each level of JSON strings around it.
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
