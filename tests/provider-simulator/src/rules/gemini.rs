//! The Gemini API: <https://ai.google.dev/api/generate-content>. The words of the refusals are the provider's.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::*;
use crate::models;
use crate::request::field;

/// The members of a request, of a content and of a part, in camel case. Google refuses any other.
/// <https://ai.google.dev/api/generate-content#request-body>, <https://ai.google.dev/api/caching#Content>
const MEMBERS: [&str; 9] = [
    "model", "contents", "tools", "toolConfig", "safetySettings", "systemInstruction",
    "generationConfig", "cachedContent", "labels",
];
const OF_CONTENT: [&str; 2] = ["role", "parts"];
/// What a part is; it is exactly one of these.
const DATA: [&str; 7] = [
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
];
/// What a part may have beside it.
const BESIDE: [&str; 4] = [
    "thought", "thoughtSignature", "videoMetadata", "partMetadata",
];
/// <https://ai.google.dev/api/caching#Schema>
const OF_SCHEMA: [&str; 22] = [
    "type", "format", "title", "description", "nullable", "enum", "maxItems", "minItems",
    "properties", "required", "minProperties", "maxProperties", "minLength", "maxLength",
    "pattern", "example", "anyOf", "propertyOrdering", "default", "items", "minimum", "maximum",
];

fn wrong(rule: &'static Rule, message: impl Into<String>) -> Refusal {
    Refusal::new(rule, message)
}

/// A name in camel case, whichever of the two it is written in.
fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let mut rest = word.chars();
        let head = rest.next().map(|char| char.to_ascii_uppercase());
        name + &head.into_iter().chain(rest).collect::<String>()
    })
}

/// Refuses a member that is none of `known`.
fn members(value: &Value, known: &[&str], place: &str) -> Checked {
    for name in value.as_object().into_iter().flat_map(Map::keys) {
        let is_known = known.contains(&camel(name).as_str()) && !name.starts_with('_');
        hold(is_known, || {
            let at = match place.is_empty() {
                true => String::new(),
                false => format!(" at '{place}'"),
            };
            wrong(
                &GEMINI_FIELDS,
                format!(
                    "Invalid JSON payload received. Unknown name \"{name}\"{at}: Cannot find field."
                ),
            )
        })?;
    }
    Ok(())
}

pub(super) fn check(request: &Request, issued: &Issued) -> Checked {
    let has_key = request.header("x-goog-api-key").is_some()
        || request.header("authorization").is_some()
        || (request.query.as_deref().unwrap_or_default().split('&'))
            .any(|one| one.starts_with("key="));
    hold(has_key, || {
        let message = "Method doesn't allow unregistered callers (callers without established identity). Please use \
                       API Key or other form of API consumer identity to call this API.";
        wrong(&GEMINI_CREDENTIALS, message).status(403)
    })?;
    hold(request.json.is_object(), || {
        wrong(
            &GEMINI_NOT_JSON,
            "Invalid JSON payload received. Unexpected token.",
        )
    })?;
    let body = request.generated();
    if request.api == Api::GeminiCount {
        members(
            &request.json,
            &[&MEMBERS[..], &["generateContentRequest"]].concat(),
            "",
        )?;
    }
    if request.api == Api::Gemini {
        members(body, &MEMBERS, "")?;
    }
    let is_cached = !field(body, "cachedContent").is_null();
    let own = ["systemInstruction", "tools", "toolConfig"];
    hold(
        !is_cached || own.iter().all(|name| field(body, name).is_null()),
        || {
            let message = "CachedContent can not be used with GenerateContent request setting system_instruction, tools \
                           or tool_config.";
            wrong(&GEMINI_CACHED, message)
        },
    )?;
    let contents = request.messages();
    hold(!contents.is_empty(), || {
        let message = "* GenerateContentRequest.contents: contents is not specified\n";
        wrong(&GEMINI_CONTENTS, message)
    })?;
    for (at, content) in contents.iter().enumerate() {
        check_content(at, content)?;
    }
    offered(body)?;
    turns(contents)?;
    signatures(request.model(), contents, issued)
}

