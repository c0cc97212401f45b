//! What masking costs, and what it finds: bytes a second over real logs of agents, the growth of hostile
//! text, recall on secrets of every kind in every place, precision beside look-alikes.
#![allow(missing_docs)]

#[path = "../tests/support/secrets.rs"]
mod corpus;

use std::path::Path;
use std::time::{Duration, Instant};

use contexture_secrets::mask_secrets;
use corpus::{Random, assigned, keys, leak, look_alikes, notations, placements, secrets, seven};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Conversations beside the checkout; none where they are not there.
fn logs() -> Vec<(&'static str, String)> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    [
        ("claude-code/main.jsonl", "Claude Code"),
        ("swe-agent/replay__marshmallow-code__marshmallow-1867__function_calling_replace_from_source__marshmallow-code__marshmallow-1867.traj", "SWE-agent"),
        ("tau2-bench/train_sft-v1-small.jsonl", "tau2-bench"),
    ]
    .into_iter()
    .filter_map(|(file, name)| Some((name, std::fs::read_to_string(data.join(file)).ok()?)))
    .collect()
}

fn speed(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mask_secrets");
    group.sample_size(10);
    for (name, log) in logs() {
        group.throughput(Throughput::Bytes(log.len() as u64));
        group.bench_function(format!("{name}, wire JSON"), |bencher| {
            bencher.iter(|| mask_secrets(&log).len());
        });
        let text = texts_of(&log);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(format!("{name}, text"), |bencher| {
            bencher.iter(|| mask_secrets(&text).len());
        });
    }
    group.finish();
}

/// The strings of JSON lines, one after the other.
fn texts_of(log: &str) -> String {
    fn collect(value: &serde_json::Value, into: &mut String) {
        match value {
            serde_json::Value::String(text) => {
                into.push_str(text);
                into.push('\n');
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, into)),
            serde_json::Value::Object(map) => map.values().for_each(|value| collect(value, into)),
            _ => {}
        }
    }
    let mut text = String::new();
    let values = serde_json::Deserializer::from_str(log).into_iter::<serde_json::Value>();
    values
        .flatten()
        .for_each(|value| collect(&value, &mut text));
    text
}

fn took(text: &str) -> Duration {
    let once = || {
        let started = Instant::now();
        std::hint::black_box(mask_secrets(text).len());
        started.elapsed()
    };
    (0..15).map(|_| once()).min().unwrap_or_default()
}

fn growth(_: &mut Criterion) {
    let dashes = "-----BEGIN ";
    let key = format!("{dashes}RSA PRIVATE KEY-----");
    let mut worst = (0.0, String::new());
    for unit in [
        "eyJ",
        "eyJ.",
        "eyJ-",
        "eyJaaaaaaaaaa.",
        "eyJ-eyJ-.",
        dashes,
        &key,
        "sk-",
        "xoxb-",
        "password",
        "password=",
        "password=(",
        "password=\"",
        "password=)",
        "token=...",
        "token ",
        "cookie:a=...",
        "cookie:",
        "authorization: ",
        "authorization=",
        "\\authorization=://",
        "a://b:",
        "bearer ",
        "://",
        "://a:b",
        "://a@",
        "://a:b@",
        " -u ",
        "curl -u ",
        "login ",
        "login a password ",
        ":AA",
        "1:AA",
        "Q~",
        "4",
        "4111 ",
        "4111-1111-1111-1111-",
        "\\",
        "\\\"",
        "\\u0041",
        "\\\\n",
        "[",
        "{\"a\":",
        "\"",
        "[\"",
        "{\"password\":\"",
        ";base64,",
        "SG.",
        "a.",
        " ",
        "=",
        "'",
        "$(",
        "(",
        "name=\"token\" value=\"",
        "{\"name\":\"token\",\"value\":\"",
        "password: |\n a\n",
        "a,password\nb,c\n",
        "adafruit_key=a1B2c3D4e5F6g7H8 ",
        "the password is ",
        "mysql -p",
        "\u{1b}[1m",
        "&quot;",
        "\"\n\"",
        "kind: secret\n",
    ] {
        let of = |bytes: usize| unit.repeat(bytes / unit.len());
        let (small, large) = (took(&of(100_000)), took(&of(1_000_000)));
        let times = large.as_secs_f64() / small.as_secs_f64();
        if times > worst.0 {
            worst = (times, unit.to_owned());
        }
        println!("hostile {unit:?}: 100 KB {small:?}, 1 MB {large:?}, {times:.1} times");
    }
    println!(
        "hostile, worst growth: {:.1} times for {:?}",
        worst.0, worst.1
    );
}

fn recall_and_precision(_: &mut Criterion) {
    let (mut placed, mut masked) = (0, 0);
    for case in secrets(11, 20) {
        for place in placements(&case.text) {
            for text in [
                Some(&place.text),
                place.arguments.as_ref(),
                Some(&place.raw),
            ] {
                let Some(text) =
                    text.filter(|text| leak(text, std::slice::from_ref(&case)).is_some())
                else {
                    continue;
                };
                placed += 1;
                if leak(&mask_secrets(text), std::slice::from_ref(&case)).is_none() {
                    masked += 1;
                } else {
                    println!("missed: {} in {}", case.kind, place.place);
                }
            }
        }
    }
    let random = &mut Random(13);
    for (what, cases) in [
        ("keys", keys(random)),
        ("providers", assigned(random)),
        ("notations", notations(random)),
    ] {
        let masked =
            |text: &str, case| leak(&mask_secrets(text), std::slice::from_ref(case)).is_none();
        let places: Vec<_> = cases
            .iter()
            .flat_map(|case| seven(case).into_iter().map(move |(_, text)| (case, text)))
            .collect();
        let found = places
            .iter()
            .filter(|(case, text)| masked(text, case))
            .count();
        println!(
            "{what}: {} kinds, {found} of {} places",
            cases.len(),
            places.len()
        );
    }
    let others = look_alikes(12, 20);
    let lost = others
        .iter()
        .filter(|(_, text)| mask_secrets(text) != *text)
        .count();
    println!(
        "recall: {masked} of {placed} ({:.2} %)",
        100.0 * f64::from(masked) / f64::from(placed)
    );
    let precision = f64::from(masked) / (f64::from(masked) + lost as f64);
    println!(
        "precision: {lost} of {} look-alikes masked ({:.2} %)",
        others.len(),
        100.0 * precision
    );
    for (name, log) in logs() {
        let text = texts_of(&log);
        // The best of several runs, on a machine that may be busy.
        let speed = |text: &str| text.len() as f64 / 1e6 / took(text).as_secs_f64();
        println!(
            "{name}: {:.0} MB/s as wire JSON, {:.0} MB/s as text",
            speed(&log),
            speed(&text)
        );
        let masks = mask_secrets(&log)
            .matches(contexture_secrets::SECRET_MASK)
            .count();
        println!("{name}: {masks} masks in {} bytes", log.len());
    }
}

criterion_group!(benches, recall_and_precision, growth, speed);
criterion_main!(benches);
