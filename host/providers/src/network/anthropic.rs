//! Anthropic's messages API: request bodies, and the answers in it.
//!
//! [`request_body`] builds a request and [`read`] reads the answer. Authentication is left to
//! `endpoint`, and error responses to `failure`.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>.

use contexture_engine_api::{FailureKind, ModelRequest};
use contexture_formats::known_usage;
use serde_json::{Value, json};

use super::reply::{Reply, Unusable, answer_text};

/// The version of the API that this module speaks, sent as `anthropic-version` unless the agent's
/// own headers name one.
pub(super) const VERSION: &str = "2023-06-01";

/// Builds the body of a request with one user message, and with a system text if the request has
/// one.
pub(super) fn request_body(model: &str, request: &ModelRequest) -> Value {
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": [{ "role": "user", "content": request.prompt }],
    });
    // The API rejects an empty system text.
    if !request.system.is_empty() {
        body["system"] = request.system.as_str().into();
    }
    body
}

/// Reads the answer from a response body.
///
/// # Errors
/// Returns [`Unusable`] if the body is not a message, or the answer is cut off, declined, empty or
/// a tool call.
pub(super) fn read(answer: &Value) -> Result<Reply, Unusable> {
    let Some(blocks) = answer["content"].as_array() else {
        return Err(Unusable::new(
            FailureKind::Other,
            "the answer is not a message (it has no `content`); check `base_url`",
        ));
    };
    match answer["stop_reason"].as_str().unwrap_or_default() {
        "max_tokens" | "model_context_window_exceeded" => return Err(Unusable::cut_off()),
        "refusal" => {
            return Err(Unusable::new(FailureKind::Refused, "the model declined"));
        }
        // No tools were offered, so the model has not answered.
        "tool_use" | "pause_turn" => return Err(Unusable::tool_call()),
        _ => {}
    }
    let text: String = blocks
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .collect();
    Ok(Reply {
        text: answer_text(&text)?,
        model: answer["model"].as_str().map(str::to_owned),
        usage: known_usage(&answer["usage"]).unwrap_or_default(),
    })
}
