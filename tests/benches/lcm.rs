//! LCM over a corpus of 20,000 messages, beside what other stores need for the same: whole turns through the
//! host, then `lcm_grep` as an agent calls it. CPU time, all threads.
//!
//! `cargo bench -p contexture-tests --bench lcm [-- CORPUS.jsonl | --messages N]`: one message a line
//! (`role`, `content`, `ts` in seconds, `tool_calls`, `tool_call_id`, `tool_name`). Without a corpus, one
//! of N messages (20,000) is generated. Every answer is compared with a plain scan of the corpus, of which
//! the process holds one turn at a time.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cpu;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use contexture::formats;
use contexture::session::{AgentWindow, Record, Session, SessionOptions};
use contexture_engine_api::ToolCall;
use contexture_tests::{Home, engines};
use cpu::process_cpu_ms;
use serde_json::Value;

const FULL_TEXT: [&str; 13] = [
    "database",
    "quorum shipment",
    "avro hotfix jitter",
    "zircon7713",
    "\"copper lantern protocol\"",
    "reconcile_ledger_epoch",
    "needle-5001-alpha",
    "src/ledger/epoch.rs:412",
    "xylophonequux",
    "索引",
    "端到端测试",
    "紫水晶計畫",
    "데이터베이스",
];

const REGEX: [&str; 9] = [
    r"needle-[0-9]+-alpha",
    r"ERR_[A-Z]+_[0-9]{3}",
    r"launch code word is \w+",
    r"Peregrine|epoch\.rs:412",
    r"fn [a-z]+_ledger\(",
    r"zzq[0-9]{9}x",
    r"(?i)COPPER\s+LANTERN",
    r"密碼是.{4}",
    // Without a literal: nothing narrows it.
    r"[A-Z]{4}_[0-9]{4}",
];

const DEFAULT_MESSAGES: u64 = 20_000;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = std::env::args().skip(1).filter(|text| text != "--bench");
    let corpus = match arguments.next() {
        Some(option) if option == "--messages" => {
            let messages = arguments.next().and_then(|count| count.parse().ok());
            generate(directory.path(), messages.expect("--messages N"))
        }
        Some(path) => PathBuf::from(path),
        None => generate(directory.path(), DEFAULT_MESSAGES),
    };
    let truth = truth(&corpus);
    through_the_host(&corpus, &truth);
}

/// What a plain scan finds: how much there is, and how often each of the patterns occurs.
struct Truth {
    messages: u64,
    text_bytes: u64,
    full_text: Vec<u64>,
    regex: Vec<u64>,
}

