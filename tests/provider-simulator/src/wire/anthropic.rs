//! The Messages API's answers: <https://platform.claude.com/docs/en/api/messages>, and as a stream:
//! <https://platform.claude.com/docs/en/build-with-claude/streaming>.

use serde_json::{Value, json};

use super::{Piece, Reply, deltas, event, mixed};
use crate::rules::Issued;
use crate::seal;

fn block(piece: &Piece) -> Value {
    match piece {
        Piece::Thinking { text, .. } => {
            json!({"type": "thinking", "thinking": text, "signature": seal::signature(text)})
        }
        Piece::Text { text, .. } => json!({"type": "text", "text": text}),
        Piece::Compaction { text, .. } => json!({"type": "compaction", "content": text}),
        Piece::Call {
            id,
            name,
            arguments,
            ..
        } => {
            json!({"type": "tool_use", "id": id, "name": name, "input": arguments})
        }
    }
}

fn usage(reply: &Reply<'_>, output: u64) -> Value {
    let usage = reply.usage;
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write_5m + usage.cache_write_1h,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_5m,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        },
        "output_tokens": output,
        "service_tier": "standard",
    })
}

fn stop(reply: &Reply<'_>) -> String {
    let usual = if reply.calls() {
        "tool_use"
    } else {
        "end_turn"
    };
    reply.stop.clone().unwrap_or_else(|| usual.to_owned())
}

fn message(reply: &Reply<'_>, content: Vec<Value>, stop: Value, output: u64) -> Value {
    json!({
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.request.model(),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
        "usage": usage(reply, output),
    })
}

pub(super) fn body(reply: &Reply<'_>) -> Value {
    let content = reply.pieces.iter().map(block).collect();
    message(reply, content, json!(stop(reply)), reply.usage.output)
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<String> {
    let mut events = Vec::new();
    let mut say = |data: Value| {
        events.push(event(data["type"].as_str().unwrap_or_default(), &data));
    };
    say(json!({"type": "message_start", "message": message(reply, Vec::new(), Value::Null, 1)}));
    for (index, piece) in reply.pieces.iter().enumerate() {
        let begin = match piece {
            Piece::Thinking { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Piece::Text { .. } => json!({"type": "text", "text": ""}),
            Piece::Compaction { .. } => json!({"type": "compaction", "content": null}),
            Piece::Call { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        };
        say(json!({"type": "content_block_start", "index": index, "content_block": begin}));
        if index == 0 {
            say(json!({"type": "ping"}));
        }
        let mut delta = |delta: Value| {
            say(json!({"type": "content_block_delta", "index": index, "delta": delta}))
        };
        match piece {
            Piece::Thinking { text, .. } => {
                deltas(text)
                    .for_each(|text| delta(json!({"type": "thinking_delta", "thinking": text})));
                delta(json!({"type": "signature_delta", "signature": seal::signature(text)}));
            }
            Piece::Text { text, .. } => {
                deltas(text).for_each(|text| delta(json!({"type": "text_delta", "text": text})))
            }
            Piece::Compaction { text, .. } => {
                delta(json!({"type": "compaction_delta", "content": text}))
            }
            Piece::Call { arguments, .. } => {
                delta(json!({"type": "input_json_delta", "partial_json": ""}));
                deltas(&arguments.to_string()).for_each(|text| {
                    delta(json!({"type": "input_json_delta", "partial_json": text}))
                });
            }
        }
        say(json!({"type": "content_block_stop", "index": index}));
    }
    let mut last = usage(reply, reply.usage.output);
    if let Some(fields) = last.as_object_mut() {
        fields.retain(|key, _| key.ends_with("_tokens"));
    }
    let delta = json!({"stop_reason": stop(reply), "stop_sequence": null});
    say(json!({"type": "message_delta", "delta": delta, "usage": last}));
    say(json!({"type": "message_stop"}));
    events
}

pub(super) fn note(reply: &Reply<'_>, issued: &mut Issued) {
    let mut thought = Vec::new();
    for piece in &reply.pieces {
        match piece {
            Piece::Thinking { .. } => thought.push(block(piece)),
            Piece::Call { id, .. } if !thought.is_empty() => {
                issued.thinking_before.insert(id.clone(), thought.clone());
            }
            _ => {}
        }
    }
}

/// <https://platform.claude.com/docs/en/api/errors>
pub(super) fn error(status: u16, message: Option<&str>, number: u64) -> Value {
    let (kind, usual) = match status {
        400 => ("invalid_request_error", "invalid request"),
        401 => ("authentication_error", "invalid x-api-key"),
        403 => (
            "permission_error",
            "Your API key does not have permission to use the specified resource.",
        ),
        404 => ("not_found_error", "Not found"),
        413 => ("request_too_large", "Request exceeds the maximum size"),
        429 => (
            "rate_limit_error",
            "This request would exceed your organization's rate limit of 2,000,000 input tokens per minute.",
        ),
        504 => ("timeout_error", "Request timed out"),
        529 => ("overloaded_error", "Overloaded"),
        _ => ("api_error", "Internal server error"),
    };
    json!({
        "type": "error",
        "error": {"type": kind, "message": message.unwrap_or(usual)},
        "request_id": format!("req_{number:08}{:016x}", mixed(number)),
    })
}