/// One content by itself: its role and its parts.
fn check_content(at: usize, content: &Value) -> Checked {
    let place = format!("contents[{at}]");
    members(content, &OF_CONTENT, &place)?;
    let role = content
        .get("role")
        .map(|role| role.as_str().unwrap_or_default());
    hold(
        role.is_none_or(|role| ["user", "model", "function"].contains(&role)),
        || wrong(&GEMINI_ROLE, "Please use a valid role: user, model."),
    )?;
    let parts = entries(&content["parts"]);
    hold(!parts.is_empty(), || {
        let message =
            format!("* GenerateContentRequest.{place}.parts: contents.parts must not be empty.\n");
        wrong(&GEMINI_PARTS, message)
    })?;
    for (one, part) in parts.iter().enumerate() {
        let place = format!("{place}.parts[{one}]");
        members(part, &[&DATA[..], &BESIDE].concat(), &place)?;
        let data = DATA.iter().filter(|name| !field(part, name).is_null());
        hold(data.count() == 1, || {
            let message = format!(
                "* GenerateContentRequest.{place}.data: required oneof field 'data' must have one initialized field\n"
            );
            wrong(&GEMINI_PARTS, message)
        })?;
        let is_signed = field(part, "thoughtSignature").is_string();
        hold(part["text"] != "" || is_signed, || {
            let message = "Unable to submit request because it has an empty text parameter.";
            wrong(&GEMINI_PARTS, message)
        })?;
        for name in ["functionCall", "functionResponse"] {
            let function = field(part, name);
            let named = function["name"].as_str().unwrap_or_default();
            hold(function.is_null() || !named.is_empty(), || {
                let message = format!(
                    "* GenerateContentRequest.{place}.{name}.name: Name cannot be empty.\n"
                );
                wrong(&GEMINI_PARTS, message)
            })?;
        }
        let answer = &field(part, "functionResponse");
        hold(answer.is_null() || answer["response"].is_object(), || {
            let message = format!(
                "Invalid value at '{place}.function_response.response' (type.googleapis.com/google.protobuf.Struct)"
            );
            wrong(&GEMINI_PARTS, message)
        })?;
    }
    Ok(())
}

/// The tools that are offered. <https://ai.google.dev/api/caching#FunctionDeclaration>
fn offered(body: &Value) -> Checked {
    let mut names = HashSet::new();
    for (at, tool) in entries(&body["tools"]).iter().enumerate() {
        for (one, declared) in entries(field(tool, "functionDeclarations"))
            .iter()
            .enumerate()
        {
            let place = format!("tools[{at}].function_declarations[{one}]");
            let name = declared["name"].as_str().unwrap_or_default();
            let begins =
                name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
            let plain = name.replace(['.', ':'], "_");
            hold(begins && is_plain(&plain, 64), || {
                let message = format!(
                    "* GenerateContentRequest.{place}.name: [FIELD_INVALID] Invalid function name. Must start with a \
                     letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or \
                     dashes (-), with a maximum length of 64.\n"
                );
                wrong(&GEMINI_TOOLS, message)
            })?;
            hold(names.insert(name), || {
                wrong(
                    &GEMINI_TOOLS,
                    format!("Duplicate function declaration found: {name}"),
                )
            })?;
            check_schema(&declared["parameters"], &format!("{place}.parameters"))?;
            let schema = field(declared, "parametersJsonSchema");
            hold(schema.is_null() || declared["parameters"].is_null(), || {
                let message = format!(
                    "{place}: parameters and parameters_json_schema are mutually exclusive."
                );
                wrong(&GEMINI_TOOLS, message)
            })?;
            hold(schema.is_null() || tools::is_schema(schema).is_ok(), || {
                wrong(
                    &GEMINI_TOOLS,
                    format!("{place}.parameters_json_schema is no JSON schema."),
                )
            })?;
        }
    }
    Ok(())
}

/// Google's own schemas, a part of OpenAPI's.
fn check_schema(schema: &Value, place: &str) -> Checked {
    members(schema, &OF_SCHEMA, place)?;
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        check_schema(property, &format!("{place}.properties[{name}].value"))?;
    }
    for one in entries(&schema["anyOf"]) {
        check_schema(one, &format!("{place}.any_of"))?;
    }
    match &schema["items"] {
        Value::Null => Ok(()),
        items => check_schema(items, &format!("{place}.items")),
    }
}

