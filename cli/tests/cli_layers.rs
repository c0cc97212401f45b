//! The engines that compact in layers, through the real command.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::PathBuf;

use cli_support::{Home, json, shared_data};
use serde_json::{Value, json};

/// A conversation of seven turns, as the document on two layers shows them: 5,000 characters of a result each.
fn document() -> String {
    let chinese = "数据库连接池的超时配置说明与排查步骤";
    let result: String = chinese.chars().cycle().take(5_000).collect();
    let arguments = json!({"path": "a.md", "content": "x".repeat(1_000)}).to_string();
    let mut messages = vec![json!({"role": "system", "content": "你是豆豆。"})];
    for turn in 1..=7 {
        let function = json!({"name": "loadContent", "arguments": arguments});
        let id = format!("c{turn}");
        messages.push(json!({"role": "user", "content": format!("用户问题{turn}")}));
        messages.push(
            json!({"role": "assistant", "content": "思考", "tool_calls": [
            {"id": id, "type": "function", "function": function}]}),
        );
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": result}));
        messages.push(json!({"role": "assistant", "content": "好的"}));
    }
    messages.push(json!({"role": "user", "content": "当前问题"}));
    json!({"model": "gpt-4o", "messages": messages}).to_string()
}

fn messages(text: &str) -> Vec<Value> {
    json(text)["messages"].as_array().unwrap().clone()
}

