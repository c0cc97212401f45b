//! Fixes the tool definitions of a request body.
//!
//! [`edit`] brings each tool into the form of the target format. A tool with a name that occurs
//! before is dropped, and so is a tool that the format cannot express. Names are made plain and
//! schemas become those of an object, as the providers require.
//!
//! If no tool changes, the list keeps its bytes, which matters because the tools are at the
//! very start of the cached prompt. The choice of tools is left alone.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Format, Notes, is_plain, mend_name, string_of};
use crate::json::{Edits, Raw};

/// Adds the edits that make the provider accept the tools of a body. If the list is not valid
/// JSON, nothing changes.
pub(super) fn edit(tools: Raw<'_>, to: Format, notes: &mut Notes, edits: &mut Edits) {
    let raws: Vec<&str> = tools.elements().map(Raw::text).collect();
    let Some(old) = super::parsed(&raws) else {
        return;
    };
    let new = match to {
        Format::Gemini => super::gemini::mend_tools(&old, notes),
        _ => mended_list(&old, to, notes),
    };
    if new != old {
        edits.replace(tools.span(), super::written(&old, &raws, &new));
    }
}

fn mended_list(old: &[Value], to: Format, notes: &mut Notes) -> Vec<Value> {
    let mut names = HashSet::new();
    let mut new = Vec::new();
    for tool in old {
        match mended(tool.clone(), to, notes) {
            Some(tool) if is_new(&tool, &mut names) => new.push(tool),
            Some(_) => notes.one("a repeated tool was left out"),
            None => notes.one("a tool that the format cannot express was left out"),
        }
    }
    new
}

/// Whether no earlier tool has the same name. Tools without a name are always new.
fn is_new(tool: &Value, names: &mut HashSet<String>) -> bool {
    let name = tool["function"]["name"].as_str().or(tool["name"].as_str());
    name.is_none_or(|name| names.insert(name.to_owned()))
}

/// Returns a tool in the form of the format `to`, or `None` if that format cannot express it.
fn mended(mut tool: Value, to: Format, notes: &mut Notes) -> Option<Value> {
    let kind = string_of(&tool["type"]);
    match to {
        Format::OpenAiChat => match kind.as_str() {
            "custom" if tool["custom"].is_object() => Some(tool),
            "function" if tool["function"].is_object() => {
                mend_function(&mut tool["function"], "parameters", notes)?;
                Some(tool)
            }
            "function" => {
                let members = tool.as_object()?.iter().filter(|(key, _)| *key != "type");
                let function: serde_json::Map<_, _> = members
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                mended(json!({"type": "function", "function": function}), to, notes)
            }
            _ => None,
        },
        Format::OpenAiResponses => match kind.as_str() {
            "function" => {
                mend_function(&mut tool, "parameters", notes)?;
                Some(tool)
            }
            "" => None,
            _ => Some(tool),
        },
        _ => match kind.as_str() {
            "" | "custom" => {
                mend_function(&mut tool, "input_schema", notes)?;
                Some(tool)
            }
            "function" => {
                let inner = match tool["function"].is_object() {
                    true => tool["function"].clone(),
                    false => tool,
                };
                let mut made = json!({"name": inner["name"], "input_schema": inner["parameters"]});
                if inner["description"].is_string() {
                    made["description"] = inner["description"].clone();
                }
                mended(made, to, notes)
            }
            // A tool that the provider runs has a type of its own, which contains a version.
            _ if is_plain(tool["name"].as_str().unwrap_or_default()) || kind == "mcp_toolset" => {
                Some(tool)
            }
            _ => None,
        },
    }
}

/// Fixes a function's name and schema. `None` if it has no name, because no provider accepts
/// that.
fn mend_function(function: &mut Value, schema: &str, notes: &mut Notes) -> Option<()> {
    if function["name"].as_str().is_none_or(str::is_empty) {
        return None;
    }
    mend_name(function, notes);
    let needs_one = schema == "input_schema";
    let is_object = function[schema]["type"] == "object";
    // OpenAI allows a function without parameters, and Anthropic does not.
    let may_lack = !needs_one && (function[schema].is_null() || function[schema] == json!({}));
    if !is_object && !may_lack {
        match function[schema]
            .as_object_mut()
            .filter(|schema| !schema.contains_key("type"))
        {
            Some(schema) => {
                schema.insert("type".to_owned(), json!("object"));
            }
            None => function[schema] = json!({"type": "object"}),
        }
        notes.one("a tool's schema was changed to that of an object");
    }
    Some(())
}
