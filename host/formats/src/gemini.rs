//! What is particular to the JSON of Google's Gemini API, and writes it.
//!
//! A message of this API is a *content*: a role and a list of parts. A part has no type, the name
//! of its member tells what it is. The API takes the names of members in camelCase and in
//! snake_case, so both are read. `anatomy` reads the parts.
//!
//! The facts are from Google's references of the
//! [contents](https://ai.google.dev/api/caching#Content) and of
//! [thought signatures](https://ai.google.dev/gemini-api/docs/thought-signatures).

use super::json::{Edits, Raw, insert_member, on_one_line, quote};
use super::message::Call;

/// Both spellings of a member.
pub(super) type Spellings = [&'static str; 2];

pub(super) const CALL: Spellings = ["functionCall", "function_call"];
pub(super) const RESULT: Spellings = ["functionResponse", "function_response"];
pub(super) const SIGNATURE: Spellings = ["thoughtSignature", "thought_signature"];
pub(super) const TOOL_CONFIG: Spellings = ["toolConfig", "tool_config"];
pub(super) const CALLING_CONFIG: Spellings = ["functionCallingConfig", "function_calling_config"];
pub(super) const INLINE: Spellings = ["inlineData", "inline_data"];
pub(super) const FILE: Spellings = ["fileData", "file_data"];
pub(super) const DECLARATIONS: Spellings = ["functionDeclarations", "function_declarations"];
pub(super) const SCHEMA: [&str; 3] = [
    "parameters",
    "parametersJsonSchema",
    "parameters_json_schema",
];

/// The signature of a call that another model made. Gemini 3 rejects the first call of a step
/// without one, and documents this one for calls that it did not make itself.
pub(super) const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The value of the first of these members that an object has.
pub(super) fn member<'a>(object: Raw<'a>, names: &[&str]) -> Option<Raw<'a>> {
    names.iter().find_map(|name| object.get(name))
}

