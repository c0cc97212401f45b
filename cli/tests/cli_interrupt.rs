//! Ctrl-C while the command checks, copies or mends what an engine keeps.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![cfg(unix)]

mod cli_support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use cli_support::{Home, json};

const SIGINT: i32 = 2;
const STOPPED: i32 = 130;

/// How a run ended: by its exit code, or by the signal before it listened.
#[derive(Debug, PartialEq, Clone, Copy)]
enum End {
    Code(i32),
    Signal(i32),
}

/// Runs a command and interrupts it after `delay` ms; again as soon as it has said something to that, if it is
/// to be `twice`. Gives how it ended, and what it said on stderr.
fn interrupted(home: &Home, args: &[&str], delay: u64, twice: bool) -> (End, String) {
    let mut child = home
        .command(args.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let id = child.id().to_string();
    let interrupt = || {
        let mut kill = Command::new("kill");
        // It may have ended already.
        kill.args(["-INT", &id]).stderr(Stdio::null()).status()
    };
    std::thread::sleep(Duration::from_millis(delay));
    interrupt().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    if twice && stderr.read_line(&mut said).unwrap() > 0 {
        interrupt().unwrap();
    }
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let end = match status.signal() {
        Some(signal) => End::Signal(signal),
        None => End::Code(status.code().unwrap()),
    };
    (end, said)
}

/// A home with a session, in a store of which `megabytes` are free.
fn home(messages: usize, megabytes: u32) -> Home {
    let home = Home::new();
    let lines = (0..messages).map(|at| {
        let line = serde_json::json!({"role": "user", "content": format!("Where is item {at}?")});
        format!("{line}\n")
    });
    home.put("log.jsonl", &lines.collect::<String>());
    let imported = home.run(["import", "log.jsonl", "--session", "s"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    free(&home, megabytes);
    home
}

fn free(home: &Home, megabytes: u32) {
    if megabytes == 0 {
        return;
    }
    let store = rusqlite::Connection::open(home.path("home/engines/lcm/lcm.sqlite3")).unwrap();
    store
        .execute_batch(&format!(
            "CREATE TABLE filler(bytes);
             INSERT INTO filler WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT {megabytes})
                 SELECT randomblob(1 << 20) FROM n;
             DROP TABLE filler;"
        ))
        .unwrap();
}

fn assert_sound(home: &Home) {
    let ran = home.run(["sessions", "verify"]);
    assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
    assert_eq!(json(&ran.stdout)["ok"], true);
}

/// The files of a backup, by its name.
fn copies(home: &Home) -> Vec<String> {
    let entries = std::fs::read_dir(home.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("copy")).collect()
}

#[test]
fn an_interrupted_backup_is_whole_or_not_there() {
    let home = home(40, 128);
    let (mut stopped, mut whole) = (0, 0);
    for delay in (0..).step_by(20) {
        let (end, stderr) = interrupted(&home, &["sessions", "backup", "copy"], delay, false);
        match end {
            End::Code(0) => {
                whole += 1;
                assert_eq!(copies(&home), ["copy"]);
                let other = Home::new();
                std::fs::create_dir_all(other.path("home/engines/lcm")).unwrap();
                std::fs::rename(
                    home.path("copy"),
                    other.path("home/engines/lcm/lcm.sqlite3"),
                )
                .unwrap();
                assert_sound(&other);
                let exported = other.run(["sessions", "export", "s", "--engine", "lcm"]);
                assert_eq!(exported.stdout.lines().count(), 40);
            }
            End::Code(code) => {
                stopped += 1;
                assert_eq!(code, STOPPED, "after {delay} ms: {stderr}");
                assert!(stderr.contains("stopping"), "{stderr}");
            }
            // Before anything was begun.
            End::Signal(signal) => assert_eq!(signal, SIGINT),
        }
        assert!(copies(&home).is_empty(), "after {delay} ms: {end:?}");
        if whole == 2 {
            break;
        }
    }
    assert!(stopped > 0, "none was stopped");
    assert_sound(&home);
}

#[test]
fn a_check_is_stopped_and_the_next_one_is_not() {
    let home = home(6_000, 0);
    for command in [["sessions", "verify"], ["sessions", "repair"]] {
        let stopped = (0..200).step_by(10).any(|delay| {
            let (end, stderr) = interrupted(&home, &command, delay, false);
            match end {
                End::Code(STOPPED) => {
                    assert!(stderr.contains("stopping"), "{stderr}");
                    assert!(stderr.contains("error: stopped"), "{stderr}");
                    true
                }
                End::Code(code) => {
                    assert_eq!(code, 0, "{stderr}");
                    false
                }
                End::Signal(signal) => {
                    assert_eq!(signal, SIGINT);
                    false
                }
            }
        });
        assert!(stopped, "{command:?}");
    }
    assert_sound(&home);
}

#[test]
fn what_removes_or_mends_runs_to_its_end_unless_it_is_told_twice() {
    let home = home(16_000, 0);
    for (command, megabytes) in [("gc", 64), ("repair", 0)] {
        for (twice, code) in [(false, 0), (true, STOPPED)] {
            let was_told = (0..600).step_by(20).any(|delay| {
                free(&home, megabytes);
                let args = ["sessions", command, "--yes"];
                let (end, stderr) = interrupted(&home, &args, delay, twice);
                let was_told = stderr.contains("runs to its end");
                match end {
                    End::Code(ended) if was_told => assert_eq!(ended, code, "{stderr}"),
                    // Done before it was told.
                    End::Code(ended) => assert_eq!(ended, 0, "{stderr}"),
                    End::Signal(signal) => assert_eq!(signal, SIGINT),
                }
                was_told
            });
            assert!(was_told, "{command} {twice}");
        }
        assert_sound(&home);
        let exported = home.run(["sessions", "export", "s"]);
        assert_eq!(exported.stdout, home.read("log.jsonl"));
    }
}

#[test]
fn an_interrupted_import_loses_nothing_and_goes_on() {
    let home = home(1, 0);
    let lines = (0..3_000).map(|at| {
        let line = serde_json::json!({"role": "user", "content": format!("Where is item {at}?")});
        format!("{line}\n")
    });
    home.put("log.jsonl", &lines.collect::<String>());
    let import = ["import", "log.jsonl", "--session", "t"];
    let mut interrupts = 0;
    for delay in (0..4_000).step_by(40) {
        match interrupted(&home, &import, delay, false) {
            (End::Signal(SIGINT), _) => interrupts += 1,
            (End::Code(0), _) => break,
            (end, stderr) => panic!("{end:?}: {stderr}"),
        }
    }
    assert!(interrupts > 0);
    let again = home.run(import);
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(json(&again.stdout)["new"], 0);
    let exported = home.run(["sessions", "export", "t"]);
    assert_eq!(exported.stdout, home.read("log.jsonl"));
    assert_sound(&home);
}
