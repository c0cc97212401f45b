//! Chat completions: <https://platform.openai.com/docs/api-reference/chat/create>. The words of the refusals are the
//! provider's.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::*;

fn wrong(rule: &'static Rule, param: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(rule, message).at(param)
}

/// What both of OpenAI's interfaces hold before they read on.
pub(super) fn head(request: &Request) -> Checked {
    // https://platform.openai.com/docs/guides/error-codes
    // https://learn.microsoft.com/azure/ai-foundry/openai/reference: a key is in `api-key`.
    let has_azure_key = request.is_azure() && request.header("api-key").is_some();
    hold(
        request.header("authorization").is_some() || has_azure_key,
        || {
            let message = "You didn't provide an API key. You need to provide your API key in an Authorization header \
                       using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).";
            Refusal::new(&OPENAI_CREDENTIALS, message).status(401)
        },
    )?;
    hold(request.json.is_object(), || {
        let message = "We could not parse the JSON body of your request. (HINT: This likely means you aren't using \
                       your HTTP library correctly. The OpenAI API expects a JSON payload, but what was sent was not \
                       valid JSON.)";
        Refusal::new(&OPENAI_NOT_JSON, message)
    })?;
    for field in request.json.as_object().into_iter().flat_map(Map::keys) {
        // What a body carries that is private to somebody on the way never reaches the model.
        hold(!field.starts_with('_'), || {
            wrong(
                &CHAT_FIELDS,
                field,
                format!("Unknown parameter: '{field}'."),
            )
            .code("unknown_parameter")
        })?;
    }
    hold(!request.model().is_empty(), || {
        wrong(&CHAT_FIELDS, "model", "you must provide a model parameter")
    })
}

pub(super) fn check(request: &Request) -> Checked {
    head(request)?;
    let body = &request.json;
    hold(body["messages"].is_array(), || {
        wrong(
            &CHAT_FIELDS,
            "messages",
            "Missing required parameter: 'messages'.",
        )
        .code("missing_required_parameter")
    })?;
    let messages = entries(&body["messages"]);
    hold(!messages.is_empty(), || {
        let message = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.";
        wrong(&CHAT_FIELDS, "messages", message).code("empty_array")
    })?;
    hold(
        body.get("stream_options").is_none_or(Value::is_null) || request.streams(),
        || {
            let message =
                "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
            wrong(&CHAT_FIELDS, "stream_options", message)
        },
    )?;
    for (at, message) in messages.iter().enumerate() {
        content(at, message, request.model())?;
    }
    offered(body)?;
    pairs(messages)
}

/// One message by itself: its role, and what its content may be.
fn content(at: usize, message: &Value, model: &str) -> Checked {
    let role = message["role"].as_str().unwrap_or_default();
    hold(
        [
            "system", "developer", "user", "assistant", "tool", "function",
        ]
        .contains(&role),
        || {
            let message = format!(
                "Invalid value: '{role}'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'."
            );
            wrong(&CHAT_ROLE, &format!("messages[{at}].role"), message).code("invalid_value")
        },
    )?;
    for field in message.as_object().into_iter().flat_map(Map::keys) {
        hold(!field.starts_with('_'), || {
            let place = format!("messages[{at}].{field}");
            wrong(
                &CHAT_FIELDS,
                &place,
                format!("Unknown parameter: '{place}'."),
            )
            .code("unknown_parameter")
        })?;
    }
    let place = format!("messages[{at}].content");
    let calls = role == "assistant"
        && (message["tool_calls"].is_array() || message["function_call"].is_object());
    let parts = match &message["content"] {
        Value::String(_) => return Ok(()),
        Value::Null if calls || message["refusal"].is_string() || message["audio"].is_object() => {
            return Ok(());
        }
        Value::Array(parts) => parts,
        other => {
            let kind = if other.is_null() { "null" } else { "an object" };
            let message = format!(
                "Invalid value for 'content': expected a string or an array of content parts, got {kind}."
            );
            return Err(wrong(&CHAT_CONTENT, &place, message).code("invalid_type"));
        }
    };
    hold(!parts.is_empty(), || {
        let message = format!(
            "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead."
        );
        wrong(&CHAT_CONTENT, &place, message).code("empty_array")
    })?;
    let allowed: &[&str] = match role {
        "user" => &["text", "image_url", "input_audio", "file"],
        "assistant" => &["text", "refusal"],
        _ => &["text"],
    };
    for (one, part) in parts.iter().enumerate() {
        let place = format!("{place}[{one}]");
        let kind = part["type"].as_str().unwrap_or_default();
        hold(allowed.contains(&kind), || {
            let message = format!(
                "Invalid value: '{kind}'. Supported values are: '{}'.",
                allowed.join("', '")
            );
            wrong(&CHAT_CONTENT, &format!("{place}.type"), message).code("invalid_value")
        })?;
        hold(kind != "text" || part["text"].is_string(), || {
            let place = format!("{place}.text");
            let message = format!("Missing required parameter: '{place}'.");
            wrong(&CHAT_CONTENT, &place, message).code("missing_required_parameter")
        })?;
        // Providers that serve Claude in this format take the marker; OpenAI does not know it.
        hold(
            part.get("cache_control").is_none() || model.contains("claude"),
            || {
                let place = format!("{place}.cache_control");
                wrong(
                    &CHAT_FIELDS,
                    &place,
                    format!("Unknown parameter: '{place}'."),
                )
                .code("unknown_parameter")
            },
        )?;
    }
    Ok(())
}

