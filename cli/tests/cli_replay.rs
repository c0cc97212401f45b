//! `contexture replay` as a user types it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::Path;

use cli_support::{Home, Ran, ran};
use serde_json::{Value, json};

fn replay(home: &Home, args: &[&str]) -> Ran {
    let mut command = home.command(["replay"]);
    command.args(args).env("TMPDIR", home.path(""));
    ran(command.output().unwrap())
}

/// A first question of 2,000 tokens and answers and questions of 100 each, after a system prompt.
fn chat(answers: usize) -> String {
    let words = |count| vec!["a"; count].join(" ");
    let mut messages = vec![
        json!({"role": "system", "content": "Answer in words."}),
        json!({"role": "user", "content": words(2_000)}),
    ];
    for _ in 0..answers {
        messages.push(json!({"role": "assistant", "content": words(100)}));
        messages.push(json!({"role": "user", "content": words(100)}));
    }
    json!({"model": "gpt-5", "messages": messages}).to_string()
}

fn cells<'a>(said: &'a Ran, engine: &str) -> Vec<&'a str> {
    let row = said.stdout.lines().find(|line| line.starts_with(engine));
    row.unwrap_or_else(|| panic!("no row {engine} in {}", said.stdout))
        .split_whitespace()
        .collect()
}

#[test]
fn prints_a_table_of_totals_over_all_inputs() {
    let home = Home::new();
    std::fs::remove_dir(home.path("home")).unwrap();
    home.put("one.json", &chat(3));
    home.put("two.jsonl", &format!("{}\n{}\n", chat(1), chat(40)));
    let said = replay(
        &home,
        &[
            "one.json", "two.jsonl", "--context-length", "6000", "--offline",
        ],
    );
    said.exits(0);
    assert!(
        said.stdout.starts_with(
            "44 requests in 3 conversations of 91 messages, window of 6,000 tokens (gpt-5)\n"
        ),
        "{}",
        said.stdout
    );
    let none = cells(&said, "none");
    let compressor = cells(&said, "compressor");
    assert_eq!(none[1..3], ["–", "–"]);
    assert_ne!(none[3], "0", "overflows: {none:?}");
    assert_ne!(compressor[1], "0", "compactions: {compressor:?}");
    assert_eq!(
        compressor[2..4],
        ["0", "0"],
        "model calls and overflows: {compressor:?}"
    );
    said.stdout_lacks("recorded");
    // The engines' data went with the temporary directory, and the home was never made.
    assert!(!Path::new(&home.path("home")).exists());
    let left: Vec<_> = std::fs::read_dir(home.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .filter(|name| name.to_string_lossy().contains("replay"))
        .collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
}

#[test]
fn prices_and_lifetime_decide_what_it_costs() {
    let home = Home::new();
    let line = |ts: u64, role, words: usize| {
        json!({"ts": ts, "role": role, "content": vec!["a"; words].join(" ")}).to_string()
    };
    // Prompts of 2,004 and 2,212 tokens, ten minutes apart.
    let lines = [
        line(0, "user", 2_000),
        line(1, "assistant", 100),
        line(600, "user", 100),
        line(601, "assistant", 100),
    ];
    home.put("lines.jsonl", &lines.join("\n"));
    let cost = |args: &[&str]| {
        let fixed = ["lines.jsonl", "--model", "gpt-5", "--report", "-"];
        let said = replay(&home, &[&fixed, args].concat());
        said.exits(0);
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        report["totals"][0]["cost_usd"].as_f64().unwrap()
    };
    let is = |cost: f64, micro_dollars: f64| (cost * 1e6 - micro_dollars).abs() < 1e-6;
    assert!(is(cost(&[]), (2_004.0 + 2_212.0) * 3.75));
    assert!(is(
        cost(&["--cache-ttl", "1h"]),
        (2_004.0 + 208.0) * 6.0 + 2_004.0 * 0.3
    ));
    let own = [
        "--price-in", "9", "--price-cached", "1", "--price-write", "2", "--cache-ttl", "1h",
    ];
    assert!(is(cost(&own), 2_212.0 * 2.0 + 2_004.0));
    assert!(is(cost(&["--price-in", "10"]), (2_004.0 + 2_212.0) * 10.0));

    home.put("home/config.yaml", "prompt_caching: {cache_ttl: 1h}\n");
    assert!(is(cost(&[]), (2_004.0 + 208.0) * 6.0 + 2_004.0 * 0.3));
}

#[test]
fn the_report_goes_to_its_file_and_the_table_to_stdout() {
    let home = Home::new();
    home.put("chats.jsonl", &format!("{}\n{}\n", chat(2), chat(3)));
    let said = replay(
        &home,
        &[
            "chats.jsonl", "--engine", "compressor", "--engine", "compressor", "--report", "r.json",
        ],
    );
    said.exits(0);
    cells(&said, "compressor");
    let report = home.read("r.json");
    let report: Value = serde_json::from_str(&report).unwrap();
    let conversations = report["conversations"].as_array().unwrap();
    assert_eq!(conversations.len(), 2);
    assert_eq!(conversations[1]["number"], 2);
    assert_eq!(conversations[1]["input"], "chats.jsonl");
    let rows = conversations[1]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "an engine that is named twice plays once");
    assert_eq!(
        (&rows[0]["engine"], &rows[1]["engine"]),
        (&json!("none"), &json!("compressor"))
    );
    assert_eq!(rows[1]["source"], "builtin");
    assert_eq!(rows[1]["requests"], 3);
}

