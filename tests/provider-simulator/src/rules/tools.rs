//! Tools: their names, and the schemas of their arguments.

use std::collections::HashSet;

use serde_json::Value;

use super::{Checked, Refusal, TOOL_NAME, TOOL_SCHEMA, TOOL_TWICE, entries, hold, is_plain};

const TYPES: [&str; 7] = [
    "object", "array", "string", "number", "integer", "boolean", "null",
];

/// <https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools>: the name matches
/// `^[a-zA-Z0-9_-]{1,128}$` (the API reference; 64 in older models), `input_schema` is a JSON schema of an object.
pub(super) fn anthropic(tools: &[Value]) -> Checked {
    let mut names = HashSet::new();
    for (at, tool) in tools.iter().enumerate() {
        let kind = tool["type"].as_str().unwrap_or("custom");
        let name = tool["name"].as_str().unwrap_or_default();
        // A connector to a whole server has no name of its own.
        if kind != "mcp_toolset" {
            hold(is_plain(name, 128), || {
                let message = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'";
                Refusal::new(&TOOL_NAME, format!("tools.{at}.custom.name: {message}"))
            })?;
            hold(names.insert(name), || {
                Refusal::new(&TOOL_TWICE, "tools: Tool names must be unique.")
            })?;
        }
        if kind == "custom" {
            let schema = &tool["input_schema"];
            let wrong = |why: &str| {
                let message = format!("tools.{at}.custom.input_schema{why}");
                Refusal::new(&TOOL_SCHEMA, message)
            };
            hold(schema.is_object(), || wrong(": Field required"))?;
            hold(schema["type"] == "object", || {
                wrong(".type: Input should be 'object'")
            })?;
            let combined = ["oneOf", "allOf", "anyOf"]
                .iter()
                .any(|key| schema.get(key).is_some());
            hold(!combined, || {
                wrong(": input_schema does not support oneOf, allOf, or anyOf at the top level")
            })?;
            let draft = ": JSON schema is invalid. It must match JSON Schema draft 2020-12";
            is_schema(schema).map_err(|place| wrong(&format!("{draft} ({place})")))?;
            let keys = schema["properties"].as_object();
            for key in keys.into_iter().flat_map(|keys| keys.keys()) {
                let plain = |char: char| char.is_ascii_alphanumeric() || "_.-".contains(char);
                hold(
                    key.len() <= 64 && !key.is_empty() && key.chars().all(plain),
                    || {
                        wrong(
                            ".properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{1,64}$'",
                        )
                    },
                )?;
            }
        }
    }
    Ok(())
}

/// <https://platform.openai.com/docs/guides/function-calling>: the name is made of letters, digits, `_` and `-`, at
/// most 64 of them; `parameters` is a JSON schema of an object, or absent.
pub(super) fn openai(function: &Value, place: &str, names: &mut HashSet<String>) -> Checked {
    let name = function["name"].as_str().unwrap_or_default();
    hold(is_plain(name, 64), || {
        let message = format!(
            "Invalid '{place}.name': string does not match pattern. Expected a string that matches the pattern \
             '^[a-zA-Z0-9_-]+$', at most 64 long."
        );
        Refusal::new(&TOOL_NAME, message)
            .at(format!("{place}.name"))
            .code("invalid_value")
    })?;
    hold(names.insert(name.to_owned()), || {
        Refusal::new(
            &TOOL_TWICE,
            format!("Tool names must be unique: '{name}' is there twice."),
        )
        .at(place)
    })?;
    let schema = &function["parameters"];
    if schema.is_null() {
        return Ok(());
    }
    let wrong = |why: String| {
        let message = format!("Invalid schema for function '{name}': {why}");
        Refusal::new(&TOOL_SCHEMA, message)
            .at(format!("{place}.parameters"))
            .code("invalid_function_parameters")
    };
    hold(
        schema["type"] == "object" || schema.as_object().is_some_and(|all| all.is_empty()),
        || {
            wrong(format!(
                "schema must be a JSON Schema of 'type: \"object\"', got 'type: {}'.",
                schema["type"]
            ))
        },
    )?;
    is_schema(schema).map_err(|place| {
        wrong(format!(
            "{place} is not valid under the JSON schema of schemas."
        ))
    })?;
    if function["strict"] == true {
        is_strict(schema).map_err(wrong)?;
    }
    Ok(())
}

/// Where something is no schema: JSON Schema, draft 2020-12, <https://json-schema.org/draft/2020-12/schema>, as far as
/// the keywords go that tools use.
pub(super) fn is_schema(schema: &Value) -> Result<(), String> {
    let Some(fields) = schema.as_object() else {
        return if schema.is_boolean() {
            Ok(())
        } else {
            Err(format!("{schema}"))
        };
    };
    for (key, value) in fields {
        let right = match key.as_str() {
            "type" => {
                let known = |one: &Value| one.as_str().is_some_and(|one| TYPES.contains(&one));
                known(value)
                    || value
                        .as_array()
                        .is_some_and(|all| !all.is_empty() && all.iter().all(known))
            }
            "properties" | "$defs" | "definitions" | "patternProperties" => {
                let Some(all) = value.as_object() else {
                    return Err(key.clone());
                };
                all.values()
                    .try_for_each(is_schema)
                    .map_err(|place| format!("{key}.{place}"))?;
                true
            }
            "items"
            | "additionalProperties"
            | "not"
            | "contains"
            | "propertyNames"
            | "if"
            | "then"
            | "else" => {
                is_schema(value).map_err(|place| format!("{key}.{place}"))?;
                true
            }
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => {
                entries(value)
                    .iter()
                    .try_for_each(is_schema)
                    .map_err(|place| format!("{key}.{place}"))?;
                !entries(value).is_empty()
            }
            "required" => {
                let mut seen = HashSet::new();
                let once =
                    |one: &Value| one.as_str().is_some_and(|one| seen.insert(one.to_owned()));
                value.as_array().is_some_and(|all| all.iter().all(once))
            }
            "enum" => value.is_array(),
            "description" | "title" | "pattern" | "format" | "$ref" => value.is_string(),
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                value.is_number()
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" => value.is_u64(),
            _ => true,
        };
        if !right {
            return Err(key.clone());
        }
    }
    Ok(())
}

/// <https://platform.openai.com/docs/guides/structured-outputs>: of every object, all properties are required, and no
/// others are allowed.
fn is_strict(schema: &Value) -> Result<(), String> {
    if let Some(properties) = schema["properties"].as_object() {
        if schema["additionalProperties"] != false {
            return Err(
                "'additionalProperties' is required to be supplied and to be false.".to_owned(),
            );
        }
        let required = entries(&schema["required"]);
        if let Some(missing) = properties
            .keys()
            .find(|key| !required.iter().any(|one| one == *key))
        {
            return Err(format!(
                "'required' is required to be supplied and to be an array including every key in properties. \
                 Missing '{missing}'."
            ));
        }
        properties.values().try_for_each(is_strict)?;
    }
    if schema["items"].is_object() {
        is_strict(&schema["items"])?;
    }
    Ok(())
}
