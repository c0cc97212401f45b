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
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_question_is_added_and_nothing_else_changes_that_a_cache_goes_by() {
        let body = r#"{ "model":"m", "stream" : true,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":"Hi 1e5"}], "tools":[{"b":1.0,"a":2}] }"#;
        let body = SplitBody::split(body, Some(Format::OpenAiChat)).unwrap();
        let text = continued(&body, "What \"now\"?").unwrap();
        assert!(
            text.contains(r#"{"role":"user","content":"Hi 1e5"}"#)
                && text.contains(r#"{"b":1.0,"a":2}"#)
        );
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["stream"], false);
        assert_eq!(value["stream_options"], Value::Null);
        assert_eq!(value["messages"][1]["content"], "What \"now\"?");
    }

    #[test]
    fn where_no_text_can_come_nothing_is_asked() {
        for member in [
            r#""tool_choice":"required""#,
            r#""tool_choice":{"type":"any"}"#,
            r#""response_format":{"type":"json_schema","json_schema":{}}"#,
        ] {
            let body = format!(r#"{{"messages":[{{"role":"user","content":"Hi"}}],{member}}}"#);
            let body = SplitBody::split(body, Some(Format::OpenAiChat)).unwrap();
            assert_eq!(continued(&body, "?"), None, "{member}");
        }
        let gemini = |member: &str| {
            let user = r#"{"role":"user","parts":[{"text":"Hi"}]}"#;
            let body = format!(r#"{{"contents":[{user}]{member}}}"#);
            let body = SplitBody::split(body, Some(Format::Gemini)).unwrap();
            continued(&body, "?")
        };
        for member in [
            r#","toolConfig":{"functionCallingConfig":{"mode":"ANY"}}"#,
            r#","generation_config":{"responseMimeType":"application/json"}"#,
        ] {
            assert_eq!(gemini(member), None, "{member}");
        }
        let asked = gemini("").unwrap();
        assert!(
            asked.ends_with(r#",{"role":"user","parts":[{"text":"?"}]}]}"#),
            "{asked}"
        );
    }
}
