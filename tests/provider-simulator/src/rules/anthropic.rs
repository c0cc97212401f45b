//! The Messages API: <https://platform.claude.com/docs/en/api/messages>. The words of the refusals are the provider's.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::*;
use crate::models;
use crate::seal;

/// One or more messages of one role in a row, which the provider joins to a turn: "consecutive `user` or `assistant`
/// turns in your request will be combined into a single turn".
struct Turn<'a> {
    /// The place of its first message.
    at: usize,
    role: &'a str,
    /// Each with the place of its message and its own place there; a string is one block of text.
    blocks: Vec<(String, &'a Value)>,
}

impl<'a> Turn<'a> {
    fn of_type(&self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.blocks
            .iter()
            .map(|(_, block)| *block)
            .filter(move |block| block["type"] == kind)
    }
}

pub(super) fn check(request: &Request, issued: &Issued) -> Checked {
    head(request)?;
    let body = &request.json;
    let messages = entries(&body["messages"]);
    let betas = request.header("anthropic-beta").unwrap_or_default();
    let turns = turns(body, messages, betas.contains("per-turn-control"))?;
    for turn in &turns {
        for (place, block) in &turn.blocks {
            check_block(turn.role, place, block)?;
        }
    }
    ending(body, messages, &turns)?;
    tools::anthropic(entries(&body["tools"]))?;
    choice(body)?;
    pairs(&turns)?;
    server_pairs(&turns)?;
    thinking(body, &turns, issued)?;
    cache_markers(body, &turns)
}

/// Credentials, version, size, and the fields of the request itself.
fn head(request: &Request) -> Checked {
    // https://platform.claude.com/docs/en/api/errors: 401, 413 (32 MB for the Messages API).
    hold(
        request.header("x-api-key").is_some() || request.header("authorization").is_some(),
        || Refusal::new(&CREDENTIALS, "x-api-key header is required").status(401),
    )?;
    hold(request.body.len() <= 32 << 20, || {
        Refusal::new(&TOO_LARGE, "Request exceeds the maximum size").status(413)
    })?;
    // https://platform.claude.com/docs/en/api/versioning
    hold(request.header("anthropic-version").is_some(), || {
        Refusal::new(&VERSION, "anthropic-version: header is required")
    })?;
    let body = &request.json;
    hold(body.is_object(), || {
        Refusal::new(
            &NOT_JSON,
            "The request body is not valid JSON: expected value at line 1 column 1 (char 0)",
        )
    })?;
    hold(
        body["model"]
            .as_str()
            .is_some_and(|model| !model.is_empty()),
        || Refusal::new(&FIELDS, "model: Field required"),
    )?;
    hold(body["messages"].is_array(), || {
        Refusal::new(&FIELDS, "messages: Field required")
    })?;
    for field in body.as_object().into_iter().flat_map(Map::keys) {
        // What a body carries that is private to somebody on the way never reaches the model.
        hold(!field.starts_with('_'), || {
            Refusal::new(&FIELDS, format!("{field}: Extra inputs are not permitted"))
        })?;
    }
    if request.api == Api::Messages {
        hold(body["max_tokens"].is_u64(), || {
            Refusal::new(&MAX_TOKENS, "max_tokens: Field required")
        })?;
        hold(body["max_tokens"] != 0, || {
            Refusal::new(
                &MAX_TOKENS,
                "max_tokens: Input should be greater than or equal to 1",
            )
        })?;
    }
    let texts = |system: &Value| {
        system
            .as_array()
            .is_some_and(|all| all.iter().all(|one| one["type"] == "text"))
    };
    let system = &body["system"];
    hold(
        system.is_null() || system.is_string() || texts(system),
        || {
            Refusal::new(
                &FIELDS,
                "system: Input should be a string or a list of text blocks",
            )
        },
    )?;
    for (at, block) in entries(system).iter().enumerate() {
        hold(
            block["text"].as_str().is_some_and(|text| !text.is_empty()),
            || {
                Refusal::new(
                    &EMPTY_TEXT,
                    format!("system.{at}: text content blocks must be non-empty"),
                )
            },
        )?;
    }
    Ok(())
}

