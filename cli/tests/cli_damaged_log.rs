//! Session logs with damaged lines: what can be read is, the rest is named and stays where it is.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use cli_support::{Home, chat, claude_code_log, json};

const SUMMARY: &str = r#"{"type":"summary","summary":"Reads files","leafUuid":"u3"}"#;

/// A log of 40 messages whose fourth line and an event that is no message ran together.
fn run_together() -> String {
    let mut lines: Vec<String> = claude_code_log(40).lines().map(str::to_owned).collect();
    lines[3].push_str(SUMMARY);
    lines.join("\n") + "\n"
}

#[test]
fn two_values_in_one_line_of_a_log_are_two_lines() {
    let home = Home::new();
    home.put("log.jsonl", &run_together());
    let mut lines: Vec<String> = claude_code_log(40).lines().map(str::to_owned).collect();
    lines[0] = format!("{SUMMARY}{}", lines[0]);
    home.put("first.jsonl", &lines.join("\n"));
    for file in ["log.jsonl", "first.jsonl"] {
        let ran = home.contexture(format!("import {file} --session {file}"));
        assert_eq!(ran.code, 0, "{file}: {}", ran.stderr);
        assert_eq!(json(&ran.stdout)["new"], 40, "{file}");
        assert!(!ran.stderr.contains("warning"), "{file}: {}", ran.stderr);
        for command in [
            &["compress", file, "--dry-run"][..],
            &["replay", file],
            &["import", file, "--session", "strict"],
        ] {
            let ran = home.run([command, &["--strict"]].concat());
            assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{command:?}");
            assert!(ran.stderr.contains("line "), "{command:?}: {}", ran.stderr);
        }
    }
}

#[test]
fn lines_that_cannot_be_read_are_named_once_and_stay_as_they_are() {
    let home = Home::new();
    let mut lines: Vec<String> = claude_code_log(40).lines().map(str::to_owned).collect();
    lines.insert(6, "}{\"type\":\"summary\"".to_owned());
    lines.insert(20, "not JSON \u{1}\u{2}".to_owned());
    lines.insert(0, String::new());
    let log = lines.join("\n") + "\n";
    home.put("log.jsonl", &log);
    let compress = [
        "compress", "log.jsonl", "--to", "claude-code", "--force", "--context-length", "5000",
    ];
    let ran = home.run(compress);
    ran.exits(0);
    assert!(ran.stdout.starts_with(&log), "passed through untouched");
    assert!(ran.stdout.len() > log.len(), "{}", ran.stderr);
    assert_eq!(
        ran.stderr.matches("cannot be read").count(),
        1,
        "{}",
        ran.stderr
    );
    ran.stderr_has("lines 8, 22 of the log");
    assert!(!ran.stderr.contains('\u{1}'));
    let imported = home.contexture("import log.jsonl --session s");
    assert_eq!(json(&imported.stdout)["new"], 40, "{}", imported.stderr);
    let strict = home.run([&compress[..], &["--strict"]].concat());
    assert_eq!((strict.code, strict.stdout.as_str()), (2, ""));
    strict.stderr_has("line 8, column 1");
    let sound = claude_code_log(40);
    home.put("sound.jsonl", &sound);
    assert_eq!(home.contexture("compress sound.jsonl --strict").code, 0);
    home.put("cut.jsonl", &sound[..sound.len() - 30]);
    assert_eq!(home.contexture("compress cut.jsonl").code, 0);
    assert_eq!(home.contexture("compress cut.jsonl --strict").code, 2);
}

