//! An agent: keeps its history as the provider's clients do, and puts streams together by their events.

use std::collections::BTreeMap;

use serde_json::{Value, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    Chat,
    Responses,
    Messages,
    Gemini,
}

pub const APIS: [Api; 4] = [Api::Chat, Api::Responses, Api::Messages, Api::Gemini];

impl Api {
    /// The path of a request. Gemini's has the model, and whether it streams.
    pub fn path(self, body: &Value) -> String {
        match self {
            Self::Chat => "/v1/chat/completions".to_owned(),
            Self::Responses => "/v1/responses".to_owned(),
            Self::Messages => "/v1/messages".to_owned(),
            Self::Gemini => {
                let method = match body["stream"] == true {
                    true => "streamGenerateContent?alt=sse",
                    false => "generateContent",
                };
                let model = body["model"].as_str().unwrap();
                format!("/v1beta/models/{model}:{method}")
            }
        }
    }

    /// What leaves of a body: Gemini's has neither the model nor whether it streams.
    pub fn sent(self, body: &Value) -> Value {
        let mut body = body.clone();
        if self == Self::Gemini {
            for member in ["model", "stream"] {
                body.as_object_mut().unwrap().remove(member);
            }
        }
        body
    }

    /// The member of a body with the conversation.
    pub fn list(self) -> &'static str {
        match self {
            Self::Chat | Self::Messages => "messages",
            Self::Responses => "input",
            Self::Gemini => "contents",
        }
    }

    /// A message of a user.
    pub fn user(self, text: &str) -> Value {
        match self {
            Self::Gemini => json!({"role": "user", "parts": [{"text": text}]}),
            _ => json!({"role": "user", "content": text}),
        }
    }
}

/// An answer as the client has it.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    /// What goes into the history.
    pub items: Vec<Value>,
    pub text: String,
    /// Id, name and arguments.
    pub calls: Vec<(String, String, Value)>,
    pub usage: Value,
    /// The bytes that came.
    pub raw: String,
    /// Whether it ended as the provider's answers do.
    pub ended: bool,
    /// Whether the connection broke in the middle of the answer.
    pub broken: bool,
}

impl Said {
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Clone)]
pub struct Agent {
    pub api: Api,
    pub base: String,
    pub stream: bool,
    pub model: String,
    pub system: String,
    pub history: Vec<Value>,
    pub headers: Vec<(String, String)>,
    /// Whether the provider stores its answers, and it refers to what is not a call, as the Vercel AI SDK does.
    pub refers: bool,
    /// Whether it offers a tool of its own.
    pub has_tool: bool,
    /// What else is in its requests.
    pub more: Value,
    pub http: reqwest::Client,
}

impl Agent {
    pub fn new(api: Api, base: &str, session: &str) -> Self {
        Self {
            api,
            base: base.to_owned(),
            stream: true,
            model: match api {
                Api::Messages => "claude-sonnet-4-5",
                Api::Gemini => "gemini-2.5-pro",
                _ => "gpt-4o",
            }
            .to_owned(),
            system: "You work on a repository.".to_owned(),
            history: Vec::new(),
            headers: match session.is_empty() {
                true => Vec::new(),
                false => vec![("x-contexture-session".to_owned(), session.to_owned())],
            },
            refers: false,
            has_tool: true,
            more: json!({}),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        }
    }

    pub fn user(&mut self, text: &str) {
        self.history.push(self.api.user(text));
    }

