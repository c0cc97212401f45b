//! Ctrl-C while the command checks, copies or mends what an engine keeps.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
// What a process does with a signal is read from `/proc`.
#![cfg(target_os = "linux")]

mod cli_support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cli_support::{Home, json};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};

const SIGINT: i32 = 2;
const STOPPED: i32 = 130;
/// Runs until one is interrupted where it is meant to be.
const TRIES: u64 = 100;

/// How a run ended: by its exit code, or by the signal before it listened.
#[derive(Debug, PartialEq, Clone, Copy)]
enum End {
    Code(i32),
    Signal(i32),
}

fn spawned(home: &Home, args: &[&str]) -> Child {
    // A child inherits that SIGINT is ignored (as under `nohup`), but not that somebody listens for it.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    drop(
        runtime
            .block_on(async { signal(SignalKind::interrupt()) })
            .unwrap(),
    );
    home.command(args.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until the child listens for Ctrl-C, or has ended.
fn wait_until_it_listens(child: &mut Child) {
    let status = format!("/proc/{}/status", child.id());
    while child.try_wait().unwrap().is_none() {
        let caught = std::fs::read_to_string(&status).ok().and_then(|text| {
            let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            u64::from_str_radix(caught.trim(), 16).ok()
        });
        if caught.is_some_and(|caught| caught & (1 << (SIGINT - 1)) != 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Interrupts a run after `delay` ms; again as soon as it has answered that, if it is to be `twice`. What
/// is `held` is let go then. Gives how it ended, and what it said on stderr.
fn interrupt(
    mut child: Child,
    delay: u64,
    twice: bool,
    held: Option<rusqlite::Connection>,
) -> (End, String) {
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
    if twice || held.is_some() {
        while !said.contains("Ctrl-C again") && stderr.read_line(&mut said).unwrap() > 0 {}
    }
    if twice && said.contains("Ctrl-C again") {
        interrupt().unwrap();
    }
    drop(held);
    stderr.read_to_string(&mut said).unwrap();
    let status = child.wait().unwrap();
    let end = match status.signal() {
        Some(signal) => End::Signal(signal),
        None => End::Code(status.code().unwrap()),
    };
    (end, said)
}

/// Runs a command that can be asked to stop, and interrupts it `delay` ms after it began to listen.
fn interrupted(home: &Home, args: &[&str], delay: u64, twice: bool) -> (End, String) {
    let mut child = spawned(home, args);
    wait_until_it_listens(&mut child);
    interrupt(child, delay, twice, None)
}

fn store(home: &Home) -> rusqlite::Connection {
    rusqlite::Connection::open(home.lcm_index()).unwrap()
}

/// The same with a command that writes to the store, which it has to wait for until it has answered.
fn interrupted_as_it_waits(home: &Home, args: &[&str], delay: u64, twice: bool) -> (End, String) {
    let held = store(home);
    held.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut child = spawned(home, args);
    wait_until_it_listens(&mut child);
    interrupt(child, delay, twice, Some(held))
}

/// A home with a session, in a store of which `megabytes` are free.
fn home(messages: usize, megabytes: u32) -> Home {
    let home = Home::new();
    let lines = (0..messages).map(|at| {
        let line = serde_json::json!({"role": "user", "content": format!("Where is item {at}?")});
        format!("{line}\n")
    });
    home.put("log.jsonl", &lines.collect::<String>());
    home.done("import log.jsonl --session s");
    free(&home, megabytes);
    home
}

fn free(home: &Home, megabytes: u32) {
    if megabytes == 0 {
        return;
    }
    let record = rusqlite::Connection::open(home.path("home/sessions.sqlite3")).unwrap();
    record
        .execute_batch(&format!(
            "CREATE TABLE filler(bytes);
             INSERT INTO filler WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n LIMIT {megabytes})
                 SELECT randomblob(1 << 20) FROM n;
             DROP TABLE filler;"
        ))
        .unwrap();
}

fn assert_sound(home: &Home) {
    let ran = home.done("sessions verify");
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
    let home = home(40, 0);
    // What another engine keeps is copied as well, and takes long enough to be interrupted.
    home.put(
        "home/engines/other/notes",
        &"0123456789abcdef".repeat(12 << 20),
    );
    let (mut stopped, mut whole) = (0, 0);
    for attempt in 0..TRIES {
        let delay = 20 * (attempt % 50);
        let (end, stderr) = interrupted(&home, &["sessions", "backup", "copy"], delay, false);
        match end {
            End::Code(0) => {
                whole += 1;
                assert_eq!(copies(&home), ["copy"]);
                let other = Home::new();
                std::fs::rename(
                    home.path("copy/sessions.sqlite3"),
                    other.path("home/sessions.sqlite3"),
                )
                .unwrap();
                std::fs::remove_dir_all(home.path("copy")).unwrap();
                assert_sound(&other);
                let exported = other.contexture("sessions export s");
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
        if whole >= 2 && stopped > 0 {
            break;
        }
    }
    assert!(whole > 0 && stopped > 0, "{whole} whole, {stopped} stopped");
    assert_sound(&home);
}

#[test]
fn a_check_is_stopped_and_the_next_one_is_not() {
    // A check of fewer is over before it is told: it is asked to stop every 50 ms.
    let messages = match cfg!(debug_assertions) {
        true => 30_000,
        false => 150_000,
    };
    let home = home(messages, 0);
    for command in [["sessions", "verify"], ["sessions", "repair"]] {
        let stopped = (0..TRIES).any(|attempt| {
            let (end, stderr) = interrupted(&home, &command, attempt % 10, false);
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
    type Interrupted = fn(&Home, &[&str], u64, bool) -> (End, String);
    let home = home(16_000, 0);
    for (command, interrupted) in [
        ("gc", interrupted_as_it_waits as Interrupted),
        ("repair", interrupted),
    ] {
        for (twice, code) in [(false, 0), (true, STOPPED)] {
            let was_told = (0..TRIES).any(|attempt| {
                let args = ["sessions", command, "--yes"];
                let (end, stderr) = interrupted(&home, &args, 5 * (attempt % 20), twice);
                match end {
                    End::Code(ended) if ended == code => stderr.contains("cannot stop halfway"),
                    // Done before it was told, or before it was told again.
                    End::Code(ended) => {
                        assert_eq!(ended, 0, "{stderr}");
                        false
                    }
                    End::Signal(signal) => {
                        assert_eq!(signal, SIGINT);
                        false
                    }
                }
            });
            assert!(was_told, "{command} {twice}");
        }
        assert_sound(&home);
        let exported = home.contexture("sessions export s");
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
    // It does not listen: Ctrl-C ends it wherever it is.
    for delay in (0..).step_by(40) {
        match interrupt(spawned(&home, &import), delay, false, None) {
            (End::Signal(SIGINT), _) => interrupts += 1,
            (End::Code(0), _) => break,
            (end, stderr) => panic!("{end:?}: {stderr}"),
        }
    }
    assert!(interrupts > 0);
    let again = home.run(import);
    again.exits(0);
    assert_eq!(json(&again.stdout)["new"], 0);
    let exported = home.contexture("sessions export t");
    assert_eq!(exported.stdout, home.read("log.jsonl"));
    assert_sound(&home);
}

#[test]
fn a_benchmark_that_is_stopped_prints_the_rows_so_far() {
    let home = Home::new();
    for number in 0..40 {
        let messages = cli_support::chat(200 - number);
        home.put(&format!("logs/{number}.json"), &messages);
    }
    let bench = [
        "bench", "sessions", "logs", "--context-length", "4k", "--json",
    ];
    let is_stopped = (0..TRIES).any(|attempt| {
        let mut child = home
            .command(bench)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until_it_listens(&mut child);
        let mut stdout = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut printed = String::new();
            stdout.read_to_string(&mut printed).unwrap();
            printed
        });
        let (end, stderr) = interrupt(child, 200 * (attempt + 1), false, None);
        let printed = reader.join().unwrap();
        match end {
            End::Code(STOPPED) => {
                assert!(stderr.contains("the rows are those"), "{stderr}");
                let found = json(&printed);
                assert_eq!(found["stopped"], true);
                let rows = found["totals"].as_array().unwrap();
                // Every row is about the same sessions.
                let sessions: Vec<_> = rows.iter().map(|row| &row["sessions"]).collect();
                assert!(sessions.iter().all(|number| *number == sessions[0]));
                let played = sessions.first().and_then(|number| number.as_u64());
                played.is_some_and(|played| (1..40).contains(&played))
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
    assert!(is_stopped);
}
