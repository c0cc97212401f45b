//! Reads what a message contains besides text, calls, thinking and images.
//!
//! Providers run some tools themselves, such as web search, and put the calls and results into the
//! message of the assistant. Documents have titles, and a document in base64 may contain text. All
//! of this should be found by search, but it has many shapes, and new ones appear often.
//!
//! So [`in_raw`] parses the JSON of a message and collects every string and number in such items,
//! except for those under the keys in [`NAMES`]. Items that other code reads are in [`READ`] and
//! are skipped. A message without any of the [`HINTS`] is not parsed at all.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use crate::wire_items::wire_items;

/// Substrings of the type names of items that this module reads. Few messages contain any of them,
/// and only those are parsed.
const HINTS: [&str; 10] = [
    "_call\"",
    "_tool_result\"",
    "tool_use\"",
    "mcp_",
    "document\"",
    "file\"",
    "search_result\"",
    "program",
    "executableCode\"",
    "codeExecutionResult\"",
];

/// The types of items that are read elsewhere or contain nothing readable.
const READ: [&str; 24] = [
    "", "text", "input_text", "output_text", "summary_text", "refusal", "thinking",
    "redacted_thinking", "reasoning", "image", "image_url", "input_image", "input_audio", "audio",
    "tool_use", "tool_result", "message", "function_call", "custom_tool_call", "compaction",
    "compaction_summary", "context_compaction", "item_reference", "assistant",
];

/// The keys under which items store ids, states or encrypted data. Their values are not searched.
const NAMES: [&str; 23] = [
    "type",
    "id",
    "call_id",
    "tool_use_id",
    "status",
    "outcome",
    "role",
    "caller",
    "container_id",
    "file_id",
    "fingerprint",
    "media_type",
    "encrypted_content",
    "encrypted_index",
    "encrypted_stdout",
    "signature",
    "cache_control",
    "citations",
    "annotations",
    "execution",
    "created_by",
    "approval_request_id",
    "format",
];

/// The members of Gemini's parts, which have no type, that this module reads.
const CODE: [&str; 2] = ["executableCode", "codeExecutionResult"];

/// Base64 with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A word of more bytes than this is treated as base64 if it has only its characters.
const LONGEST_WORD: usize = 512;

/// Returns the searchable texts in the JSON of a message, one for each item or part that has any.
pub(super) fn in_raw(raw: &str) -> Vec<String> {
    if !HINTS
        .iter()
        .any(|hint| memchr::memmem::find(raw.as_bytes(), hint.as_bytes()).is_some())
    {
        return Vec::new();
    }
    let mut texts = Vec::new();
    for item in wire_items(raw) {
        let message = item
            .get("message")
            .or_else(|| item.get("payload"))
            .unwrap_or(&item);
        let kind = kind_of(message);
        // Only a message has parts to read. The content of a tool result is its text, which is read
        // elsewhere.
        let parts = message.get("content").or_else(|| message.get("parts"));
        match parts.and_then(Value::as_array) {
            Some(parts) if message.get("role").is_some() => {
                texts.extend(parts.iter().filter_map(of_part));
            }
            _ if message.get("role").is_some() || kind.ends_with("_output") || is_call(message) => {
            }
            _ => texts.extend(of_part(message)),
        }
    }
    texts
}

