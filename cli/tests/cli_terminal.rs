//! The command at a terminal: what it leaves off the screen, and the choice among recent sessions.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use cli_support::{Home, chat, claude_code_log, json};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// Runs it with a pseudo-terminal of 120 columns for all three streams. Each of `answers` types its second text once
/// its first is on the screen. Gives the exit code and all that was shown.
fn at_terminal(home: &Home, args: &[&str], answers: &[(&str, &str)]) -> (i32, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize {
        ws_row: 40,
        ws_col: 120,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let open = || {
        let path = std::ffi::OsStr::from_bytes(name.to_bytes());
        let slave = File::options().read(true).write(true).open(path).unwrap();
        Stdio::from(OwnedFd::from(slave))
    };
    let mut child = home
        .command(args.iter().copied())
        .env("TERM", "xterm")
        .stdin(open())
        .stdout(open())
        .stderr(open())
        .spawn()
        .unwrap();
    let mut screen = File::from(master);
    let (mut shown, mut bytes) = (String::new(), [0; 4096]);
    let mut answers = answers.iter();
    let mut next = answers.next();
    // Reading fails when nobody has the other side any more.
    while let Ok(read) = screen.read(&mut bytes)
        && read > 0
    {
        shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        if let Some((prompt, keys)) = next
            && shown.contains(*prompt)
        {
            screen.write_all(keys.as_bytes()).unwrap();
            next = answers.next();
        }
    }
    (child.wait().unwrap().code().unwrap(), shown)
}

#[test]
fn a_conversation_is_not_poured_over_a_terminal_unless_it_is_asked_for() {
    let home = Home::new();
    home.put("chat.json", &chat(60));
    let compress = ["compress", "chat.json", "--context-length", "2000"];
    let (code, screen) = at_terminal(&home, &compress, &[]);
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("compacted"), "{screen}");
    assert!(screen.contains("-o FILE"), "{screen}");
    assert!(!screen.contains("number_58"), "{screen}");

    let (code, screen) = at_terminal(&home, &[&compress[..], &["-o", "-"]].concat(), &[]);
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains("number_58"), "{screen}");

    let (code, screen) = at_terminal(
        &home,
        &[&compress[..], &["-o", "smaller.json"]].concat(),
        &[],
    );
    assert_eq!(code, 0, "{screen}");
    assert!(!screen.contains("-o FILE"), "{screen}");
    assert!(home.read("smaller.json").contains("number_58"));

    let piped = home.run(compress);
    assert!(json(&piped.stdout)["messages"].is_array());
    piped.stderr_lacks("-o FILE");
}

#[test]
fn the_status_of_the_prompt_cache_has_its_sign_at_a_terminal_alone() {
    let home = Home::new();
    home.put("chat.json", &chat(6));
    let marked = [
        "compress", "chat.json", "--model", "claude-sonnet-4-5", "--cache-markers", "--dry-run",
    ];
    let line = "Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)";
    let (code, screen) = at_terminal(&home, &marked, &[]);
    assert_eq!(code, 0, "{screen}");
    assert!(screen.contains(&format!("💾 {line}")), "{screen}");
    let piped = home.run(marked);
    assert!(
        piped.stderr.lines().any(|said| said == line),
        "{}",
        piped.stderr
    );
}

