//! Google's Gemini API: request bodies, and the answers in it.
//!
//! [`request_body`] builds a request and [`read`] reads the answer. The model's name is part of the
//! address, which `endpoint` builds. Error responses are left to `failure`.
//!
//! Source: <https://ai.google.dev/api/generate-content>.

use contexture_engine_api::{FailureKind, ModelRequest};
use contexture_formats::known_usage;
use serde_json::{Value, json};

use super::reply::{Reply, Unusable, answer_text};

/// Builds the body of a request with one user message, and with a system text if the request has
/// one.
pub(super) fn request_body(request: &ModelRequest) -> Value {
    let mut body = json!({
        "contents": [{ "role": "user", "parts": [{ "text": request.prompt }] }],
        "generationConfig": { "maxOutputTokens": request.max_tokens },
    });
    if !request.system.is_empty() {
        body["systemInstruction"] = json!({ "parts": [{ "text": request.system }] });
    }
    body
}

/// Reads the first candidate of a response body.
///
/// # Errors
/// Returns [`Unusable`] if the body is not an answer of this API, or the answer is cut off, declined,
/// empty or a tool call.
pub(super) fn read(answer: &Value) -> Result<Reply, Unusable> {
    let refused = |reason: &str| {
        let what = format!("the provider declined: {reason}");
        Unusable::new(FailureKind::Refused, what)
    };
    if let Some(reason) = answer["promptFeedback"]["blockReason"].as_str() {
        return Err(refused(reason));
    }
    let Some(candidate) = answer.pointer("/candidates/0") else {
        return Err(Unusable::new(
            FailureKind::Other,
            "the answer is not one of the Gemini API (it has no `candidates`); check `base_url`",
        ));
    };
    let parts = candidate["content"]["parts"].as_array();
    let parts = parts.map_or(&[][..], Vec::as_slice);
    match candidate["finishReason"].as_str().unwrap_or("STOP") {
        // No tools were offered, so the model has not answered.
        "STOP" if parts.iter().any(|part| part["functionCall"].is_object()) => {
            return Err(Unusable::tool_call());
        }
        "STOP" => {}
        "MAX_TOKENS" => return Err(Unusable::cut_off()),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => return Err(Unusable::tool_call()),
        reason => return Err(refused(reason)),
    }
    let said = parts.iter().filter(|part| part["thought"] != true);
    let text: String = said.filter_map(|part| part["text"].as_str()).collect();
    Ok(Reply {
        text: answer_text(&text)?,
        model: answer["modelVersion"].as_str().map(str::to_owned),
        usage: known_usage(&answer["usageMetadata"]).unwrap_or_default(),
    })
}
