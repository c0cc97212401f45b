//! Commands and living sessions that are killed at any moment: what they had reported is there, byte for byte, the
//! stores are sound, and the next command goes on.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cli_support::{Home, json};
use contexture::{Host, HostOptions};
use serde_json::Value;

/// How often each of the two is killed.
const ROUNDS: &str = "CONTEXTURE_KILL_ROUNDS";
/// Names the directory in which this very program, run again, is the living session.
const CHILD: &str = "CONTEXTURE_KILL_CHILD";

fn rounds() -> u64 {
    std::env::var(ROUNDS).map_or(14, |rounds| rounds.parse().unwrap())
}

/// A share of `most`, another one in each round.
fn part_of(most: Duration, round: u64) -> Duration {
    let share = round.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    most.mul_f64(share as f64 / (1 << 20) as f64)
}

fn message(number: usize) -> String {
    let role = ["user", "assistant"][number % 2];
    let detail = format!(
        "src/part_{number}.rs:{} says \"naïve 谢谢\\n\"; ",
        number * 7
    );
    serde_json::json!({"role": role, "content": detail.repeat(1 + number % 9)}).to_string()
}

fn lines(count: usize) -> String {
    (0..count).map(|number| message(number) + "\n").collect()
}

fn body(count: usize) -> String {
    let messages: Vec<_> = (0..count).map(message).collect();
    format!(
        r#"{{"model": "gpt-4o", "messages": [{}]}}"#,
        messages.join(",")
    )
}

fn assert_sound(home: &Home, context: &str) {
    let ran = home.contexture("sessions verify");
    assert_eq!(ran.code, 0, "{context}: {}{}", ran.stdout, ran.stderr);
    assert_eq!(json(&ran.stdout)["ok"], true, "{context}: {}", ran.stdout);
}

/// Asserts that the first of `whole`, `reported` of them at least, are what is kept. How many are.
fn assert_kept(home: &Home, session: &str, whole: &str, reported: usize, context: &str) -> usize {
    let ran = home.contexture(format!("sessions export {session}"));
    assert!(ran.code == 0 || reported == 0, "{context}: {}", ran.stderr);
    let kept = ran.stdout.lines().count();
    assert!(
        whole.starts_with(&ran.stdout),
        "{context}: {session} is no longer what was said"
    );
    assert!(
        kept >= reported,
        "{context}: {session} has {kept} of {reported}"
    );
    kept
}

