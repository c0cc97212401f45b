//! One compaction without a model: the whole, and the compressor's own part of it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use contexture_compressor::Compressor;
use contexture_engine_api::*;
use criterion::{Criterion, SamplingMode, criterion_group, criterion_main};

/// Texts of a coding session: one in three messages is a tool's output of several kilobytes.
fn texts(messages: usize) -> Vec<String> {
    (0..messages)
        .map(|at| match at % 4 {
            0 => format!("Please look at src/module_{at}/handler.rs and fix the timeout in request {at}."),
            1 => format!("I will read src/module_{at}/handler.rs first, then run the tests of crate_{at}."),
            2 => (0..110)
                .map(|line| {
                    format!("{line:4} | let value_{at}_{line} = compute(&state, {line})?; // see RFC {at}\n")
                })
                .collect(),
            _ => format!("The function handle_{at} returned early; I moved the check behind the lock."),
        })
        .collect()
}

fn calls(messages: usize) -> Vec<(String, String)> {
    (0..messages)
        .map(|at| {
            (
                format!("call_{at}"),
                format!(r#"{{"path":"src/module_{at}/handler.rs"}}"#),
            )
        })
        .collect()
}

fn compress(c: &mut Criterion) {
    for (messages, samples) in [(1_000, 50), (4_000, 20), (100_000, 10)] {
        let (texts, calls) = (texts(messages), calls(messages));
        let calls: Vec<[ToolCallView<'_>; 1]> = calls
            .iter()
            .map(|(id, arguments)| [ToolCallView::new(id, "read_file", arguments)])
            .collect();
        let views: Vec<MessageView<'_>> = texts
            .iter()
            .enumerate()
            .map(|(at, text)| {
                let id = MessageId(at as u64 + 1);
                let view = match at % 4 {
                    0 => MessageView::new(id, "user"),
                    1 => MessageView::new(id, "assistant").with_tool_calls(&calls[at]),
                    2 => MessageView::new(id, "tool")
                        .with_result_of(calls[at - 1][0].id(), "read_file"),
                    _ => MessageView::new(id, "assistant"),
                };
                view.with_text(text).with_tokens(text.len() as u64 / 4 + 4)
            })
            .collect();
        let tokens: u64 = views.iter().map(MessageView::tokens).sum();
        let window = WindowState::default()
            .context_length(tokens * 3 / 2)
            .fixed_tokens(5_000)
            .prompt_tokens(tokens + 5_000);
        let dir = tempfile::tempdir().unwrap();
        let mut engine = Compressor::open(&OpenRequest::new(
            "bench",
            "{}",
            dir.path(),
            Services::none(),
            &window,
        ))
        .unwrap();
        let order = CompressOrder::default().window(window);
        let request = CompressRequest::new(&views, &order);

        let mut group =
            c.benchmark_group(format!("{messages} messages, {} K tokens", tokens / 1_000));
        group.sample_size(samples).sampling_mode(SamplingMode::Flat);
        group.bench_function("compress", |b| {
            b.iter(|| black_box(engine.compress(&request).unwrap()));
        });
        // The same messages without their texts: what is left is the compressor's own part.
        let bare: Vec<MessageView<'_>> = views.iter().map(|view| view.with_text("x")).collect();
        let bare = CompressRequest::new(&bare, &order);
        group.bench_function("compress, without the digesting", |b| {
            b.iter(|| black_box(engine.compress(&bare).unwrap()));
        });
        group.bench_function("prune_tool_results", |b| {
            b.iter(|| black_box(engine.prune_tool_results(&request).unwrap()));
        });
        group.finish();
    }
}

criterion_group!(benches, compress);
criterion_main!(benches);
