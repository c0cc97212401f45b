//! What the host costs: a question across the boundary, messages observed across it, a plugin loaded, and a
//! whole compaction with tokens known. Each group's name says the goal, and the peer's figure where
//! there is one.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use contexture::formats::Conversation;
use contexture::session::{Compact, Session};
use contexture_engine_api::{
    Delivery, FactoryRequest, HostInfo, MessageId, MessageView, OpenRequest, Plugin, Services,
    Usage, WindowState,
};
use contexture_tests::{
    Home, built_plugins, coding_session, compact, conversation, engines, library_name, session,
};
use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group, criterion_main};

fn opened(home: &Home, conversation: &Arc<Conversation>) -> Session {
    let engines = engines(home);
    session(&engines, conversation, 400_000).unwrap().0
}

/// [`coding_session`], read.
fn read(messages: usize) -> Arc<Conversation> {
    conversation(&coding_session(messages).to_string())
}

fn across(c: &mut Criterion) {
    let mut group = c.benchmark_group("asked whether to compact (goal 50 us)");
    let conversation = read(1_000);
    for engine in ["compressor", "keep-tail"] {
        let home = Home::new();
        home.install("plugins/context_engine/keep-tail", "keep-tail");
        home.configure(&format!("context:\n  engine: {engine}\n"));
        let mut session = opened(&home, &conversation);
        let usage = Usage::default().input_tokens(1_000);
        group.bench_function(engine, |b| {
            b.iter(|| {
                black_box(session.preflight(1_000).unwrap());
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
    let host = HostInfo::new("1.0.0");
    let request = FactoryRequest::new("{}", folder.path(), &host);
    let factory = Plugin::load(&library, &host)
        .unwrap()
        .create(&request)
        .unwrap();
    let mut engine = factory
        .open(&OpenRequest::new(
            "bench",
            "{}",
            folder.path(),
            Services::none(),
            &WindowState::default(),
        ))
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
                engine.observe(&Delivery::new(&views)).unwrap();
            });
        },
    );
}

fn load(c: &mut Criterion) {
    let library = built_plugins().join(library_name("keep-tail"));
    let host = HostInfo::default();
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
            |copy| Plugin::load(&copy, &host).unwrap(),
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
        let conversation = read(messages);
        let id = BenchmarkId::from_parameter(messages);
        group.bench_with_input(id, &conversation, |b, conversation| {
            b.iter_batched(
                || session(&engines, conversation, 400_000).unwrap().0,
                |mut session| compact(&mut session, conversation, Compact::Force).unwrap(),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, across, observe, load, compress);
criterion_main!(benches);
