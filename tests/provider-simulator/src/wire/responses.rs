//! The Responses API's answers: <https://platform.openai.com/docs/api-reference/responses/object>, and as a stream:
//! <https://platform.openai.com/docs/api-reference/responses-streaming>.

use serde_json::{Value, json};

use super::{Piece, Reply, deltas, event, mixed};
use crate::request::Request;
use crate::rules::{Issued, Refusal};

/// Whether the reasoning is given in a form that can be sent back without being stored.
fn encrypts(reply: &Reply<'_>) -> bool {
    let include = reply.request.json["include"].as_array();
    include.is_some_and(|all| all.iter().any(|one| one == "reasoning.encrypted_content"))
}

fn item(reply: &Reply<'_>, piece: &Piece) -> Value {
    match piece {
        Piece::Thinking { id, text } => {
            let mut item = json!({
                "id": id, "type": "reasoning", "summary": [{"type": "summary_text", "text": text}],
            });
            if encrypts(reply) {
                item["encrypted_content"] = reply.encrypted(text);
            }
            item
        }
        Piece::Compaction { id, text } => json!({
            "id": id, "type": "compaction", "encrypted_content": reply.encrypted(text),
        }),
        Piece::Text { id, text } => json!({
            "id": id, "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        }),
        Piece::Call {
            id,
            item_id,
            name,
            arguments,
            custom: false,
        } => json!({
            "id": item_id, "type": "function_call", "status": "completed",
            "call_id": id, "name": name, "arguments": arguments.to_string(),
        }),
        Piece::Call {
            id,
            item_id,
            name,
            arguments,
            custom: true,
        } => json!({
            "id": item_id.replacen("fc_", "ctc_", 1), "type": "custom_tool_call", "status": "completed",
            "call_id": id, "name": name, "input": arguments["input"],
        }),
    }
}

fn items(reply: &Reply<'_>) -> Vec<Value> {
    reply
        .pieces
        .iter()
        .map(|piece| item(reply, piece))
        .collect()
}

/// A response without what is only known at its end.
fn begun(request: &Request, id: &str, created: u64) -> Value {
    let asked = &request.json;
    let or = |field: &str, other: Value| {
        asked
            .get(field)
            .filter(|value| !value.is_null())
            .cloned()
            .unwrap_or(other)
    };
    json!({
        "id": id,
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "background": false,
        "error": null,
        "incomplete_details": null,
        "instructions": or("instructions", Value::Null),
        "max_output_tokens": or("max_output_tokens", Value::Null),
        "model": request.model(),
        "output": [],
        "parallel_tool_calls": or("parallel_tool_calls", json!(true)),
        "previous_response_id": or("previous_response_id", Value::Null),
        "prompt_cache_key": or("prompt_cache_key", Value::Null),
        "reasoning": or("reasoning", json!({"effort": null, "summary": null})),
        "service_tier": "default",
        "store": or("store", json!(true)),
        "temperature": 1.0,
        "text": or("text", json!({"format": {"type": "text"}})),
        "tool_choice": or("tool_choice", json!("auto")),
        "tools": or("tools", json!([])),
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": null,
        "user": null,
        "metadata": {},
    })
}

pub(super) fn body(reply: &Reply<'_>) -> Value {
    let mut response = begun(reply.request, &reply.id, reply.created);
    let usage = reply.usage;
    let thought = reply.pieces.iter().map(|piece| match piece {
        Piece::Thinking { text, .. } => crate::prompt::tokens(text.len()),
        _ => 0,
    });
    response["status"] = json!(if reply.stop.is_some() {
        "incomplete"
    } else {
        "completed"
    });
    if let Some(reason) = &reply.stop {
        response["incomplete_details"] = json!({"reason": reason});
    }
    response["output"] = json!(items(reply));
    response["usage"] = json!({
        "input_tokens": usage.prompt(),
        "input_tokens_details": {"cached_tokens": usage.cache_read},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": thought.sum::<u64>()},
        "total_tokens": usage.prompt() + usage.output,
    });
    response
}

/// Events with their running number.
struct Saying {
    events: Vec<String>,
}

impl Saying {
    fn say(&mut self, kind: &str, data: Value) {
        let mut all = json!({"type": kind, "sequence_number": self.events.len()});
        if let (Some(all), Value::Object(data)) = (all.as_object_mut(), data) {
            all.extend(data);
        }
        self.events.push(event(kind, &all));
    }
}

pub(super) fn events(reply: &Reply<'_>) -> Vec<String> {
    let mut saying = Saying { events: Vec::new() };
    let begun = begun(reply.request, &reply.id, reply.created);
    saying.say("response.created", json!({"response": begun}));
    saying.say("response.in_progress", json!({"response": begun}));
    for (at, piece) in reply.pieces.iter().enumerate() {
        let whole = item(reply, piece);
        let mut empty = whole.clone();
        let id = whole["id"].clone();
        let place = |more: Value| {
            let mut place = json!({"item_id": id, "output_index": at});
            if let (Some(place), Value::Object(more)) = (place.as_object_mut(), more) {
                place.extend(more);
            }
            place
        };
        match piece {
            Piece::Thinking { text, .. } => {
                empty["summary"] = json!([]);
                saying.say(
                    "response.output_item.added",
                    json!({"output_index": at, "item": empty}),
                );
                let part = |text: &str| {
                    place(
                        json!({"summary_index": 0, "part": {"type": "summary_text", "text": text}}),
                    )
                };
                saying.say("response.reasoning_summary_part.added", part(""));
                for delta in deltas(text) {
                    let data = place(json!({"summary_index": 0, "delta": delta}));
                    saying.say("response.reasoning_summary_text.delta", data);
                }
                saying.say(
                    "response.reasoning_summary_text.done",
                    place(json!({"summary_index": 0, "text": text})),
                );
                saying.say("response.reasoning_summary_part.done", part(text));
            }
            Piece::Compaction { .. } => saying.say(
                "response.output_item.added",
                json!({"output_index": at, "item": empty}),
            ),
            Piece::Text { text, .. } => {
                (empty["status"], empty["content"]) = (json!("in_progress"), json!([]));
                saying.say(
                    "response.output_item.added",
                    json!({"output_index": at, "item": empty}),
                );
                let part = |text: &str| {
                    let part = json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
                    place(json!({"content_index": 0, "part": part}))
                };
                saying.say("response.content_part.added", part(""));
                for delta in deltas(text) {
                    let data = place(json!({"content_index": 0, "delta": delta, "logprobs": []}));
                    saying.say("response.output_text.delta", data);
                }
                let done = place(json!({"content_index": 0, "text": text, "logprobs": []}));
                saying.say("response.output_text.done", done);
                saying.say("response.content_part.done", part(text));
            }
            Piece::Call {
                name,
                arguments,
                custom,
                ..
            } => {
                let (field, kind) = match custom {
                    true => ("input", "custom_tool_call_input"),
                    false => ("arguments", "function_call_arguments"),
                };
                (empty["status"], empty[field]) = (json!("in_progress"), json!(""));
                saying.say(
                    "response.output_item.added",
                    json!({"output_index": at, "item": empty}),
                );
                let text = match custom {
                    true => arguments["input"].as_str().unwrap_or_default().to_owned(),
                    false => arguments.to_string(),
                };
                for delta in deltas(&text) {
                    saying.say(
                        &format!("response.{kind}.delta"),
                        place(json!({"delta": delta})),
                    );
                }
                let mut done = place(json!({field: text}));
                if !custom {
                    done["name"] = json!(name);
                }
                saying.say(&format!("response.{kind}.done"), done);
            }
        }
        saying.say(
            "response.output_item.done",
            json!({"output_index": at, "item": whole}),
        );
    }
    let kind = if reply.stop.is_some() {
        "response.incomplete"
    } else {
        "response.completed"
    };
    saying.say(kind, json!({"response": body(reply)}));
    saying.events
}

pub(super) fn note(reply: &Reply<'_>, issued: &mut Issued) {
    let items = items(reply);
    for pair in items.windows(2) {
        if let ("reasoning", Some(before), Some(after)) = (
            pair[0]["type"].as_str().unwrap_or_default(),
            pair[0]["id"].as_str(),
            pair[1]["id"].as_str(),
        ) {
            issued
                .reasoning_before
                .insert(after.to_owned(), before.to_owned());
        }
    }
    let asked = &reply.request.json;
    // https://platform.openai.com/docs/guides/conversation-state: what is stored can be gone on from.
    if asked["store"] != false {
        let stored = |item: &Value| Some((item["id"].as_str()?.to_owned(), item.clone()));
        issued.items.extend(items.iter().filter_map(stored));
        let before = asked["previous_response_id"]
            .as_str()
            .and_then(|id| issued.stored.get(id));
        let mut all = before.cloned().unwrap_or_default();
        all.extend(reply.request.messages().iter().cloned());
        all.extend(items);
        issued.stored.insert(reply.id.clone(), all);
    }
}

pub(super) fn error_event() -> String {
    let data = json!({
        "type": "error", "code": "server_error", "param": null, "sequence_number": 99,
        "message": "The server had an error while processing your request. Sorry about that!",
    });
    event("error", &data)
}

/// A prompt that does not fit is found out after the stream began.
pub(super) fn refused(request: &Request, refusal: &Refusal, number: u64) -> Vec<String> {
    let mut saying = Saying { events: Vec::new() };
    let mut response = begun(
        request,
        &format!("resp_{number:08}{:016x}", mixed(number)),
        0,
    );
    saying.say("response.created", json!({"response": response}));
    saying.say("response.in_progress", json!({"response": response}));
    response["status"] = json!("failed");
    response["error"] = json!({"code": refusal.code, "message": refusal.message});
    saying.say("response.failed", json!({"response": response}));
    saying.events
}
