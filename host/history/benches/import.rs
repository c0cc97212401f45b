//! How fast logs are imported, how much memory and disk that takes, and how long searches take.
//!
//! `cargo bench -p contexture-history --bench import -- --megabytes 500` generates logs of Claude
//! Code of that size in a temporary folder, with texts that are as varied as real ones, and imports
//! them. With `--log FILE` the texts are those of a real log of Claude Code, with some words of each
//! replaced, so that sessions differ. With `--home FOLDER` the logs of all agents in that home
//! directory are imported instead.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use contexture_history::{History, Importer, Places, Query};
use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let megabytes: u64 = value("--megabytes").map_or(64, |number| number.parse().unwrap());
    let temporary = tempfile::tempdir().unwrap();
    let folder = value("--home").map_or(temporary.path().to_owned(), PathBuf::from);
    match (value("--home"), value("--log")) {
        (Some(_), _) => {}
        (None, Some(log)) => from_log(&folder, Path::new(&log), megabytes << 20),
        (None, None) => generated(&folder, megabytes << 20),
    }
    let home = temporary.path().join("home");
    let none = |_: &str| None;
    let places = Places::new(&folder, &none);

    let (started, cpu) = (Instant::now(), cpu_seconds());
    let mut importer = Importer::open(&home, false).unwrap();
    let report = importer.run(&places, &[], &mut |_| true).unwrap();
    let seconds = started.elapsed().as_secs_f64();
    let mb = report.agents.values().map(|agent| agent.bytes).sum::<u64>() as f64 / 1e6;
    println!(
        "import: {mb:.0} MB, {} messages in {seconds:.1} s: {:.1} MB/s",
        report.messages(),
        mb / seconds
    );
    // On a machine that does other work, this says what the import costs.
    let cpu = cpu_seconds() - cpu;
    println!(
        "processor: {cpu:.1} s, {:.1} MB/s of one processor",
        mb / cpu
    );
    println!("skipped: {:?}", report.skipped);
    println!("peak memory: {} MB", peak_memory() / 1_000);
    let size = std::fs::metadata(home.join("history.sqlite3"))
        .unwrap()
        .len() as f64
        / 1e6;
    println!(
        "history: {size:.1} MB, {:.0} % of the logs",
        size / mb * 100.0
    );

    print_sizes(&home.join("history.sqlite3"));

    let started = Instant::now();
    importer.run(&places, &[], &mut |_| true).unwrap();
    println!(
        "import again, nothing new: {:.1} ms",
        started.elapsed().as_secs_f64() * 1e3
    );

    // A rare word is looked up in every table of the index, which a new process has to open.
    report_search("in a new process, a1b2c3d4", || {
        let history = History::open(&home).unwrap().unwrap();
        history.search(&Query::new("a1b2c3d4")).unwrap().matches
    });
    let history = History::open(&home).unwrap().unwrap();
    let search = |question| history.search(&Query::new(question)).unwrap().matches;
    let medians = QUESTIONS
        .iter()
        .map(|question| report_search(question, || search(*question)));
    let mut medians: Vec<f64> = medians.collect();
    medians.sort_by(f64::total_cmp);
    println!(
        "{} questions: median {:.1} ms, slowest {:.1} ms",
        medians.len(),
        medians[medians.len() / 2],
        medians[medians.len() - 1]
    );
}

/// Searches 20 times, prints the times and returns their median in milliseconds.
fn report_search(name: &str, search: impl Fn() -> usize) -> f64 {
    let mut matches = 0;
    let times = (0..20).map(|_| {
        let started = Instant::now();
        matches = search();
        started.elapsed().as_secs_f64() * 1e3
    });
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    println!(
        "search {name}: {matches} matches, median {:.1} ms, worst {:.1} ms",
        times[10], times[19]
    );
    times[10]
}

/// Frequent and rare words, alone and together, phrases, prefixes, other scripts, and words of which
/// no message has all.
const QUESTIONS: &[&str] = &[
    "the",
    "error",
    "file error",
    "file not found",
    "session import",
    "parser error",
    "import json",
    "marshmallow reservation",
    "portable sessions flight baggage",
    "w77 w78",
    "\"tool use\"",
    "\"of the\"",
    "\"error the\"",
    "src/main.rs",
    "reservationFlight",
    "a1b2c3d4",
    "数据库",
    "酒店 推荐",
    "错",
    "s*",
    "re*",
    "conf*",
    "zzqq nothere the",
    "zzqq file error the",
];

/// Prints how large the texts are, and what takes how much of the database.
fn print_sizes(path: &Path) {
    let db = rusqlite::Connection::open(path).unwrap();
    let text: i64 = db
        .query_row("SELECT sum(length) FROM message", [], |row| row.get(0))
        .unwrap();
    println!("texts: {:.1} MB", text as f64 / 1e6);
    let select = "SELECT iif(name GLOB 'word_*', 'index', name), sum(pgsize)
         FROM dbstat GROUP BY 1 ORDER BY 2 DESC LIMIT 6";
    let Ok(mut tables) = db.prepare(select) else {
        return;
    };
    let mut rows = tables.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (name, bytes): (String, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        println!("  {name}: {:.1} MB", bytes as f64 / 1e6);
    }
}

