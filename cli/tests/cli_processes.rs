//! Several processes on one session, processes that are killed, and stores that were lost: what a session
//! holds stays one conversation, and what is missing is said.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use cli_support::{Home, Ran, chat, json};
use serde_json::{Value, json};

fn done(ran: Ran) -> Value {
    ran.exits(0);
    json(&ran.stdout)
}

fn start(home: &Home, args: &[&str]) -> Child {
    let mut command = home.command(args.iter().copied());
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn succeeds(process: Child) {
    let ended = process.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
}

fn compress<'a>(file: &'a str, session: &'a str) -> [&'a str; 10] {
    let window = ["--context-length", "8000", "-o", "out.json"];
    let [length, tokens, o, out] = window;
    [
        "compress", file, "--engine", "lcm", "--session", session, length, tokens, o, out,
    ]
}

fn exported(home: &Home, session: &str) -> Vec<Value> {
    let ran = home.done(format!("sessions export {session}"));
    ran.stdout.lines().map(json).collect()
}

/// Messages one a line.
fn lines(count: usize) -> String {
    let line = |at: usize| json!({"role": "user", "content": format!("item {at} of the log")});
    (0..count).map(|at| format!("{}\n", line(at))).collect()
}

fn messages_of(home: &Home, session: &str) -> u64 {
    let list = done(home.contexture("sessions list --json"));
    let sessions = list["sessions"].as_array().unwrap().iter();
    let mut of_it = sessions.filter(|one| one["session"] == session);
    of_it
        .next()
        .map_or(0, |one| one["messages"].as_u64().unwrap())
}

/// The conversation at several ages, all at once into one new session.
#[test]
fn processes_that_compress_one_session_take_turns() {
    let home = Home::new();
    let ages = [60, 120, 240, 480];
    for age in ages {
        home.put(&format!("{age}.json"), &chat(age));
    }
    let whole = json(&chat(480))["messages"].clone();
    for round in ["a", "b", "c"] {
        let files = ages.map(|age| format!("{age}.json"));
        let processes = files.each_ref().map(|file| {
            let mut args = compress(file, round);
            args[9] = "/dev/null";
            start(&home, &args)
        });
        for process in processes {
            succeeds(process);
        }
        let last = home.run(compress("480.json", round));
        last.exits(0);
        assert_eq!(Value::Array(exported(&home, round)), whole, "{round}");

        let shown = done(home.contexture(format!("sessions show {round}")));
        let window = &shown["window"];
        let under = window["messages_under_summaries"].as_u64().unwrap();
        let outside = window["messages_outside"].as_u64().unwrap();
        assert_eq!(under + outside, 480, "{shown}");
        // The window in force is the one that the store has: outside of its summaries stands what went out.
        let out = json(&home.read("out.json"));
        let whole = whole.as_array().unwrap();
        let sent = out["messages"].as_array().unwrap().iter();
        let verbatim = sent.filter(|message| whole.contains(message)).count() as u64;
        assert_eq!(verbatim, outside, "{shown}");
    }
    home.done("sessions verify");
}

#[test]
fn two_imports_of_one_file_add_it_once_and_say_so() {
    let home = Home::new();
    home.put("log.jsonl", &lines(3_000));
    let import = || {
        let mut command = home.command(["import", "log.jsonl", "--session", "s"]);
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let added = [import(), import()].map(|process| {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success());
        json(std::str::from_utf8(&output.stdout).unwrap())["new"]
            .as_u64()
            .unwrap()
    });
    assert_eq!(added.iter().sum::<u64>(), 3_000, "{added:?}");
    assert_eq!(exported(&home, "s").len(), 3_000);
}