#[test]
fn what_is_no_log_is_refused_where_it_is_damaged() {
    let home = Home::new();
    let body = chat(6);
    let pretty = serde_json::to_string_pretty(&json(&body)).unwrap();
    let line = r#"{"role": "user", "content": "Where is it?"}"#;
    for damaged in [
        format!("{body}{body}\n"),
        format!("{body} x\n{body}\n"),
        format!("{body}\n{body}x\n{body}\n"),
        body.replacen("\"role\"", "role", 1),
        pretty.replacen("\"role\"", "role", 1),
        pretty[..pretty.len() - 10].to_owned(),
        format!("{line}\n{line}{line}\n{line}\n"),
        format!("{line}\nnonsense\n{line}\n"),
        // More nonsense than log.
        format!("a\nb\nc\n{}", claude_code_log(3)),
    ] {
        home.put("damaged.json", &damaged);
        let ran = home.contexture("compress damaged.json");
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{damaged:.200}");
    }
}

/// As a log is whose lines have lost the id of the message that they are of.
#[test]
fn thinking_stays_with_what_it_leads_to() {
    let home = Home::new();
    let text = "look at src/file.rs and its tests. ".repeat(20);
    let lines = [
        ("user", serde_json::json!(text)),
        (
            "assistant",
            serde_json::json!([{"type": "thinking", "thinking": text, "signature": "x"}]),
        ),
        (
            "assistant",
            serde_json::json!([{"type": "tool_use", "id": "t", "name": "Bash", "input": {"command": text}}]),
        ),
        (
            "user",
            serde_json::json!([{"type": "tool_result", "tool_use_id": "t", "content": text}]),
        ),
        (
            "assistant",
            serde_json::json!([{"type": "text", "text": text}]),
        ),
    ];
    let mut log = String::new();
    for (at, (role, content)) in lines.into_iter().enumerate() {
        let parent = at.checked_sub(1).map(|before| format!("u{before}"));
        let line = serde_json::json!({
            "parentUuid": parent, "isSidechain": false, "cwd": "/w", "sessionId": "s", "type": role,
            "uuid": format!("u{at}"), "message": {"role": role, "content": content},
        });
        log.push_str(&format!("{line}\n"));
    }
    home.put("log.jsonl", &log);
    home.done("compress log.jsonl --engine compressor --force --context-length 1000");
}

/// A line of JSON that is no message costs that line alone, whatever in it is of the wrong kind.
#[test]
fn a_line_that_is_no_message_costs_that_line_alone() {
    let item = |at: usize| {
        let (role, kind) = [("user", "input_text"), ("assistant", "output_text")][at % 2];
        serde_json::json!({"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": {
            "type": "message", "role": role, "content": [{"type": kind, "text": format!("word {at}")}]}})
    };
    let codex: Vec<_> = (0..30).map(item).collect();
    let claude_code = claude_code_log(30);
    let claude_code: Vec<_> = claude_code.lines().map(json).collect();
    let home = Home::new();
    for (name, lines, message) in [
        ("codex", &codex, "/payload"),
        ("claude-code", &claude_code, "/message"),
    ] {
        for wrong in [
            serde_json::json!(17),
            serde_json::json!(null),
            serde_json::json!("text"),
            serde_json::json!([1]),
            serde_json::json!({"a": 1}),
            serde_json::json!(true),
        ] {
            for member in [
                "", "/role", "/content", "/type", "/content/0", "/content/0/text",
            ] {
                let mut lines = lines.clone();
                let Some(place) = lines[16].pointer_mut(&format!("{message}{member}")) else {
                    continue;
                };
                *place = wrong.clone();
                let what = format!("{name}, {member} is {wrong}");
                let log: String = lines.iter().map(|line| format!("{line}\n")).collect();
                home.put("log.jsonl", &log);
                let session = format!("{name}{}{wrong}", member.replace('/', "-"));
                let ran = home.run(["import", "log.jsonl", "--session", &session]);
                assert_eq!(ran.code, 0, "{what}: {}", ran.stderr);
                let new = json(&ran.stdout)["new"].as_u64().unwrap();
                assert!((29..=30).contains(&new), "{what}: {new}");
                if ran.stderr.contains("cannot be read") {
                    ran.stderr_has("line 17 of the log");
                    let strict = home.run(["compress", "log.jsonl", "--strict"]);
                    assert_eq!(strict.code, 2, "{what}");
                    strict.stderr_has("line 17, column");
                }
            }
        }
    }
}
