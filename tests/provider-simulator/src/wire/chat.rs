//! Chat completions' answers: <https://platform.openai.com/docs/api-reference/chat/object>, and as a stream:
//! <https://platform.openai.com/docs/api-reference/chat-streaming>.

use serde_json::{Value, json};

use super::{Piece, Reply, deltas};
use crate::rules::Refusal;

pub(super) fn usage(reply: &Reply<'_>) -> Value {
    let usage = reply.usage;
    json!({
        "prompt_tokens": usage.prompt(),
        "completion_tokens": usage.output,
        "total_tokens": usage.prompt() + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0, "audio_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

fn finish(reply: &Reply<'_>) -> String {
    let usual = if reply.calls() { "tool_calls" } else { "stop" };
    reply.stop.clone().unwrap_or_else(|| usual.to_owned())
}

pub(super) fn body(reply: &Reply<'_>) -> Value {
    let mut text = None;
    let mut calls = Vec::new();
    for piece in &reply.pieces {
        match piece {
            Piece::Text { text: more, .. } => text.get_or_insert_with(String::new).push_str(more),
            Piece::Call { id, name, arguments, .. } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments.to_string()},
            })),
            Piece::Thinking { .. } | Piece::Compaction { .. } => {}
        }
    }
    let mut message =
        json!({"role": "assistant", "content": text, "refusal": null, "annotations": []});
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.request.model(),
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish(reply)}],
        "usage": usage(reply),
        "service_tier": "default",
        "system_fingerprint": "fp_5ad1e5ad1e",
    })
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<String> {
    let with_usage = reply.request.json["stream_options"]["include_usage"] == true;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": reply.id,
            "object": "chat.completion.chunk",
            "created": reply.created,
            "model": reply.request.model(),
            "service_tier": "default",
            "system_fingerprint": "fp_5ad1e5ad1e",
            "choices": choices,
        });
        // "All other chunks will also include a `usage` field, but with a null value."
        if with_usage {
            chunk["usage"] = usage;
        }
        format!("data: {chunk}\n\n")
    };
    let mut events = Vec::new();
    let mut say = |delta: Value, finish: Value| {
        let choice =
            json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        events.push(chunk(choice, Value::Null));
    };
    say(
        json!({"role": "assistant", "content": if reply.calls() { Value::Null } else { json!("") }, "refusal": null}),
        Value::Null,
    );
    let mut index = 0;
    for piece in &reply.pieces {
        match piece {
            Piece::Thinking { .. } | Piece::Compaction { .. } => {}
            Piece::Text { text, .. } => {
                deltas(text).for_each(|text| say(json!({"content": text}), Value::Null))
            }
            Piece::Call {
                id,
                name,
                arguments,
                ..
            } => {
                let function = json!({"name": name, "arguments": ""});
                let begin =
                    json!({"index": index, "id": id, "type": "function", "function": function});
                say(json!({"tool_calls": [begin]}), Value::Null);
                for text in deltas(&arguments.to_string()) {
                    say(
                        json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]}),
                        Value::Null,
                    );
                }
                index += 1;
            }
        }
    }
    say(json!({}), json!(finish(reply)));
    if with_usage {
        events.push(chunk(json!([]), usage(reply)));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

/// <https://platform.openai.com/docs/guides/error-codes>
pub(super) fn error(status: u16, refusal: Option<&Refusal>) -> Value {
    let (kind, code, usual) = match status {
        400 => ("invalid_request_error", None, "Invalid request."),
        401 => (
            "invalid_request_error",
            Some("invalid_api_key"),
            "Incorrect API key provided.",
        ),
        403 => (
            "invalid_request_error",
            Some("unsupported_country_region_territory"),
            "Not supported.",
        ),
        404 => ("invalid_request_error", Some("unknown_url"), "Invalid URL"),
        429 => (
            "tokens",
            Some("rate_limit_exceeded"),
            "Rate limit reached. Please try again in 1s.",
        ),
        503 => (
            "server_error",
            None,
            "The engine is currently overloaded, please try again later",
        ),
        _ => (
            "server_error",
            None,
            "The server had an error while processing your request. Sorry about that!",
        ),
    };
    let code = refusal.map_or(code, |one| one.code);
    let message = refusal.map_or(usual, |one| one.message.as_str());
    let param = refusal.and_then(|one| one.param.as_deref());
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}