#[test]
fn commands_that_are_killed_lose_nothing() {
    let home = Home::new();
    let (mut log, mut chat) = (400, 40);
    home.put("log.jsonl", &lines(log));
    home.put("victim.jsonl", &lines(300));
    home.put("body.json", &body(chat));
    let compress = [
        "compress", "body.json", "--session", "chat", "--engine", "lcm", "--force",
        "--context-length", "4000", "-o", "smaller.json",
    ];
    let commands: [&[&str]; 10] = [
        &["import", "log.jsonl", "--session", "log"],
        &compress,
        &["sessions", "archive", "log"],
        &["import", "log.jsonl", "--session", "log"],
        &["sessions", "gc", "--yes"],
        &["sessions", "delete", "victim", "--yes"],
        &compress,
        &["sessions", "repair", "--yes"],
        &["sessions", "backup", "copy"],
        &[
            "tool",
            "lcm_grep",
            r#"{"pattern": "naïve", "scope": "messages"}"#,
            "--session",
            "log",
        ],
    ];
    let (mut kept_log, mut kept_chat) = (0, 0);
    let mut took = BTreeMap::new();
    let mut killed = BTreeMap::<_, u64>::new();
    for round in 0..rounds() {
        let args = commands[round as usize % commands.len()];
        let context = format!("round {round}, {args:?}");
        if args.contains(&"victim") {
            let ran = home.contexture("import victim.jsonl --session victim");
            assert_eq!(ran.code, 0, "{context}: {}", ran.stderr);
        }
        let mut process = home
            .command(args.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let most = took
            .get(args)
            .copied()
            .unwrap_or(Duration::from_millis(150));
        std::thread::sleep(part_of(most, round));
        let _ = process.kill();
        if !process.wait().unwrap().success() {
            *killed.entry(args[..2].join(" ")).or_default() += 1;
        }

        assert_sound(&home, &context);
        kept_log = assert_kept(&home, "log", &lines(log), kept_log, &context);
        kept_chat = assert_kept(&home, "chat", &lines(chat), kept_chat, &context);
        if std::fs::exists(home.path("smaller.json")).unwrap() {
            json(&home.read("smaller.json"));
        }
        if args.contains(&"victim") {
            let export = home.contexture("sessions export victim");
            assert!(
                export.code == 2 || export.stdout == lines(300),
                "{context}: {}",
                export.stderr
            );
            if export.code == 2 {
                continue;
            }
        }

        // What a backup leaves behind is whole, and not written over.
        let copy = home.path("copy");
        if std::fs::exists(&copy).unwrap() {
            let other = Home::new();
            std::fs::copy(
                format!("{copy}/sessions.sqlite3"),
                other.path("home/sessions.sqlite3"),
            )
            .unwrap();
            assert_kept(&other, "log", &lines(log), kept_log, &context);
            std::fs::remove_dir_all(copy).unwrap();
        }

        let began = Instant::now();
        let ran = home.run(args.iter().copied());
        took.insert(args, began.elapsed());
        let is_archived = args.contains(&"archive") && ran.stderr.contains("archived");
        assert!(
            ran.code == 0 || is_archived || kept_log == 0,
            "{context}: {}",
            ran.stderr
        );
        match args[1] {
            "log.jsonl" => {
                kept_log = assert_kept(&home, "log", &lines(log), log, &context);
                log += 150;
                home.put("log.jsonl", &lines(log));
            }
            "body.json" => {
                kept_chat = assert_kept(&home, "chat", &lines(chat), chat, &context);
                chat += 12;
                home.put("body.json", &body(chat));
            }
            "backup" => std::fs::remove_dir_all(home.path("copy")).unwrap(),
            "archive" => {
                home.contexture("sessions archive log --undo");
            }
            _ => {}
        }
    }
    println!("{} times: {killed:?}; {log} and {chat} messages", rounds());
}

/// Goes on with its conversation until it is killed; says what has been answered.
#[test]
fn the_child() {
    let Ok(directory) = std::env::var(CHILD) else {
        return;
    };
    let host = Host::open(&HostOptions::in_home(format!("{directory}/home"))).unwrap();
    let session = host.session("s").engine("lcm").model("gpt-4o", 4_000);
    let mut session = session.max_output_tokens(400).open().unwrap();
    let client = format!("{directory}/client.jsonl");
    let mut history: Vec<String> = std::fs::read_to_string(&client)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    let mut file = std::fs::File::options()
        .create(true)
        .append(true)
        .open(client)
        .unwrap();
    let mut say = |history: &mut Vec<String>| {
        let said = message(history.len());
        file.write_all(format!("{said}\n").as_bytes()).unwrap();
        history.push(said);
    };
    println!("\nopened");
    loop {
        if history.len().is_multiple_of(2) {
            say(&mut history);
        }
        let request = format!(
            r#"{{"model": "gpt-4o", "messages": [{}]}}"#,
            history.join(",")
        );
        let turn = session.turn(&request).unwrap();
        println!("taken {}", history.len());
        if turn.compaction.is_some() {
            println!("compacted");
        }
        say(&mut history);
        session.answer(&[history.last().unwrap()], None).unwrap();
        println!("answered {}", history.len());
    }
}

fn start_child(home: &Home) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["the_child", "--exact", "--nocapture"])
        .env(CHILD, home.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_living_session_that_is_killed_loses_nothing() {
    let home = Home::new();
    let mut reported = 0;
    let mut compactions = 0;
    let mut killed = BTreeMap::<String, u64>::new();
    for round in 0..rounds() {
        let mut child = start_child(&home);
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut last = String::from("opening");
        // While it opens, while it takes its first turn, or later.
        let from = ["", "opened", "answered", "answered"][round as usize % 4];
        while !from.is_empty() {
            let line = output.next().unwrap().unwrap();
            if line.starts_with(from) {
                break;
            }
        }
        std::thread::sleep(part_of(Duration::from_millis(400), round));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in output.map_while(Result::ok) {
            let count = line.rsplit(' ').next().and_then(|count| count.parse().ok());
            reported = reported.max(count.unwrap_or(0));
            compactions += u64::from(line == "compacted");
            if !line.is_empty() {
                last = line;
            }
        }
        let place = last.split(' ').next().unwrap_or_default().to_owned();
        *killed.entry(place).or_default() += 1;

        let context = format!("round {round}, after {last}");
        let Ok(said) = std::fs::read_to_string(home.path("client.jsonl")) else {
            continue;
        };
        assert_sound(&home, &context);
        let kept = assert_kept(&home, "s", &said, reported, &context);
        let found = home.run([
            "tool",
            "lcm_grep",
            r#"{"pattern": "naïve", "scope": "messages"}"#,
            "--session",
            "s",
        ]);
        if found.code == 0 {
            assert_eq!(json(&found.stdout)["total"], Value::from(kept), "{context}");
        }
        // The client lost what it had not written whole.
        let whole = said.rfind('\n').map_or(0, |end| end + 1);
        home.put("client.jsonl", &said[..whole]);
    }
    println!(
        "{} times, after {killed:?}; {reported} messages, {compactions} compactions",
        rounds()
    );
    assert!(reported > 0);
}
