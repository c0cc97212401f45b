//! A model behind Gemini's own API, for Gemini CLI, which speaks no other. The provider simulator
//! does not have this API, because the gateway does not manage it.
//!
//! [`Gemini`] calls one tool, if the agent offers it, and says what it was told. It listens for as
//! long as the test runs, and keeps the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

/// The model.
pub struct Gemini {
    address: String,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl Gemini {
    /// Starts a model that calls the tool whose name ends like this, once in a conversation.
    ///
    /// # Panics
    ///
    /// If no port can be opened.
    pub fn that_calls(tool: &'static str, arguments: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = requests.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (kept, arguments) = (kept.clone(), arguments.clone());
                std::thread::spawn(move || {
                    let Some((path, body)) = request(&client) else {
                        return;
                    };
                    let answer = answer(&body, tool, &arguments);
                    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                    kept.push(body);
                    let _ = reply(client, &path, &answer);
                });
            }
        });
        Self { address, requests }
    }

    /// Its address.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The bodies of all requests so far.
    pub fn requests(&self) -> Vec<Value> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the path and the body of a request.
fn request(client: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, serde_json::from_slice(&body).unwrap_or_default()))
}

fn answer(body: &Value, tool: &str, arguments: &Value) -> Value {
    let tools = body["tools"].as_array().into_iter().flatten();
    let mut names = tools
        .flat_map(|tool| {
            tool["functionDeclarations"]
                .as_array()
                .into_iter()
                .flatten()
        })
        .filter_map(|declared| declared["name"].as_str());
    let name = names.find(|name| name.ends_with(tool));
    let is_told = body["contents"].to_string().contains("functionResponse");
    // The agent first asks a smaller model how difficult the question is.
    let is_rated = body["generationConfig"]["responseMimeType"] == "application/json";
    let rating = json!({"complexity_reasoning": "short", "complexity_score": 1});
    let part = match name.filter(|_| !is_told) {
        _ if is_rated => json!({"text": rating.to_string()}),
        Some(name) => json!({"functionCall": {"name": name, "args": arguments}}),
        None => json!({"text": "That is all."}),
    };
    json!({
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010},
        "totalTokens": 1000,
    })
}

fn reply(mut client: TcpStream, path: &str, answer: &Value) -> std::io::Result<()> {
    let (kind, text) = match path.contains("alt=sse") {
        true => ("text/event-stream", format!("data: {answer}\r\n\r\n")),
        false => ("application/json", answer.to_string()),
    };
    let length = text.len();
    write!(
        client,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}"
    )
}
