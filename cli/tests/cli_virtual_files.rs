//! The engine of virtual files through the command: chosen by name, its tools beside the session, replayed.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use cli_support::Home;
use serde_json::{Value, json};

fn log(lines: usize) -> String {
    (1..=lines)
        .map(|line| format!("line {line} of the log says nothing\n"))
        .collect()
}

#[test]
fn the_command_compresses_and_reads_files_back() {
    let home = Home::new();
    home.put("home/config.yaml", "context:\n  engine: virtual-files\n");
    let doctor = home.done("engines doctor");
    doctor.stdout_has("engine virtual-files  loads, opens and answers");
    let chat = json!({"model": "gpt-5", "messages": [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": log(3_000)},
    ]});
    let chat = home.put("chat.json", &chat.to_string());
    let ran = home.done(format!(
        "compress {chat} --session work --context-length 200000"
    ));
    let out: Value = serde_json::from_str(&ran.stdout).unwrap();
    let result = out["messages"][2]["content"].as_str().unwrap();
    let name = result.strip_prefix("[file ").unwrap();
    let name = name.split_once(':').unwrap().0;
    let notice = out["messages"][3]["content"].as_str().unwrap();
    assert!(
        notice.starts_with("[virtual files") && notice.contains(name),
        "{notice}"
    );

    let tool = |tool: &str, arguments: Value| {
        home.run(["tool", tool, &arguments.to_string(), "--session", "work"])
    };
    let list = tool("file_list", json!({}));
    list.exits(0);
    assert!(list.stdout.starts_with(name), "{}", list.stdout);
    let found = tool("file_regex", json!({"pattern": "line 2999 "}));
    assert!(
        found.stdout.starts_with(&format!("{name}:2999: ")),
        "{}",
        found.stdout
    );
    let read = tool("file_read", json!({"name": name, "start_line": 3_000}));
    read.stdout_has("line 3000 of the log");
    let wrong = tool("file_read", json!({"name": name, "start_line": 3_001}));
    assert!(
        wrong.code != 0 && wrong.stderr.contains("has 3000 lines"),
        "{}",
        wrong.stderr
    );
    let unknown = tool("file_write", json!({}));
    assert!(unknown.code != 0, "{}", unknown.stdout);

    // Its files go with the session.
    let kept = || -> i64 {
        let record = rusqlite::Connection::open(home.path("home/sessions.sqlite3")).unwrap();
        let count = "SELECT (SELECT count(*) FROM texts) + (SELECT count(*) FROM artifacts)";
        record.query_row(count, [], |row| row.get(0)).unwrap()
    };
    assert_eq!(kept(), 4);
    let asked = home.contexture("sessions delete work");
    assert!(asked.code == 0 && kept() == 4, "{}", asked.stderr);
    deletes_work(&home);
    assert_eq!(kept(), 0);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn real_conversations_are_replayed_without_a_failure() {
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/data");
    for (file, window) in [
        ("claude-code/main.jsonl", "60000"),
        ("swe-agent/web__i_got_id_demo.traj", "8000"),
    ] {
        let home = Home::new();
        let path = format!("{data}/{file}");
        home.done(format!(
            "replay {path} --engine virtual-files --context-length {window} --report report.json"
        ));
        let report: Value = serde_json::from_str(&home.read("report.json")).unwrap();
        let totals = report["totals"].as_array().unwrap();
        let run = totals
            .iter()
            .find(|run| run["engine"] == "virtual-files")
            .unwrap();
        assert_eq!(
            (&run["failures"], &run["overflows"]),
            (&json!(0), &json!(0)),
            "{run}"
        );
        assert!(run["compactions"].as_u64().unwrap() > 0, "{run}");
    }
}

#[test]
fn what_is_recorded_of_an_engine_that_keeps_nothing_is_deleted() {
    let home = Home::new();
    let chat = json!({"model": "gpt-5", "messages": [{"role": "user", "content": "look"}]});
    let chat = home.put("chat.json", &chat.to_string());
    home.done(format!(
        "compress {chat} --session work --engine compressor"
    ));
    deletes_work(&home);
}

/// Deletes the session `work`, which is not there afterwards.
fn deletes_work(home: &Home) {
    let delete = || home.contexture("sessions delete work --yes");
    let gone = delete();
    let answer: Value = serde_json::from_str(&gone.stdout).unwrap();
    assert_eq!(
        (gone.code, &answer["sessions"]),
        (0, &json!(["work"])),
        "{}",
        gone.stderr
    );
    let again = delete();
    assert_ne!(again.code, 0, "{}", again.stdout);
}