/// Roles and their order, and that no message is empty.
fn turns<'a>(
    body: &'a Value,
    messages: &'a [Value],
    per_turn_control: bool,
) -> Result<Vec<Turn<'a>>, Refusal> {
    hold(!messages.is_empty(), || {
        Refusal::new(&NO_MESSAGES, "messages: at least one message is required")
    })?;
    let mut turns: Vec<Turn<'a>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        for field in message.as_object().into_iter().flat_map(Map::keys) {
            // Seen of Claude Code, which says with this beta that a system message carries its turn's effort.
            let per_turn =
                field == "output_config" && message["role"] == "system" && per_turn_control;
            hold(field == "role" || field == "content" || per_turn, || {
                Refusal::new(
                    &FIELDS,
                    format!("messages.{at}.{field}: Extra inputs are not permitted"),
                )
            })?;
        }
        let role = message["role"].as_str().unwrap_or_default();
        hold(["user", "assistant", "system"].contains(&role), || {
            let message = format!(
                "messages: Unexpected role \"{role}\". The Messages API accepts a top-level `system` parameter, not \
                 \"{role}\" as an input message role."
            );
            Refusal::new(&ROLE, message)
        })?;
        let last = turns.last_mut();
        if role == "system" {
            // https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages: immediately
            // after a user turn, and on models from Opus 4.8 on.
            hold(
                models::takes_system_messages(body["model"].as_str().unwrap_or_default()),
                || {
                    Refusal::new(
                        &SYSTEM_PLACE,
                        "role 'system' is not supported on this model",
                    )
                },
            )?;
            hold(
                last.as_ref().is_some_and(|turn| turn.role != "assistant"),
                || {
                    let message = format!(
                        "messages.{at}: role 'system' must come immediately after a user turn"
                    );
                    Refusal::new(&SYSTEM_PLACE, message)
                },
            )?;
        } else {
            hold(!turns.is_empty() || role == "user", || {
                Refusal::new(
                    &FIRST_USER,
                    "messages: first message must use the \"user\" role",
                )
            })?;
        }
        let content = &message["content"];
        let blocks: Vec<(String, &Value)> = match content {
            Value::String(_) => vec![(format!("messages.{at}.content"), content)],
            Value::Array(blocks) => {
                let place = |(one, block)| (format!("messages.{at}.content.{one}"), block);
                blocks.iter().enumerate().map(place).collect()
            }
            _ => {
                return Err(Refusal::new(
                    &FIELDS,
                    format!("messages.{at}.content: Field required"),
                ));
            }
        };
        // One that only sets its turn's effort has nothing to say.
        let sets = per_turn_control && message["output_config"].is_object();
        let is_empty = (blocks.is_empty() || content == "") && !sets;
        hold(
            !is_empty || (role == "assistant" && at + 1 == messages.len()),
            || {
                let message = "all messages must have non-empty content except for the optional final assistant message";
                Refusal::new(&EMPTY_CONTENT, format!("messages.{at}: {message}"))
            },
        )?;
        match turns.last_mut() {
            Some(turn) if turn.role == role => turn.blocks.extend(blocks),
            _ => turns.push(Turn { at, role, blocks }),
        }
    }
    Ok(turns)
}

