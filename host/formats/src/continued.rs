//! Appends a question to a request body, for a model that has the rest of the body in its
//! prompt cache.
//!
//! Asking for a summary this way is cheap, because the provider has already processed the
//! conversation. [`continued`] keeps every byte that the cache depends on: the messages, the
//! system prompt and the tools. It only turns streaming off, because the answer is needed as a
//! whole.
//!
//! A body that forces a tool call or JSON output cannot be used, because the answer would not
//! be text. The caller then builds a request of its own.

use serde_json::json;

use super::{BodyEdits, Format, SplitBody, WireBody, gemini};

/// Returns the body with the question as the next message of the user, to be answered as a
/// whole and not as a stream. Everything that the prompt cache depends on stays unchanged.
/// `None` if the answer could not be text, because the body requires a tool call or JSON of
/// some schema.
pub fn continued<T: AsRef<str>>(body: &SplitBody<T>, question: &str) -> Option<String> {
    let wire = body.wire();
    if !answers_in_text(&wire) {
        return None;
    }
    let question = match wire.format {
        Format::Gemini => json!({ "role": "user", "parts": [{ "text": question }] }),
        _ => json!({ "role": "user", "content": question }),
    };
    let question = question.to_string();
    let own = wire.messages.iter().enumerate();
    let messages = own
        .map(|(at, raw)| (Some(at), *raw))
        .chain([(None, question.as_str())])
        .collect();
    // The provider rejects `stream_options` if it does not stream.
    let values = [("stream", "false"), ("stream_options", "null")];
    let asked = wire.with_messages(messages);
    let written = asked.write(&BodyEdits::default().values(&values));
    Some(written.body.text.into_owned())
}

/// Whether the model may answer the body in plain text. It may not if the body requires a tool
/// call or another output format.
fn answers_in_text(wire: &WireBody<'_>) -> bool {
    if wire.format == Format::Gemini {
        let of = |names: [&str; 2]| names.iter().find_map(|name| wire.member(name));
        // The modes are `AUTO`, `NONE`, `ANY` and `VALIDATED`. Only a JSON answer has a MIME type.
        let forces = |config: &str| config.contains("\"ANY\"");
        let is_json = |options: &str| options.contains("\"application/json\"");
        return !of(gemini::TOOL_CONFIG).is_some_and(forces) && !of(OPTIONS).is_some_and(is_json);
    }
    let is_free = |choice: &str| choice.contains("\"auto\"") || choice.contains("\"none\"");
    let is_text = |format: &str| format == "null" || format.contains("\"text\"");
    wire.member("tool_choice").is_none_or(is_free)
        && wire.member("response_format").is_none_or(is_text)
        && wire.member("output_format").is_none_or(is_text)
}

/// Both spellings of the member with the options of an answer of the Gemini API.
const OPTIONS: [&str; 2] = ["generationConfig", "generation_config"];

#[cfg(test)]
mod tests;
