//! Anthropic's messages API.
//!
//! Source: <https://docs.anthropic.com/en/api/messages>.

use contexture_engine_api::{FailureKind, ModelRequest};
use serde_json::{Value, json};

use super::reply::{Reply, Unusable, answer_text};

/// The version of the API that this module speaks, sent as `anthropic-version`.
pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn request_body(model: &str, request: &ModelRequest) -> Value {
    let mut body = json!({
        "model": model,
        "max_tokens": request.max_tokens,
        "messages": [{ "role": "user", "content": request.prompt }],
    });
    // An empty system text is refused.
    if !request.system.is_empty() {
        body["system"] = request.system.as_str().into();
    }
    body
}

pub(super) fn read(answer: &Value) -> Result<Reply, Unusable> {
    let Some(blocks) = answer["content"].as_array() else {
        return Err(Unusable::new(
            FailureKind::Other,
            "the answer is no message (it has no `content`); check `base_url`",
        ));
    };
    match answer["stop_reason"].as_str().unwrap_or_default() {
        "max_tokens" | "model_context_window_exceeded" => return Err(Unusable::cut_off()),
        "refusal" => {
            return Err(Unusable::new(FailureKind::Refused, "the model declined"));
        }
        "tool_use" | "pause_turn" => return Err(Unusable::tool_call()),
        _ => {}
    }
    let text: String = blocks
        .iter()
        .filter(|block| block["type"] == "text")
        .filter_map(|block| block["text"].as_str())
        .collect();
    let usage = |field: &str| answer["usage"][field].as_u64().unwrap_or(0);
    Ok(Reply {
        text: answer_text(&text)?,
        model: answer["model"].as_str().map(str::to_owned),
        // Anthropic counts what came from or went to the cache apart.
        input_tokens: usage("input_tokens")
            .saturating_add(usage("cache_read_input_tokens"))
            .saturating_add(usage("cache_creation_input_tokens")),
        output_tokens: usage("output_tokens"),
    })
}