/// One block by itself.
fn check_block(role: &str, place: &str, block: &Value) -> Checked {
    if let Some(text) = block.as_str() {
        return hold(text.is_empty() || !text.trim().is_empty(), || {
            Refusal::new(
                &EMPTY_TEXT,
                "messages: text content blocks must contain non-whitespace text",
            )
        });
    }
    let kind = block["type"].as_str().unwrap_or_default();
    let wrong = |rule, why: &str| Refusal::new(rule, format!("{place}.{why}"));
    let by_role: &[&str] = match role {
        "assistant" => &["text", "tool_use", "thinking", "redacted_thinking"],
        "system" => &["text"],
        _ => &["text", "tool_result", "image", "document", "search_result"],
    };
    let anywhere = [
        "server_tool_use", "mcp_tool_use", "container_upload", "compaction", "fallback",
    ];
    let results_of_servers = kind.ends_with("_tool_result") || kind.starts_with("tool_");
    let others = [
        "text", "tool_use", "thinking", "redacted_thinking", "tool_result", "image", "document",
        "search_result",
    ];
    let known = by_role.contains(&kind)
        || anywhere.contains(&kind)
        || (results_of_servers && !others.contains(&kind));
    hold(known, || {
        wrong(
            &BLOCK,
            &format!(
                "type: Input tag '{kind}' found using 'type' is not allowed for role '{role}'"
            ),
        )
    })?;
    for field in block.as_object().into_iter().flat_map(Map::keys) {
        hold(!field.starts_with('_'), || {
            wrong(
                &BLOCK,
                &format!("{kind}.{field}: Extra inputs are not permitted"),
            )
        })?;
    }
    match kind {
        "text" => text_block(place, block),
        "thinking" => {
            hold(block["thinking"].is_string(), || {
                wrong(&BLOCK, "thinking.thinking: Field required")
            })?;
            hold(block["signature"].is_string(), || {
                wrong(&THINKING_SIGNATURE, "thinking.signature: Field required")
            })
        }
        "tool_use" => {
            let id = block["id"].as_str().unwrap_or_default();
            hold(is_plain(id, 256), || {
                wrong(
                    &CALL_ID,
                    "tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
                )
            })?;
            let name = block["name"].as_str().unwrap_or_default();
            hold(is_plain(name, 200), || {
                wrong(
                    &TOOL_NAME,
                    "tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,200}$'",
                )
            })?;
            hold(block["input"].is_object(), || {
                wrong(&BLOCK, "tool_use.input: Input should be a valid dictionary")
            })
        }
        "tool_result" => {
            hold(block["tool_use_id"].is_string(), || {
                wrong(&BLOCK, "tool_result.tool_use_id: Field required")
            })?;
            let content = &block["content"];
            let listed = content.is_null() || content.is_string() || content.is_array();
            hold(listed, || {
                wrong(
                    &BLOCK,
                    "tool_result.content: Input should be a string or a list of blocks",
                )
            })?;
            for (at, part) in entries(content).iter().enumerate() {
                if part["type"] == "text" {
                    text_block(&format!("{place}.tool_result.content.{at}"), part)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Text has to be there, and to be more than white space.
fn text_block(place: &str, block: &Value) -> Checked {
    let Some(text) = block["text"].as_str() else {
        return Err(Refusal::new(
            &BLOCK,
            format!("{place}.text.text: Field required"),
        ));
    };
    // https://platform.claude.com/docs/en/build-with-claude/prompt-caching: "Empty text blocks cannot be cached."
    hold(
        !text.is_empty() || block.get("cache_control").is_none(),
        || {
            Refusal::new(
                &CACHE_PLACE,
                format!("{place}.text: cache_control cannot be set for empty text blocks"),
            )
        },
    )?;
    hold(!text.is_empty(), || {
        Refusal::new(
            &EMPTY_TEXT,
            "messages: text content blocks must be non-empty",
        )
    })?;
    hold(!text.trim().is_empty(), || {
        Refusal::new(
            &EMPTY_TEXT,
            "messages: text content blocks must contain non-whitespace text",
        )
    })
}

/// An answer that is begun for the model.
fn ending(body: &Value, messages: &[Value], turns: &[Turn<'_>]) -> Checked {
    let Some(last) = turns.last().filter(|turn| turn.role == "assistant") else {
        return Ok(());
    };
    let text = match last.blocks.last() {
        Some((_, Value::String(text))) => text,
        Some((_, block)) => block["text"].as_str().unwrap_or_default(),
        None => return Ok(()),
    };
    hold(text.trim_end() == text, || {
        Refusal::new(
            &TRAILING_SPACE,
            "messages: final assistant content cannot end with trailing whitespace",
        )
    })?;
    // Calls that nobody answered are refused as that.
    let calls = last.of_type("tool_use").next().is_some();
    hold(
        calls || models::takes_prefill(body["model"].as_str().unwrap_or_default()),
        || {
            let message = "This model does not support assistant message prefill. The conversation must end with a user message.";
            Refusal::new(&PREFILL, message).at(format!("messages.{}", messages.len() - 1))
        },
    )
}

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools>: what may be forced.
fn choice(body: &Value) -> Checked {
    let choice = &body["tool_choice"];
    if choice.is_null() {
        return Ok(());
    }
    let kind = choice["type"].as_str().unwrap_or_default();
    hold(["auto", "any", "tool", "none"].contains(&kind), || {
        Refusal::new(
            &TOOL_CHOICE,
            format!("tool_choice: Input tag '{kind}' does not match 'auto', 'any', 'tool', 'none'"),
        )
    })?;
    hold(
        !entries(&body["tools"]).is_empty() || kind == "none",
        || {
            Refusal::new(
                &TOOL_CHOICE,
                "tool_choice: tool_choice may only be specified while providing tools.",
            )
        },
    )?;
    let named = entries(&body["tools"])
        .iter()
        .any(|tool| tool["name"] == choice["name"]);
    hold(kind != "tool" || named, || {
        Refusal::new(
            &TOOL_CHOICE,
            format!(
                "tool_choice: Tool '{}' not found in provided tools",
                choice["name"]
            ),
        )
    })
}

/// "Tool result blocks must immediately follow their corresponding tool use blocks in the message history", and come
/// first in the content of their message; each call has one.
fn pairs(turns: &[Turn<'_>]) -> Checked {
    let mut seen = HashSet::new();
    let mut open: Vec<&str> = Vec::new();
    let mut asked_at = 0;
    for turn in turns {
        if turn.role == "system" {
            continue;
        }
        let mut answered = HashSet::new();
        let mut other_came = false;
        for (place, block) in &turn.blocks {
            if turn.role == "user" && block["type"] == "tool_result" {
                let id = block["tool_use_id"].as_str().unwrap_or_default();
                hold(open.contains(&id), || {
                    let message = format!(
                        "{place}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` \
                         block must have a corresponding `tool_use` block in the previous message."
                    );
                    Refusal::new(&RESULT_WITHOUT_CALL, message)
                })?;
                hold(answered.insert(id), || {
                    let message = format!(
                        "{place}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
                    );
                    Refusal::new(&RESULT_TWICE, message)
                })?;
                hold(!other_came, || {
                    let message = unanswered(asked_at, &open);
                    Refusal::new(
                        &RESULTS_FIRST,
                        format!("{message} They must come first in it ({place})."),
                    )
                })?;
            } else {
                other_came = true;
            }
        }
        let missing: Vec<&str> = open
            .iter()
            .filter(|id| !answered.contains(*id))
            .copied()
            .collect();
        hold(missing.is_empty(), || {
            Refusal::new(&CALL_UNANSWERED, unanswered(asked_at, &missing))
        })?;
        open.clear();
        if turn.role == "assistant" {
            asked_at = turn.at;
            for (place, block) in &turn.blocks {
                if block["type"] == "tool_use" {
                    let id = block["id"].as_str().unwrap_or_default();
                    hold(seen.insert(id), || {
                        Refusal::new(
                            &CALL_ID_TWICE,
                            format!("{place}: `tool_use` ids must be unique"),
                        )
                    })?;
                    open.push(id);
                } else {
                    // Seen in a recording of the provider: an assistant message of a call and then text is refused
                    // as one whose call has no result right after it
                    // (https://github.com/anomalyco/opencode, recordings/anthropic-messages/
                    // rejects-malformed-assistant-tool-order-without-patch.json).
                    hold(open.is_empty(), || {
                        Refusal::new(&CALLS_LAST, unanswered(asked_at, &open))
                    })?;
                }
            }
        }
    }
    hold(open.is_empty(), || {
        Refusal::new(&CALL_UNANSWERED, unanswered(asked_at, &open))
    })
}

/// <https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons>: what a server tool gave has its call
/// before it, also in another message if the turn was paused or the call's code called a tool of the client's, and a call
/// that the user does not wait for any more has its result.
fn server_pairs(turns: &[Turn<'_>]) -> Checked {
    let mut open: Vec<&str> = Vec::new();
    for turn in turns {
        let answers = |(_, block): &(String, &Value)| block["type"] == "tool_result";
        hold(
            open.is_empty() || turn.role == "assistant" || turn.blocks.iter().all(answers),
            || {
                let message = format!(
                    "messages.{}: `server_tool_use` ids were found without a corresponding result block: {}",
                    turn.at,
                    open.join(", ")
                );
                Refusal::new(&SERVER_UNANSWERED, message)
            },
        )?;
        for (place, block) in &turn.blocks {
            let kind = block["type"].as_str().unwrap_or_default();
            let id = |field: &str| block[field].as_str().unwrap_or_default();
            let (of, ends) = match kind {
                "server_tool_use" | "mcp_tool_use" => {
                    open.push(id("id"));
                    continue;
                }
                "tool_use" if block["caller"]["tool_id"].is_string() => (
                    block["caller"]["tool_id"].as_str().unwrap_or_default(),
                    false,
                ),
                kind if kind.ends_with("_tool_result") => (id("tool_use_id"), true),
                _ => continue,
            };
            let Some(call) = open.iter().position(|id| *id == of) else {
                let message = format!(
                    "{place}: unexpected `tool_use_id` found in `{kind}` block: {of}. Each result block must have a \
                     corresponding `server_tool_use` block before it."
                );
                return Err(Refusal::new(&SERVER_RESULT_WITHOUT_CALL, message));
            };
            if ends {
                open.remove(call);
            }
        }
    }
    Ok(())
}

fn unanswered(at: usize, ids: &[&str]) -> String {
    format!(
        "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` \
         block must have a corresponding `tool_result` block in the next message.",
        ids.join(", ")
    )
}

/// <https://platform.claude.com/docs/en/build-with-claude/extended-thinking> and
/// <https://platform.claude.com/docs/build-with-claude/thinking-tool-workflows>: "pass thinking blocks back complete
/// and unmodified".
fn thinking(body: &Value, turns: &[Turn<'_>], issued: &Issued) -> Checked {
    for turn in turns {
        for (place, block) in &turn.blocks {
            let valid = match block["type"].as_str() {
                Some("thinking") => {
                    let text = block["thinking"].as_str().unwrap_or_default();
                    block["signature"] == seal::signature(text).as_str()
                }
                Some("redacted_thinking") => block["data"].as_str().is_some_and(seal::is_encrypted),
                _ => true,
            };
            hold(valid, || {
                let kind = block["type"].as_str().unwrap_or_default();
                Refusal::new(
                    &THINKING_SIGNATURE,
                    format!("{place}: Invalid `signature` in `{kind}` block"),
                )
            })?;
        }
    }
    let setting = &body["thinking"];
    let manual = setting["type"] == "enabled";
    if manual {
        options(body)?;
    }
    if !manual && setting["type"] != "adaptive" {
        return Ok(());
    }
    // The turn that is going on begins with the last thing that the user said; before it, blocks may be left out.
    let said = |turn: &Turn<'_>| {
        let other = |(_, block): &(String, &Value)| block["type"] != "tool_result";
        turn.role == "user" && turn.blocks.iter().all(other)
    };
    let begins = turns.iter().rposition(said).unwrap_or(0);
    let going_on = turns[begins..]
        .iter()
        .filter(|turn| turn.role == "assistant");
    for turn in going_on {
        let mut calls = turn.of_type("tool_use").peekable();
        if calls.peek().is_none() {
            continue;
        }
        for call in calls {
            let id = call["id"].as_str().unwrap_or_default();
            let had = issued
                .thinking_before
                .get(id)
                .map_or(&[][..], Vec::as_slice);
            let has = |block: &Value| turn.blocks.iter().any(|(_, one)| same_thinking(one, block));
            hold(had.iter().all(has), || {
                let message = format!(
                    "messages.{}.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message \
                     cannot be modified. These blocks must remain as they were in the original response.",
                    turn.at
                );
                Refusal::new(&THINKING_KEPT, message)
            })?;
        }
    }
    // Only where a budget is given; adaptive thinking may have thought nothing.
    let last = turns[begins..]
        .iter()
        .rfind(|turn| turn.role == "assistant");
    if let (true, Some(turn)) = (manual, last) {
        let first = turn
            .blocks
            .first()
            .map(|(_, block)| block["type"].as_str().unwrap_or("text"));
        let calls = turn.of_type("tool_use").next().is_some();
        hold(
            !calls || matches!(first, Some("thinking" | "redacted_thinking")),
            || {
                let message = format!(
                    "messages.{}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When \
                 `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the \
                 lastmost set of `tool_use` and `tool_result` blocks).",
                    turn.at,
                    first.unwrap_or_default()
                );
                Refusal::new(&THINKING_FIRST, message)
            },
        )?;
    }
    Ok(())
}

/// The same but for a cache marker.
fn same_thinking(one: &Value, other: &Value) -> bool {
    ["type", "thinking", "signature", "data"]
        .iter()
        .all(|field| one[field] == other[field])
}

/// What manual thinking asks of the rest of the request.
fn options(body: &Value) -> Checked {
    let budget = body["thinking"]["budget_tokens"].as_u64().unwrap_or(0);
    hold(budget >= 1024, || {
        let message =
            "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024";
        Refusal::new(&THINKING_OPTIONS, message)
    })?;
    let forced = ["any", "tool"]
        .iter()
        .any(|kind| body["tool_choice"]["type"] == *kind);
    hold(!forced, || {
        Refusal::new(
            &THINKING_OPTIONS,
            "Thinking may not be enabled when tool_choice forces tool use.",
        )
    })?;
    let temperature = &body["temperature"];
    hold(
        temperature.is_null() || temperature.as_f64() == Some(1.0),
        || {
            let message = "`temperature` may only be set to 1 when thinking is enabled.";
            Refusal::new(&THINKING_OPTIONS, message)
        },
    )
}

/// <https://platform.claude.com/docs/en/build-with-claude/prompt-caching>: at most four breakpoints, none on thinking or
/// empty text, and a longer time to live before a shorter one.
fn cache_markers(body: &Value, turns: &[Turn<'_>]) -> Checked {
    let mut markers: Vec<(String, &Value)> = Vec::new();
    let mut find = |place: String, block| {
        let block: &Value = block;
        if let Some(marker) = block
            .get("cache_control")
            .filter(|marker| !marker.is_null())
        {
            markers.push((place, marker));
        }
    };
    for (at, tool) in entries(&body["tools"]).iter().enumerate() {
        let both = tool["defer_loading"] == true && tool.get("cache_control").is_some();
        hold(!both, || {
            let message = format!(
                "tools.{at}: a tool cannot have both defer_loading=true and cache_control set"
            );
            Refusal::new(&CACHE_PLACE, message)
        })?;
        find(format!("tools.{at}"), tool);
    }
    for (at, block) in entries(&body["system"]).iter().enumerate() {
        find(format!("system.{at}"), block);
    }
    for (place, block) in turns.iter().flat_map(|turn| &turn.blocks) {
        let kind = block["type"].as_str().unwrap_or_default();
        let thinks = kind == "thinking" || kind == "redacted_thinking";
        hold(!thinks || block.get("cache_control").is_none(), || {
            Refusal::new(
                &CACHE_PLACE,
                format!("{place}.{kind}.cache_control: Extra inputs are not permitted"),
            )
        })?;
        for (at, part) in entries(&block["content"]).iter().enumerate() {
            find(format!("{place}.content.{at}"), part);
        }
        find(place.clone(), block);
    }
    // The automatic one takes a place among the four. It lies on the last block.
    find("cache_control".to_owned(), body);
    hold(markers.len() <= 4, || {
        let message = format!(
            "A maximum of 4 blocks with cache_control may be provided. Found {}.",
            markers.len()
        );
        Refusal::new(&CACHE_COUNT, message)
    })?;
    let mut short_came = false;
    for (place, marker) in markers {
        hold(marker["type"] == "ephemeral", || {
            let message = format!("{place}.cache_control.type: Input should be 'ephemeral'");
            Refusal::new(&CACHE_TTL, message)
        })?;
        match marker["ttl"].as_str().unwrap_or("5m") {
            "5m" => short_came = true,
            "1h" => hold(!short_came, || {
                let message = format!(
                    "{place}.cache_control.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' \
                     cache_control block. Note that blocks are processed in the following order: `tools`, `system`, \
                     `messages`."
                );
                Refusal::new(&CACHE_ORDER, message)
            })?,
            other => {
                let message = format!(
                    "{place}.cache_control.ttl: Input should be '5m' or '1h', not '{other}'"
                );
                return Err(Refusal::new(&CACHE_TTL, message));
            }
        }
    }
    Ok(())
}
