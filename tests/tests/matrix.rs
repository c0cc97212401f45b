//! Every engine plays the same conversation to the token in each of the three ways in which it is carried.
//!
//! Of the real ones a few; with `CONTEXTURE_ALL_DATA=1` all.
// Engines in processes of their own are tried on Linux.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::path::{Path, PathBuf};

use contexture_tests::{Home, built_plugins, repository, shared_data};
use serde_json::Value;

/// The engines, and whether the command has them linked in.
const ENGINES: [(&str, bool); 5] = [
    ("keep-tail", false),
    ("lcm", true),
    ("tiered", true),
    ("two-layer", true),
    ("virtual-files", true),
];

/// The ways in which an engine is carried, by what the home is made of.
fn homes() -> Vec<(&'static str, Home)> {
    let linked = Home::new();
    let (cdylib, process) = (Home::new(), Home::new());
    for home in [&cdylib, &process] {
        for (name, _) in ENGINES {
            home.install(&format!("plugins/context_engine/{name}"), name);
        }
    }
    let program = built_plugins().join("contexture-engine-host");
    process.configure(&format!(
        "context:\n  isolation: process\n  engine_host: {}\n",
        program.display()
    ));
    vec![
        ("linked in", linked),
        ("cdylib", cdylib),
        ("process", process),
    ]
}

/// What the engine did with a conversation, without the times.
fn played(home: &Home, file: &Path, engine: &str, window: &str) -> Value {
    let file = file.to_str().unwrap();
    let (report, _) = home.command(&[
        "replay", file, "--context-length", window, "--engine", engine, "--report", "-",
    ]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let rows = report["totals"].as_array().unwrap();
    let mut row = (rows.iter())
        .find(|row| row["engine"] == engine)
        .unwrap_or_else(|| panic!("{engine} has no row: {report}"))
        .clone();
    assert_eq!(row["failures"], 0, "{engine}, {file}");
    let figures = row.as_object_mut().unwrap();
    for other in ["engine_ms", "worst_turn_ms", "source"] {
        assert!(figures.remove(other).is_some(), "{other}");
    }
    row
}

fn plays_alike(files: &[PathBuf], window: &str) {
    let homes = homes();
    for file in files {
        for (engine, is_linked) in ENGINES {
            let mut rows = (homes.iter().skip(usize::from(!is_linked)))
                .map(|(way, home)| (way, played(home, file, engine, window)));
            let (_, first) = rows.next().unwrap();
            for (way, row) in rows {
                let who = format!("{engine} as {way}, {}", file.display());
                match engine {
                    // Its summaries tell the time, in more tokens or fewer.
                    "tiered" => {
                        assert_eq!(row["compactions"], first["compactions"], "{who}");
                        let tokens = |row: &Value| row["prompt_tokens"].as_f64().unwrap();
                        let off = (tokens(&row) / tokens(&first) - 1.0).abs();
                        assert!(off < 0.001, "{who}: {row} and {first}");
                    }
                    _ => assert_eq!(row, first, "{who}"),
                }
            }
        }
    }
}

#[test]
fn an_engine_does_the_same_however_it_is_carried() {
    plays_alike(&[repository().join("examples/coding-session.json")], "8000");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn an_engine_does_the_same_with_real_conversations() {
    let folders: &[&str] = match std::env::var_os("CONTEXTURE_ALL_DATA") {
        Some(_) => &["claude-code", "tau2-bench", "swe-agent"],
        None => &["swe-agent"],
    };
    let files: Vec<PathBuf> = (folders.iter())
        .flat_map(|folder| std::fs::read_dir(shared_data().join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e != "md") && !path.ends_with("LICENSE"))
        .collect();
    plays_alike(&files, "32000");
}
