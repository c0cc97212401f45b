//! How fast tokens are counted and estimated.
#![allow(missing_docs)]

use std::hint::black_box;

use contexture_formats::tokens::{TokenCounter, estimate};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn texts() -> Vec<(&'static str, String)> {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    let mut texts = vec![
        (
            "prose",
            "The threshold moves with the model's window; nothing else does. ".repeat(20_000),
        ),
        ("spaces", " ".repeat(1 << 20) + "x"),
    ];
    for (name, file) in [
        ("agent", "claude-code/main.jsonl"),
        ("tools", "tau2-bench/train_sft-v1-small.jsonl"),
        ("chinese", "memorybank/memory_bank_cn.json"),
    ] {
        if let Ok(text) = std::fs::read_to_string(data.join(file)) {
            texts.push((name, text.replace("\\n", "\n").replace("\\\"", "\"")));
        }
    }
    texts
}

fn tokens(criterion: &mut Criterion) {
    let counter = TokenCounter::for_model("gpt-5");
    let mut group = criterion.benchmark_group("tokens");
    group.sample_size(10);
    for (name, text) in texts() {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(format!("count/{name}"), |bencher| {
            bencher.iter(|| counter.count_text(black_box(&text)));
        });
        group.bench_function(format!("estimate/{name}"), |bencher| {
            bencher.iter(|| estimate(black_box(&text)));
        });
    }
    group.finish();
}

criterion_group!(benches, tokens);
criterion_main!(benches);
