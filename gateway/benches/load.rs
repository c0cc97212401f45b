//! What a gateway does under load, in a process of its own: the memory and the first bytes of many streams at once, and
//! the memory of many turns of many sessions. `CONTEXTURE_SOAK_TURNS` says how many turns.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use contexture::HostOptions;
use contexture_gateway::Gateway;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use support::processes::{events, text};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

/// Names the home of the gateway that this very program, run again, is.
const HOME: &str = "CONTEXTURE_LOAD_HOME";
const STREAMS: usize = 500;
/// How long the provider takes between two events, while streams are many.
const PAUSE: Duration = Duration::from_millis(100);
/// How many sessions live at once in the soak.
const SESSIONS: usize = 100;
/// How many turns each of them has at the most.
const MOST_TURNS: usize = 20;

/// A provider that begins its streams at once, and pauses in them where the request says so.
fn provider() -> String {
    let answer = |request: Request| async {
        let pauses = request.headers().contains_key("x-pause");
        to_bytes(request.into_body(), usize::MAX).await.unwrap();
        let all = events(
            json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
            "stop_reason": null, "stop_sequence": null, "usage": {"input_tokens": 5000, "output_tokens": 1}}),
        );
        let all = if pauses { all } else { vec![all.concat()] };
        let stream = unfold(
            (all.into_iter(), false),
            move |(mut all, later)| async move {
                if later && pauses {
                    tokio::time::sleep(PAUSE).await;
                }
                let event = Bytes::from(all.next()?);
                Some((Ok::<_, Infallible>(event), (all, true)))
            },
        );
        let answer = Response::builder().header("content-type", "text/event-stream");
        answer.body(Body::from_stream(stream)).unwrap()
    };
    support::serve(Router::new().fallback(answer))
}

/// What the program is where it is run again.
fn serve(home: &str) {
    let runtime = contexture_gateway::runtime().unwrap();
    runtime.block_on(async {
        let options = HostOptions::in_home(home);
        let gateway = Gateway::open(options, Some("127.0.0.1:0")).await.unwrap();
        println!("http://{}", gateway.address());
        gateway.serve(std::mem::forget).await;
    });
}

struct Serving {
    child: Child,
    base: String,
}

impl Serving {
    fn start(home: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(HOME, home).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut base = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut base).unwrap();
        let base = base.trim().to_owned();
        Self { child, base }
    }

    /// A figure of the kernel's about its memory, in MB.
    fn memory(&self, name: &str) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kb: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kb / 1024.0
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(role: &str, text: &str) -> Value {
    json!({"role": role, "content": [{"type": "text", "text": text}]})
}

/// Asks, and reads all of the answer. How long its first byte took.
async fn ask(request: reqwest::RequestBuilder, session: &str, messages: &[Value]) -> Duration {
    let body = json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "stream": true, "messages": messages});
    let request = request
        .header("content-type", "application/json")
        .header("x-contexture-session", session)
        .body(body.to_string());
    let began = Instant::now();
    let mut answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let mut all = answer.chunk().await.unwrap().unwrap().to_vec();
    let first = began.elapsed();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        all.extend_from_slice(&chunk);
    }
    assert!(String::from_utf8(all).unwrap().contains("message_stop"));
    first
}

async fn streams(http: &reqwest::Client, provider: &str, serving: &Serving) {
    let line = "A line of a report that somebody wrote, and that is neither short nor long. ";
    println!("{STREAMS} streams at once, requests of 20 KB:");
    for (name, base) in [
        ("direct", provider),
        ("gateway", &*serving.base),
        ("gateway, again", &*serving.base),
    ] {
        let began = Instant::now();
        let mut all = JoinSet::new();
        for number in 0..STREAMS {
            let request = http
                .post(format!("{base}/v1/messages"))
                .header("x-pause", "1");
            let mut messages = vec![said("user", &format!("{number} {}", line.repeat(260)))];
            if name.ends_with("again") {
                messages.extend([said("assistant", &text()), said("user", "And?")]);
            }
            all.spawn(async move { ask(request, &format!("many-{number}"), &messages).await });
        }
        let mut firsts = all.join_all().await;
        firsts.sort();
        let at =
            |share: f64| firsts[((firsts.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!(
            "{name:>16}: first byte p50 {:.0} ms, p99 {:.0} ms; all in {:.1} s",
            at(0.5),
            at(0.99),
            began.elapsed().as_secs_f64()
        );
    }
    println!(
        "{:>16}: {:.0} MB at the most",
        "memory",
        serving.memory("VmHWM")
    );
}

async fn soak(http: &reqwest::Client, serving: &Serving, turns: usize) {
    // Each tenth ends with whole sessions, so that memory is compared at the same moment of their lives.
    let each = (turns / SESSIONS / 10).clamp(1, MOST_TURNS);
    println!("{turns} turns, {SESSIONS} sessions at once, {each} turns in each:");
    let began = Instant::now();
    let (mut done, mut generation, mut points) = (0, 0, Vec::new());
    while done < turns {
        let mut lives = vec![Vec::new(); SESSIONS];
        for turn in 0..each {
            if done >= turns {
                break;
            }
            let mut all = JoinSet::new();
            for (number, life) in lives.iter_mut().enumerate() {
                life.push(said(
                    "user",
                    &format!("Question {turn} {}", "of a thing ".repeat(100)),
                ));
                let (life, request) = (
                    life.clone(),
                    http.post(format!("{}/v1/messages", serving.base)),
                );
                let session = format!("soak-{generation}-{number}");
                all.spawn(async move { ask(request, &session, &life).await });
            }
            all.join_all().await;
            for life in &mut lives {
                life.push(said("assistant", &text()));
            }
            let tenth = done * 10 / turns;
            done += SESSIONS;
            if done * 10 / turns > tenth {
                let memory = serving.memory("VmRSS");
                println!(
                    "{done:>16}: {memory:.1} MB, {:.0} s",
                    began.elapsed().as_secs_f64()
                );
                points.push((done as f64, memory));
            }
        }
        generation += 1;
    }
    // Of the later half: at first all caches fill.
    let later = &points[points.len() / 2..];
    let count = later.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| later.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let rise: f64 = later
        .iter()
        .map(|point| (point.0 - x) * (point.1 - y))
        .sum();
    let run: f64 = later.iter().map(|point| (point.0 - x).powi(2)).sum();
    println!(
        "{:>16}: {:.2} MB in 10,000 turns, of the later half",
        "slope",
        rise / run * 1e4
    );
}

fn main() {
    if let Ok(home) = std::env::var(HOME) {
        return serve(&home);
    }
    let turns =
        std::env::var("CONTEXTURE_SOAK_TURNS").map_or(2_000, |turns| turns.parse().unwrap());
    let provider = provider();
    let config = format!(
        "context: {{engine: lcm}}\nmodel: {{context_length: 200000}}\nupstream: {{anthropic: {{base_url: \"{provider}\"}}}}\n"
    );
    let http = reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .build()
        .unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for part in ["streams", "soak"] {
            let home = tempfile::tempdir().unwrap();
            std::fs::write(home.path().join("config.yaml"), &config).unwrap();
            let serving = Serving::start(home.path());
            match part {
                "streams" => streams(&http, &provider, &serving).await,
                _ => soak(&http, &serving, turns).await,
            }
        }
    });
}