/// Killed in the middle of its first import, a session is there for its tools, and the next import says
/// truly what it adds.
#[test]
fn a_killed_import_is_gone_on_with() {
    const ALL: u64 = 12_000;
    let home = Home::new();
    home.put("log.jsonl", &lines(ALL as usize));
    let mut process = start(&home, &["import", "log.jsonl", "--session", "s"]);
    let began = Instant::now();
    while messages_of(&home, "s") == 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let stored = messages_of(&home, "s");
    assert!(stored == 0 || stored == ALL, "{stored}");

    let found = || {
        done(home.run([
            "tool",
            "lcm_grep",
            r#"{"pattern": "item", "scope": "messages"}"#,
            "--session",
            "s",
        ]))["total"]
            .clone()
    };
    if stored > 0 {
        assert_eq!(found(), stored);
    }
    done(home.contexture("import log.jsonl --session s"));
    assert_eq!(messages_of(&home, "s"), ALL);
    assert_eq!(found(), ALL);
}

#[test]
fn a_backup_in_a_fresh_home_is_found_by_the_tools() {
    let home = Home::new();
    home.put("log.jsonl", &lines(40));
    done(home.contexture("import log.jsonl --session s"));
    done(home.contexture("sessions backup copy"));
    let other = Home::new();
    let store = other.path("home/sessions.sqlite3");
    std::fs::copy(home.path("copy/sessions.sqlite3"), &store).unwrap();
    let found = done(other.run([
        "tool",
        "lcm_grep",
        r#"{"pattern": "item"}"#,
        "--session",
        "s",
    ]));
    assert_eq!(found["total"], 40, "{found}");
    let help = home.contexture("sessions backup --help");
    help.stdout_has("sessions.sqlite3");

    // A name that nobody keeps stays unknown, whoever is asked.
    for engine in [&["--engine", "lcm"][..], &[]] {
        let args = ["tool", "lcm_grep", "{}", "--session", "nobody"];
        let ran = other.run([&args[..], engine].concat());
        ran.exits(2);
        ran.stderr_has("no session `nobody`");
        assert_eq!(messages_of(&other, "nobody"), 0);
    }
    let list = done(other.contexture("sessions list --json"));
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
}

#[test]
fn an_index_that_is_gone_or_older_is_made_anew() {
    let home = Home::new();
    home.put("log.jsonl", &lines(400));
    let grep = || {
        let pattern = r#"{"pattern": "item", "scope": "messages"}"#;
        let ran = home.run(["tool", "lcm_grep", pattern, "--session", "s"]);
        ran.stderr_lacks("warning");
        done(ran)["total"].clone()
    };
    home.put("older.jsonl", &lines(100));
    done(home.contexture("import older.jsonl --session s"));
    let older = std::fs::read(home.lcm_index()).unwrap();
    done(home.contexture("import log.jsonl --session s"));
    assert_eq!(grep(), 400);

    let engine = home.path("home/engines/lcm");
    std::fs::remove_dir_all(&engine).unwrap();
    assert_eq!(grep(), 400);
    assert_eq!(done(home.contexture("sessions verify"))["ok"], true);

    let _ = std::fs::remove_dir_all(&engine);
    std::fs::create_dir_all(&engine).unwrap();
    std::fs::write(home.lcm_index(), older).unwrap();
    assert_eq!(grep(), 400);
    home.done("sessions export s");
    done(home.contexture("import log.jsonl --session s"));
    assert_eq!(grep(), 400);
}

#[test]
fn a_question_about_a_store_that_is_not_there_makes_nothing() {
    let home = Home::new();
    for (place, made) in [("home", true), ("absent", false)] {
        for args in [
            &["sessions", "list"][..],
            &["sessions", "verify"],
            &["sessions", "show", "s"],
            &["sessions", "export", "s"],
            &["sessions", "gc"],
            &["sessions", "repair"],
            &["sessions", "delete", "s"],
            &["sessions", "list", "--engine", "compressor"],
            &["tool", "--session", "s"],
            &["tool", "lcm_status", "--session", "s"],
            &["tool", "--session", "s", "--engine", "compressor"],
        ] {
            let mut command = home.command(args.iter().copied());
            command.env("CONTEXTURE_HOME", home.path(place));
            cli_support::ran(command.output().unwrap());
            let there = std::fs::read_dir(home.path(place));
            assert_eq!(there.is_ok(), made, "{args:?}");
            assert_eq!(there.into_iter().flatten().count(), 0, "{args:?}");
        }
    }
}

