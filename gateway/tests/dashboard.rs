//! The page in a real Chromium, as its user works with it: `browser/dashboard.cjs` drives it. Needs Chromium, Node.js
//! and what `tests/real/install browser` installs, so it is part of `.ci/long` alone:
//! `cargo test -p contexture-gateway --test dashboard -- --ignored`.
//!
//! With `CONTEXTURE_SCREENSHOTS=FOLDER` it also saves pictures of the page there. With `CONTEXTURE_LOOK=SECONDS` it only
//! fills the gateway, prints its address, and leaves it there for that long.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use contexture::session::{KeptContent, Record};
use contexture_provider_simulator::{Answer, Coder, Fault};
use serde_json::{Value, json};
use support::agent::{Agent, Api};
use support::{Running, Stage};

const CONFIG: &str =
    "context: {engine: lcm}\nmodel: {context_length: 24000}\ncompression: {protect_last_n: 4}\n";

/// What somebody says who would like the page to do something else.
const HOSTILE: &str = "</script><script>document.title = 'taken\u{202e}\u{1b}'</script><img src=x onerror=\"document.title='taken'\"> \
    is in our release notes: why?";

const HOUR_MS: u64 = 3_600_000;

fn agent(gateway: &Running, api: Api, session: &str, program: &str, model: &str) -> Agent {
    let mut agent = Agent::new(api, &gateway.base, session);
    let header = ("user-agent".to_owned(), program.to_owned());
    agent.headers.push(header);
    agent.model = model.to_owned();
    agent
}

/// Sessions of several agents: compacted ones, some with failures, one whose model has no known price.
async fn fill(stage: &Stage, gateway: &Running) {
    stage.provider.set(|options| options.window = Some(24_000));
    let coder = |rounds| {
        let coder = Coder {
            rounds,
            ..Coder::default()
        };
        move |request: &_| coder.answer(request)
    };
    let report = "a line of the report; ".repeat(250);

    stage.provider.answer_with(coder(40));
    let mut claude = agent(
        gateway,
        Api::Messages,
        "release notes/1",
        "claude-cli/2.1",
        "claude-sonnet-4-5",
    );
    // A word that has no room in any window.
    let folder = format!("/home/ada/{}", "shop".repeat(60));
    claude.system = format!("You are Claude Code.\n<env>\nWorking directory: {folder}\n</env>");
    claude.ask(HOSTILE, &report).await;

    stage.provider.answer_with(coder(12));
    let mut codex = agent(
        gateway,
        Api::Responses,
        "codex-1",
        "codex_cli_rs/0.169",
        "gpt-5.2-codex",
    );
    codex.user("<environment_context>\n  <cwd>/home/ada/api</cwd>\n</environment_context>");
    codex
        .ask("Why does the build of the API fail on Windows?", &report)
        .await;
    stage.provider.script([Answer::fault(Fault::Status(429))]);
    codex.user("And on macOS?");
    assert_eq!(codex.send().await.status, 429);
    stage
        .provider
        .script([Answer::fault(Fault::CloseAfter(400))]);
    assert!(!codex.send().await.ended);

    stage.provider.answer_with(coder(3));
    let mut other = agent(gateway, Api::Chat, "notes", "my-agent/1.0", "qwen3-coder");
    other.has_tool = false;
    for words in ["Write a haiku about caches.", "Another one, please."] {
        other.ask(words, "").await;
    }
    // Requests that are not managed.
    let mut title = agent(gateway, Api::Chat, "notes", "my-agent/1.0", "qwen3-coder");
    title.has_tool = false;
    title.more = json!({"max_tokens": 1});
    title.user("quota");
    title.send().await;
    let _ = reqwest::get(format!("{}/v1/models", gateway.base)).await;
}

/// Spreads what was stored over the last days, as if the sessions had taken that long.
fn age(home: &Path) {
    let record = Record::open(home).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = u64::try_from(now.unwrap().as_millis()).unwrap();
    for (number, (session, _)) in record
        .kept_as("turns", None)
        .unwrap()
        .into_iter()
        .enumerate()
    {
        let mut turns: Vec<(String, Value)> = (record.kept(&session).unwrap().into_iter())
            .filter(|(name, _)| name.starts_with("turn "))
            .map(|(name, text)| (name, serde_json::from_str(&text).unwrap()))
            .collect();
        let count = turns.len() as u64;
        turns.sort_by_key(|(_, turn)| turn["turn"].as_u64());
        for (at, (name, turn)) in turns.iter_mut().enumerate() {
            // Two minutes between turns, and a night in the middle.
            let left = count - at as u64;
            let night = if left * 2 > count { 11 * HOUR_MS } else { 0 };
            turn["at_ms"] = json!(now - number as u64 * 30 * HOUR_MS - left * 120_000 - night);
            record
                .keep(
                    &session,
                    KeptContent::Exact,
                    &[(name.as_str(), &turn.to_string())],
                )
                .unwrap();
        }
        let text = record.kept_as("turns", Some(&session)).unwrap().remove(0).1;
        let mut totals: Value = serde_json::from_str(&text).unwrap();
        totals["at_ms"] = turns.last().unwrap().1["at_ms"].clone();
        let hour = now / HOUR_MS - number as u64 * 30;
        let first = totals["hours"][0].clone();
        let hours = (0..6_u64).map(|back| {
            let mut one = first.clone();
            one["hour"] = json!(hour - back * 17);
            one["prompt"] = json!(one["prompt"].as_u64().unwrap_or(0) * (back + 1) / 4);
            one
        });
        let mut hours: Vec<Value> = hours.collect();
        hours.reverse();
        totals["hours"] = json!(hours);
        record
            .keep(
                &session,
                KeptContent::Exact,
                &[("turns", &totals.to_string())],
            )
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium"]
async fn an_operator_works_with_the_page() {
    let stage = Stage::new(CONFIG);
    let gateway = stage.gateway().await;
    fill(&stage, &gateway).await;
    // A turn is recorded once its answer has left.
    tokio::time::sleep(Duration::from_secs(1)).await;
    age(stage.home.path());
    println!("{}", gateway.base);
    if let Ok(seconds) = std::env::var("CONTEXTURE_LOOK") {
        tokio::time::sleep(Duration::from_secs(seconds.parse().unwrap())).await;
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let installed = std::env::var_os("INSTALLED").map(PathBuf::from);
    let installed = installed.unwrap_or_else(|| here.join("../tests/real/installed"));
    let mut driver = Command::new("node");
    driver
        .arg(here.join("tests/browser/dashboard.cjs"))
        .arg(&gateway.base)
        .env("NODE_PATH", installed.join("browser/node_modules"));
    let driven = tokio::task::spawn_blocking(move || driver.output().expect("Node.js")).await;
    let driven = driven.unwrap();
    let said = String::from_utf8_lossy(&driven.stdout);
    let wrong = String::from_utf8_lossy(&driven.stderr);
    println!("{said}");
    assert!(driven.status.success(), "{wrong}");
    stage.nothing_was_refused();
}