fn is_model(content: &Value) -> bool {
    content["role"] == "model"
}

fn functions<'v>(content: &'v Value, name: &'static str) -> impl Iterator<Item = &'v Value> {
    let parts = entries(&content["parts"]).iter();
    parts
        .map(move |part| field(part, name))
        .filter(|one| !one.is_null())
}

/// <https://ai.google.dev/gemini-api/docs/function-calling>: the conversation begins and ends with the user; the model does
/// not speak twice; as many responses as calls follow right after them, and belong to them.
fn turns(contents: &[Value]) -> Checked {
    for (at, content) in contents.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| contents.get(at));
        let calls = functions(content, "functionCall").count();
        let answers: Vec<&Value> = functions(content, "functionResponse").collect();
        hold(calls == 0 || is_model(content), || {
            wrong(
                &GEMINI_ROLE,
                "Please ensure that function call turn has the role model.",
            )
        })?;
        if is_model(content) {
            let follows_user = before.is_some_and(|before| !is_model(before));
            hold(follows_user, || {
                let message = match calls {
                    0 => "Please ensure that multiturn requests alternate between user and model.",
                    _ => {
                        "Please ensure that function call turn comes immediately after a user turn or after a function \
                         response turn."
                    }
                };
                wrong(&GEMINI_TURNS, message)
            })?;
            hold(answers.is_empty(), || {
                wrong(
                    &GEMINI_ROLE,
                    "Please ensure that function response turn has the role user.",
                )
            })?;
        }
        let asked: Vec<&Value> = before.map_or_else(Vec::new, |before| {
            functions(before, "functionCall").collect()
        });
        hold(!asked.is_empty() || answers.is_empty(), || {
            let message = "Please ensure that function response turn comes immediately after a function call turn.";
            wrong(&GEMINI_RESPONSES, message)
        })?;
        hold(asked.len() == answers.len(), || {
            let message = "Please ensure that the number of function response parts is equal to the number of function \
                           call parts of the function call turn.";
            wrong(&GEMINI_RESPONSES, message)
        })?;
        // "Populated by the client to match the corresponding function call" of name and id.
        let mut open = asked;
        for answer in answers {
            let belongs = |call: &&Value| {
                let id = answer["id"].as_str();
                call["name"] == answer["name"] && id.is_none_or(|id| call["id"] == id)
            };
            let place = open.iter().position(belongs);
            let Some(place) = place else {
                let message = format!(
                    "No function call belongs to the function response {}.",
                    answer["name"]
                );
                return Err(wrong(&GEMINI_RESPONSES, message));
            };
            open.remove(place);
        }
    }
    hold(contents.last().is_some_and(|last| !is_model(last)), || {
        let message =
            "Please ensure that multiturn requests end with a user role or a function response.";
        wrong(&GEMINI_TURNS, message)
    })
}

/// <https://ai.google.dev/gemini-api/docs/thought-signatures>: in the current turn, the first call of each step has the
/// signature that it was made with. Models before Gemini 3 do not insist.
fn signatures(model: &str, contents: &[Value], issued: &Issued) -> Checked {
    if !models::names_calls(model) {
        return Ok(());
    }
    let asks = |content: &&Value| {
        let is_answer = functions(content, "functionResponse").next().is_some();
        !is_model(content) && !is_answer
    };
    let turn = contents
        .iter()
        .rposition(|content| asks(&content))
        .unwrap_or(0);
    for (at, content) in contents.iter().enumerate().skip(turn) {
        let mut parts = entries(&content["parts"]).iter();
        let first = parts.find(|part| !field(part, "functionCall").is_null());
        let Some(part) = first else { continue };
        let call = field(part, "functionCall");
        let was_signed = issued.signed_calls.contains(&call_of(call));
        hold(
            !was_signed || field(part, "thoughtSignature").is_string(),
            || {
                let message = format!(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
                 correctly, and missing thought_signature may lead to degraded model performance. Additional data, \
                 function call `default_api:{}` , position {}.",
                    call["name"].as_str().unwrap_or_default(),
                    at + 1
                );
                wrong(&GEMINI_SIGNATURE, message)
            },
        )?;
    }
    Ok(())
}
