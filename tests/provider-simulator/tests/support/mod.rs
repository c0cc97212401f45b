//! Asking the simulator as a client would.
#![allow(
    clippy::unwrap_used, clippy::expect_used, dead_code, missing_docs, unreachable_pub
)]

use contexture_provider_simulator::Simulator;
use serde_json::{Value, json};

pub const MESSAGES: &str = "/v1/messages";
pub const CHAT: &str = "/v1/chat/completions";
pub const RESPONSES: &str = "/v1/responses";
pub const GEMINI: &str = "/v1beta/models/gemini-3-pro-preview:generateContent";

/// The headers that every client of a path sends.
pub fn usual_headers(path: &str) -> Vec<(&'static str, &'static str)> {
    match path {
        GEMINI => vec![("x-goog-api-key", "k")],
        _ if path.starts_with(MESSAGES) => {
            vec![("x-api-key", "k"), ("anthropic-version", "2023-06-01")]
        }
        _ => vec![("authorization", "Bearer k")],
    }
}

pub fn request(
    provider: &Simulator,
    path: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> reqwest::RequestBuilder {
    let url = format!("{}{path}", provider.base_url());
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client
        .post(url)
        .body(body)
        .header("content-type", "application/json");
    headers.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    })
}

/// A request with this body. Whether Gemini streams is in the path in place of the body.
pub fn ask(provider: &Simulator, path: &str, body: &Value) -> reqwest::RequestBuilder {
    let mut body = body.clone();
    let streams = body.as_object_mut().and_then(|body| match path {
        GEMINI => body.remove("stream"),
        _ => None,
    });
    let streaming = path.replace(":generateContent", ":streamGenerateContent?alt=sse");
    request(
        provider,
        if streams.is_some() { &streaming } else { path },
        &usual_headers(path),
        body.to_string().into_bytes(),
    )
}

/// Status and body.
pub async fn post(provider: &Simulator, path: &str, body: &Value) -> (u16, Value) {
    let response = ask(provider, path, body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// A stream, as its events and as the pieces in which it came.
pub async fn stream(provider: &Simulator, path: &str, body: &Value) -> (Vec<Value>, Vec<Vec<u8>>) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let mut response = ask(provider, path, &body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(
        response.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/event-stream")
    );
    let mut pieces = Vec::new();
    while let Some(piece) = response.chunk().await.unwrap() {
        pieces.push(piece.to_vec());
    }
    (events(&pieces.concat()), pieces)
}

/// The data of each event; of `[DONE]`, a string.
pub fn events(bytes: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(bytes).unwrap().replace("\r\n", "\n");
    assert!(
        text.is_empty() || text.ends_with("\n\n"),
        "a stream ends with a whole event: {text}"
    );
    let events = text.split_terminator("\n\n").map(|event| {
        let data = event
            .lines()
            .find_map(|line| line.strip_prefix("data: "))
            .unwrap();
        let value: Value = serde_json::from_str(data).unwrap_or_else(|_| json!(data));
        if let Some(name) = event.lines().find_map(|line| line.strip_prefix("event: ")) {
            assert_eq!(value["type"], name);
        }
        value
    });
    events.collect()
}

/// A tool with a command.
pub fn anthropic_tool(name: &str) -> Value {
    json!({"name": name, "description": "Runs a command", "input_schema": {
        "type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"],
    }})
}

pub fn chat_tool(name: &str) -> Value {
    let parameters = anthropic_tool(name)["input_schema"].clone();
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

pub fn gemini_tools(names: &[&str]) -> Value {
    let declared = names.iter().map(|name| {
        let parameters = anthropic_tool(name)["input_schema"].clone();
        json!({"name": name, "description": "Runs a command", "parameters": parameters})
    });
    json!([{"functionDeclarations": declared.collect::<Vec<_>>()}])
}

pub fn responses_tool(name: &str) -> Value {
    json!({"type": "function", "name": name, "parameters": anthropic_tool(name)["input_schema"], "strict": false})
}
