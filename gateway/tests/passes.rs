//! The gateway goes over a request's body once on the way in, and writes the body that it sends once.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use contexture_formats::passes;
use contexture_provider_simulator::{Answer, Coder};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::json;
use support::Stage;
use support::agent::{APIS, Agent, Api};

/// What an agent does, and in which session.
#[derive(Debug)]
struct Scene {
    api: Api,
    engine: &'static str,
    stream: bool,
    /// In how many rounds the model calls tools.
    rounds: u64,
    /// Every so many answers it calls a tool of the host, which the client does not see. None if it
    /// is offered no such tool.
    own_call: Option<usize>,
    /// The lines in the result of each tool.
    lines: usize,
}

fn scene() -> impl Strategy<Value = Scene> {
    let api = prop::sample::select(APIS.to_vec());
    let engine = prop::sample::select(vec!["compressor", "lcm"]);
    (
        api,
        engine,
        any::<bool>(),
        4..24_u64,
        prop::option::of(2..5_usize),
        0..300_usize,
    )
        .prop_map(|(api, engine, stream, rounds, own_call, lines)| Scene {
            api,
            engine,
            stream,
            rounds,
            own_call,
            lines,
        })
}

/// Plays a scene, and returns how many of its requests were compacted and how many rounds were
/// hidden.
async fn play(scene: &Scene) -> (f64, f64) {
    let engine = scene.engine;
    let stage = Stage::new(&format!(
        "context: {{engine: {engine}}}\nmodel: {{context_length: 24000}}\ncompression: {{protect_last_n: 4, timing: threshold, model_tools: {}}}\n",
        scene.own_call.is_some()
    ));
    let coder = Coder {
        rounds: scene.rounds,
        ..Coder::default()
    };
    let (answers, own_call) = (AtomicUsize::new(1), scene.own_call);
    stage.provider.answer_with(move |request| {
        let answer = answers.fetch_add(1, Ordering::Relaxed);
        match own_call.is_some_and(|every| answer.is_multiple_of(every)) {
            true => Answer::text("I keep it. ")
                .and_call("context_pin", json!({"text": "The port is 8123."})),
            false => coder.answer(request),
        }
    });
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(scene.api, &gateway.base, "s");
    agent.stream = scene.stream;
    agent.user("Run all checks. The port is 8123.");
    let result = "line of the report; ".repeat(scene.lines);
    loop {
        let (split, written) = passes::counted();
        let sent = stage.provider.requests().len();
        let said = agent.go_on().await;
        assert_eq!(said.header("x-contexture-status"), "managed", "{scene:?}");
        let now = passes::counted();
        let (split, written) = (now.0 - split, now.1 - written);
        assert_eq!(split, 1, "{scene:?}: the body was split {split} times");
        let requests = stage.provider.requests();
        let sent = (requests.len() - sent) as u64;
        assert!(written <= sent, "{scene:?}: {written} bodies for {sent}");
        let is_as_it_came =
            requests.last().unwrap().json == scene.api.sent(&agent_body(&agent, &said));
        assert!(written > 0 || is_as_it_came, "{scene:?}");
        if said.calls.is_empty() {
            let compacted = "contexture_compactions_total{outcome=\"compacted\"";
            let hidden = "contexture_hidden_rounds_total";
            stage.nothing_was_refused();
            return (
                gateway.metric(compacted).await,
                gateway.metric(hidden).await,
            );
        }
        agent.results(&said, &result);
    }
}

/// The body that an agent sent before it got this answer.
fn agent_body(agent: &Agent, said: &support::agent::Said) -> serde_json::Value {
    let mut before = agent.clone();
    before
        .history
        .truncate(agent.history.len() - said.items.len());
    before.body()
}

/// This is the only test of its program, because the passes are those of the whole process.
#[test]
fn a_body_is_split_once_and_written_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(24)
    });
    let totals = std::cell::Cell::new((0.0, 0.0));
    runner
        .run(&scene(), |scene| {
            let (compacted, hidden) = runtime.block_on(play(&scene));
            let (before, rounds) = totals.get();
            totals.set((before + compacted, rounds + hidden));
            Ok(())
        })
        .unwrap();
    let (compacted, hidden) = totals.get();
    assert!(compacted > 0.0 && hidden > 0.0, "{compacted} {hidden}");
}
