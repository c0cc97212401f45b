//! How fast a resent history is aligned: 10,000 messages, 11 MB, two of them new.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashMap;
use std::hint::black_box;

use contexture::formats::{self, Format};
use contexture::session::align::{Alignment, Trail, Unit, align, raw_hash};
use contexture_engine_api::MessageId;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

fn body(messages: usize) -> String {
    let filler = "the pump station reported \\\"no fault\\\" at line 17 of its log;\\n ".repeat(17);
    let messages: Vec<String> = (0..messages)
        .map(|at| {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            format!(r#"{{"role":"{role}","content":"{at} {filler}"}}"#)
        })
        .collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","))
}

fn take_in(known: &Trail, messages: &[&str]) -> (Alignment, Trail) {
    let raw: Vec<u64> = messages.iter().map(|raw| raw_hash(raw)).collect();
    let alignment = align(known, &raw, false, |wires| {
        let texts: Vec<&str> = wires.iter().map(|wire| messages[*wire]).collect();
        let read = formats::parse_messages_after(Format::OpenAiChat, &texts, &mut HashMap::new())?;
        Ok::<_, formats::FormatError>(read.iter().map(Unit::of).collect())
    })
    .unwrap();
    let mut next = 1_000_000;
    let trail = alignment.advance(known, &raw, || {
        next += 1;
        MessageId(next)
    });
    (alignment, trail)
}

fn aligning(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("align");
    for messages in [1_000, 10_000, 40_000] {
        let body = body(messages);
        let split = formats::split(&body, Some(Format::OpenAiChat)).unwrap();
        let (_, known) = take_in(&Trail::default(), &split.messages[..messages - 2]);
        assert_eq!(take_in(&known, &split.messages).0.rest.len(), 2);
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(BenchmarkId::new("split", messages), |bench| {
            bench.iter(|| take_in(&known, black_box(&split.messages)));
        });
        group.bench_function(BenchmarkId::new("body", messages), |bench| {
            bench.iter(|| {
                let split = formats::split(black_box(&body), Some(Format::OpenAiChat)).unwrap();
                take_in(&known, &split.messages)
            });
        });
        // A cache marker moved: an early message has other bytes, so what follows is aligned anew.
        let mut moved = split.messages.clone();
        let respelled = moved[10].replacen(r#"{"role""#, r#"{ "role""#, 1);
        moved[10] = &respelled;
        group.bench_function(BenchmarkId::new("respelled", messages), |bench| {
            bench.iter(|| take_in(&known, black_box(&moved)));
        });
    }
    group.finish();
}

criterion_group!(benches, aligning);
criterion_main!(benches);