/// The time that the processors spent for the process, on Linux.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum::<f64>()
        / 100.0
}

/// The most memory that the process had, in kB.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let number = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    number.unwrap_or(0)
}

/// A generator of numbers, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// Words whose frequencies fall as those of a language do.
    fn words(&mut self, count: u64) -> String {
        let words: Vec<String> = (0..count)
            .map(|_| {
                let spread = self.next(40_000) + 1;
                let rank = self.next(spread);
                match rank {
                    0..8 => [
                        "the", "file", "error", "to", "config", "session", "test", "of",
                    ][rank as usize]
                        .to_owned(),
                    rank => format!("w{rank}"),
                }
            })
            .collect();
        words.join(" ")
    }
}

fn session(folder: &Path, number: u64) -> (PathBuf, std::fs::File) {
    let project = folder.join(format!(".claude/projects/-work-p{}", number % 20));
    std::fs::create_dir_all(&project).unwrap();
    let path = project.join(format!("session-{number}.jsonl"));
    let file = std::fs::File::create(&path).unwrap();
    (path, file)
}

fn generated(folder: &Path, size: u64) {
    let mut numbers = Numbers(1);
    let mut bytes = 0;
    let mut number = 0;
    while bytes < size {
        number += 1;
        let (_, file) = session(folder, number);
        let mut file = std::io::BufWriter::new(file);
        for turn in 0..400 {
            let content = match turn % 4 {
                0 => json!([{"type": "text", "text": numbers.words(40)}]),
                1 => {
                    json!([{"type": "thinking", "thinking": numbers.words(80)}, {"type": "text", "text": numbers.words(60)}])
                }
                2 => {
                    json!([{"type": "tool_use", "id": format!("t{turn}"), "name": "Bash", "input": {"command": numbers.words(12)}}])
                }
                _ => {
                    let words = 50 + numbers.next(1_500);
                    json!([{"type": "tool_result", "tool_use_id": format!("t{}", turn - 1), "content": numbers.words(words)}])
                }
            };
            let role = if turn % 4 == 0 || turn % 4 == 3 {
                "user"
            } else {
                "assistant"
            };
            let line = json!({
                "parentUuid": format!("u{number}-{}", turn - 1), "uuid": format!("u{number}-{turn}"), "type": role,
                "cwd": format!("/work/p{}", number % 20), "sessionId": format!("session-{number}"),
                "timestamp": format!("2026-0{}-{:02}T10:{:02}:00Z", number % 9 + 1, number % 28 + 1, turn % 60),
                "message": {"role": role, "content": content},
            })
            .to_string();
            bytes += line.len() as u64 + 1;
            writeln!(file, "{line}").unwrap();
        }
    }
}

/// Copies of a real log. In each, every fifth word of letters gets an ending, so that texts and terms
/// differ as those of different sessions do.
fn from_log(folder: &Path, log: &Path, size: u64) {
    let text = std::fs::read_to_string(log).unwrap();
    let mut numbers = Numbers(1);
    let mut bytes = 0;
    let mut number = 0;
    while bytes < size {
        number += 1;
        let (_, mut file) = session(folder, number);
        let mut copy = String::with_capacity(text.len() * 2);
        let mut value: usize = 0;
        for line in text.lines() {
            let mut json: serde_json::Value = serde_json::from_str(line).unwrap();
            vary(&mut json, &mut numbers, &mut value);
            copy.push_str(&json.to_string());
            copy.push('\n');
        }
        file.write_all(copy.as_bytes()).unwrap();
        bytes += copy.len() as u64;
    }
}

fn vary(value: &mut serde_json::Value, numbers: &mut Numbers, seen: &mut usize) {
    match value {
        serde_json::Value::String(text) if text.contains(' ') => {
            let words = text.split_inclusive(' ').map(|word| {
                *seen += 1;
                match seen.is_multiple_of(5)
                    && word
                        .trim_end()
                        .bytes()
                        .all(|byte| byte.is_ascii_alphabetic())
                {
                    true => format!("{}{} ", word.trim_end(), numbers.next(300)),
                    false => word.to_owned(),
                }
            });
            *text = words.collect();
        }
        serde_json::Value::Array(list) => {
            list.iter_mut().for_each(|value| vary(value, numbers, seen))
        }
        serde_json::Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                if !["cwd", "timestamp", "type", "role", "uuid", "parentUuid"]
                    .contains(&key.as_str())
                {
                    vary(value, numbers, seen);
                }
            }
        }
        _ => {}
    }
}
