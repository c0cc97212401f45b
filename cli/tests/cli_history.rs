//! `contexture import --all`, `search` and `show`, as a user runs them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::process::Stdio;
use std::time::{Duration, Instant};

use cli_support::Home;
use serde_json::{Value, json};

const CLAUDE: &str = ".claude/projects/-work-shop/s.jsonl";

fn line(n: u64, role: &str, content: Value) -> String {
    let line = json!({
        "type": role, "uuid": format!("u{n}"), "parentUuid": format!("u{}", n - 1), "cwd": "/work/shop", "sessionId": "s",
        "timestamp": format!("2026-01-31T09:00:{n:02}Z"), "message": {"role": role, "content": content},
    });
    format!("{line}\n")
}

fn claude_log() -> String {
    [
        line(1, "user", json!("the parser fails with E0277, please fix it")),
        line(2, "assistant", json!([{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "cargo test parser"}}])),
        line(3, "user", json!([{"type": "tool_result", "tool_use_id": "t1", "content": "error[E0277]: the trait bound"}])),
        line(4, "assistant", json!([{"type": "text", "text": "We decided to derive Hash in src/parser.rs."}])),
    ]
    .concat()
}

/// A user with logs of two agents.
fn user() -> Home {
    let home = Home::new();
    home.put(CLAUDE, &claude_log());
    let codex = [
        json!({"timestamp": "2026-02-01T09:00:00Z", "type": "session_meta", "payload": {"id": "x", "cwd": "/work/bank"}}),
        json!({"timestamp": "2026-02-01T09:00:00Z", "type": "response_item", "payload": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "another parser question"}]}}),
    ];
    let codex: String = codex.iter().map(|line| format!("{line}\n")).collect();
    home.put(".codex/sessions/2026/02/01/rollout-1.jsonl", &codex);
    home
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn logs_of_all_agents_are_imported_searched_and_shown() {
    let home = user();
    let report = json_of(&home.contexture("import --all").exits(0).stdout);
    assert_eq!(report["messages"], 5, "{report}");
    assert_eq!(report["agents"]["claude-code"]["read"], 1);
    assert_eq!(report["agents"]["codex"]["read"], 1);
    assert_eq!(report["skipped"], json!([]));
    let again = json_of(&home.contexture("import --all").exits(0).stdout);
    assert_eq!(
        (&again["messages"], &again["agents"]["codex"]["logs"]),
        (&json!(0), &json!(1))
    );

    home.contexture("search parser")
        .exits(0)
        .stdout_has("/work/shop")
        .stdout_has("/work/bank")
        .stderr_has("4 messages");
    home.contexture("search parser --agent codex")
        .exits(0)
        .stdout_has("another parser question")
        .stdout_lacks("shop");
    home.contexture("search parser --project shop --limit 1")
        .exits(0)
        .stdout_lacks("bank")
        .stderr_has("--offset 1");
    home.contexture("search parser --since 2026-02-01")
        .exits(0)
        .stdout_lacks("shop")
        .stdout_has("bank");
    home.contexture("search src/parser.rs")
        .exits(0)
        .stdout_has("We decided to derive Hash")
        .stdout_has("2026-01-31 09:00Z");
    home.contexture("search nowhere")
        .exits(0)
        .stdout_is("")
        .stderr_has("no message matches");

    let found = json_of(&home.contexture("search E0277 bound --json").exits(0).stdout);
    let hit = &found["hits"][0];
    assert_eq!(
        (&hit["kind"], &hit["session"]),
        (&json!("tool_result"), &json!("s"))
    );
    let id = hit["id"].as_str().unwrap();
    // The result comes with its call, and the call first.
    let shown = home.contexture(format!("show {id} --context 0"));
    shown
        .exits(0)
        .stdout_has("command: cargo test parser")
        .stdout_has("error[E0277]")
        .stdout_lacks("We decided");
    assert!(shown.stdout.find("cargo test") < shown.stdout.find("error[E0277]"));
    home.contexture(format!("show {id} --context 1"))
        .exits(0)
        .stdout_has("We decided");
    let shown = json_of(
        &home
            .contexture(format!("show {id} --context 9 --json"))
            .exits(0)
            .stdout,
    );
    assert_eq!(shown["messages"].as_array().unwrap().len(), 4);
}