#[test]
fn what_cannot_be_played_is_refused_with_the_way_out() {
    let home = Home::new();
    home.put("chat.json", &chat(1));
    home.put("cut.json", "{\"messages\": [");
    home.put("empty.json", "");
    for (args, hint) in [
        (&[][..], "INPUT"),
        (&["missing.json"], "missing.json"),
        (&["cut.json"], "cut.json"),
        (&["empty.json"], "empty.json"),
        (&["chat.json", "missing.json"], "missing.json"),
        (&["chat.json", "--engine", "compresor"], "compressor"),
        (&["chat.json", "--price-in=-1"], "-1 is not a price"),
        (&["chat.json", "--price-in", "free"], "free"),
        (&["chat.json", "--cache-ttl", "10m"], "5m"),
        (&["chat.json", "--context-length", "0"], "--context-length"),
    ] {
        let said = replay(&home, args);
        said.exits(2).stdout_is("");
        assert!(
            said.stderr.to_lowercase().contains(&hint.to_lowercase()),
            "{args:?}: {}",
            said.stderr
        );
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn every_real_file_is_played() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let home = Home::new();
    let mut files: Vec<std::path::PathBuf> = vec![data.join("claude-code/main.jsonl")];
    for folder in ["swe-agent", "tau2-bench"] {
        let entries = std::fs::read_dir(data.join(folder)).unwrap();
        files.extend(
            entries
                .map(|entry| entry.unwrap().path())
                .filter(|path| path.extension().is_some()),
        );
    }
    let mut args: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    args.extend(["--context-length", "100000", "--offline", "--report", "-"]);
    let said = replay(&home, &args);
    said.exits(0);
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let names: Vec<_> = report["totals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["engine"])
        .collect();
    assert_eq!(names[..2], [&json!("recorded"), &json!("none")]);
    let compressor = &report["totals"][2];
    assert_eq!(
        (&compressor["failures"], &compressor["overflows"]),
        (&json!(0), &json!(0))
    );
    assert!(compressor["compactions"].as_u64().unwrap() > 0);
}

/// The sums of a row: what its shares say, and what it costs beyond them.
fn accounted(row: &Value, prices: &Value) -> (f64, f64) {
    let tokens = |name: &str| row[name].as_f64().unwrap();
    let plain = tokens("prompt_tokens") - tokens("cached_tokens") - tokens("written_tokens");
    // Nothing is read or written where nothing is cached.
    let shares = match row["engine"] == "uncached" {
        true => 0.0,
        false => {
            let shares = row["shares"].as_object().unwrap().values();
            shares.map(|share| share.as_f64().unwrap()).sum::<f64>()
        }
    };
    (
        shares + plain * prices["input"].as_f64().unwrap() / 1e6,
        row["cost_usd"].as_f64().unwrap(),
    )
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn compactions_timed_by_price_cost_less_and_every_cent_is_accounted_for() {
    let log =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/claude-code/main.jsonl");
    let home = Home::new();
    let report = |timing: &str, ttl: &str| {
        let config =
            format!("compression: {{timing: {timing}}}\nprompt_caching: {{cache_ttl: {ttl}}}\n");
        let config = home.put(&format!("{timing}-{ttl}.yaml"), &config);
        let said = replay(
            &home,
            &[
                log.to_str().unwrap(),
                "--config",
                &config,
                "--engine",
                "compressor",
                "--engine",
                "lcm",
                "--context-length",
                "200000",
                "--offline",
                "--report",
                "-",
            ],
        );
        said.exits(0);
        let report: Value = serde_json::from_str(&said.stdout).unwrap();
        for row in report["totals"].as_array().unwrap() {
            if row["engine"] != "recorded" {
                let (parts, cost) = accounted(row, &report["prices"]);
                assert!((parts - cost).abs() < 1e-6, "{timing} {ttl}: {row}");
            }
            for one in row["costs"].as_array().into_iter().flatten() {
                assert!(
                    one["tokens_after"].as_u64() < one["tokens_before"].as_u64(),
                    "{one}"
                );
                assert_eq!(
                    one["cost_usd"] == json!(0.0),
                    one["cache_was_cold"] == json!(true),
                    "{one}"
                );
            }
        }
        let costs = report["totals"].as_array().unwrap()[1..].iter();
        costs
            .map(|row| row["cost_usd"].as_f64().unwrap())
            .collect::<Vec<_>>()
    };
    let threshold = report("threshold", "5m");
    let economy = report("economy", "5m");
    let chosen = report("economy", "auto");
    for engine in [1, 2] {
        assert_eq!(threshold[0], economy[0]);
        assert!(threshold[engine] < threshold[0], "{threshold:?}");
        assert!(
            economy[engine] < threshold[engine],
            "{economy:?} {threshold:?}"
        );
        // Seventeen pauses of more than five minutes.
        assert!(
            chosen[engine] < threshold[engine],
            "{chosen:?} {threshold:?}"
        );
    }
}

#[test]
fn the_cheapest_settings_are_named_in_words_that_go_into_the_configuration() {
    let home = Home::new();
    let chat = home.put("chat.json", &chat(40));
    let chat = chat.as_str();
    let args = ["--context-length", "8000", "--offline"];
    let said = replay(&home, &[&[chat, "--advise"][..], &args].concat());
    said.exits(0);
    said.stdout_has("as configured");
    let lines: Vec<&str> = said.stdout.lines().skip(2).collect();
    let costs: Vec<f64> = lines
        .iter()
        .take_while(|line| !line.starts_with("none"))
        .map(|line| {
            line.split('$')
                .nth(1)
                .unwrap()
                .split(' ')
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    assert_eq!(costs.len(), 18, "{}", said.stdout);
    assert!(costs.is_sorted(), "{costs:?}");
    let Some((_, yaml)) = said.stdout.split_once(" on these conversations:\n\n") else {
        panic!("no advice in {}", said.stdout);
    };
    // What is advised costs what the table says.
    let config = home.put("advised.yaml", yaml);
    let config = &config;
    let said = replay(
        &home,
        &[&[chat, "--config", config, "--report", "-"][..], &args].concat(),
    );
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    let cost = report["totals"][1]["cost_usd"].as_f64().unwrap();
    assert_eq!(format!("{cost:.4}"), format!("{:.4}", costs[0]));
}
