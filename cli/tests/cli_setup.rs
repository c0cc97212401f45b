//! `contexture setup` and `contexture hook`, as a user and an agent see them.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::path::Path;

use cli_support::{Home, Ran, claude_code_log, json, ran};
use serde_json::json;

const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "pi"];

/// Files that the agents' users have, in every style.
const FILES: [(&str, &str, &str); 6] = [
    (
        "claude",
        ".claude/settings.json",
        "{\r\n\t\"model\": \"opus\",\r\n\t\"hooks\": {\"PreCompact\": [{\"hooks\": []}]}\r\n}",
    ),
    (
        "claude",
        ".claude.json",
        "{\"numStartups\":3,\"projects\":{}}",
    ),
    (
        "codex",
        ".codex/config.toml",
        "# mine\nmodel = \"m\" # best\n\n[mcp_servers.other]\ncommand = \"x\"\n",
    ),
    ("codex", ".codex/hooks.json", ""),
    (
        "opencode",
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"mcp\": {},\n}\n",
    ),
    (
        "pi",
        ".pi/agent/mcp.json",
        "\u{feff}{ \"mcpServers\": { \"a\": { \"command\": \"b\" } } }\n",
    ),
];

fn home() -> Home {
    let home = Home::new();
    for (_, file, text) in FILES {
        home.put(file, text);
    }
    home
}

