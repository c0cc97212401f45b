//! Reads, adds and forbids tools in a request body.
//!
//! An engine can offer tools of its own to the model. [`with_tools`] adds them to a body in the body's
//! format, and [`tool_in`] formats a single one. An engine can also require that the model calls no
//! tool for now, and then the same function makes the body say so.
//!
//! [`tool_names`] tells which names are already taken. All functions work on the JSON text and keep
//! the rest of the body byte for byte. Running the tools is left to the caller.

use std::ops::Range;

use contexture_engine_api::ToolSpec;

use super::body::{BodySpans, tools_of};
use super::json::{Edits, Raw, quote, skip_space};
use super::splice::insert_member;
use super::{Format, FormatError};

/// Returns the names of the tools in a JSON list, including those inside namespaces. Entries
/// without a name are skipped. If the text is not a list, the result is empty.
pub fn tool_names(tools: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lists = vec![Raw::trusted(tools, 0..tools.len())];
    while let Some(list) = lists.pop() {
        for tool in list.elements() {
            let inner = tool.get("function").filter(|inner| inner.is_object());
            names.extend(inner.unwrap_or(tool).get_string("name"));
            // A namespace contains tools of its own, in a list of the same form.
            lists.extend(tool.get("tools").filter(|tools| tools.is_array()));
        }
    }
    names
}

/// Returns the JSON of a tool as a request body of this format lists it. Formats other than
/// Anthropic and Responses get the form of OpenAI chat completions.
pub fn tool_in(tool: &ToolSpec, format: Format) -> String {
    let (name, description) = (quote(&tool.name), quote(&tool.description));
    let schema = &tool.parameters;
    match format {
        Format::Anthropic => {
            format!("{{\"name\":{name},\"description\":{description},\"input_schema\":{schema}}}")
        }
        Format::OpenAiResponses => format!(
            "{{\"type\":\"function\",\"name\":{name},\"description\":{description},\"parameters\":{schema}}}"
        ),
        _ => format!(
            "{{\"type\":\"function\",\"function\":{{\"name\":{name},\"description\":{description},\"parameters\":{schema}}}}}"
        ),
    }
}

/// Returns the JSON of a list of tools, each as [`tool_in`] writes it.
pub fn tool_list(tools: &[ToolSpec], format: Format) -> String {
    let all: Vec<String> = tools.iter().map(|tool| tool_in(tool, format)).collect();
    format!("[{}]", all.join(","))
}

/// Returns the body with these tools after its own. If `denied` is set, the body also forbids
/// every tool call. If the body has no list of tools but an item at its head has one, the tools
/// are added to that list, because the model looks there.
///
/// # Errors
/// Fails if the body is not valid JSON, or if it is a bare list rather than an object.
pub fn with_tools(
    text: &str,
    format: Format,
    tools: &[&ToolSpec],
    denied: bool,
) -> Result<String, FormatError> {
    let start = skip_space(text, 0);
    let body = BodySpans::scan(text, start).map_err(|error| FormatError::json(text, 0, error))?;
    let raw = Raw::trusted(text, body.span.clone());
    if !raw.is_object() {
        return Err(FormatError::Window("a bare list takes no tools".to_owned()));
    }
    let mut edits = Edits::default();
    let added: Vec<String> = tools.iter().map(|tool| tool_in(tool, format)).collect();
    let added = added.join(",");
    let leading = body.items.iter().take(body.leading_system(text));
    let brought = |item: &Range<usize>| tools_of(Raw::trusted(text, item.clone()));
    // The request's own list comes first. If the request has none, the model finds its tools in
    // the last item at the head that has some.
    let own = (body.tools.clone()).or_else(|| leading.rev().find_map(brought));
    match own.clone().map(|span| Raw::trusted(text, span)) {
        _ if added.is_empty() => {}
        Some(own) if own.is_array() => {
            let end = own.span().end - 1;
            let comma = if own.elements().next().is_some() {
                ","
            } else {
                ""
            };
            edits.replace(end..end, format!("{comma}{added}"));
        }
        Some(own) => edits.replace(own.span(), format!("[{added}]")),
        None => insert_member(raw, "tools", &format!("[{added}]"), &mut edits),
    }
    let text = edits.apply(text, 0..text.len());
    // A provider rejects a body that has `tool_choice` but no tools.
    let has_tools = !added.is_empty() || own.is_some();
    if !denied || !has_tools {
        return Ok(text);
    }
    let none = match format {
        Format::Anthropic => "{\"type\":\"none\"}",
        _ => "\"none\"",
    };
    let start = skip_space(&text, 0);
    let raw = Raw::trusted(&text, start..text.trim_end().len());
    let mut edits = Edits::default();
    match raw.get("tool_choice") {
        Some(choice) => edits.replace(choice.span(), none),
        None => insert_member(raw, "tool_choice", none, &mut edits),
    }
    Ok(edits.apply(&text, 0..text.len()))
}
