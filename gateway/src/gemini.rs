//! Reads what is particular to requests of the Gemini API.
//!
//! Google's APIs take each member of an object in camel case and in snake case, so [`field`] looks for
//! both. Options that other APIs have at the top of a request are in the object `generationConfig`,
//! which [`options`] reads.

use bytes::Bytes;
use contexture::formats::WireBody;
use serde_json::Value;

/// The other spelling of a name in camel case, which Google's APIs take as well.
fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// A member of an object by its name in camel case, however the client spells it. Null if there is
/// none.
pub(crate) fn field<'v>(value: &'v Value, name: &str) -> &'v Value {
    const NULL: &Value = &Value::Null;
    let member = value.get(name);
    member
        .or_else(|| value.get(snake_case(name)))
        .unwrap_or(NULL)
}

/// Like [`field`], to change the member.
pub(crate) fn field_mut<'v>(value: &'v mut Value, name: &str) -> Option<&'v mut Value> {
    match value.get(name).is_some() {
        true => value.get_mut(name),
        false => value.get_mut(snake_case(name)),
    }
}

/// Whether a part is the text of a thought. Google sends these for people to read. What the model
/// needs back is in the signatures, and clients leave the texts out of their history.
pub(crate) fn is_thought(part: &Value) -> bool {
    part["thought"] == true && is_plain_text(part)
}

/// Whether a part is a text without a signature.
fn is_plain_text(part: &Value) -> bool {
    part["text"].is_string() && field(part, "thoughtSignature").is_null()
}

/// Joins a piece of a text with the text before it. Returns false if the part is not a piece of the
/// same text. Empty pieces belong to any text.
pub(crate) fn join(before: Option<&mut Value>, part: &Value) -> bool {
    let Some(piece) = part["text"].as_str().filter(|_| is_plain_text(part)) else {
        return false;
    };
    match before.filter(|before| is_plain_text(before) && before["thought"] == part["thought"]) {
        Some(before) => {
            // In place, because a long text comes in many pieces.
            if let Some(Value::String(text)) = before.get_mut("text") {
                text.push_str(piece);
            }
            true
        }
        None => piece.is_empty(),
    }
}

/// A content in the one form that all clients' forms of it have in common: without thoughts, and with
/// the pieces of a text in one part. Returns None if it is in this form.
pub(crate) fn normalised(raw: &str) -> Option<String> {
    let mut content: Value = serde_json::from_str(raw).ok()?;
    let parts = content.get_mut("parts")?.as_array_mut()?;
    let mut kept: Vec<Value> = Vec::with_capacity(parts.len());
    for part in parts.iter().filter(|part| !is_thought(part)) {
        if !join(kept.last_mut(), part) {
            kept.push(part.clone());
        }
    }
    if kept.len() == parts.len() {
        return None;
    }
    *parts = kept;
    Some(content.to_string())
}

/// A member of a request, parsed. Null if there is none.
pub(crate) fn member(wire: &WireBody<'_>, name: &str) -> Value {
    let raw = wire.member(name).or_else(|| wire.member(&snake_case(name)));
    raw.and_then(|raw| serde_json::from_str(raw).ok())
        .unwrap_or_default()
}

/// The options of a request: the length of the answer, its form and the number of answers.
pub(crate) fn options(wire: &WireBody<'_>) -> Value {
    member(wire, "generationConfig")
}

/// The request whose tokens a body of `countTokens` wants counted, if it is inside of that body. None
/// if the body is the request itself.
pub(crate) fn counted(body: &[u8]) -> Option<Bytes> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let request = field(&body, REQUEST);
    request
        .is_object()
        .then(|| Bytes::from(request.to_string()))
}

/// A body of `countTokens` with another request inside.
pub(crate) fn to_count(body: &[u8], request: &[u8]) -> Bytes {
    let mut body: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(place) = field_mut(&mut body, REQUEST) {
        *place = serde_json::from_slice(request).unwrap_or_default();
    }
    Bytes::from(body.to_string())
}

const REQUEST: &str = "generateContentRequest";