/// All files below the home of the user but Contexture's own, with their texts. Folders end with a slash.
fn all(home: &Home) -> Vec<(String, Vec<u8>)> {
    fn walk(folder: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if path.is_dir() {
                walk(&path, found);
                found.push((format!("{name}/"), Vec::new()));
            } else {
                found.push((name, std::fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = Vec::new();
    walk(Path::new(&home.path(".")), &mut found);
    let own = home.path("./home");
    found.retain(|(name, _)| !name.starts_with(&own));
    found.sort();
    found
}

/// Runs it if no agent is on the PATH.
fn setup(home: &Home, line: &str) -> Ran {
    let arguments = std::iter::once("setup").chain(line.split_whitespace());
    let mut command = home.command(arguments);
    command.env("PATH", home.path("programs"));
    for variable in [
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "XDG_CONFIG_HOME",
        "PI_CODING_AGENT_DIR",
        "HERMES_HOME",
    ] {
        command.env_remove(variable);
    }
    ran(command.output().unwrap())
}

#[test]
fn an_undo_restores_every_byte() {
    for agent in AGENTS {
        for mode in ["", " --gateway"] {
            let home = home();
            let before = all(&home);
            setup(&home, &format!("{agent}{mode} --yes"))
                .exits(0)
                .stdout_has("is set up")
                .stdout_has("+++ ");
            let during = all(&home);
            assert_ne!(before, during);
            setup(&home, &format!("{agent}{mode} --yes"))
                .exits(0)
                .stdout_has("already set up");
            assert_eq!(during, all(&home), "a second run changes nothing");
            setup(&home, &format!("--undo {agent} --yes"))
                .exits(0)
                .stdout_has("as it was before");
            assert_eq!(before, all(&home), "{agent}{mode}");
            setup(&home, &format!("--undo {agent} --yes"))
                .exits(0)
                .stdout_has("is not set up");
        }
    }
}

#[test]
fn hooks_and_the_gateway_replace_each_other() {
    let home = home();
    let before = all(&home);
    setup(&home, "claude --yes").exits(0);
    assert!(home.read(".claude.json").contains("mcpServers"));
    setup(&home, "claude --gateway --yes").exits(0);
    let settings = home.read(".claude/settings.json");
    assert!(settings.contains("http://127.0.0.1:8787") && !settings.contains("hook claude"));
    assert!(!home.read(".claude.json").contains("mcpServers"));
    setup(&home, "").exits(0).stdout_has("gateway");
    setup(&home, "--undo claude --yes").exits(0);
    assert_eq!(before, all(&home));
}

#[test]
fn without_consent_nothing_is_written() {
    let home = home();
    let before = all(&home);
    setup(&home, "codex")
        .exits(2)
        .stdout_has("+[mcp_servers.contexture]")
        .stderr_has("--yes");
    assert_eq!(before, all(&home));
    setup(&home, "codex --yes").exits(0);
    let during = all(&home);
    setup(&home, "--undo codex")
        .exits(2)
        .stdout_has("-[mcp_servers.contexture]");
    assert_eq!(during, all(&home));
}

#[test]
fn a_setting_of_the_users_is_named_and_kept() {
    let home = Home::new();
    let text = "{\"env\": {\"ANTHROPIC_BASE_URL\": \"https://corp.example\"}}";
    home.put(".claude/settings.json", text);
    setup(&home, "claude --gateway --yes")
        .exits(2)
        .stderr_has("ANTHROPIC_BASE_URL")
        .stderr_has("corp.example")
        .stderr_has("--replace");
    assert_eq!(home.read(".claude/settings.json"), text);
    setup(&home, "claude --gateway --replace --yes")
        .exits(0)
        .stderr_has("corp.example");
    let edited = home
        .read(".claude/settings.json")
        .replacen('{', "{\"model\": \"m\", ", 1);
    home.put(".claude/settings.json", &edited);
    setup(&home, "--undo claude --yes").exits(0);
    let left = json(&home.read(".claude/settings.json"));
    let wanted = json!({"model": "m", "env": {"ANTHROPIC_BASE_URL": "https://corp.example"}});
    assert_eq!(left, wanted);
}

#[test]
fn a_file_that_cannot_be_changed_stops_before_anything_is_written() {
    for (agent, file, text) in [
        ("claude", ".claude.json", "{\"a\": "),
        ("claude", ".claude/settings.json", "{\"hooks\": []}"),
        ("codex", ".codex/config.toml", "a = = 1\n"),
        ("codex", ".codex/hooks.json", "[]"),
        ("opencode", ".config/opencode/opencode.jsonc", "{'a': 1}"),
        (
            "opencode",
            ".config/opencode/plugins/contexture.js",
            "// mine",
        ),
        ("pi", ".pi/agent/mcp.json", "{\"mcpServers\": 1}"),
    ] {
        let home = home();
        home.put(file, text);
        let before = all(&home);
        let name = file.rsplit('/').next().unwrap();
        setup(&home, &format!("{agent} --yes"))
            .exits(2)
            .stderr_has(name)
            .stderr_has("nothing was written");
        assert_eq!(before, all(&home), "{file}");
    }
}

#[test]
fn agents_that_cannot_be_set_up_say_what_to_do() {
    let home = Home::new();
    setup(&home, "claud")
        .exits(2)
        .stderr_has("did you mean `claude`");
    setup(&home, "pi --yes")
        .exits(2)
        .stderr_has("is not installed");
    home.put(".gemini/settings.json", "{}");
    home.put(".hermes/config.yaml", "");
    setup(&home, "gemini --yes")
        .exits(2)
        .stderr_has("Gemini's own API");
    setup(&home, "hermes --yes")
        .exits(2)
        .stderr_has("hermes plugins enable contexture");
    home.put(".aider.conf.yml", "# mine\nmodel: m\n");
    setup(&home, "aider --yes")
        .exits(0)
        .stdout_has("`contexture serve`");
    let text = "# mine\nmodel: m\nopenai-api-base: \"http://127.0.0.1:8787/v1\"\n";
    assert_eq!(home.read(".aider.conf.yml"), text);
    setup(&home, "").exits(0).stdout_has("aider");
}

/// The event that Claude Code sends, as a line.
fn event(home: &Home, name: &str, more: serde_json::Value) -> Vec<u8> {
    let mut event = json!({
        "session_id": "s-1", "transcript_path": home.path("log.jsonl"), "cwd": home.path("."), "hook_event_name": name,
    });
    for (key, value) in more.as_object().unwrap() {
        event[key] = value.clone();
    }
    event.to_string().into_bytes()
}

#[test]
fn a_text_is_made_before_the_compaction_and_handed_over_after_it_once() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({"trigger": "auto"}));
    let after = event(&home, "SessionStart", json!({"source": "compact"}));
    home.pipe(["hook", "claude"], &before)
        .exits(0)
        .stdout_has("kept by Contexture");
    let handed = home.pipe(["hook", "claude"], &after);
    handed.exits(0);
    let output = &json(&handed.stdout)["hookSpecificOutput"];
    assert_eq!(output["hookEventName"], "SessionStart");
    let text = output["additionalContext"].as_str().unwrap();
    assert!(
        text.starts_with("[Contexture]") && text.chars().count() <= 10_000,
        "{text}"
    );
    home.pipe(["hook", "claude"], &after).exits(0).stdout_is("");
    home.done("sessions list").stdout_has("claude-s-1");
    // Other beginnings of a session are none of its business.
    let start = event(&home, "SessionStart", json!({"source": "startup"}));
    home.pipe(["hook", "claude"], &before).exits(0);
    home.pipe(["hook", "claude"], &start).exits(0).stdout_is("");
}

#[test]
fn a_hook_that_fails_never_ends_with_two_and_leaves_no_older_text() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({}));
    let after = event(&home, "SessionStart", json!({"source": "compact"}));
    home.pipe(["hook", "claude"], &before).exits(0);
    for broken in [
        b"no JSON".to_vec(),
        b"{}".to_vec(),
        event(&home, "PreCompact", json!({"transcript_path": "/nowhere"})),
        event(&home, "PreCompact", json!({"transcript_path": null})),
    ] {
        home.pipe(["hook", "claude"], &broken)
            .exits(1)
            .stdout_is("")
            .stderr_has("own compaction");
    }
    home.pipe(["hook", "claude"], &after).exits(0).stdout_is("");
    home.put("home/config.yaml", "context: [");
    home.pipe(["hook", "claude"], &before)
        .exits(1)
        .stderr_has("own compaction");
}

