//! What a gateway adds to a request on a warm session, against the direct way to the same server, as a table.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

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
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender
                .send(format!("http://{}", listener.local_addr().unwrap()))
                .unwrap();
            let answer = |request: Request| async {
                to_bytes(request.into_body(), usize::MAX).await.unwrap();
                let answer = Response::builder().header("content-type", "application/json");
                answer.body(Body::from(ANSWER)).unwrap()
            };
            axum::serve(listener, Router::new().fallback(answer))
                .await
                .unwrap();
        });
    });
    receiver.recv().unwrap()
}

fn gateway(home: &std::path::Path) -> String {
    let (sender, receiver) = std::sync::mpsc::channel();
    let options = HostOptions::in_home(home);
    std::thread::spawn(move || {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
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

/// How often requests were held up before they went on, and how long in all, in seconds.
async fn held(http: &reqwest::Client, gateway: &str) -> (f64, f64) {
    let page = http.get(format!("{gateway}/metrics")).send().await.unwrap();
    let page = page.text().await.unwrap();
    let value = |name: &str| {
        let line = page.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit_once(' '));
        value.map_or(0.0, |(_, value)| value.parse().unwrap())
    };
    (
        value("contexture_turns_total "),
        value("contexture_turn_seconds_total "),
    )
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
    println!(
        "{:>8} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10}",
        "body", "direct", "p99", "gateway", "p99", "added", "p99", "held"
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
        let (direct, through, held) = runtime.block_on(async {
            let direct = measure(&http, &provider, &bodies).await;
            let before = held(&http, &gateway).await;
            let through = measure(&http, &gateway, &bodies).await;
            let after = held(&http, &gateway).await;
            (direct, through, (after.1 - before.1) / (after.0 - before.0))
        });
        let at = |times: &[Duration], share: f64| {
            times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3
        };
        let (d50, d99, g50, g99) = (
            at(&direct, 0.5),
            at(&direct, 0.99),
            at(&through, 0.5),
            at(&through, 0.99),
        );
        println!(
            "{name:>8} {d50:>7.2} ms {d99:>7.2} ms {g50:>7.2} ms {g99:>7.2} ms {:>7.2} ms {:>7.2} ms {:>7.2} ms",
            g50 - d50,
            g99 - d99,
            held * 1e3
        );
    }
}
