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