fn kind_of(part: &Value) -> &str {
    part.get("type").and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether an item is a call that a later item answers. Such calls are read with the calls
/// of the message.
fn is_call(item: &Value) -> bool {
    kind_of(item).ends_with("_call") && item.get("call_id").is_some_and(Value::is_string)
}

fn of_part(part: &Value) -> Option<String> {
    let fields = part.as_object()?;
    let mut texts = Vec::new();
    for code in CODE.iter().filter_map(|member| fields.get(*member)) {
        collect(code, &mut texts);
    }
    match kind_of(part) {
        kind if READ.contains(&kind) => {}
        "document" | "file" | "input_file" => of_document(fields, &mut texts),
        _ => collect(part, &mut texts),
    }
    Some(texts.join("\n")).filter(|text| !text.is_empty())
}

/// Collects the names of a document, and its content if that is base64 text or a list of parts. A
/// content that is one plain string already belongs to the text of the message.
fn of_document(document: &Map<String, Value>, texts: &mut Vec<String>) {
    let inner = document
        .get("file")
        .and_then(Value::as_object)
        .unwrap_or(document);
    for key in ["title", "context", "filename"] {
        let text = document
            .get(key)
            .or_else(|| inner.get(key))
            .and_then(Value::as_str);
        texts.extend(text.map(str::to_owned));
    }
    let source = document.get("source");
    if let Some(parts) = source.and_then(|source| source.get("content")?.as_array()) {
        parts.iter().for_each(|part| collect(part, texts));
    }
    let of_source = || {
        let source = source?;
        let mime = source.get("media_type")?.as_str()?;
        Some((mime, source.get("data")?.as_str()?))
    };
    let of_url = || {
        inner
            .get("file_data")?
            .as_str()?
            .strip_prefix("data:")?
            .split_once(";base64,")
    };
    let is_text = |mime: &str| mime.starts_with("text/") || mime == "application/json";
    let is_base64 = source.and_then(|source| source.get("type")?.as_str()) == Some("base64");
    if let Some((mime, data)) = of_source().filter(|_| is_base64).or_else(of_url)
        && is_text(mime)
    {
        texts.extend(decoded(data));
    }
}

/// Decodes base64 to text. Returns None if it has other characters or does not decode to UTF-8.
fn decoded(base64: &str) -> Option<String> {
    // Some clients wrap base64.
    let lines: String = base64.split_ascii_whitespace().collect();
    String::from_utf8(BASE64.decode(lines).ok()?).ok()
}

/// Collects the texts in a value at any depth. A string that contains JSON is parsed first.
fn collect(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) if text.is_empty() || is_base64(text) => {}
        Value::String(text) => match text.trim_start().starts_with(['{', '[']) {
            // Arguments and results of hosted tools are often JSON in a string.
            true => match serde_json::from_str(text) {
                Ok(inner) => collect(&inner, texts),
                Err(_) => texts.push(text.clone()),
            },
            false => texts.push(text.clone()),
        },
        Value::Array(list) => list.iter().for_each(|value| collect(value, texts)),
        Value::Object(fields) => {
            for (key, value) in fields {
                if !NAMES.contains(&key.as_str()) {
                    collect(value, texts);
                }
            }
        }
        Value::Number(number) => texts.push(number.to_string()),
        _ => {}
    }
}

fn is_base64(text: &str) -> bool {
    text.starts_with("data:")
        || text.len() > LONGEST_WORD
            && text
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosted_tools_did_is_read_and_what_is_read_elsewhere_is_not() {
        let picture = "iVBORw0KGgo".repeat(90);
        let cases = [
            (r#"{"type":"web_search_call","id":"ws","status":"completed","action":{"type":"search","query":"tide tables"}}"#.to_owned(), vec!["tide tables"]),
            (r#"{"type":"file_search_call","id":"i","queries":["q"],"results":[{"file_id":"f","filename":"a.md","text":"found it"}]}"#.to_owned(), vec!["a.md\nq\nfound it", "q\na.md\nfound it"]),
            (format!(r#"{{"type":"mcp_call","id":"i","server_label":"maps","name":"route","arguments":"{{\"to\":\"Ghent\"}}","output":"[{{\"type\":\"image\",\"data\":\"{picture}\"}}]"}}"#), vec!["Ghent\nroute\nmaps", "maps\nroute\nGhent"]),
            (r#"{"role":"assistant","content":[{"type":"text","text":"said"},{"type":"server_tool_use","id":"t","name":"web_search","input":{"query":"tides"}},{"type":"tool_use","id":"u","name":"x","input":{"document":"y"}}]}"#.to_owned(), vec!["tides\nweb_search", "web_search\ntides"]),
            (r#"{"role":"user","content":[{"type":"document","title":"Charter","source":{"type":"base64","media_type":"text/plain","data":"bGV0IGl0IGJl"}}]}"#.to_owned(), vec!["Charter\nlet it be"]),
            (r#"{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}"#.to_owned(), vec![""]),
            (r#"{"type":"shell_call_output","call_id":"c","output":[{"stdout":"in the text"}]}"#.to_owned(), vec![""]),
            (r#"{"role":"user","content":"say \"function_call\""}"#.to_owned(), vec![""]),
            (r#"{"role":"model","parts":[{"text":"said"},{"executableCode":{"language":"PYTHON","code":"print(1)"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"printed"}}]}"#.to_owned(), vec!["PYTHON\nprint(1)|printed", "print(1)\nPYTHON|printed"]),
            (r#"{"type":"mcp_call","id":"i","name":"half \ud83d","output":"found"}"#.to_owned(), vec!["half \u{fffd}\nfound"]),
        ];
        for (raw, expected) in cases {
            let found = in_raw(&raw).join("|");
            assert!(expected.contains(&found.as_str()), "{found:?} in {raw}");
        }
    }
}
