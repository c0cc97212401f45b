//! Reads, adds and forbids tools in a request body.
//!
//! An engine can offer tools of its own to the model. [`tool_changes`] adds them to a body in the
//! body's format, and [`tool_in`] formats a single one. An engine can also require that the model
//! calls no tool for now, and then the same function makes the body say so.
//!
//! [`tool_names`] tells which names are already taken. Running the tools is left to the caller.

use std::ops::Range;

use contexture_engine_api::ToolSpec;

use super::body::{WireBody, tools_of};
use super::gemini;
use super::json::{Edits, Raw, insert_member, quote};
use super::{Format, FormatError};

/// Returns the names of the tools in a JSON list, including those inside namespaces. Entries
/// without a name are skipped. If the text is not a list, the result is empty.
pub fn tool_names(tools: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lists = vec![Raw::whole(tools)];
    while let Some(list) = lists.pop() {
        for tool in list.elements().flat_map(gemini::declared) {
            let inner = tool.get("function").filter(|inner| inner.is_object());
            names.extend(inner.unwrap_or(tool).get_string("name"));
            // A namespace contains tools of its own, in a list of the same form.
            lists.extend(tool.get("tools").filter(|tools| tools.is_array()));
        }
    }
    names
}

/// Returns the JSON of each tool in a JSON list, for counting. Each function that an entry of
/// Gemini's declares is a tool. If the text is not a list, the result is empty.
pub fn tool_texts(tools: &str) -> Vec<&str> {
    let list = Raw::whole(tools);
    let tools = list.elements().flat_map(gemini::declared);
    tools.map(Raw::text).collect()
}

/// Returns the JSON of a tool as a request body of this format lists it. For Gemini, it is the
/// declaration of a function. Formats without tools get the form of OpenAI chat completions.
pub fn tool_in(tool: &ToolSpec, format: Format) -> String {
    let description = quote(&tool.description);
    let schema = tool.parameters.to_string();
    function_in(format, &quote(&tool.name), Some(&description), &schema)
}

/// Returns the JSON of a function as a request body of this format lists it, from the JSON of its
/// name, its description and its schema.
pub(super) fn function_in(
    format: Format,
    name: &str,
    description: Option<&str>,
    schema: &str,
) -> String {
    let description = description.map(|description| format!("\"description\":{description},"));
    let said = format!("\"name\":{name},{}", description.unwrap_or_default());
    match format {
        Format::Anthropic => format!("{{{said}\"input_schema\":{schema}}}"),
        Format::Gemini => format!("{{{said}\"parametersJsonSchema\":{schema}}}"),
        Format::OpenAiResponses => {
            format!("{{\"type\":\"function\",{said}\"parameters\":{schema}}}")
        }
        _ => {
            format!("{{\"type\":\"function\",\"function\":{{{said}\"parameters\":{schema}}}}}")
        }
    }
}

/// Returns the JSON of a list of tools, each as [`tool_in`] writes it.
pub fn tool_list(tools: &[ToolSpec], format: Format) -> String {
    let all: Vec<String> = tools.iter().map(|tool| tool_in(tool, format)).collect();
    format!("[{}]", entries(all.join(","), format))
}

/// Returns the entries of a list of tools for these tools, which are separated by commas. Gemini
/// has all of them in one entry.
fn entries(tools: String, format: Format) -> String {
    match format {
        Format::Gemini if !tools.is_empty() => format!("{{\"functionDeclarations\":[{tools}]}}"),
        _ => tools,
    }
}

/// The changes of a body's text that add tools and forbid calls.
#[derive(Debug, Default)]
pub(super) struct ToolChanges {
    /// Changes of what the body has.
    pub(super) edits: Edits,
    /// The names and values of new members.
    pub(super) members: Vec<(&'static str, String)>,
}

impl ToolChanges {
    pub(super) fn is_empty(&self) -> bool {
        self.edits.is_empty() && self.members.is_empty()
    }
}

/// Returns the changes that add these tools after the body's own. If `denied` is set, the body also
/// forbids every tool call. If the body has no list of tools but an item at its head has one, the
/// tools are added to that list, because the model looks there.
///
/// # Errors
/// Fails if the body is a bare list rather than an object.
pub(super) fn tool_changes(
    wire: &WireBody<'_>,
    tools: &[ToolSpec],
    denied: bool,
) -> Result<ToolChanges, FormatError> {
    let (text, format, body) = (wire.text, wire.format, &wire.parts.body);
    if body.is_bare {
        return Err(FormatError::Window("a bare list takes no tools".to_owned()));
    }
    let mut changes = ToolChanges::default();
    let added: Vec<String> = tools.iter().map(|tool| tool_in(tool, format)).collect();
    let added = added.join(",");
    let leading = body.items.iter().take(wire.parts.system);
    let brought = |item: &Range<usize>| tools_of(Raw::trusted(text, item.clone()));
    // The request's own list comes first. If the request has none, the model finds its tools in
    // the last item at the head that has some.
    let own = (body.tools.clone()).or_else(|| leading.rev().find_map(brought));
    let own = own.map(|span| Raw::trusted(text, span));
    // A provider rejects a body that has a choice of tools but no tools, and Gemini one that has no
    // functions.
    let is_choice = |list: Raw<'_>| {
        format != Format::Gemini
            || list
                .elements()
                .any(|tool| gemini::declarations(tool).is_some())
    };
    let has_tools = !added.is_empty() || own.is_some_and(is_choice);
    match own {
        _ if added.is_empty() => {}
        Some(own) if own.is_array() => {
            let declared = own.elements().filter_map(gemini::declarations).last();
            let (list, added) = match declared {
                Some(declared) => (declared, added),
                None => (own, entries(added, format)),
            };
            let (end, comma) = (list.span().end - 1, list.comma());
            changes.edits.replace(end..end, format!("{comma}{added}"));
        }
        Some(own) => {
            let list = format!("[{}]", entries(added, format));
            changes.edits.replace(own.span(), list);
        }
        None => {
            let list = format!("[{}]", entries(added, format));
            changes.members.push(("tools", list));
        }
    }
    if !denied || !has_tools {
        return Ok(changes);
    }
    let (keys, none) = match format {
        Format::Gemini => (
            gemini::TOOL_CONFIG,
            "{\"functionCallingConfig\":{\"mode\":\"NONE\"}}",
        ),
        Format::Anthropic => (["tool_choice"; 2], "{\"type\":\"none\"}"),
        _ => (["tool_choice"; 2], "\"none\""),
    };
    let old = keys.iter().find_map(|key| body.value_of(key));
    match old.map(|span| Raw::trusted(text, span.clone())) {
        // A configuration of Gemini's has more members, which stay.
        Some(config) if format == Format::Gemini && config.is_object() => {
            let mode = "{\"mode\":\"NONE\"}";
            match gemini::member(config, &gemini::CALLING_CONFIG) {
                Some(old) => changes.edits.replace(old.span(), mode),
                None => {
                    let key = gemini::CALLING_CONFIG[0];
                    insert_member(config, key, mode, &mut changes.edits);
                }
            }
        }
        Some(old) => changes.edits.replace(old.span(), none),
        None => changes.members.push((keys[0], none.to_owned())),
    }
    Ok(changes)
}