/// The files of real conversations with tools.
fn real_files() -> Vec<PathBuf> {
    let data = shared_data();
    let mut files = vec![data.join("claude-code/main.jsonl")];
    for folder in ["swe-agent", "tau2-bench"] {
        let entries = std::fs::read_dir(data.join(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        files.extend(paths.filter(|path| path.extension().is_some()));
    }
    files
}

/// The totals of a replay of every real file with this engine.
fn replayed(engine: &str, config: &str, window: &str) -> Value {
    let home = Home::new();
    home.put("home/config.yaml", config);
    let files = real_files();
    let mut args: Vec<&str> = vec!["replay"];
    args.extend(files.iter().map(|file| file.to_str().unwrap()));
    args.extend(["--engine", engine, "--context-length", window]);
    args.extend(["--offline", "--report", "-"]);
    let ran = home.run(args);
    ran.exits(0);
    let report = json(&ran.stdout);
    let mut totals = report["totals"].as_array().unwrap().iter();
    totals.find(|row| row["engine"] == engine).unwrap().clone()
}

#[test]
fn two_layers_cut_each_turn_and_summarise_above_the_threshold() {
    let home = Home::new();
    home.put("chat.json", &document());
    let ran = home.done("compress chat.json --engine two-layer");
    let first = messages(&ran.stdout);
    assert_eq!(first.len(), 30);
    for (at, message) in first
        .iter()
        .enumerate()
        .filter(|(_, message)| message["role"] == "tool")
    {
        let is_old = at < 14;
        let text = message["content"].as_str().unwrap();
        assert_eq!(text.starts_with("[truncated: 5000 chars]"), is_old, "{at}");
        let arguments = first[at - 1]["tool_calls"][0]["function"]["arguments"]
            .as_str()
            .unwrap();
        assert_eq!(arguments.chars().count() <= 200, is_old, "{at}");
        assert_eq!(json(arguments)["path"], "a.md");
    }

    home.put(
        "home/config.yaml",
        "context:\n  engine: two-layer\n  engines:\n    two-layer:\n      token_threshold: 10000\n",
    );
    let ran = home.done("-v compress chat.json");
    let line = "Context auto_compact triggered: estimated tokens=";
    ran.stderr_has(line);
    ran.stderr_has(" > threshold=10000");
    let second = messages(&ran.stdout);
    assert_eq!(second[0]["content"], "你是豆豆。");
    assert_eq!(second[1]["role"], "system");
    let summary = second[1]["content"].as_str().unwrap();
    assert!(
        summary.starts_with("【历史摘要】\n") && summary.contains("用户问题1"),
        "{summary}"
    );
    assert_eq!(
        second[2..],
        first[first.len() - (second.len() - 2)..],
        "the recent turns"
    );
    assert_eq!(second.last().unwrap()["content"], "当前问题");
}

#[test]
fn their_settings_are_checked() {
    let home = Home::new();
    home.put("chat.json", &document());
    for (engine, setting, said) in [
        ("two-layer", "keep_recent_tools: 0", "at least 1"),
        ("two-layer", "summary_format: xml", "json"),
        ("two-layer", "keep_recent_tool: 3", "keep_recent_tools"),
        (
            "tiered",
            "thresholds: {compaction_trigger: 0.9, summarization_trigger: 0.8}",
            "compaction_trigger",
        ),
        (
            "tiered",
            "thresholds: {compactionTrigger: 0.9, summarizationTrigger: 0.8}",
            "thresholds.compactionTrigger`, 0.9",
        ),
        (
            "tiered",
            "thresholds: {compactionTrigger: 0.97}",
            "thresholds.summarization_trigger` is 0.95 (its default)",
        ),
        (
            "tiered",
            "thresholds: {keepRecentCount: 3, keep_recent_count: 4}",
            "are the same setting: remove one",
        ),
        (
            "tiered",
            "{enableContextManagement: true, enable_context_management: true}",
            "are the same setting: remove one",
        ),
        ("two-layer", "keepRecentTools: 0", "at least 1"),
        ("two-layer", "keepRecentTool: 3", "keepRecentTools"),
        (
            "two-layer",
            "{tokenThreshold: 9, token_threshold: 8}",
            "are the same setting: remove one",
        ),
        (
            "tiered",
            "enableContextManagment: true",
            "enableContextManagement",
        ),
    ] {
        let config = format!("context:\n  engines:\n    {engine}:\n      {setting}\n");
        home.put("home/config.yaml", &config);
        let ran = home.contexture(format!("compress chat.json --engine {engine}"));
        ran.exits(2);
        assert!(ran.stderr.contains(said), "{setting}: {}", ran.stderr);
        let config = format!(
            "context:\n  engine: {engine}\n{}",
            &config["context:\n".len()..]
        );
        home.put("home/config.yaml", &config);
        let ran = home.contexture("config check");
        assert_ne!(ran.code, 0, "{setting}: {}", ran.stdout);
    }
}

#[test]
fn the_doctor_finds_them_well() {
    let home = Home::new();
    let ran = home.done("engines doctor");
    for engine in ["two-layer", "tiered"] {
        ran.stdout_has(engine);
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn two_layers_keep_real_conversations_within_the_contract() {
    let turns = "context:\n  engines:\n    two-layer:\n      token_threshold: 15000\n      per_turn_summaries: true\n      keep_important: 0.7\n";
    for (config, window) in [("", "200000"), ("", "40000"), (turns, "100000")] {
        let totals = replayed("two-layer", config, window);
        assert_eq!(totals["failures"], 0, "{totals}");
        assert_eq!(totals["overflows"], 0, "{totals}");
        assert!(totals["compactions"].as_u64().unwrap() > 0, "{totals}");
    }
}

/// The lines of an export.
fn events(text: &str) -> Vec<Value> {
    text.lines().map(json).collect()
}

#[test]
fn what_is_compacted_comes_back_exactly_after_a_restart() {
    let original = document();
    let whole = messages(&original);
    let home = Home::new();
    let chat = home.put("chat.json", &original);
    let args = [
        "compress", &chat, "--engine", "tiered", "--session", "s", "--force",
    ];
    let ran = home.run(args);
    ran.exits(0);
    let compacted = messages(&ran.stdout);
    assert_eq!(compacted.len(), whole.len());
    let text = compacted[3]["content"].as_str().unwrap();
    assert!(text.starts_with("[COMPACTED: loadContent a.md]"), "{text}");
    assert_eq!(compacted[20..], whole[20..], "the newest ten");

    let exported = home.done("sessions export s");
    let events = events(&exported.stdout);
    let third = events
        .iter()
        .find(|event| event["message"]["id"] == "m3")
        .unwrap();
    assert_eq!(third["message"]["role"], "tool");
    assert_eq!(third["message"]["content"], "[COMPACTED: loadContent a.md]");
    let kept = &third["state"]["__compaction__"];
    assert_eq!(kept["original_content"], whole[3]["content"]);
    assert_eq!(kept["strategy"], "compaction");
    assert!(kept["tokens_saved"].as_u64().unwrap() > 1_000, "{kept}");
    assert!(kept["compacted_at"].as_str().unwrap().ends_with('Z'));

    let ran = home.done("sessions restore s m3");
    ran.stderr_has("1 message will be restored");
    let ran = home.done("compress chat.json --session s");
    let restored = messages(&ran.stdout);
    assert_eq!(restored[3], whole[3]);
    assert_eq!(restored[7], compacted[7]);

    home.done("sessions restore s");
    let ran = home.contexture("compress chat.json --session s");
    assert_eq!(messages(&ran.stdout), whole);
    let ran = home.contexture("sessions restore s");
    ran.stderr_has("nothing is compacted");
}

#[test]
fn who_carries_on_from_what_was_handed_out_gets_it_back_too() {
    let home = Home::new();
    let chat = home.put("chat.json", &document());
    let args = [
        "compress", &chat, "--engine", "tiered", "--session", "s", "--force",
    ];
    home.put("handed.json", &home.run(args).stdout);
    home.done("sessions restore s");
    let ran = home.done("compress handed.json --session s");
    let (restored, whole) = (messages(&ran.stdout), messages(&document()));
    for (restored, whole) in restored.iter().zip(&whole) {
        assert_eq!(restored["content"], whole["content"]);
        assert_eq!(restored["tool_calls"], whole["tool_calls"]);
    }
    assert_eq!(restored.len(), whole.len());
}

#[test]
fn the_tool_restores_from_the_command_line_too() {
    let home = Home::new();
    let original = document();
    let chat = home.put("chat.json", &original);
    let args = [
        "compress", &chat, "--engine", "tiered", "--session", "s", "--force",
    ];
    let compacted = messages(&home.run(args).stdout);
    let whole = messages(&original);
    let shown = |at: usize| compacted[at]["content"].as_str().unwrap().to_owned();
    assert!(shown(3).starts_with("[COMPACTED: "), "{}", shown(3));
    for (at, words) in [(3, shown(3)), (7, "m7".to_owned())] {
        let asked = serde_json::json!({"message": words}).to_string();
        let ran = home.run(["tool", "restore", &asked, "--session", "s"]);
        ran.exits(0);
        assert_eq!(json(&ran.stdout)["content"], whole[at]["content"]);
        ran.stderr_has("1 message will be restored");
    }
    let ran = home.contexture("compress chat.json --session s");
    let restored = messages(&ran.stdout);
    for at in [3, 7] {
        assert_eq!(restored[at], whole[at]);
    }
    assert_eq!(restored[5], compacted[5]);
    let ran = home.run([
        "tool",
        "restore",
        r#"{"message": "nothing of this"}"#,
        "--session",
        "s",
    ]);
    ran.exits(2);
    ran.stderr_lacks(" 0 are compacted");
}

#[test]
fn what_was_restored_stays_restored_where_the_client_goes_back_to_an_older_body() {
    let home = Home::new();
    let original = document();
    let chat = home.put("chat.json", &original);
    let args = [
        "compress", &chat, "--engine", "tiered", "--session", "s", "--force",
    ];
    let handed = home.put("handed.json", &home.run(args).stdout);
    let whole = messages(&original);
    home.done("sessions restore s m3");
    for body in [&chat, &handed, &handed] {
        // The client may also go back to an earlier body.
        let ran = home.done(format!("compress {body} --session s"));
        let said = messages(&ran.stdout);
        assert_eq!(said[3]["content"], whole[3]["content"], "{}", ran.stderr);
        let text = said[7]["content"].as_str().unwrap();
        assert!(text.starts_with("[COMPACTED: "), "{text}");
    }
    home.done("sessions restore s");
    let ran = home.done("compress handed.json --session s");
    let (restored, whole) = (messages(&ran.stdout), messages(&document()));
    for (restored, whole) in restored.iter().zip(&whole) {
        assert_eq!(restored["content"], whole["content"]);
        assert_eq!(restored["tool_calls"], whole["tool_calls"]);
    }
    assert_eq!(restored.len(), whole.len());
}

#[test]
fn events_are_read_with_what_is_kept_with_them() {
    let original = messages(&document());
    let event = |at: usize, message: &Value| {
        let mut event =
            serde_json::json!({"message": message, "state": {"step": at, "userGoal": "修复"}});
        event["message"]["timestamp"] = serde_json::json!("2024-01-15T10:00:00Z");
        event
    };
    let said: Vec<Value> = original
        .iter()
        .enumerate()
        .skip(1)
        .map(|(at, m)| event(at, m))
        .collect();
    let lines: Vec<String> = said.iter().map(Value::to_string).collect();
    for (name, text) in [
        ("events.jsonl", lines.join("\n")),
        ("events.json", serde_json::to_string(&said).unwrap()),
    ] {
        let home = Home::new();
        let file = home.put(name, &text);
        let ran = home.contexture(format!(
            "compress {file} --engine tiered --session s --force"
        ));
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        assert!(
            ran.stdout.contains("[COMPACTED: "),
            "{name}: {}",
            ran.stdout
        );
        let exported = home.contexture("sessions export s");
        let compacted: Vec<Value> = events(&exported.stdout)
            .into_iter()
            .filter(|event| event["state"]["__compaction__"].is_object())
            .collect();
        assert!(compacted.len() > 4, "{name}: {}", exported.stdout);
        for event in compacted {
            assert_eq!(event["state"]["userGoal"], "修复", "{event}");
            assert!(event["state"]["step"].is_u64(), "{event}");
        }
        home.done("sessions restore s");
        let ran = home.contexture(format!("compress {file} --session s"));
        assert!(
            !ran.stdout.contains("[COMPACTED: "),
            "{name}: {}",
            ran.stdout
        );
    }
}

#[test]
fn what_is_not_compacted_is_not_restored() {
    let home = Home::new();
    home.put("chat.json", &document());
    home.contexture("compress chat.json --engine tiered --session s --force");
    let ran = home.contexture("sessions restore s m1");
    ran.exits(2);
    ran.stderr_has("m1");
    ran.stderr_has("sessions export s");
    let ran = home.contexture("sessions restore nobody");
    ran.exits(2);
    ran.stderr_has("nobody");
    // A session that nobody has compacted is a session all the same.
    home.done("import chat.json --session whole");
    let ran = home.done("sessions restore whole");
    ran.stderr_has("nothing is compacted there");
    let ran = home.contexture("sessions restore whole m1");
    ran.exits(2);
    ran.stderr_has("is no compacted message");
}

#[test]
fn tiers_wait_until_they_are_asked_where_the_settings_say_so() {
    let home = Home::new();
    home.put("chat.json", &document());
    let config = "context:\n  engine: tiered\n  engines:\n    tiered:\n      enableContextManagement: false\n      \
                  thresholds: {preRotThreshold: 10000}\n";
    home.put("home/config.yaml", config);
    let ran = home.done("compress chat.json");
    assert_eq!(messages(&ran.stdout), messages(&document()));
    let ran = home.contexture("compress chat.json --force");
    assert_ne!(messages(&ran.stdout), messages(&document()));
    home.put("home/config.yaml", &config.replace("false", "true"));
    let ran = home.contexture("compress chat.json");
    assert_ne!(messages(&ran.stdout), messages(&document()));
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn tiers_keep_real_conversations_within_the_contract_and_save_seventy_percent() {
    for window in ["200000", "40000"] {
        let totals = replayed("tiered", "", window);
        assert_eq!(totals["failures"], 0, "{totals}");
        assert_eq!(totals["overflows"], 0, "{totals}");
        assert!(totals["compactions"].as_u64().unwrap() > 0, "{totals}");
    }
    let home = Home::new();
    let log = shared_data().join("claude-code/main.jsonl");
    let args = [
        "compress",
        log.to_str().unwrap(),
        "--engine",
        "tiered",
        "--context-length",
        "200000",
        "--dry-run",
        "--report",
    ];
    let report = home.path("report.json");
    // By itself a summary is due there; forced, the reversible tier alone.
    for (force, summarises) in [(None, true), (Some("--force"), false)] {
        let args = args.into_iter().chain([report.as_str()]).chain(force);
        let ran = home.run(args);
        ran.exits(0);
        let report = json(&home.read("report.json"));
        let (before, after) = (
            report["tokens_before"].as_u64(),
            report["tokens_after"].as_u64(),
        );
        assert!(after.unwrap() * 10 <= before.unwrap() * 3, "{report}");
        let summarised = report["summarised"].as_u64().unwrap();
        assert_eq!(summarised > 0, summarises, "{report}");
    }
}