/// The function call in a part.
pub(super) fn call_in(part: Raw<'_>) -> Option<Raw<'_>> {
    member(part, &CALL).filter(|call| call.is_object())
}

/// The function response in a part.
pub(super) fn result_in(part: Raw<'_>) -> Option<Raw<'_>> {
    member(part, &RESULT).filter(|result| result.is_object())
}

/// The only member of a response, if it has one of the names that programs give to a text.
pub(super) fn wrapped_text(response: Raw<'_>) -> Option<Raw<'_>> {
    const NAMES: [&str; 4] = ["output", "error", "result", "content"];
    let mut members = response.members();
    let (name, value) = members.next()?;
    let is_alone = members.next().is_none() && NAMES.contains(&name.as_ref());
    (is_alone && value.is_string()).then_some(value)
}

/// Whether a function response reports an error.
pub(super) fn is_error(response: Raw<'_>) -> bool {
    let has = |key| response.get(key).is_some_and(|value| !value.is_null());
    has("error") && !has("output")
}

/// Returns a function response that says `text` and has no media. Its other members stay.
pub(super) fn with_text(result: Raw<'_>, text: &str) -> String {
    let result = Raw::whole(result.text());
    let said = |is_error| said(text, is_error);
    let mut edits = Edits::default();
    match result.get("response") {
        Some(response) => match wrapped_text(response) {
            Some(old) => edits.replace(old.span(), quote(text)),
            None => edits.replace(response.span(), said(is_error(response))),
        },
        None => insert_member(result, "response", &said(false), &mut edits),
    }
    if let Some(parts) = result.get("parts") {
        edits.replace(parts.span(), "[]");
    }
    let text = edits.apply(result.text(), result.span());
    // The result may be in a line of a file, so its JSON must not contain a newline.
    on_one_line(&text).into_owned()
}

/// A response that says `text`.
fn said(text: &str, is_error: bool) -> String {
    let key = if is_error { "error" } else { "output" };
    format!("{{\"{key}\":{}}}", quote(text))
}

/// Returns a part that answers a call. `id` is that of the call, if it has one of its own.
pub(super) fn result_part(id: Option<&str>, name: &str, text: &str, is_error: bool) -> String {
    let id = id_member(id.unwrap_or(""));
    format!(
        "{{\"functionResponse\":{{{id}\"name\":{},\"response\":{}}}}}",
        quote(name),
        said(text, is_error)
    )
}

/// Returns a result part with these media parts beside its text.
pub(super) fn with_media(result: &str, media: &[String]) -> String {
    let raw = Raw::whole(result);
    let mut edits = Edits::default();
    if let (false, Some(result)) = (media.is_empty(), result_in(raw)) {
        insert_member(
            result,
            "parts",
            &format!("[{}]", media.join(",")),
            &mut edits,
        );
    }
    edits.apply(result, 0..result.len())
}

/// Returns a part that makes a call. `args` is the JSON of an object.
pub(super) fn call_part(call: &Call, args: &str) -> String {
    let (id, name) = (id_member(&call.id), quote(&call.name));
    format!("{{\"functionCall\":{{{id}\"name\":{name},\"args\":{args}}}}}")
}

/// The member with an id, with a comma after it. Empty if there is no id.
fn id_member(id: &str) -> String {
    match id {
        "" => String::new(),
        id => format!("\"id\":{},", quote(id)),
    }
}

/// Returns a part with a signature that stands for the missing one of another model.
pub(super) fn signed(part: &str) -> String {
    let raw = Raw::whole(part);
    let mut edits = Edits::default();
    insert_member(raw, SIGNATURE[0], &quote(FOREIGN_SIGNATURE), &mut edits);
    edits.apply(part, 0..part.len())
}

/// Returns a part with media. `data` and `mime` are in the form that they have in a JSON string.
pub(super) fn media_part(mime: Option<&str>, data: &str, is_base64: bool) -> String {
    let (key, data_key) = match is_base64 {
        true => (INLINE[0], "data"),
        false => (FILE[0], "fileUri"),
    };
    let mime = mime.map_or(String::new(), |mime| format!("\"mimeType\":\"{mime}\","));
    format!("{{\"{key}\":{{{mime}\"{data_key}\":\"{data}\"}}}}")
}

/// Returns Google's schema of parameters as a JSON schema, in which the names of types are in lower
/// case.
pub(super) fn json_schema(schema: Raw<'_>) -> String {
    let schema = Raw::whole(schema.text());
    let mut edits = Edits::default();
    let mut schemas = vec![schema];
    while let Some(next) = schemas.pop() {
        for (key, value) in next.members() {
            match key.as_ref() {
                "type" if value.is_string() => {
                    edits.replace(value.span(), value.text().to_lowercase());
                }
                "properties" => schemas.extend(value.members().map(|(_, value)| value)),
                "anyOf" | "any_of" => schemas.extend(value.elements()),
                "items" => schemas.push(value),
                _ => {}
            }
        }
    }
    edits.apply(schema.text(), schema.span())
}

/// Returns a content with these parts. Any role other than `assistant` becomes `user`.
pub(super) fn content(role: &str, parts: &[String]) -> String {
    let role = match role {
        "assistant" => "model",
        _ => "user",
    };
    format!("{{\"role\":\"{role}\",\"parts\":[{}]}}", parts.join(","))
}

/// Returns a system prompt with this text.
pub(super) fn instruction(text: &str) -> String {
    format!("{{\"parts\":[{{\"text\":{}}}]}}", quote(text))
}

/// The list of functions that an entry of a list of tools declares.
pub(super) fn declarations(tool: Raw<'_>) -> Option<Raw<'_>> {
    member(tool, &DECLARATIONS).filter(|list| list.is_array())
}

/// The functions that an entry of a list of tools declares, or the entry itself if it is no list of
/// functions.
pub(super) fn declared(tool: Raw<'_>) -> Vec<Raw<'_>> {
    declarations(tool).map_or_else(|| vec![tool], |list| list.elements().collect())
}

/// The role that a content's role means. A content without a role is the user's, and the older
/// role `function` is that of a user's content with results.
pub(super) fn role(role: Option<&str>) -> &str {
    match role {
        Some("model") => "assistant",
        None | Some("function") => "user",
        Some(role) => role,
    }
}
