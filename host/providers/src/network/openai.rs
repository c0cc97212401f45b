//! Chat completions, as OpenAI defines them and as compatible servers speak them.
//!
//! [`request_body`] builds a request and [`read`] reads the answer. Servers differ in two ways that
//! matter here: the field that limits the answer ([`LimitField`]), and content that is either a
//! string or a list of parts. Both forms of content are accepted.
//!
//! Streaming is not used, because nobody reads an answer before it is complete. Source:
//! <https://platform.openai.com/docs/api-reference/chat>.

use contexture_engine_api::{FailureKind, ModelRequest};
use contexture_formats::known_usage;
use serde_json::{Value, json};

use super::reply::{Reply, Unusable, answer_text};

/// The field that limits the length of the answer. OpenAI's newer models reject the old field, and
/// most compatible servers know only the old one. The caller tries the other one if a server
/// rejects the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitField {
    MaxTokens,
    MaxCompletionTokens,
}

impl LimitField {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxCompletionTokens => "max_completion_tokens",
        }
    }

    pub(super) fn other(self) -> Self {
        match self {
            Self::MaxTokens => Self::MaxCompletionTokens,
            Self::MaxCompletionTokens => Self::MaxTokens,
        }
    }
}

/// Builds the body of a request with an optional system message and one user message.
pub(super) fn request_body(model: &str, request: &ModelRequest, limit: LimitField) -> Value {
    let mut messages = Vec::with_capacity(2);
    if !request.system.is_empty() {
        messages.push(json!({ "role": "system", "content": request.system }));
    }
    messages.push(json!({ "role": "user", "content": request.prompt }));
    let mut body = json!({ "model": model, "messages": messages, "stream": false });
    body[limit.name()] = request.max_tokens.into();
    body
}

/// Reads the first choice of a response body.
///
/// # Errors
/// Returns [`Unusable`] if the body is not a chat completion, or the answer is cut off, declined,
/// empty or a tool call.
pub(super) fn read(answer: &Value) -> Result<Reply, Unusable> {
    let Some(choice) = answer.pointer("/choices/0") else {
        return Err(Unusable::new(
            FailureKind::Other,
            "the answer is not a chat completion (it has no `choices`); check `base_url`",
        ));
    };
    let finish = choice["finish_reason"].as_str().unwrap_or_default();
    let message = &choice["message"];
    if let Some(refusal) = message["refusal"].as_str().filter(|text| !text.is_empty()) {
        return Err(Unusable::new(
            FailureKind::Refused,
            format!("the model declined: {refusal}"),
        ));
    }
    match finish {
        "content_filter" => {
            return Err(Unusable::new(
                FailureKind::Refused,
                "the provider's content filter stopped the answer",
            ));
        }
        "length" => return Err(Unusable::cut_off()),
        "tool_calls" | "function_call" => return Err(Unusable::tool_call()),
        // OpenRouter ends an answer like this if the upstream provider breaks off.
        "error" => {
            return Err(Unusable::new(
                FailureKind::Overloaded,
                format!("the model broke off with an error: {}", choice["error"]),
            ));
        }
        _ => {}
    }
    Ok(Reply {
        text: answer_text(&content(&message["content"]))?,
        model: answer["model"].as_str().map(str::to_owned),
        usage: known_usage(&answer["usage"]).unwrap_or_default(),
    })
}

/// Returns the text of a content that is a string or a list of parts. Any other content has no
/// text.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts
            .iter()
            .filter(|part| part["type"] == "text")
            .filter_map(|part| part["text"].as_str())
            .collect(),
        _ => String::new(),
    }
}