#[test]
fn a_session_is_chosen_by_its_id_project_first_words_and_age() {
    let home = Home::new();
    let log = |cwd: &str, session: &str, words: &str| {
        let message = serde_json::json!({"role": "user", "content": words});
        let line = serde_json::json!({
            "type": "user", "sessionId": session, "cwd": cwd, "uuid": "u1", "parentUuid": null,
            "timestamp": "2026-11-20T10:00:00.000Z", "message": message,
        });
        format!("{line}\n")
    };
    let put = |path: &str, text: &str, minutes: u64| {
        let file = File::options()
            .write(true)
            .open(home.put(path, text))
            .unwrap();
        let age = Duration::from_secs(60 * minutes + 5);
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    put(
        ".claude/projects/p/one.jsonl",
        &log(
            &home.path("work/ledger"),
            "7c5b21de-0a4f-4c5e-9d1b-3f0d1c2b3a49",
            "Mend the\nledger",
        ),
        4,
    );
    put(
        ".claude/projects/p/two.jsonl",
        &log("/w/\x1b[2Jevil\nname", "\x1b]0;title", "\x1b[31mred"),
        9,
    );
    put(
        ".codex/sessions/2026/11/20/rollout-3.jsonl",
        "{\"type\":\"session_meta\",\"payload\":{\"id\":\"01998a77-aaaa\",\"cwd\":\"/srv/shop\"}}\n\
         {\"type\":\"response_item\",\"payload\":{\"type\":\"message\",\"role\":\"user\",\
         \"content\":[{\"type\":\"input_text\",\"text\":\"Grüße\"}]}}\n",
        90,
    );
    let (code, screen) = at_terminal(
        &home,
        &["compress", "--dry-run"],
        &[("Which session?", "\r")],
    );
    assert_eq!(code, 0, "{screen}");
    for line in [
        [
            "4 min ago", "claude-code", "7c5b21de", "~/work/ledger", "Mend the ledger",
        ],
        [
            "9 min ago", "claude-code", "\\u001b]0", "evil name", "\\u001b[31mred",
        ],
        ["1 h ago", "codex", "01998a77", "/srv/shop", "Grüße"],
    ] {
        let is_shown = screen
            .lines()
            .any(|shown| line.iter().all(|part| shown.contains(part)));
        assert!(is_shown, "{line:?} in {screen:?}");
    }
    assert!(
        !screen.contains("\x1b]0;") && !screen.contains("\x1b[31m"),
        "{screen:?}"
    );
    assert!(
        screen.contains("nothing to do"),
        "the first is taken: {screen:?}"
    );
}

#[test]
fn what_comes_of_a_chosen_session_lies_beside_its_log_in_a_file_of_its_own() {
    let home = Home::new();
    let log = claude_code_log(60);
    home.put(".claude/projects/p/one.jsonl", &log);
    let choose = |more: &[&str]| {
        let args = [&["compress", "--context-length", "3000"], more].concat();
        let (code, screen) = at_terminal(&home, &args, &[("Which session?", "\r")]);
        assert_eq!(code, 0, "{screen}");
        assert!(!screen.contains("Message 58"), "{screen}");
        assert!(!screen.contains("-o FILE"), "{screen}");
        screen
    };
    let files = || {
        let mut files: Vec<_> = std::fs::read_dir(home.path(".claude/projects/p"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        files
    };
    choose(&["--dry-run"]);
    choose(&["-o", "named.json"]);
    assert_eq!(files(), ["one.jsonl"]);

    let written = ".claude/projects/p/one.compacted.json";
    assert!(choose(&[]).contains(&home.path(written)));
    let first = home.read(written);
    assert_eq!(first, home.read("named.json"));
    assert!(json(&first)["messages"].is_array());

    // What is there stays as it is.
    let second = ".claude/projects/p/one.compacted-2.json";
    assert!(choose(&["--to", "anthropic"]).contains(&home.path(second)));
    assert_ne!(home.read(second), first);
    assert_eq!(home.read(written), first);
    let third = ".claude/projects/p/one.compacted.jsonl";
    let screen = choose(&["--to", "claude-code"]);
    assert!(screen.contains(&home.path(third)), "{screen}");
    assert_eq!(home.read(".claude/projects/p/one.jsonl"), log);
    assert_eq!(files().len(), 4);
}

#[test]
fn an_engine_is_chosen_and_written_where_it_belongs() {
    let home = Home::new();
    let choose = |keys| {
        let answers = [("Provider Plugins", "\r"), ("builtin", keys)];
        at_terminal(&home, &["plugins"], &answers)
    };
    // There is no file yet.
    let (code, screen) = choose("lcm\r");
    assert_eq!(code, 0, "{screen}");
    assert_eq!(home.read("home/config.yaml"), "context:\n  engine: lcm\n");
    assert!(screen.contains("context.engine is now lcm"), "{screen}");

    let text = |engine| {
        format!(
            "# mine\nhygiene: {{threshold: 0.9}} # late\n\ncontext:\n    on_missing: fail\n    engine: {engine} # for now\n"
        )
    };
    home.put("home/config.yaml", &text("'lcm'"));
    let (code, screen) = choose("builtin\r");
    assert_eq!(code, 0, "{screen}");
    assert_eq!(home.read("home/config.yaml"), text("compressor"));
    // Thought better of.
    let (code, screen) = choose("\x1b");
    assert_eq!(
        (code, home.read("home/config.yaml")),
        (0, text("compressor")),
        "{screen}"
    );

    // What cannot run is not written.
    home.put(
        "home/plugins/context_engine/raw/plugin.yaml",
        "name: raw\nversion: \"1\"\n",
    );
    let (code, screen) = choose("raw\r");
    assert_eq!(
        (code, home.read("home/config.yaml")),
        (2, text("compressor")),
        "{screen}"
    );
    assert!(screen.contains("plugins build"), "{screen}");

    home.put("home/config.yaml", "context: {}\n");
    let (code, screen) = choose("lcm\r");
    assert_eq!(
        (code, home.read("home/config.yaml").as_str()),
        (0, "context: {engine: lcm}\n"),
        "{screen}"
    );
    // The value is also that of another key, which would change with it.
    let shared = "context: {engine: &name compressor}\nmodel: {default: *name}\n";
    home.put("home/config.yaml", shared);
    let (code, screen) = choose("lcm\r");
    assert_eq!(
        (code, home.read("home/config.yaml").as_str()),
        (2, shared),
        "{screen}"
    );
    assert!(screen.contains("engine: lcm"), "{screen}");
}
