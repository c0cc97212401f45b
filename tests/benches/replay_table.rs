//! What every engine makes of the same recorded conversations: the table in `BENCHMARKS.md` and the chart in the README.
//!
//! `cargo bench -p contexture-tests --bench replay_table [-- write]` prints the table, and with `write` puts it into
//! `BENCHMARKS.md`. `-- chart` writes only the chart, in light and in dark colours.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "replay_table/chart.rs"]
mod chart;

use std::fmt::Write as _;

use contexture_engine_api::grouped;
use contexture_tests::{Home, repository, shared_data};
use serde_json::Value;

const ENGINES: [&str; 6] = [
    "compressor", "keep-tail", "lcm", "tiered", "two-layer", "virtual-files",
];
/// What is played, what it is called, and the window.
const SETS: [(&str, &str, u64); 3] = [
    ("claude-code", "a session of Claude Code", 100_000),
    ("swe-agent", "three runs of SWE-agent", 16_000),
    ("tau2-bench", "87 of tau2-bench", 8_000),
];
const BEGIN: &str =
    "<!-- replay table: cargo bench -p contexture-tests --bench replay_table -- write -->\n";
const END: &str = "<!-- end of the replay table -->";

fn main() {
    let home = Home::new();
    if std::env::args().any(|argument| argument == "chart") {
        return chart::write(&home);
    }
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let totals: Vec<Vec<Value>> = SETS.iter().map(|set| totals(&home, set.0, set.2)).collect();
    let mut table = String::from("| engine |");
    for (_, name, window) in SETS {
        write!(table, " {name}, window {} |", grouped(window)).unwrap();
    }
    table.push_str("\n|---|---|---|---|\n");
    for engine in ["none"].iter().chain(&ENGINES) {
        write!(table, "| `{engine}` |").unwrap();
        for set in &totals {
            let row = |name: &str| set.iter().find(|row| row["engine"] == name).unwrap();
            let (own, none) = (row(engine), row("none"));
            let figure = |name: &str| own[name].as_u64().unwrap();
            let cost = |row: &Value| row["cost_usd"].as_f64().unwrap();
            assert_eq!(own["work"]["failures"].as_u64().unwrap_or(0), 0, "{own}");
            write!(
                table,
                " {} tokens, {} too large, ${:.2} ({:.0} %) |",
                grouped(figure("mean_prompt_tokens")),
                grouped(figure("overflows")),
                cost(own),
                100.0 * cost(own) / cost(none),
            )
            .unwrap();
        }
        table.push('\n');
    }
    print!("{table}");
    if std::env::args().any(|argument| argument == "write") {
        let path = repository().join("BENCHMARKS.md");
        let page = std::fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once(BEGIN).expect("the page has the table");
        let (_, after) = rest.split_once(END).expect("the table has an end");
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    }
}

/// The rows of all conversations of a folder.
fn totals(home: &Home, folder: &str, window: u64) -> Vec<Value> {
    let report = replayed(home, folder, window, &ENGINES);
    report["totals"].as_array().unwrap().clone()
}

/// The report of a replay of all conversations of a folder.
fn replayed(home: &Home, folder: &str, window: u64, engines: &[&str]) -> Value {
    let mut inputs: Vec<_> = std::fs::read_dir(shared_data().join(folder))
        .expect("../shared/data is there")
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some())
        .collect();
    inputs.sort();
    let mut replay = home.contexture(&["replay", "--report", "-"]);
    replay
        .args(["--context-length", &window.to_string()])
        .args(engines.iter().flat_map(|engine| ["--engine", engine]))
        .args(inputs);
    let ran = replay.output().expect("the command runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    serde_json::from_slice(&ran.stdout).unwrap()
}
