//! What the host costs: a turn across the boundary, messages observed across it, a plugin loaded, and a
//! whole compaction with tokens known. Each group's name says the goal, and the peer's figure where
//! there is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use contexture::formats::Conversation;
use contexture::session::{Ask, Session};
use contexture_engine_api::{
    FactoryRequest, MessageId, MessageView, OpenRequest, Plugin, Services, Usage, WindowState,
};
use contexture_tests::{Home, built_plugins, conversation, engines, library_name, session};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};
use serde_json::json;

/// A coding session of so many messages with about 431 tokens in each, as varied as real ones are.
fn coding_session(messages: usize) -> Arc<Conversation> {
    let mut all = vec![json!({"role": "system", "content": "You are a careful programmer."})];
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let verbs = [
        "load", "store", "parse", "render", "resolve", "validate", "merge", "flush",
    ];
    let nouns = [
        "order", "ledger", "config", "token", "index", "shard", "session", "buffer",
    ];
    for turn in 0..messages / 4 {
        let mut line = |at: usize| {
            let (verb, noun) = (verbs[random(8) as usize], nouns[random(8) as usize]);
            match random(4) {
                0 => format!(
                    "src/{noun}/{verb}_{}.rs:{}: fn {verb}_{noun}(&self) -> Result<(), Error>\n",
                    random(40),
                    random(900)
                ),
                1 => format!(
                    "2026-03-{:02}T10:{:02}:00Z INFO {noun} took {} ms, id={:08x}\n",
                    1 + at % 28,
                    at % 60,
                    random(900),
                    random(u64::MAX)
                ),
                2 => format!(
                    "    let {noun} = self.{verb}({}).await?; // checked in review\n",
                    random(10_000)
                ),
                _ => format!("test {noun}::{verb}_works_{} ... ok\n", random(500)),
            }
        };
        let output: String = (0..46).map(&mut line).collect();
        let answer: String = (0..8).map(&mut line).collect();
        all.extend([
            json!({"role": "user", "content": format!("Please check part {turn} and keep the public API as it is.")}),
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": format!("call_{turn}"), "type": "function",
                "function": {"name": "run_command", "arguments": format!("{{\"command\": \"cargo test -p part_{turn}\"}}")}}]}),
            json!({"role": "tool", "tool_call_id": format!("call_{turn}"), "content": output}),
            json!({"role": "assistant", "content": format!("Part {turn} is done.\n{answer}")}),
        ]);
    }
    all.push(json!({"role": "user", "content": "Now the release notes, please."}));
    conversation(&json!({"model": "gpt-5", "messages": all}).to_string())
}

fn opened(home: &Home, conversation: &Arc<Conversation>) -> Session {
    let engines = engines(home);
    session(&engines, conversation, 400_000).unwrap().0
}

fn idle_turn(c: &mut Criterion) {
    let mut group = c.benchmark_group("idle turn (goal 50 us)");
    let conversation = coding_session(1_000);
    let end = conversation.messages().len();
    for engine in ["compressor", "keep-tail"] {
        let home = Home::new();
        home.install("plugins/context_engine/keep-tail", "keep-tail");
        home.configure(&format!("context:\n  engine: {engine}\n"));
        let mut session = opened(&home, &conversation);
        let usage = Usage {
            input_tokens: 1_000,
            ..Usage::default()
        };
        group.bench_function(engine, |b| {
            b.iter(|| {
                black_box(session.observe(&conversation, end..end).unwrap());
                session.update_usage(&usage);
            });
        });
    }
    group.finish();
}

fn observe(c: &mut Criterion) {
    let texts: Vec<String> = (0..10_000).map(|at| format!("{at:1024}")).collect();
    let library = built_plugins().join(library_name("misbehaving"));
    let folder = tempfile::tempdir().unwrap();
    let request = FactoryRequest {
        settings: "{}",
        data_dir: folder.path(),
    };
    let factory = Plugin::load(&library).unwrap().create(&request).unwrap();
    let mut engine = factory
        .open(&OpenRequest {
            session: "bench",
            settings: "{}",
            data_dir: folder.path(),
            services: Services::none(),
            window: &WindowState::default(),
            compaction: None,
        })
        .unwrap();
    c.bench_function(
        "10,000 messages of 1 KiB observed by a plugin (goal 0.3 ms)",
        |b| {
            b.iter(|| {
                let views: Vec<MessageView<'_>> = texts
                    .iter()
                    .enumerate()
                    .map(|(at, text)| {
                        MessageView::new(MessageId(at as u64), "user").with_text(text)
                    })
                    .collect();
                engine.observe(&views, 7).unwrap();
            });
        },
    );
}

fn load(c: &mut Criterion) {
    let library = built_plugins().join(library_name("keep-tail"));
    let folder = tempfile::tempdir().unwrap();
    let mut copies = 0;
    c.bench_function("a plugin loaded for the first time (goal 5 ms)", |b| {
        b.iter_batched(
            || {
                copies += 1;
                let copy = folder.path().join(format!("copy{copies}.so"));
                std::fs::copy(&library, &copy).unwrap();
                copy
            },
            |copy| Plugin::load(&copy).unwrap(),
            BatchSize::PerIteration,
        );
    });
}

fn compress(c: &mut Criterion) {
    let mut group =
        c.benchmark_group("compress, tokens known (goal 10 ms for 1,000; peer 43 to 95 ms)");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(5));
    let home = Home::new();
    let engines = engines(&home);
    for messages in [1_000, 10_000, 100_000] {
        let conversation = coding_session(messages);
        let id = BenchmarkId::from_parameter(messages);
        group.bench_with_input(id, &conversation, |b, conversation| {
            b.iter_batched(
                || session(&engines, conversation, 400_000).unwrap().0,
                |mut session| {
                    session
                        .compact(&Ask {
                            force: true,
                            ..Ask::default()
                        })
                        .unwrap()
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, idle_turn, observe, load, compress);
criterion_main!(benches);
