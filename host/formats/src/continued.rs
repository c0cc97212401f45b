//! A request body with a question at its end, for a model that has the rest of it in its prompt cache.

use serde_json::json;

use super::{Format, FormatError, WireBody, split};

/// The body with this question as the next message of the user's, to be answered whole and not as a stream. Everything
/// that a prompt cache goes by stays as it is. None where the answer could not be text: a tool has to be called, or
/// JSON of some schema be given.
///
/// # Errors
/// The text is no body of this format.
pub fn continued(
    body: &str,
    format: Format,
    question: &str,
) -> Result<Option<String>, FormatError> {
    let wire = split(body, Some(format))?;
    if !answers_in_text(&wire) {
        return Ok(None);
    }
    let question = json!({ "role": "user", "content": question }).to_string();
    let own = wire.messages.iter().enumerate();
    let messages: Vec<(Option<usize>, &str)> = own
        .map(|(at, raw)| (Some(at), *raw))
        .chain([(None, question.as_str())])
        .collect();
    let mut text = wire.with_messages(None, &messages);
    for (name, value) in [("stream", "false"), ("stream_options", "null")] {
        let wire = split(&text, Some(format))?;
        let Some(old) = wire.member(name) else {
            continue;
        };
        // A member's text is a part of the body's.
        let at = old.as_ptr().addr() - text.as_ptr().addr();
        let old = at..at + old.len();
        text.replace_range(old, value);
    }
    Ok(Some(text))
}

fn answers_in_text(wire: &WireBody<'_>) -> bool {
    let is_free = |choice: &str| choice.contains("\"auto\"") || choice.contains("\"none\"");
    let is_text = |format: &str| format == "null" || format.contains("\"text\"");
    wire.member("tool_choice").is_none_or(is_free)
        && wire.member("response_format").is_none_or(is_text)
        && wire.member("output_format").is_none_or(is_text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_question_is_added_and_nothing_else_changes_that_a_cache_goes_by() {
        let body = r#"{ "model":"m", "stream" : true,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":"Hi 1e5"}], "tools":[{"b":1.0,"a":2}] }"#;
        let text = continued(body, Format::OpenAiChat, "What \"now\"?")
            .unwrap()
            .unwrap();
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
            assert_eq!(
                continued(&body, Format::OpenAiChat, "?").unwrap(),
                None,
                "{member}"
            );
        }
    }
}
