//! What a request body of 11 MB (10,000 messages) costs before anything is decided.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;

use contexture_formats::{Format, parse_messages, read, split};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use xxhash_rust::xxh3::xxh3_128;

/// A chat of `messages` messages of about 1.1 KiB, with escapes, calls, results and some Chinese.
fn body(messages: usize) -> String {
    let line = r#"fn load(index: usize) -> Result<Index, Error> {\n    let \u00e9tat = \"ok\"; // 数据库索引\n}\n"#;
    let text = line.repeat(11);
    let messages: Vec<_> = (0..messages)
        .map(|at| match at % 4 {
            0 => format!(r#"{{"role":"user","content":"{text}{at}"}}"#),
            1 => format!(
                r#"{{"role":"assistant","content":"{text}","tool_calls":[{{"id":"c{at}","type":"function","function":{{"name":"sh","arguments":"{{\"a\":{at}}}"}}}}]}}"#
            ),
            2 => format!(r#"{{"role":"tool","tool_call_id":"c{}","content":"{text}"}}"#, at - 1),
            _ => format!(r#"{{"role":"assistant","content":"{text}"}}"#),
        })
        .collect();
    format!(r#"{{"model":"m","messages":[{}]}}"#, messages.join(","))
}

fn formats(criterion: &mut Criterion) {
    let body = body(10_000);
    let mut group = criterion.benchmark_group("11 MB body");
    group.sample_size(20);
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("split", |b| {
        b.iter(|| {
            split(black_box(&body), Some(Format::OpenAiChat))
                .unwrap()
                .messages
                .len()
        });
    });
    let raw = split(&body, Some(Format::OpenAiChat)).unwrap().messages;
    group.bench_function("hash each raw message", |b| {
        b.iter(|| {
            raw.iter()
                .fold(0, |sum, raw| sum ^ xxh3_128(black_box(raw).as_bytes()))
        });
    });
    group.bench_function("parse the last four messages", |b| {
        b.iter(|| parse_messages(Format::OpenAiChat, black_box(&raw[raw.len() - 4..])).unwrap());
    });
    group.bench_function("read everything", |b| {
        b.iter(|| read(black_box(body.as_str()), None).unwrap().len());
    });
    group.finish();
}

criterion_group!(benches, formats);
criterion_main!(benches);
