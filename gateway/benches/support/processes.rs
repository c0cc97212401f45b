//! The processes of a bench: a provider that answers at once, gateways, nginx, and the requests of a client.
//!
//! The bench starts itself again for each of them, with the role in an environment variable. A bench that uses this
//! begins its `main` with [`other_role`].

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use contexture::HostOptions;
use contexture_gateway::Gateway;
use futures_util::stream::iter;
use serde_json::{Value, json};

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"TEXT"}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":INPUT,"output_tokens":60}}"#;

/// The text of an answer, so many times. A stream has an event for each of them.
const WORDS: &str = "Some words. ";
const PIECES: usize = 20;

/// Which part of the bench this process is.
const ROLE: &str = "CONTEXTURE_BENCH_ROLE";

/// A provider that reads the request and answers at once, as a stream if the request asks for one.
fn provider() {
    let answer = |request: Request| async {
        let body = to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let is_stream = body.windows(13).any(|part| part == b"\"stream\":true");
        // The token count that a request of this size would have.
        let answer = ANSWER.replace("INPUT", &(body.len() / 4).to_string());
        let answer = answer.replace("TEXT", &text());
        let (kind, body) = match is_stream {
            true => ("text/event-stream", stream(&answer)),
            false => ("application/json", Body::from(answer)),
        };
        let answer = Response::builder().header("content-type", kind);
        answer.body(body).unwrap()
    };
    let base = super::serve(Router::new().fallback(answer));
    println!("{base}");
    loop {
        std::thread::park();
    }
}

/// The answer as a stream. Each event is a chunk of its own, as providers send them.
fn stream(answer: &str) -> Body {
    let message = serde_json::from_str(answer).unwrap();
    Body::from_stream(iter(events(message).into_iter().map(Ok::<_, Infallible>)))
}

/// The events of an answer with [`text`], for this message.
pub(crate) fn events(mut message: Value) -> Vec<String> {
    message["content"] = json!([]);
    let block = json!({"type": "text", "text": ""});
    let delta = json!({"type": "text_delta", "text": WORDS});
    let mut events = vec![
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
    ];
    let deltas =
        (0..PIECES).map(|_| json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    events.extend(deltas);
    events.extend([
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 60}}),
        json!({"type": "message_stop"}),
    ]);
    let event = |data: Value| {
        let kind = data["type"].as_str().unwrap();
        format!("event: {kind}\ndata: {data}\n\n")
    };
    events.into_iter().map(event).collect()
}

/// The text of each answer.
pub(crate) fn text() -> String {
    WORDS.repeat(PIECES)
}

/// Runs the gateway of a home directory.
fn gateway(home: &Path) {
    let runtime = contexture_gateway::runtime().unwrap();
    runtime.block_on(async {
        let options = HostOptions::in_home(home);
        let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
        println!("http://{}", gateway.address());
        gateway.serve(std::mem::forget).await;
    });
}

/// Plays the part that this process was started for. False if that is the bench itself.
pub(crate) fn other_role() -> bool {
    match std::env::var(ROLE).as_deref() {
        Ok("provider") => provider(),
        Ok(home) => gateway(Path::new(home)),
        Err(_) => return false,
    }
    true
}

/// A child process of the bench, killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) base: String,
}

impl Process {
    pub(crate) fn start(role: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(ROLE, role).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut base = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut base).unwrap();
        Self {
            child,
            base: base.trim().to_owned(),
        }
    }

    /// The most memory that it has used so far, in bytes. None if the system does not say.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1_024)
    }

    /// The processor time that all its threads have taken so far, in seconds. None if the system does not say.
    pub(crate) fn processor_time(&self) -> Option<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
        // The name before it is in parentheses, and may contain spaces.
        let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<f64>().ok();
        // Linux counts in hundredths of a second.
        Some((ticks()? + ticks()?) / 100.0)
    }

    /// A gateway with this configuration.
    pub(crate) fn gateway(home: &Path, config: &str) -> Self {
        std::fs::create_dir_all(home).unwrap();
        std::fs::write(home.join("config.yaml"), config).unwrap();
        Self::start(home.to_str().unwrap())
    }

    /// nginx in front of the provider; `None` if it is not installed.
    pub(crate) fn nginx(folder: &Path, provider: &str) -> Option<Self> {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let (folder, provider) = (folder.display(), provider.trim_start_matches("http://"));
        let config = format!(
            "daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; events {{}}\n\
             http {{ access_log off; client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 100000;\n\
             client_body_temp_path {folder}/nginx-body; proxy_temp_path {folder}/nginx-proxy;\n\
             fastcgi_temp_path {folder}/nginx-1; uwsgi_temp_path {folder}/nginx-2; scgi_temp_path {folder}/nginx-3;\n\
             upstream provider {{ server {provider}; keepalive 64; }}\n\
             server {{ listen {address}; location / {{ proxy_pass http://provider; proxy_http_version 1.1;\n\
             proxy_set_header Connection \"\"; proxy_buffering off; proxy_request_buffering off; }} }} }}\n"
        );
        let path = format!("{folder}/nginx.conf");
        std::fs::write(&path, config).unwrap();
        let child = Command::new("nginx").args(["-c", &path]).spawn().ok()?;
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let base = format!("http://{address}");
        Some(Self { child, base })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The request bodies of a session's turns. The first has about this many bytes.
pub(crate) fn bodies(size: usize, turns: usize, is_stream: bool) -> Vec<String> {
    let text =
        "A line of a report that somebody wrote, and that is neither short nor long. ".repeat(40);
    let mut messages: Vec<Value> = Vec::new();
    let said =
        |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    while serde_json::to_string(&messages).unwrap().len() + text.len() < size {
        messages.push(said("user", &format!("{} {text}", messages.len())));
        messages.push(said("assistant", &format!("{} {text}", messages.len())));
    }
    let turn = |number: usize| {
        messages.push(said("user", &format!("Question {number}")));
        let mut body =
            json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "You help."});
        body["messages"] = json!(messages);
        if is_stream {
            body["stream"] = json!(true);
        }
        messages.push(said("assistant", &self::text()));
        body.to_string()
    };
    (0..turns).map(turn).collect()
}

/// Times one turn: to the first byte of the answer, and to its end.
pub(crate) async fn ask(
    http: &reqwest::Client,
    base: &str,
    session: &str,
    body: &str,
) -> (Duration, Duration) {
    let request = http.post(format!("{base}/v1/messages"));
    let request = request
        .header("x-contexture-session", session)
        .header("content-type", "application/json")
        .body(body.to_owned());
    let began = Instant::now();
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.chunk().await.unwrap().unwrap();
    let first = began.elapsed();
    while answer.chunk().await.unwrap().is_some() {}
    (first, began.elapsed())
}
