//! The Gemini API's answers: <https://ai.google.dev/api/generate-content#v1beta.GenerateContentResponse>, and as a stream:
//! <https://ai.google.dev/api/generate-content#method:-models.streamgeneratecontent>. Thoughts and their signatures:
//! <https://ai.google.dev/gemini-api/docs/thinking>, <https://ai.google.dev/gemini-api/docs/thought-signatures>.

use serde_json::{Value, json};

use super::{Piece, Reply, deltas};
use crate::models;
use crate::request::{Request, field};
use crate::rules::{Issued, call_of};
use crate::seal;

/// Whether the request asks for what the model thinks.
pub(super) fn shows_thoughts(request: &Request) -> bool {
    let config = field(&request.json, "generationConfig");
    field(field(config, "thinkingConfig"), "includeThoughts") == true
}

fn usage(reply: &Reply<'_>) -> Value {
    let usage = reply.usage;
    let mut told = json!({
        "promptTokenCount": usage.prompt(),
        "candidatesTokenCount": usage.output,
        "totalTokenCount": usage.prompt() + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.prompt()}],
    });
    // It is left out if it is zero.
    if usage.cache_read > 0 {
        told["cachedContentTokenCount"] = json!(usage.cache_read);
    }
    told
}

/// The parts of the answer, of which texts are cut as a stream has them if `cut`.
fn parts(reply: &Reply<'_>, cut: bool) -> Vec<Value> {
    let mut parts = Vec::new();
    let mut is_signed = false;
    for piece in &reply.pieces {
        match piece {
            Piece::Compaction { .. } => {}
            Piece::Thinking { text, .. } | Piece::Text { text, .. } => {
                let texts: Vec<String> = match cut {
                    true => deltas(text).collect(),
                    false => vec![text.clone()],
                };
                let is_thought = matches!(piece, Piece::Thinking { .. });
                parts.extend(texts.into_iter().map(|text| match is_thought {
                    true => json!({"text": text, "thought": true}),
                    false => json!({"text": text}),
                }));
            }
            Piece::Call {
                id,
                name,
                arguments,
                ..
            } => {
                let mut call = json!({"name": name, "args": arguments});
                if models::names_calls(reply.request.model()) {
                    call["id"] = json!(id);
                }
                let mut part = json!({"functionCall": call});
                // Of parallel calls, the first one has it.
                if !std::mem::replace(&mut is_signed, true) {
                    part["thoughtSignature"] = json!(seal::signature(name));
                }
                parts.push(part);
            }
        }
    }
    parts
}

fn response(reply: &Reply<'_>, parts: &[Value], is_last: bool) -> Value {
    let mut candidate = json!({"content": {"parts": parts, "role": "model"}, "index": 0});
    if is_last {
        candidate["finishReason"] = json!(reply.stop.as_deref().unwrap_or("STOP"));
    }
    json!({
        "candidates": [candidate],
        "usageMetadata": usage(reply),
        "modelVersion": reply.request.model(),
        "responseId": reply.id,
    })
}

pub(super) fn body(reply: &Reply<'_>) -> Value {
    response(reply, &parts(reply, false), true)
}

/// The responses of a stream. The reason to stop comes with the last part, or in a response of its own.
fn responses(reply: &Reply<'_>) -> Vec<Value> {
    let mut parts = parts(reply, true);
    if parts.is_empty() || reply.usage.output.is_multiple_of(2) {
        parts.push(json!({"text": ""}));
    }
    let last = parts.len() - 1;
    let each = parts.iter().enumerate();
    each.map(|(at, part)| response(reply, std::slice::from_ref(part), at == last))
        .collect()
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<String> {
    let responses = responses(reply).into_iter();
    responses
        .map(|one| format!("data: {one}\r\n\r\n"))
        .collect()
}

pub(super) fn list(reply: &Reply<'_>) -> Value {
    Value::Array(responses(reply))
}

/// The first call of the answer has to come back with its signature.
pub(super) fn note(reply: &Reply<'_>, issued: &mut Issued) {
    let parts = parts(reply, false);
    let signed = parts
        .iter()
        .filter(|part| part["thoughtSignature"].is_string());
    issued
        .signed_calls
        .extend(signed.map(|part| call_of(&part["functionCall"])));
}

/// <https://ai.google.dev/gemini-api/docs/troubleshooting>
pub(super) fn error(status: u16, message: Option<&str>) -> Value {
    let (name, usual) = match status {
        400 => ("INVALID_ARGUMENT", "Request contains an invalid argument."),
        401 => (
            "UNAUTHENTICATED",
            "Request had invalid authentication credentials.",
        ),
        403 => ("PERMISSION_DENIED", "The caller does not have permission"),
        404 => ("NOT_FOUND", "Requested entity was not found."),
        413 => (
            "INVALID_ARGUMENT",
            "Request payload size exceeds the limit.",
        ),
        429 => (
            "RESOURCE_EXHAUSTED",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        503 | 529 => (
            "UNAVAILABLE",
            "The model is overloaded. Please try again later.",
        ),
        504 => (
            "DEADLINE_EXCEEDED",
            "Deadline expired before operation could complete.",
        ),
        _ => ("INTERNAL", "An internal error has occurred."),
    };
    json!({"error": {"code": status, "message": message.unwrap_or(usual), "status": name}})
}
