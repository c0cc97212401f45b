//! The Responses API: <https://platform.openai.com/docs/api-reference/responses/create>. The words of the refusals are the
//! provider's.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::*;
use crate::seal;

fn wrong(rule: &'static Rule, param: &str, message: impl Into<String>) -> Refusal {
    Refusal::new(rule, message).at(param)
}

pub(super) fn check(request: &Request, issued: &Issued) -> Checked {
    chat::head(request)?;
    let body = &request.json;
    let previous = body["previous_response_id"].as_str();
    // https://platform.openai.com/docs/guides/conversation-state
    let before = match previous {
        None => &[][..],
        Some(id) => issued.stored.get(id).map(Vec::as_slice).ok_or_else(|| {
            let message = format!("Previous response with id '{id}' not found.");
            wrong(&PREVIOUS_RESPONSE, "previous_response_id", message)
                .code("previous_response_not_found")
        })?,
    };
    let input = &body["input"];
    hold(
        input.is_string() || input.is_array() || previous.is_some() || body["prompt"].is_object(),
        || {
            wrong(&ITEM, "input", "Missing required parameter: 'input'.")
                .code("missing_required_parameter")
        },
    )?;
    let items = entries(input);
    for (at, item) in items.iter().enumerate() {
        check_item(at, item, body)?;
    }
    offered(body)?;
    ids(items)?;
    pairs(before, items)?;
    reasoning(items, issued)
}

/// An item without a type is a message where it has a role.
fn kind(item: &Value) -> &str {
    item["type"]
        .as_str()
        .unwrap_or(if item["role"].is_string() {
            "message"
        } else {
            ""
        })
}

/// One item by itself.
fn check_item(at: usize, item: &Value, body: &Value) -> Checked {
    let place = format!("input[{at}]");
    let kind = kind(item);
    let needs = |field: &str, there: bool| {
        hold(there, || {
            let place = format!("{place}.{field}");
            let message = format!("Missing required parameter: '{place}'.");
            wrong(&ITEM, &place, message).code("missing_required_parameter")
        })
    };
    let begins = |with: &str| {
        let id = item["id"].as_str();
        hold(
            id.is_none_or(|id| id.starts_with(with) && id.len() <= 64),
            || {
                let message = format!(
                    "Invalid '{place}.id': '{}'. Expected an ID that begins with '{with}'.",
                    id.unwrap_or_default()
                );
                wrong(&ITEM_ID, &format!("{place}.id"), message).code("invalid_value")
            },
        )
    };
    match kind {
        "message" => {
            if item["role"] == "assistant" {
                begins("msg")?;
            }
            content(&place, item)
        }
        "function_call" => {
            begins("fc")?;
            needs("call_id", item["call_id"].is_string())?;
            needs("name", item["name"].is_string())?;
            needs("arguments", item["arguments"].is_string())?;
            let length = item["call_id"].as_str().unwrap_or_default().len();
            hold(length <= 64, || {
                let place = format!("{place}.call_id");
                let message = format!(
                    "Invalid '{place}': string too long. Expected a string with maximum length 64, but got a string \
                     with length {length} instead."
                );
                wrong(&ITEM_ID, &place, message).code("string_above_max_length")
            })
        }
        "function_call_output" | "custom_tool_call_output" => {
            needs("call_id", item["call_id"].is_string())?;
            needs(
                "output",
                item["output"].is_string() || item["output"].is_array(),
            )
        }
        "custom_tool_call" => {
            needs("call_id", item["call_id"].is_string())?;
            needs("input", item["input"].is_string())
        }
        "reasoning" => {
            begins("rs")?;
            needs("summary", item["summary"].is_array())?;
            // https://platform.openai.com/docs/guides/reasoning: stateless, the encrypted content is all there is.
            let id = item["id"].as_str().unwrap_or_default();
            hold(
                body["store"] != false || item["encrypted_content"].is_string(),
                || {
                    let message = format!(
                        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again \
                     with `store` set to true, or remove this item from your input."
                    );
                    wrong(&REASONING_INTACT, "input", message)
                },
            )?;
            let encrypted = item["encrypted_content"].as_str();
            hold(encrypted.is_none_or(seal::is_encrypted), || {
                let message = format!(
                    "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be \
                     decrypted or parsed."
                );
                wrong(&REASONING_INTACT, "input", message).code("invalid_encrypted_content")
            })
        }
        // What is stored was put in its place before.
        "item_reference" => {
            let id = item["id"].as_str().unwrap_or_default();
            Err(wrong(
                &ITEM_REFERENCE,
                "input",
                format!("Item with id '{id}' not found."),
            ))
        }
        "" => Err(wrong(
            &ITEM,
            &format!("{place}.type"),
            format!("Missing required parameter: '{place}.type'."),
        )
        .code("missing_required_parameter")),
        // Calls of built-in tools, compactions and others, which only the provider reads.
        _ => Ok(()),
    }
}