#[test]
fn what_is_wrong_is_said_with_the_way_out() {
    let home = Home::new();
    home.contexture("search x")
        .exits(2)
        .stderr_has("contexture import --all");
    home.contexture("import --all")
        .exits(0)
        .stderr_has("no logs were found");
    home.put(CLAUDE, &(claude_log() + "{\"type\": \"user\", \n"));
    home.put("notes.txt", "notes");
    home.contexture("import --all")
        .exits(0)
        .stderr_has("skipped 1 part of")
        .stderr_has("s.jsonl");
    home.contexture("import --all notes.txt")
        .exits(0)
        .stderr_has("its format is not known");
    home.contexture("import --all log.jsonl notes.txt")
        .exits(2)
        .stdout_is("")
        .stderr_has("log.jsonl");
    home.contexture("search x --since soon")
        .exits(2)
        .stderr_has("7d");
    home.contexture("search parser --agent nobody")
        .exits(2)
        .stderr_has("claude-code");
    home.contexture("search parser --project nowhere")
        .exits(2)
        .stderr_has("/work/shop");
    home.contexture("search ?!")
        .exits(2)
        .stderr_has("at least one word");
    home.contexture("show m99")
        .exits(2)
        .stderr_has("contexture search");
    home.contexture("import --all --session s").exits(2);
    home.contexture("import --watch").exits(2);
    home.contexture("import").exits(2);
}

#[test]
fn files_that_are_named_are_read_whatever_they_are_called() {
    let home = Home::new();
    let export = json!([{"uuid": "a", "name": "t", "chat_messages": [{"uuid": "b", "sender": "human", "text": "exportword"}]}]);
    home.put("exports/one.json", &export.to_string());
    home.put("exports/deeper/log", &claude_log());
    home.put("exports/notes.txt", "notes");
    home.put("exports/settings.json", "{}");
    home.put(
        "exports/request.json",
        &json!({"messages": [{"role": "user", "content": "requestword"}]}).to_string(),
    );
    let report = json_of(&home.contexture("import --all exports").exits(0).stdout);
    assert_eq!(report["agents"].as_object().unwrap().len(), 3, "{report}");
    // A text that is no log is expected. JSON may be one that is not known.
    let skipped = report["skipped"].as_array().unwrap();
    assert_eq!(skipped.len(), 1, "{report}");
    assert!(
        skipped[0]["path"]
            .as_str()
            .unwrap()
            .ends_with("settings.json")
    );
    home.contexture("search requestword")
        .exits(0)
        .stdout_has("messages");
    home.contexture("search exportword")
        .exits(0)
        .stdout_has("claude-ai");
    home.contexture("search parser")
        .exits(0)
        .stdout_has("claude-code");
}

#[test]
fn secrets_are_masked_if_the_configuration_says_so() {
    let home = Home::new();
    home.put("home/config.yaml", "transcript: {redact: true}\n");
    home.put(
        CLAUDE,
        &line(1, "user", json!("log in with password=hunter2secret now")),
    );
    home.done("import --all");
    home.contexture("search hunter2secret")
        .exits(0)
        .stdout_is("");
    home.contexture("search password")
        .exits(0)
        .stdout_has("[secret masked]");
}

#[test]
fn control_characters_of_a_log_do_not_reach_the_terminal() {
    let home = Home::new();
    home.put(
        CLAUDE,
        &line(
            1,
            "user",
            json!("evilword \u{1b}]0;title\u{7} \u{9b}2J end"),
        ),
    );
    home.done("import --all");
    let found = home.contexture("search evilword");
    let id = found.stdout.split_whitespace().next().unwrap().to_owned();
    for ran in [&found, &home.contexture(format!("show {id}"))] {
        ran.exits(0)
            .stdout_has("evilword")
            .stdout_lacks("\u{1b}")
            .stdout_lacks("\u{9b}");
    }
}

#[test]
fn what_a_log_gets_is_found_while_it_is_watched() {
    let home = user();
    let mut command = home.command(["import", "--all", "--watch"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let finds = |words: &str| {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(60) {
            if home
                .contexture(format!("search {words}"))
                .stdout
                .contains("claude-code")
            {
                return true;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        false
    };
    assert!(finds("parser"));
    home.put(
        CLAUDE,
        &(claude_log() + &line(5, "user", json!("watchedword"))),
    );
    let is_found = finds("watchedword");
    // Another import would have to wait for this one.
    let other = home.contexture("import --all");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_found);
    other.exits(2).stderr_has("another import");
}