#[test]
fn a_subagent_compacts_by_itself() {
    let home = Home::new();
    home.put("log.jsonl", &claude_code_log(60));
    let before = event(&home, "PreCompact", json!({"agent_id": "a"}));
    home.pipe(["hook", "claude"], &before)
        .exits(0)
        .stdout_is("");
}

#[test]
fn pi_and_opencode_get_the_text_at_once_and_a_longer_history_later() {
    let entries = |count: usize| -> Vec<_> {
        (0..count)
            .map(|at| {
                let role = ["user", "assistant"][at % 2];
                let text = format!("item-{at} is on the shelf {}", "x".repeat(3_000));
                json!({"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}})
            })
            .collect()
    };
    let messages = |count: usize| -> Vec<_> {
        let entries = entries(count);
        let message = |entry: &serde_json::Value| json!({"info": {"role": entry["message"]["role"]}, "parts": entry["message"]["content"]});
        entries.iter().map(message).collect()
    };
    for agent in ["pi", "opencode"] {
        let home = Home::new();
        for count in [60, 120] {
            let mut event = json!({"event": "compact", "session_id": "s", "cwd": home.path(".")});
            match agent {
                "pi" => event["entries"] = entries(count).into(),
                _ => event["messages"] = messages(count).into(),
            }
            let answered = home.pipe(["hook", agent], event.to_string().as_bytes());
            answered.exits(0);
            let summary = json(&answered.stdout)["summary"]
                .as_str()
                .unwrap()
                .to_owned();
            let last = format!("item-{} ", count - 2);
            assert!(
                summary.contains("item-0 ") && summary.contains(&last),
                "{summary}"
            );
            assert!(summary.len() < 40_000, "{}", summary.len());
            let event = json!({"event": "summary", "session_id": "s"}).to_string();
            let again = home.pipe(["hook", agent], event.as_bytes());
            assert_eq!(json(&again.stdout)["summary"], summary);
        }
        home.done("sessions list").stdout_has(&format!("{agent}-s"));
    }
}
