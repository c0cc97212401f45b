//! What the README and the pages for users show is what happens: their commands run, their configurations are valid, and
//! the tables are what the commands print.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use cli_support::{Home, Ran, claude_code_log, ran, shared_data};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn read(page: &str) -> String {
    std::fs::read_to_string(format!("{ROOT}/{page}")).unwrap()
}

/// The blocks of this language in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let text = read(page);
    let fence = format!("\n```{language}\n");
    let blocks = text.split(&fence).skip(1);
    blocks
        .map(|rest| rest.split("\n```").next().unwrap().to_owned())
        .collect()
}

/// The pages whose commands and configurations are tried.
fn pages() -> Vec<String> {
    let engines = std::fs::read_dir(format!("{ROOT}/docs/engines")).unwrap();
    let engines = engines.map(|file| file.unwrap().file_name().into_string().unwrap());
    let mut pages: Vec<_> = engines.map(|name| format!("docs/engines/{name}")).collect();
    pages.extend(["README.md", "docs/run-agents.md", "docs/gateway.md"].map(str::to_owned));
    pages
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

/// A home with the files that the commands of the pages name.
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
    let first = blocks("README.md", "sh").remove(0);
    let command = first.replace("cargo run --release -p contexture-cli --", "contexture");
    assert_ne!(first, command);
    let home = furnished();
    let ran = shell(&home, &command);
    ran.exits(0);
    assert_eq!(
        without_times(&ran.stderr),
        without_times(&blocks("README.md", "text")[0])
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
    let page = read("BENCHMARKS.md");
    let begins = page.find("`contexture replay session.jsonl").unwrap() + 1;
    let command = page[begins..].split('`').next().unwrap();
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
    let shown = rows(&blocks("BENCHMARKS.md", "text")[0]);
    assert_eq!(table.len(), 10, "{table:?}");
    assert_eq!(shown[..table.len()], table);
    // A plugin does to the token what the same engine does linked in.
    let of = |name: &str| shown.iter().find_map(|row| row.strip_prefix(name)).unwrap();
    assert_eq!(of("lcm, cdylib  "), of("lcm  "));
}

#[test]
fn every_command_does_something() {
    let mut commands = 0;
    // A page can be followed alone, from top to bottom.
    for page in pages() {
        let home = furnished();
        let blocks = blocks(&page, "sh").join("\n");
        for line in blocks
            .lines()
            .filter(|line| line.starts_with("contexture "))
        {
            // Those need a terminal to choose or agree at, and an agent.
            let needs_more = [
                "contexture setup claude",
                "contexture compress  ",
                "contexture serve",
                "contexture run",
            ];
            if needs_more.iter().any(|begin| line.starts_with(begin)) {
                continue;
            }
            let ran = shell(&home, line);
            assert_eq!(ran.code, 0, "{page}: {line}: {}{}", ran.stdout, ran.stderr);
            commands += 1;
        }
    }
    assert!(commands >= 20, "{commands} commands");
}

#[test]
fn every_configuration_is_a_good_one() {
    let home = Home::new();
    let mut configurations = 0;
    for page in pages() {
        for block in blocks(&page, "yaml") {
            home.put("home/config.yaml", &block);
            let ran = home.contexture("config check");
            assert_eq!(ran.code, 0, "{page}: {block}: {}", ran.stderr);
            configurations += 1;
        }
    }
    assert!(configurations >= 10, "{configurations} configurations");
}