#[test]
fn a_dry_run_leaves_nothing_behind() {
    let home = Home::new();
    home.put("chat.json", &chat(400));
    home.put("longer.json", &chat(900));
    let dry = |file: &str, session: &[&str]| {
        let args = ["compress", file, "--engine", "lcm", "--dry-run"];
        let window = ["--context-length", "8000"];
        let ran = home.run([&args[..], &window, session].concat());
        ran.exits(0);
        ran.stderr_has("compacted");
        ran.stderr
    };
    let in_home = || std::fs::read_dir(home.path("home")).unwrap().count();
    for session in [&["--session", "s"][..], &[]] {
        dry("chat.json", session);
        assert_eq!(in_home(), 0, "{session:?}");
    }

    let mut args = compress("chat.json", "s");
    args[9] = "/dev/null";
    assert_eq!(home.run(args).code, 0);
    let state = || {
        let shown = done(home.contexture("sessions show s"));
        (shown, exported(&home, "s"), messages_of(&home, "s"))
    };
    let before = state();
    dry("longer.json", &["--session", "s"]);
    dry("longer.json", &[]);
    assert_eq!(state(), before);
    let list = done(home.contexture("sessions list --all --json"));
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");
    // What then comes is what the dry run said.
    let args = compress("longer.json", "s");
    let (said, came) = (dry("longer.json", &["--session", "s"]), home.run(args));
    let tokens = |text: &str| {
        let line = text.lines().find(|line| line.contains(" tokens"));
        line.unwrap().to_owned()
    };
    assert_eq!(tokens(&said), tokens(&came.stderr));
}

#[test]
fn an_import_needs_an_engine_that_keeps_sessions_and_a_name() {
    let home = Home::new();
    home.put("log.jsonl", &lines(4));
    let args = ["import", "log.jsonl", "--session", "s"];
    let ran = home.run([&args[..], &["--engine", "compressor"]].concat());
    ran.exits(2);
    for says in ["`compressor` keeps no sessions", "--engine lcm"] {
        ran.stderr_has(says);
    }
    for command in [
        &["import", "log.jsonl"][..],
        &["compress", "log.jsonl"],
        &["tool", "lcm_grep"],
    ] {
        let ran = home.run([command, &["--session", ""]].concat());
        assert_eq!(ran.code, 2, "{command:?}: {}", ran.stdout);
    }
    assert_eq!(messages_of(&home, ""), 0);
}

#[test]
fn an_import_says_that_the_system_prompt_is_not_among_the_messages() {
    let home = Home::new();
    let system = json!({"role": "system", "content": "Be brief."});
    home.put("log.jsonl", &format!("{system}\n{}", lines(6)));
    let ran = home.contexture("import log.jsonl --session s");
    ran.stderr_has("system prompt");
    let answer = done(ran);
    assert_eq!(answer["messages"], 6);
    assert_eq!(answer["system_prompt"], "not imported");
}

#[test]
fn a_backup_onto_a_file_is_refused_as_wrong_usage() {
    let home = Home::new();
    home.put("log.jsonl", &lines(4));
    done(home.contexture("import log.jsonl --session s"));
    home.put("there.txt", "mine");
    let ran = home.contexture("sessions backup there.txt");
    ran.exits(2);
    ran.stderr_has("there.txt");
    ran.stderr_lacks("the engine failed");
    assert_eq!(home.read("there.txt"), "mine");
}

/// SQLite does not wait for the lock with which a file is set to WAL mode, so the first processes in
/// a home must not share an unfinished file.
#[test]
fn processes_that_begin_a_home_at_once_do_not_disturb_each_other() {
    for _ in 0..5 {
        let home = Home::new();
        let age = 40;
        home.put("chat.json", &chat(age));
        let sessions = ["a", "b", "c", "d", "e", "f"];
        let processes = sessions.map(|session| {
            let mut args = compress("chat.json", session);
            args[9] = "/dev/null";
            start(&home, &args)
        });
        for process in processes {
            succeeds(process);
        }
        for session in sessions {
            assert_eq!(messages_of(&home, session), age as u64);
        }
    }
}