/// Plays the corpus turn by turn in a window of 128,000 tokens without a model, then searches what is kept.
fn through_the_host(corpus: &Path, truth: &Truth) {
    let home = Home::new();
    home.configure("context:\n  engine: lcm\n");
    let engines = engines(&home);
    let agent = AgentWindow::new("gpt-5", 128_000, 12_800);
    let record = Record::open(home.path()).unwrap();
    let options = SessionOptions::default();
    let mut session = Session::open(&engines, Some(&record), "bench", agent, options).unwrap();
    let mut lines = BufReader::new(File::open(corpus).unwrap()).lines();
    // The client carries on from what it was handed out.
    let mut history: Vec<String> = Vec::new();
    let (mut compactions, mut turns, mut worst) = (0u32, 0u32, Duration::ZERO);
    let mut halves = [Duration::ZERO; 2];
    loop {
        let four: Vec<String> = lines.by_ref().take(4).map(Result::unwrap).collect();
        let Some((answer, asked)) = four.split_last() else {
            break;
        };
        let before = session.engine_time();
        history.extend_from_slice(asked);
        let body = format!(r#"{{"messages":[{}]}}"#, history.join(","));
        let turn = session.turn(&body).unwrap();
        compactions += u32::from(turn.compaction.is_some());
        let handed_out = formats::split(&turn.body, None).unwrap();
        history = handed_out
            .messages
            .iter()
            .map(|&one| one.to_owned())
            .collect();
        session.answer(&[answer], None).unwrap();
        history.push(answer.clone());
        let time = session.engine_time() - before;
        worst = worst.max(time);
        halves[usize::from(u64::from(turns) * 4 >= truth.messages / 2)] += time;
        turns += 1;
    }
    let ms = |time: Duration, turns: u32| time.as_secs_f64() * 1e3 / f64::from(turns.max(1));
    println!(
        "whole turn through the host: {:.2} ms mean, {:.1} ms worst, {compactions} compactions \
         (first half {:.2}, second {:.2}; hermes-lcm 11–16 ms mean, claw 200–258)",
        ms(halves[0] + halves[1], turns),
        ms(worst, 1),
        ms(halves[0], turns / 2),
        ms(halves[1], turns / 2),
    );
    let mut grep = |mode: &str, text: &str| {
        let arguments = serde_json::json!({"pattern": text, "mode": mode, "scope": "messages"});
        total_of(&mut session, &arguments)
    };
    println!("lcm_grep, full text, as an agent calls it");
    summary(&ask(&FULL_TEXT, &truth.full_text, |text| {
        grep("full_text", text)
    }));
    println!("lcm_grep, regex, as an agent calls it");
    let mut times = ask(&REGEX, &truth.regex, |text| grep("regex", text));
    times.pop();
    summary(&times);
    let question =
        serde_json::json!({"question": "What was the launch code word that we agreed on?"});
    let question = ToolCall::new("lcm_expand_query", question.to_string());
    let ms = repeated(|| {
        session.call_tool(question.clone()).unwrap();
    });
    println!("a question: {ms:.2} ms");
    println!("lcm_grep, full text, summaries too");
    let times = FULL_TEXT.map(|text| {
        let arguments = serde_json::json!({"pattern": text, "mode": "full_text"});
        repeated(|| {
            total_of(&mut session, &arguments);
        })
    });
    summary(&times);
    println!(
        "peak memory: {} MB (hermes-lcm 0.7: 114 MB)",
        peak_memory_mb()
    );
    session.end().unwrap();
    drop((engines, record));
    let size = bytes_in(home.path()) as f64;
    println!(
        "databases: {:.1} MB, {:.2} of the raw {:.1} MB (hermes-lcm 1.9, claw 5.7)",
        size / 1e6,
        size / truth.text_bytes as f64,
        truth.text_bytes as f64 / 1e6
    );
}

/// The bytes of all files in a folder.
fn bytes_in(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let sizes = entries.map(|entry| match entry.file_type().unwrap().is_dir() {
        true => bytes_in(&entry.path()),
        false => entry.metadata().unwrap().len(),
    });
    sizes.sum()
}

fn total_of(session: &mut Session, arguments: &Value) -> u64 {
    let call = ToolCall::new("lcm_grep", arguments.to_string());
    let answer: Value = serde_json::from_str(&session.call_tool(call).unwrap()).unwrap();
    answer["total"].as_u64().unwrap()
}

/// Asks for each pattern, checks the total and gives the times, in ms.
fn ask(patterns: &[&str], expected: &[u64], mut search: impl FnMut(&str) -> u64) -> Vec<f64> {
    let ask_one = |(text, expected): (&&str, &u64)| {
        let ms = repeated(|| assert_eq!(search(text), *expected, "{text}"));
        println!("  {text:<34}{ms:>9.2} ms{expected:>8} hits");
        ms
    };
    patterns.iter().zip(expected).map(ask_one).collect()
}

/// The CPU time of `work` in ms, repeated until single runs do not matter.
fn repeated(mut work: impl FnMut()) -> f64 {
    let start = Instant::now();
    let before = process_cpu_ms();
    let mut runs = 0;
    while runs < 3 || start.elapsed() < Duration::from_millis(150) {
        work();
        runs += 1;
    }
    (process_cpu_ms() - before) / f64::from(runs)
}

fn summary(times: &[f64]) {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    println!(
        "  {:<34}{:>9.2} ms median, {:.2} ms worst",
        "",
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

fn peak_memory_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        / 1024
}

fn lines(corpus: &Path) -> impl Iterator<Item = Value> {
    BufReader::new(File::open(corpus).unwrap())
        .lines()
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
}

/// What a plain scan of the corpus finds.
fn truth(corpus: &Path) -> Truth {
    let regexes: Vec<regex::Regex> = REGEX
        .iter()
        .map(|text| regex::Regex::new(text).unwrap())
        .collect();
    let terms: Vec<Vec<String>> = FULL_TEXT
        .iter()
        .map(|text| match text.strip_prefix('"') {
            Some(phrase) => vec![phrase.trim_end_matches('"').to_owned()],
            None => text.split(' ').map(str::to_owned).collect(),
        })
        .collect();
    let mut truth = Truth {
        messages: 0,
        text_bytes: 0,
        full_text: vec![0; terms.len()],
        regex: vec![0; regexes.len()],
    };
    for message in lines(corpus) {
        let content = message["content"].as_str().unwrap();
        truth.messages += 1;
        truth.text_bytes += content.len() as u64;
        let lower = content.to_lowercase();
        for (count, terms) in truth.full_text.iter_mut().zip(&terms) {
            *count += u64::from(terms.iter().all(|term| lower.contains(term.as_str())));
        }
        for (count, regex) in truth.regex.iter_mut().zip(&regexes) {
            *count += u64::from(regex.is_match(content));
        }
    }
    truth
}

/// Writes a corpus of prose, code and logs, with a few things to be found.
fn generate(directory: &Path, count: u64) -> PathBuf {
    let path = directory.join("corpus.jsonl");
    let mut out = std::io::BufWriter::new(File::create(&path).unwrap());
    let mut random = Random(20_261_121);
    let common: Vec<String> = (0..400)
        .map(|_| {
            (0..2 + random.below(3))
                .map(|_| random.of(&["ba", "to", "ri", "ken", "ul", "sho"]))
                .collect()
        })
        .collect();
    for i in 0..count {
        let role = ["user", "assistant", "tool", "assistant"][(i % 4) as usize];
        let target = 200.0 * 20f64.powf(random.unit());
        let mut text = String::new();
        if random.below(12) == 0 {
            text.push_str(
                "数据库索引重建完成。端到端测试结果全部通过。데이터베이스 마이그레이션.\n",
            );
        }
        while (text.len() as f64) < target {
            if role == "tool" {
                let (a, b) = (random.below(60), random.next());
                text.push_str(&format!(
                    "2026-01-02T03:{a:02}:04Z INFO node-{a} /srv/ledger/scan.rs:{a} id={:010x}\n",
                    b & 0xff_ffff_ffff
                ));
            } else if random.below(4) == 0 {
                let name = random.of(&["ledger", "order", "token", "shard"]);
                text.push_str(&format!(
                    "fn load_{name}(x: &X) -> Y {{\n    x.{name}({})\n}}\n",
                    random.below(9999)
                ));
            } else {
                let known = random.of(&[
                    "database", "quorum", "shipment", "avro", "hotfix", "jitter", "the", "of",
                ]);
                let at = random.unit() * random.unit() * common.len() as f64;
                text.push_str(&format!(
                    "{} {} ",
                    common[at as usize],
                    if random.below(5) == 0 { known } else { "and" }
                ));
            }
        }
        match i {
            37 => {
                text.push_str("\nneedle-0037-alpha zircon7713 the launch code word is Peregrine.")
            }
            5001 => text.push_str("\nneedle-5001-alpha 紫水晶計畫的密碼是七七三一。 ERR_QUOTA_431"),
            12000 => {
                text.push_str("\nfn reconcile_ledger_epoch() panics at src/ledger/epoch.rs:412.")
            }
            19990 => text.push_str("\nthe copper lantern protocol is closed; zircon7713"),
            _ => {}
        }
        let message =
            serde_json::json!({"role": role, "content": text, "ts": 1_767_225_600 + 30 * i});
        writeln!(out, "{message}").unwrap();
    }
    out.flush().unwrap();
    path
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 20
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 24)
    }

    fn of<'a>(&mut self, options: &[&'a str]) -> &'a str {
        options[self.below(options.len() as u64) as usize]
    }
}