/// What a message may hold, by its role.
fn content(place: &str, item: &Value) -> Checked {
    let role = item["role"].as_str().unwrap_or_default();
    hold(
        ["user", "assistant", "system", "developer"].contains(&role),
        || {
            let message = format!(
                "Invalid value: '{role}'. Supported values are: 'assistant', 'system', 'developer', and 'user'."
            );
            wrong(&ITEM_CONTENT, &format!("{place}.role"), message).code("invalid_value")
        },
    )?;
    let content = &item["content"];
    hold(content.is_string() || content.is_array(), || {
        let place = format!("{place}.content");
        wrong(
            &ITEM_CONTENT,
            &place,
            format!("Missing required parameter: '{place}'."),
        )
    })?;
    let allowed: &[&str] = match role {
        "assistant" => &["output_text", "refusal"],
        _ => &["input_text", "input_image", "input_file", "input_audio"],
    };
    for (at, part) in entries(content).iter().enumerate() {
        let kind = part["type"].as_str().unwrap_or_default();
        let place = format!("{place}.content[{at}]");
        hold(allowed.contains(&kind), || {
            let message = format!(
                "Invalid value: '{kind}'. Supported values are: '{}'.",
                allowed.join("', '")
            );
            wrong(&ITEM_CONTENT, &place, message).code("invalid_value")
        })?;
        hold(!kind.ends_with("_text") || part["text"].is_string(), || {
            let message = format!("Missing required parameter: '{place}.text'.");
            wrong(&ITEM_CONTENT, &place, message).code("missing_required_parameter")
        })?;
    }
    Ok(())
}

/// The functions among the tools that are offered.
fn offered(body: &Value) -> Checked {
    let mut names = HashSet::new();
    for (at, tool) in entries(&body["tools"]).iter().enumerate() {
        hold(tool["type"].is_string(), || {
            let place = format!("tools[{at}].type");
            wrong(
                &OPENAI_TOOLS,
                &place,
                format!("Missing required parameter: '{place}'."),
            )
            .code("missing_required_parameter")
        })?;
        if tool["type"] == "function" {
            tools::openai(tool, &format!("tools[{at}]"), &mut names)?;
        }
    }
    let choice = &body["tool_choice"];
    hold(
        choice["type"] != "function"
            || choice["name"]
                .as_str()
                .is_some_and(|name| names.contains(name)),
        || {
            let message = format!(
                "Tool choice 'function' not found in 'tools' parameter: {}.",
                choice["name"]
            );
            wrong(&TOOL_CHOICE, "tool_choice", message)
        },
    )
}

/// No item stands there twice.
fn ids(items: &[Value]) -> Checked {
    let mut seen = HashSet::new();
    for item in items {
        if let Some(id) = item["id"].as_str() {
            hold(seen.insert(id), || {
                let message = format!(
                    "Duplicate item found with id {id}. Remove duplicate items from your input and try again."
                );
                wrong(&ITEM_TWICE, "input", message)
            })?;
        }
    }
    Ok(())
}

/// <https://platform.openai.com/docs/guides/function-calling>: every output has its call before it, and every call its
/// output.
fn pairs(before: &[Value], items: &[Value]) -> Checked {
    let mut calls: HashMap<&str, bool> = HashMap::new();
    let mut order = Vec::new();
    let mut asked = HashSet::new();
    for item in before.iter().chain(items) {
        let id = item["call_id"].as_str().unwrap_or_default();
        match kind(item) {
            "mcp_approval_request" => {
                asked.extend(item["id"].as_str());
            }
            "mcp_approval_response" => {
                let id = item["approval_request_id"].as_str().unwrap_or_default();
                hold(asked.contains(id), || {
                    let message = format!("No approval request found with id '{id}'.");
                    wrong(&OUTPUT_WITHOUT_CALL, "input", message)
                })?;
            }
            // Other calls are run by the provider, which answers them in the same item.
            "function_call" | "custom_tool_call" | "local_shell_call" | "shell_call"
            | "apply_patch_call" | "computer_call" => {
                hold(calls.insert(id, false).is_none(), || {
                    wrong(
                        &ITEM_TWICE,
                        "input",
                        format!("Duplicate function call with call_id {id}."),
                    )
                })?;
                order.push(id);
            }
            kind if kind.ends_with("_call_output") => {
                let Some(answered) = calls.get_mut(id) else {
                    let what = if kind.starts_with("custom") {
                        "custom tool call"
                    } else {
                        "function call"
                    };
                    let message =
                        format!("No tool call found for {what} output with call_id {id}.");
                    return Err(wrong(&OUTPUT_WITHOUT_CALL, "input", message));
                };
                hold(!*answered, || {
                    wrong(
                        &ITEM_TWICE,
                        "input",
                        format!("Duplicate function call output with call_id {id}."),
                    )
                })?;
                *answered = true;
            }
            _ => {}
        }
    }
    let open = order.into_iter().find(|id| !calls[id]);
    match open {
        None => Ok(()),
        Some(id) => Err(wrong(
            &CALL_WITHOUT_OUTPUT,
            "input",
            format!("No tool output found for function call {id}."),
        )),
    }
}

/// <https://platform.openai.com/docs/guides/reasoning>: a reasoning item stands right before the item that came of it,
/// and an item that is named by its id has its reasoning before it.
fn reasoning(items: &[Value], issued: &Issued) -> Checked {
    for (at, item) in items.iter().enumerate() {
        let id = item["id"].as_str().unwrap_or_default();
        if kind(item) == "reasoning" {
            let next = items.get(at + 1);
            let follows = next.is_some_and(|next| match kind(next) {
                "message" => next["role"] == "assistant",
                kind => !kind.ends_with("_output"),
            });
            hold(follows, || {
                let message = format!(
                    "Item '{id}' of type 'reasoning' was provided without its required following item."
                );
                wrong(&REASONING_FOLLOWED, "input", message)
            })?;
        } else if let Some(needed) = issued.reasoning_before.get(id) {
            let there = items[..at].iter().any(|one| one["id"] == needed.as_str());
            hold(there, || {
                let message = format!(
                    "Item '{id}' of type '{}' was provided without its required 'reasoning' item: '{needed}'.",
                    kind(item)
                );
                wrong(&REASONING_KEPT, "input", message)
            })?;
        }
    }
    Ok(())
}
