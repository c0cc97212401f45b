//! What a gateway adds to a request on a warm session, beside nginx (where that is installed), against the direct way to
//! the same server, as a table.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use contexture::HostOptions;
use contexture_gateway::Gateway;
use serde_json::{Value, json};
use tokio::runtime::Builder;

const ANSWER: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5","content":[{"type":"text","text":"Yes."}],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":1000,"output_tokens":5}}"#;

/// A provider that reads the request and answers at once.
fn provider() -> String {
    let answer = |request: Request| async {
        to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let answer = Response::builder().header("content-type", "application/json");
        answer.body(Body::from(ANSWER)).unwrap()
    };
    support::serve(Router::new().fallback(answer))
}

/// nginx before the provider, until it is dropped.
struct Nginx {
    child: Child,
    base: String,
}

impl Nginx {
    /// None where it is not installed.
    fn start(folder: &Path, provider: &str) -> Option<Self> {
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
        let mut command = Command::new("nginx");
        let child = command.args(["-c", &path]).spawn().ok()?;
        while TcpStream::connect(address).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let base = format!("http://{address}");
        Some(Self { child, base })
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn gateway(home: &std::path::Path) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = HostOptions::in_home(home);
    std::thread::spawn(move || {
        let runtime = contexture_gateway::runtime().unwrap();
        runtime.block_on(async {
            let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
            sender
                .send(format!("http://{}", gateway.address()))
                .unwrap();
            gateway.serve(std::mem::forget).await.unwrap();
        });
    });
    receiver.recv().unwrap()
}

/// The bodies of a session's turns, of about this many bytes.
fn bodies(size: usize, turns: usize) -> Vec<String> {
    let text =
        "A line of a report that somebody wrote, and that is neither short nor long. ".repeat(40);
    let mut messages: Vec<Value> = Vec::new();
    let said =
        |role: &str, text: &str| json!({"role": role, "content": [{"type": "text", "text": text}]});
    while serde_json::to_string(&messages).unwrap().len() + text.len() < size {
        messages.push(said("user", &format!("{} {text}", messages.len())));
        messages.push(said("assistant", &format!("{} {text}", messages.len())));
    }
    let body = |messages: &[Value]| {
        json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "system": "You help.", "messages": messages}).to_string()
    };
    let turn = |number: usize| {
        messages.push(said("user", &format!("Question {number}")));
        let body = body(&messages);
        messages.push(said("assistant", "Yes."));
        body
    };
    (0..turns).map(turn).collect()
}

/// How long each turn takes of sessions that are warm: without the first two turns of each.
async fn measure(http: &reqwest::Client, base: &str, sessions: &[Vec<String>]) -> Vec<Duration> {
    let mut times = Vec::new();
    for (number, bodies) in sessions.iter().enumerate() {
        for (turn, body) in bodies.iter().enumerate() {
            let request = http.post(format!("{base}/v1/messages"));
            let session = format!("{}-{number}", bodies.len());
            let request = request.header("x-contexture-session", session);
            let request = request
                .header("content-type", "application/json")
                .body(body.clone());
            let began = Instant::now();
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 200);
            answer.bytes().await.unwrap();
            if turn > 1 {
                times.push(began.elapsed());
            }
        }
    }
    times.sort();
    times
}

fn main() {
    let home = tempfile::tempdir().unwrap();
    let provider = provider();
    let engine = std::env::var("ENGINE").unwrap_or_else(|_| "compressor".to_owned());
    let config = format!(
        "context: {{engine: {engine}}}\nmodel: {{context_length: 1000000}}\nupstream: {{anthropic: {{base_url: \"{provider}\"}}}}\n"
    );
    std::fs::write(home.path().join("config.yaml"), config).unwrap();
    let gateway = gateway(home.path());
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let nginx = Nginx::start(home.path(), &provider);
    if nginx.is_none() {
        println!("nginx is not installed");
    }
    println!(
        "{:>8} {:>8} {:>11} {:>11} {:>11} {:>11}",
        "body", "", "p50", "p99", "added p50", "p99"
    );
    for (name, size, turns, sessions) in [
        ("2 KB", 1_000, 10, 80),
        ("20 KB", 20_000, 100, 6),
        ("500 KB", 500_000, 300, 1),
    ] {
        let bodies = vec![bodies(size, turns); sessions];
        let http = reqwest::Client::builder()
            .no_proxy()
            .tcp_nodelay(true)
            .build()
            .unwrap();
        let ways = [
            ("direct", Some(&provider)),
            ("nginx", nginx.as_ref().map(|nginx| &nginx.base)),
            ("gateway", Some(&gateway)),
        ];
        let mut direct = (0.0, 0.0);
        for (way, base) in ways {
            let Some(base) = base else { continue };
            let times = runtime.block_on(measure(&http, base, &bodies));
            let at =
                |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
            let (p50, p99) = (at(0.5), at(0.99));
            if way == "direct" {
                direct = (p50, p99);
            }
            println!(
                "{name:>8} {way:>8} {p50:>8.2} ms {p99:>8.2} ms {:>8.2} ms {:>8.2} ms",
                p50 - direct.0,
                p99 - direct.1
            );
        }
    }
}