/// The tools that are offered, and what goes only with them.
fn offered(body: &Value) -> Checked {
    let tools = entries(&body["tools"]);
    hold(!body["tools"].is_array() || !tools.is_empty(), || {
        let message = "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.";
        wrong(&OPENAI_TOOLS, "tools", message).code("empty_array")
    })?;
    hold(tools.len() <= 128, || {
        let message = format!(
            "Invalid 'tools': array too long. Expected an array with maximum length 128, but got an array with length {} instead.",
            tools.len()
        );
        wrong(&OPENAI_TOOLS, "tools", message).code("array_above_max_length")
    })?;
    let mut names = HashSet::new();
    for (at, tool) in tools.iter().enumerate() {
        match tool["type"].as_str() {
            Some("function") => tools::openai(
                &tool["function"],
                &format!("tools[{at}].function"),
                &mut names,
            )?,
            Some("custom") => {}
            other => {
                let message = format!(
                    "Invalid value: '{}'. Supported values are: 'function' and 'custom'.",
                    other.unwrap_or("")
                );
                return Err(wrong(&OPENAI_TOOLS, &format!("tools[{at}].type"), message)
                    .code("invalid_value"));
            }
        }
    }
    for field in ["tool_choice", "parallel_tool_calls"] {
        let given = body
            .get(field)
            .is_some_and(|value| !value.is_null() && value != "none");
        hold(!given || !tools.is_empty(), || {
            wrong(
                &TOOL_CHOICE,
                field,
                format!(
                    "Invalid value for '{field}': '{field}' is only allowed when 'tools' are specified."
                ),
            )
        })?;
    }
    let named = body["tool_choice"]["function"]["name"].as_str();
    hold(named.is_none_or(|name| names.contains(name)), || {
        wrong(
            &TOOL_CHOICE,
            "tool_choice",
            "Tool choice must be one of the tools that are specified.",
        )
    })
}

/// <https://platform.openai.com/docs/guides/function-calling>: a `tool` message answers a call of the assistant message
/// before it, each call has one, before anything else comes.
fn pairs(messages: &[Value]) -> Checked {
    let mut ids = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut asked_at = 0;
    let unanswered = |at: usize, open: &[&str]| {
        let message = format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.join(", ")
        );
        wrong(&CHAT_UNANSWERED, &format!("messages.[{at}].role"), message)
    };
    for (at, message) in messages.iter().enumerate() {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let place = open.iter().position(|one| *one == id);
            let Some(place) = place else {
                let message = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
                return Err(wrong(
                    &CHAT_RESULT,
                    &format!("messages.[{at}].role"),
                    message,
                ));
            };
            open.remove(place);
            continue;
        }
        hold(open.is_empty(), || unanswered(asked_at, &open))?;
        let Some(calls) = message.get("tool_calls").filter(|calls| !calls.is_null()) else {
            continue;
        };
        let place = format!("messages[{at}].tool_calls");
        hold(
            message["role"] == "assistant" && !entries(calls).is_empty(),
            || {
                let message = format!(
                    "Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead."
                );
                wrong(&CHAT_CALLS, &place, message).code("empty_array")
            },
        )?;
        asked_at = at;
        for (one, call) in entries(calls).iter().enumerate() {
            let place = format!("{place}[{one}]");
            let id = call["id"].as_str().unwrap_or_default();
            hold(!id.is_empty() && id.len() <= 64, || {
                let message =
                    format!("Invalid '{place}.id': expected a string with a length from 1 to 64.");
                wrong(&CHAT_CALLS, &format!("{place}.id"), message)
            })?;
            hold(ids.insert(id), || {
                wrong(
                    &CHAT_ID_TWICE,
                    &format!("{place}.id"),
                    format!("Duplicate value for 'tool_call_id' of '{id}'"),
                )
            })?;
            if call["type"] != "custom" {
                let function = &call["function"];
                hold(
                    function["name"]
                        .as_str()
                        .is_some_and(|name| is_plain(name, 64)),
                    || {
                        let message = format!(
                            "Invalid '{place}.function.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
                        );
                        wrong(&CHAT_CALLS, &format!("{place}.function.name"), message)
                            .code("invalid_value")
                    },
                )?;
                hold(function["arguments"].is_string(), || {
                    let place = format!("{place}.function.arguments");
                    let message = format!(
                        "Invalid type for '{place}': expected a string, but got something else instead."
                    );
                    wrong(&CHAT_CALLS, &place, message).code("invalid_type")
                })?;
            }
            open.push(id);
        }
    }
    hold(open.is_empty(), || unanswered(asked_at, &open))
}
