//! What the README shows is what happens: its commands run, and print what stands under them.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use cli_support::{Home, Ran, claude_code_log, ran, shared_data};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The blocks of this language in the README.
fn blocks(language: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let fence = format!("\n```{language}\n");
    let blocks = readme.split(&fence).skip(1);
    let blocks: Vec<_> = blocks
        .map(|rest| rest.split("\n```").next().unwrap().to_owned())
        .collect();
    assert!(!blocks.is_empty(), "no {language} in the README");
    blocks
}

/// The lines of a block without times, which are a machine's own, and as if columns were as narrow as they can be.
fn without_times(block: &str) -> Vec<String> {
    let is_no_time = |cell: &&str| !(cell.ends_with(" ms") || cell.ends_with(" s"));
    let lines = block.trim_end().lines().map(|line| {
        let cells = line
            .split("  ")
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        match line.trim_start().starts_with("cost ") {
            true => line.rsplit_once(", ").unwrap().0.to_owned(),
            false => cells.filter(is_no_time).collect::<Vec<_>>().join("  "),
        }
    });
    lines.collect()
}

/// Runs a line of the shell in a home where the command is on the path and the examples lie.
fn shell(home: &Home, line: &str) -> Ran {
    let command = home.command([]);
    let binary = Path::new(command.get_program()).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell
        .args(["-c", line])
        .current_dir(command.get_current_dir().unwrap())
        .env("PATH", format!("{}:{path}", binary.display()));
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    ran(shell.output().unwrap())
}

/// A home with what the commands of the README name.
fn furnished() -> Home {
    let home = Home::new();
    symlink(format!("{ROOT}/examples"), home.path("examples")).unwrap();
    let log = claude_code_log(60);
    home.put("session.jsonl", &log);
    home.put(".claude/projects/p/s.jsonl", &log);
    // The same conversation, some messages later.
    home.put("chat.json", &claude_code_log(66));
    home
}

#[test]
fn the_first_command_prints_what_stands_under_it() {
    let first = blocks("sh").remove(0);
    let command = first.replace("cargo run --release -p contexture-cli --", "contexture");
    assert_ne!(first, command);
    let home = furnished();
    let ran = shell(&home, &command);
    ran.exits(0);
    assert_eq!(
        without_times(&ran.stderr),
        without_times(&blocks("text")[0])
    );
    assert!(home.read("compacted.json").len() > 1_000);
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn the_table_of_a_replay_is_what_it_prints() {
    let home = Home::new();
    symlink(
        shared_data().join("claude-code/main.jsonl"),
        home.path("session.jsonl"),
    )
    .unwrap();
    let readme = std::fs::read_to_string(format!("{ROOT}/README.md")).unwrap();
    let begins = readme.find("`contexture replay session.jsonl").unwrap() + 1;
    let command = readme[begins..].split('`').next().unwrap();
    let ran = shell(&home, &command.replace('\n', " "));
    ran.exits(0);
    let (heading, table) = ran.stdout.split_once("\n\n").unwrap();
    assert!(heading.contains("of 270 messages"), "{heading}");
    let tells_time = |row: &String| row.starts_with("tiered  ");
    let rows = |table: &str| -> Vec<String> {
        let rows = without_times(table).into_iter();
        rows.filter(|row| !tells_time(row)).collect()
    };
    let table = rows(table.split_once("\n\n").unwrap().0);
    let shown = rows(&blocks("text")[1]);
    assert_eq!(table.len(), 10, "{table:?}");
    assert_eq!(shown[..table.len()], table);
    // A plugin does to the token what the same engine does linked in.
    let of = |name: &str| shown.iter().find_map(|row| row.strip_prefix(name)).unwrap();
    assert_eq!(of("lcm, cdylib  "), of("lcm  "));
}

#[test]
fn every_command_does_something() {
    let home = furnished();
    let blocks = blocks("sh").join("\n");
    let mut commands = 0;
    for line in blocks
        .lines()
        .filter(|line| line.starts_with("contexture "))
    {
        // Those need a terminal to choose at, a plugin that takes long to build, and an agent.
        let needs_more = [
            "contexture compress  ",
            "contexture serve",
            "contexture run",
        ];
        if needs_more.iter().any(|begin| line.starts_with(begin)) || line.contains("keep-tail") {
            continue;
        }
        let ran = shell(&home, line);
        assert_eq!(ran.code, 0, "{line}: {}{}", ran.stdout, ran.stderr);
        commands += 1;
    }
    assert!(commands >= 10, "{commands} commands");
}

#[test]
fn every_configuration_is_a_good_one() {
    let home = Home::new();
    for block in blocks("yaml") {
        home.put("home/config.yaml", &block);
        let ran = home.contexture("config check");
        assert_eq!(ran.code, 0, "{block}: {}", ran.stderr);
    }
}
