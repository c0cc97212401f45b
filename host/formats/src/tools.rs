//! Tools in a request body: read by name, added, and forbidden.

use std::ops::Range;

use contexture_engine_api::ToolSpec;

use super::body::{Body, tools_of};
use super::json::{Edits, Raw, quote, skip_space};
use super::splice::insert_member;
use super::{Format, FormatError};

/// The names of the tools in this JSON list.
pub fn tool_names(tools: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut lists = vec![Raw::trusted(tools, 0..tools.len())];
    while let Some(list) = lists.pop() {
        for tool in list.elements() {
            let inner = tool.get("function").filter(|inner| inner.is_object());
            names.extend(inner.unwrap_or(tool).get_string("name"));
            // A namespace contains tools of its own.
            lists.extend(tool.get("tools").filter(|tools| tools.is_array()));
        }
    }
    names
}

/// A tool as it stands in a body of this format.
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

/// The body with these tools after its own. If they are `denied`, none of them may be called. If the body has no list
/// of tools but an item at its head has one, the tools are added to that list, because the model looks there.
///
/// # Errors
/// The body is not a JSON object.
pub fn with_tools(
    text: &str,
    format: Format,
    tools: &[&ToolSpec],
    denied: bool,
) -> Result<String, FormatError> {
    let start = skip_space(text, 0);
    let body = Body::scan(text, start).map_err(|error| FormatError::json(text, 0, error))?;
    let raw = Raw::trusted(text, body.span.clone());
    if !raw.is_object() {
        return Err(FormatError::Window("a bare list takes no tools".to_owned()));
    }
    let mut edits = Edits::default();
    let added: Vec<String> = tools.iter().map(|tool| tool_in(tool, format)).collect();
    let added = added.join(",");
    let leading = body.items.iter().take(body.leading_system(text));
    let brought = |item: &Range<usize>| tools_of(Raw::trusted(text, item.clone()));
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
    // A provider refuses a word on tools where there are none.
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
