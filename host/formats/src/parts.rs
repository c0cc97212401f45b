//! The JSON of new messages and of new parts of messages.

use super::Format;
use super::gemini;
use super::json::quote;

/// Returns the JSON of a content part with a text. `quoted` is the text as a JSON string. Without a
/// type, it is a part of Gemini's.
pub(super) fn text_part(part_type: &str, quoted: &str) -> String {
    match part_type {
        "" => format!("{{\"text\":{quoted}}}"),
        part_type => format!("{{\"type\":\"{part_type}\",\"text\":{quoted}}}"),
    }
}

/// The type of a text part in this format. The Responses API distinguishes what the model wrote
/// from what it was given. Gemini's parts have no type, so it is empty.
pub(super) fn part_type(format: Format, role: &str) -> &'static str {
    match (format, role) {
        (Format::Gemini, _) => "",
        (Format::OpenAiResponses | Format::Codex, "assistant") => "output_text",
        (Format::OpenAiResponses | Format::Codex, _) => "input_text",
        _ => "text",
    }
}

/// Returns the JSON of a message in this format that has this text and nothing else.
pub(super) fn new_message(format: Format, role: &str, text: &str) -> String {
    if format == Format::Gemini {
        return gemini::content(role, &[text_part("", &quote(text))]);
    }
    let (role, text) = (quote(role), quote(text));
    match format {
        Format::OpenAiResponses | Format::Codex => {
            format!("{{\"type\":\"message\",\"role\":{role},\"content\":{text}}}")
        }
        _ => format!("{{\"role\":{role},\"content\":{text}}}"),
    }
}