    pub fn body(&self) -> Value {
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        let mut body = match self.api {
            Api::Messages => json!({
                "model": self.model, "max_tokens": 1024, "system": self.system, "messages": self.history,
            }),
            Api::Chat => {
                let mut messages = vec![json!({"role": "system", "content": self.system})];
                messages.extend(self.history.iter().cloned());
                json!({"model": self.model, "messages": messages})
            }
            Api::Responses => json!({
                "model": self.model, "instructions": self.system, "input": self.history, "store": false,
                "include": ["reasoning.encrypted_content"],
            }),
            Api::Gemini => json!({
                "model": self.model, "systemInstruction": {"parts": [{"text": self.system}]},
                "contents": self.history, "generationConfig": {"thinkingConfig": {"includeThoughts": true}},
            }),
        };
        if self.has_tool {
            body["tools"] = match self.api {
                Api::Messages => {
                    json!([{"name": "run", "description": "Runs a command.", "input_schema": schema}])
                }
                Api::Chat => json!([{"type": "function", "function": {
                    "name": "run", "description": "Runs a command.", "parameters": schema}}]),
                Api::Responses => json!([{
                    "type": "function", "name": "run", "description": "Runs a command.", "parameters": schema,
                    "strict": false}]),
                Api::Gemini => json!([{"functionDeclarations": [{
                    "name": "run", "description": "Runs a command.", "parametersJsonSchema": schema}]}]),
            };
        }
        if self.refers {
            body.as_object_mut().unwrap().remove("store");
        }
        if self.stream {
            body["stream"] = json!(true);
            if self.api == Api::Chat {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        for (key, value) in self.more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    }

    /// Sends the history, and leaves it as it is.
    pub async fn send(&self) -> Said {
        self.send_body(&self.body()).await
    }

    pub async fn send_body(&self, body: &Value) -> Said {
        let path = self.api.path(body);
        let mut request = self.http.post(format!("{}{path}", self.base));
        request = match self.api {
            Api::Gemini => request.header("x-goog-api-key", "k"),
            Api::Messages => request
                .header("x-api-key", "k")
                .header("anthropic-version", "2023-06-01"),
            _ => request.header("authorization", "Bearer k"),
        };
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let response = request
            .header("content-type", "application/json")
            .body(self.api.sent(body).to_string())
            .send()
            .await
            .unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await;
        let broken = text.is_err();
        let raw = text.unwrap_or_default();
        let is_stream = headers
            .get("content-type")
            .is_some_and(|kind| kind.to_str().unwrap().starts_with("text/event-stream"));
        let mut said = match (self.api, is_stream) {
            _ if status != 200 => Said::default(),
            (Api::Messages, true) => messages_stream(&raw),
            (Api::Chat, true) => chat_stream(&raw),
            (Api::Responses, true) => responses_stream(&raw),
            (Api::Gemini, true) => gemini_stream(&raw),
            (api, false) => serde_json::from_str(&raw)
                .map_or_else(|_| Said::default(), |body| whole(api, &body)),
        };
        said.status = status;
        said.headers = headers;
        said.raw = raw;
        said.broken = broken;
        said
    }

    /// Sends the history, and takes the answer into it.
    pub async fn go_on(&mut self) -> Said {
        let said = self.send().await;
        assert_eq!(said.status, 200, "{}", said.raw);
        assert!(said.ended, "{}", said.raw);
        self.take(&said);
        said
    }

    /// Takes an answer into the history.
    pub fn take(&mut self, said: &Said) {
        let refers = self.refers;
        let sent = |item: &Value| match item["type"].as_str() {
            Some(kind) if refers && kind != "function_call" => {
                json!({"type": "item_reference", "id": item["id"]})
            }
            _ => item.clone(),
        };
        self.history.extend(said.items.iter().map(sent));
    }

    /// Answers the calls of an answer.
    pub fn results(&mut self, said: &Said, text: &str) {
        match self.api {
            Api::Messages => {
                let results: Vec<Value> = (said.calls.iter())
                    .map(|(id, ..)| json!({"type": "tool_result", "tool_use_id": id, "content": text}))
                    .collect();
                self.history
                    .push(json!({"role": "user", "content": results}));
            }
            Api::Chat => self.history.extend(
                (said.calls.iter())
                    .map(|(id, ..)| json!({"role": "tool", "tool_call_id": id, "content": text})),
            ),
            Api::Responses => self.history.extend((said.calls.iter()).map(
                |(id, ..)| json!({"type": "function_call_output", "call_id": id, "output": text}),
            )),
            Api::Gemini => {
                let results = said.calls.iter().map(|(id, name, _)| {
                    let mut result = json!({"name": name, "response": {"output": text}});
                    if !id.is_empty() {
                        result["id"] = json!(id);
                    }
                    json!({"functionResponse": result})
                });
                let results: Vec<Value> = results.collect();
                self.history.push(json!({"role": "user", "parts": results}));
            }
        }
    }

    /// Says something, and goes on until the model calls no tool of its own any more. Answers all that was said.
    pub async fn ask(&mut self, text: &str, result: &str) -> Vec<Said> {
        self.user(text);
        let mut all = Vec::new();
        loop {
            let said = self.go_on().await;
            all.push(said.clone());
            if said.calls.is_empty() {
                return all;
            }
            self.results(&said, result);
        }
    }
}

/// The events of a stream: each has a line of data, and ends with an empty line.
pub fn events(raw: &str) -> Vec<Value> {
    let raw = raw.replace("\r\n", "\n");
    let data = raw.split("\n\n").filter_map(|event| {
        let line = event.lines().find_map(|line| line.strip_prefix("data:"))?;
        let data: Value = match line.trim() {
            "[DONE]" => json!("[DONE]"),
            data => serde_json::from_str(data).unwrap_or_else(|_| json!({"broken": data})),
        };
        if let Some(name) = event.lines().find_map(|line| line.strip_prefix("event: ")) {
            // A cut stream may end with half an event.
            assert!(data["type"] == name || !data["broken"].is_null(), "{event}");
        }
        Some(data)
    });
    data.collect()
}

fn messages_stream(raw: &str) -> Said {
    let mut said = Said::default();
    let mut blocks: Vec<(Value, String)> = Vec::new();
    let mut open: Option<usize> = None;
    let (mut began, mut stop) = (0, String::new());
    for event in events(raw) {
        assert!(!said.ended, "something follows the end: {raw}");
        match event["type"].as_str().unwrap_or_default() {
            "message_start" => {
                began += 1;
                said.usage = event["message"]["usage"].clone();
            }
            "content_block_start" => {
                assert_eq!(open, None, "{raw}");
                let index = event["index"].as_u64().unwrap() as usize;
                assert_eq!(index, blocks.len(), "a gap in the indexes: {raw}");
                open = Some(index);
                blocks.push((event["content_block"].clone(), String::new()));
            }
            "content_block_delta" => {
                let index = event["index"].as_u64().unwrap() as usize;
                assert_eq!(open, Some(index), "{raw}");
                let (block, arguments) = &mut blocks[index];
                let delta = &event["delta"];
                for key in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[key].as_str() {
                        block[key] =
                            json!(format!("{}{more}", block[key].as_str().unwrap_or_default()));
                    }
                }
                arguments.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" => {
                let index = event["index"].as_u64().unwrap() as usize;
                assert_eq!(open.take(), Some(index), "{raw}");
                let (block, arguments) = &mut blocks[index];
                if !arguments.is_empty() {
                    block["input"] = serde_json::from_str(arguments).unwrap();
                }
            }
            "message_delta" => {
                stop = event["delta"]["stop_reason"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned();
                for (key, value) in event["usage"].as_object().unwrap() {
                    said.usage[key] = value.clone();
                }
            }
            "message_stop" => said.ended = true,
            _ => {}
        }
    }
    assert!(began <= 1, "{raw}");
    let content: Vec<Value> = blocks.into_iter().map(|(block, _)| block).collect();
    read_content(&content, &mut said);
    assert!(
        !said.ended || (stop == "tool_use") != said.calls.is_empty(),
        "{stop}: {raw}"
    );
    said
}

fn read_content(content: &[Value], said: &mut Said) {
    for block in content {
        said.text
            .push_str(block["text"].as_str().unwrap_or_default());
        if block["type"] == "tool_use" {
            let text = |key: &str| block[key].as_str().unwrap().to_owned();
            said.calls
                .push((text("id"), text("name"), block["input"].clone()));
        }
    }
    if !content.is_empty() {
        said.items = vec![json!({"role": "assistant", "content": content})];
    }
}

fn chat_stream(raw: &str) -> Said {
    let mut said = Said::default();
    let mut calls: BTreeMap<u64, Value> = BTreeMap::new();
    let (mut finish, mut ids) = (Value::Null, std::collections::BTreeSet::new());
    for event in events(raw) {
        assert!(!said.ended, "something follows the end: {raw}");
        if event == "[DONE]" {
            said.ended = true;
            continue;
        }
        ids.extend(event["id"].as_str().map(str::to_owned));
        if event["usage"].is_object() {
            said.usage = event["usage"].clone();
        }
        let choice = &event["choices"][0];
        if !choice["finish_reason"].is_null() {
            assert!(finish.is_null(), "{raw}");
            finish = choice["finish_reason"].clone();
        }
        said.text
            .push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        for piece in choice["delta"]["tool_calls"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let index = piece["index"].as_u64().unwrap();
            assert!(index <= calls.len() as u64, "a gap in the indexes: {raw}");
            let call = calls
                .entry(index)
                .or_insert_with(|| json!({"type": "function", "function": {"arguments": ""}}));
            if let Some(id) = piece["id"].as_str() {
                call["id"] = json!(id);
                call["function"]["name"] = piece["function"]["name"].clone();
            }
            let before = call["function"]["arguments"].as_str().unwrap().to_owned();
            let more = piece["function"]["arguments"].as_str().unwrap_or_default();
            call["function"]["arguments"] = json!(before + more);
        }
    }
    assert!(ids.len() <= 1, "{raw}");
    let mut message = json!({"role": "assistant", "content": match said.text.is_empty() {
        true => Value::Null,
        false => json!(said.text),
    }});
    if !calls.is_empty() {
        message["tool_calls"] = calls.into_values().collect();
    }
    chat_calls(&message, &mut said);
    assert!(
        !said.ended || (finish == "tool_calls") != said.calls.is_empty(),
        "{finish}: {raw}"
    );
    said.items = vec![message];
    said
}

fn chat_calls(message: &Value, said: &mut Said) {
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let arguments =
            serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
        said.calls.push((
            text(&call["id"]),
            text(&call["function"]["name"]),
            arguments,
        ));
    }
}

fn responses_stream(raw: &str) -> Said {
    let mut said = Said::default();
    let mut items: BTreeMap<u64, Value> = BTreeMap::new();
    let mut response = Value::Null;
    for (number, event) in events(raw).into_iter().enumerate() {
        assert!(!said.ended, "something follows the end: {raw}");
        if !event["broken"].is_null() {
            // Where a client gives up.
            return said;
        }
        if event["type"] != "error" {
            assert_eq!(
                event["sequence_number"], number,
                "a gap in the numbers: {raw}"
            );
        }
        match event["type"].as_str().unwrap_or_default() {
            "response.output_item.added" => {
                let index = event["output_index"].as_u64().unwrap();
                assert_eq!(index, items.len() as u64, "a gap in the indexes: {raw}");
                items.insert(index, Value::Null);
            }
            "response.output_item.done" => {
                items.insert(
                    event["output_index"].as_u64().unwrap(),
                    event["item"].clone(),
                );
            }
            "response.completed" => {
                said.ended = true;
                response = event["response"].clone();
            }
            _ => {}
        }
    }
    if said.ended {
        let items: Vec<Value> = items.into_values().collect();
        assert_eq!(response["output"], json!(items), "{raw}");
    }
    read_output(&response, &mut said);
    said
}

fn read_output(response: &Value, said: &mut Said) {
    said.usage = response["usage"].clone();
    for item in response["output"].as_array().into_iter().flatten() {
        for part in item["content"].as_array().into_iter().flatten() {
            said.text
                .push_str(part["text"].as_str().unwrap_or_default());
        }
        if item["type"] == "function_call" {
            let text = |key: &str| item[key].as_str().unwrap().to_owned();
            said.calls.push((
                text("call_id"),
                text("name"),
                serde_json::from_str(&text("arguments")).unwrap(),
            ));
        }
        said.items.push(item.clone());
    }
}

fn gemini_stream(raw: &str) -> Said {
    let mut said = Said::default();
    let mut parts: Vec<Value> = Vec::new();
    let mut ids = std::collections::BTreeSet::new();
    for response in events(raw) {
        assert!(!said.ended, "something follows the end: {raw}");
        if !response["broken"].is_null() || !response["error"].is_null() {
            continue;
        }
        ids.extend(response["responseId"].as_str().map(str::to_owned));
        said.usage = response["usageMetadata"].clone();
        let candidate = &response["candidates"][0];
        assert_eq!(candidate["content"]["role"], "model", "{raw}");
        parts.extend(
            candidate["content"]["parts"]
                .as_array()
                .unwrap()
                .iter()
                .cloned(),
        );
        said.ended = !candidate["finishReason"].is_null();
    }
    assert!(ids.len() <= 1, "{raw}");
    read_parts(&parts, &mut said);
    said
}

/// Joins the pieces of texts and leaves thoughts out, as Gemini CLI does for its history.
fn read_parts(parts: &[Value], said: &mut Said) {
    let mut kept: Vec<Value> = Vec::new();
    for part in parts.iter().filter(|part| part["thought"] != true) {
        let call = &part["functionCall"];
        if !call.is_null() {
            let text = |key: &str| call[key].as_str().unwrap_or_default().to_owned();
            said.calls
                .push((text("id"), text("name"), call["args"].clone()));
        }
        let Some(text) = part["text"].as_str() else {
            kept.push(part.clone());
            continue;
        };
        said.text.push_str(text);
        match kept.last_mut().filter(|last| last["text"].is_string()) {
            Some(last) => last["text"] = json!(last["text"].as_str().unwrap().to_owned() + text),
            None if text.is_empty() => {}
            None => kept.push(part.clone()),
        }
    }
    if !kept.is_empty() {
        said.items = vec![json!({"role": "model", "parts": kept})];
    }
}

fn whole(api: Api, body: &Value) -> Said {
    let mut said = Said {
        ended: true,
        usage: body["usage"].clone(),
        ..Said::default()
    };
    match api {
        Api::Messages => {
            read_content(body["content"].as_array().unwrap(), &mut said);
            assert_eq!(
                body["stop_reason"] == "tool_use",
                !said.calls.is_empty(),
                "{body}"
            );
        }
        Api::Chat => {
            let message = body["choices"][0]["message"].clone();
            said.text = message["content"].as_str().unwrap_or_default().to_owned();
            chat_calls(&message, &mut said);
            let is_waiting = body["choices"][0]["finish_reason"] == "tool_calls";
            assert_eq!(is_waiting, !said.calls.is_empty(), "{body}");
            said.items = vec![message];
        }
        Api::Responses => read_output(body, &mut said),
        Api::Gemini => {
            said.usage = body["usageMetadata"].clone();
            let candidate = &body["candidates"][0];
            said.ended = !candidate["finishReason"].is_null();
            read_parts(candidate["content"]["parts"].as_array().unwrap(), &mut said);
        }
    }
    said
}
