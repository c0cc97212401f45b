//! Takes a content of Google's Gemini API apart into its pieces.
//!
//! [`pieces`] is the entry point. A call may have no id, and a result may name only its tool. A call
//! without an id gets one from the tool's name here, and `KnownCalls` finds the call of a result.

use std::collections::HashMap;

use super::{CallPiece, CallStyle, Piece, PieceKind, ResultPiece, ResultShape, media_within};
use crate::blobs::without_blobs;
use crate::gemini;
use crate::json::Raw;
use crate::message::{Media, MediaKind};

/// Reads the parts of a content. A call without an id gets the name of its tool as its id, and the
/// second such call of the same tool `name#2`.
pub(super) fn pieces(parts: Raw<'_>) -> Vec<Piece<'_>> {
    let mut called: HashMap<String, usize> = HashMap::new();
    let piece = |part| {
        let mut kind = kind(part);
        if let PieceKind::Call(call) = &mut kind
            && call.style == CallStyle::Name
        {
            let times = called.entry(call.name.clone()).or_default();
            *times += 1;
            call.id = match *times {
                1 => call.name.clone(),
                times => format!("{}#{times}", call.name),
            };
        }
        Piece {
            raw: part,
            in_list: true,
            is_document: false,
            is_signed: is_signed(part),
            kind,
        }
    };
    parts.elements().map(piece).collect()
}

/// Whether a part carries the signature of thinking, and not [`gemini::FOREIGN_SIGNATURE`].
fn is_signed(part: Raw<'_>) -> bool {
    let signature = gemini::member(part, &gemini::SIGNATURE).and_then(Raw::inner);
    signature
        .is_some_and(|signature| !signature.is_empty() && signature != gemini::FOREIGN_SIGNATURE)
}

fn kind(part: Raw<'_>) -> PieceKind<'_> {
    if part.is_string() {
        return PieceKind::Text(part);
    }
    if let Some(call) = gemini::call_in(part) {
        let id = own_id(call);
        return PieceKind::Call(CallPiece {
            style: match id {
                Some(_) => CallStyle::Id,
                None => CallStyle::Name,
            },
            id: id.unwrap_or_default(),
            name: call.get_string("name").unwrap_or_default(),
            arguments: call.get("args"),
            ..CallPiece::default()
        });
    }
    if let Some(result) = gemini::result_in(part) {
        let response = result.get("response");
        return PieceKind::Result(ResultPiece {
            call_id: own_id(result).unwrap_or_default(),
            name: result.get_string("name"),
            is_error: response.is_some_and(gemini::is_error),
            content: Some(result),
            shape: ResultShape::Response,
            ..ResultPiece::default()
        });
    }
    if let Some(media) = media(part) {
        return PieceKind::Media(media);
    }
    match part.get("text").filter(|text| text.is_string()) {
        Some(text) if part.get("thought").is_some_and(Raw::is_true) => {
            PieceKind::Thinking(text.string().unwrap_or_default().into_owned())
        }
        Some(text) => PieceKind::Text(text),
        None => PieceKind::Opaque,
    }
}

fn own_id(object: Raw<'_>) -> Option<String> {
    object.get_string("id").filter(|id| !id.is_empty())
}

/// Reads a part with `inlineData` or `fileData`. `None` if it is another part.
fn media(part: Raw<'_>) -> Option<Media> {
    let inline = gemini::member(part, &gemini::INLINE);
    let blob = inline.or_else(|| gemini::member(part, &gemini::FILE))?;
    let mime = gemini::member(blob, &["mimeType", "mime_type"]).and_then(Raw::string);
    let data =
        gemini::member(blob, &["data", "fileUri", "file_uri"]).filter(|data| data.is_string());
    Some(Media {
        kind: match mime.as_deref().and_then(|mime| mime.split('/').next()) {
            Some("image") => MediaKind::Image,
            Some("audio") => MediaKind::Audio,
            _ => MediaKind::Document,
        },
        mime: mime.map(Into::into),
        item: 0,
        data: data.map_or(0..0, |raw| raw.span().start + 1..raw.span().end - 1),
        is_base64: inline.is_some(),
        width: None,
        height: None,
        detail: None,
    })
}

/// The text of a function response. If its JSON is only a wrapper around one text, it is that
/// text, and otherwise the JSON.
pub(crate) fn result_text(result: Raw<'_>) -> String {
    let Some(response) = result.get("response") else {
        return String::new();
    };
    match gemini::wrapped_text(response) {
        Some(text) => text.string().unwrap_or_default().into_owned(),
        None => without_blobs(response),
    }
}

/// The media of a function response: those in its parts, and those within its JSON.
pub(super) fn result_media(result: Raw<'_>) -> Vec<Media> {
    let parts = result.get("parts").into_iter().flat_map(Raw::elements);
    let within = result.get("response").into_iter().flat_map(media_within);
    parts.filter_map(media).chain(within).collect()
}
