//! The command with the lossless engine, as a user types it: `import`, `tool`, `sessions`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;
#[path = "../../engines/lcm/tests/tiny_encoder/mod.rs"]
mod tiny_encoder;

use cli_support::{Home, Ran, chat, claude_code_log, json, shared_data};
use serde_json::{Value, json};

fn done(ran: Ran) -> Value {
    ran.exits(0);
    json(&ran.stdout)
}

fn import(home: &Home, file: &str, session: &str) -> Value {
    done(home.contexture(format!("import {file} --session {session}")))
}

fn export(home: &Home, session: &str) -> String {
    let ran = home.done(format!("sessions export {session}"));
    ran.stdout
}

fn tool(home: &Home, name: &str, arguments: &Value, session: &str) -> Value {
    let arguments = arguments.to_string();
    done(home.run(["tool", name, &arguments, "--session", session]))
}

/// Messages one a line, with the time of each: a question, a call, its result, an answer.
fn lines(count: usize) -> String {
    let line = |at: usize| {
        let ts = 1_767_225_600 + 30 * at;
        match at % 4 {
            0 => {
                json!({"role": "user", "content": format!("Where is item {at}? 第{at}件在哪里"), "ts": ts})
            }
            1 => json!({"role": "assistant", "content": "", "ts": ts, "tool_calls": [{
                "id": format!("call_{at}"), "type": "function",
                "function": {"name": "find", "arguments": format!("{{\"item\": {at}}}")}}]}),
            2 => json!({"role": "tool", "tool_call_id": format!("call_{}", at - 1), "ts": ts,
                "content": format!("shelf-{at}/box_{at}.txt: found\n")}),
            _ => json!({"role": "assistant", "content": format!("Item {at} is there."), "ts": ts}),
        }
    };
    (0..count).map(|at| format!("{}\n", line(at))).collect()
}

#[test]
fn what_grew_is_added_and_what_is_known_is_not_stored_again() {
    let home = Home::new();
    let whole = lines(400);
    let half: String = whole.split_inclusive('\n').take(200).collect();
    home.put("log.jsonl", &half);
    assert_eq!(import(&home, "log.jsonl", "s")["new"], 200);
    assert_eq!(import(&home, "log.jsonl", "s")["new"], 0);
    home.put("log.jsonl", &whole);
    let grown = import(&home, "log.jsonl", "s");
    assert_eq!(
        grown,
        json!({"session": "s", "engine": "lcm", "messages": 400, "new": 200})
    );
    assert_eq!(import(&home, "log.jsonl", "s")["new"], 0);
    let shown = done(home.contexture("sessions show s"));
    assert_eq!(
        (&shown["messages"], &shown["in_conversation"]),
        (&json!(400), &json!(400))
    );
    assert_eq!(export(&home, "s"), whole);
    assert_eq!(done(home.contexture("sessions verify"))["ok"], true);
}

#[test]
fn an_older_or_another_file_is_refused_and_a_rewound_one_is_told() {
    let home = Home::new();
    let whole = lines(40);
    home.put("log.jsonl", &whole);
    import(&home, "log.jsonl", "s");
    let head: String = whole.split_inclusive('\n').take(20).collect();
    home.put("older.jsonl", &head);
    home.put("other.json", &chat(50));
    for (file, says) in [
        (
            "older.jsonl",
            "only the beginning of the session `s`, which has 20 messages more",
        ),
        ("other.json", "no message in common with the session `s`"),
    ] {
        let ran = home.contexture(format!("import {file} --session s"));
        assert_eq!(ran.code, 2, "{file}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{file}: {}", ran.stderr);
        assert!(
            ran.stderr.contains("--session"),
            "the way out: {}",
            ran.stderr
        );
        assert_eq!(export(&home, "s"), whole, "{file}");
    }

    let other_end = r#"{"role": "user", "content": "Never mind the shelf.", "ts": 1767229200}"#;
    home.put("rewound.jsonl", &format!("{head}{other_end}\n"));
    let ran = home.done("import rewound.jsonl --session s");
    ran.stderr_has("stay searchable");
    assert_eq!(export(&home, "s"), format!("{head}{other_end}\n"));
    // What was left out is still there to be found.
    let pattern = json!({"pattern": "shelf-38/box_38.txt", "mode": "literal", "scope": "messages"});
    assert_eq!(tool(&home, "lcm_grep", &pattern, "s")["total"], 1);
    let exported = home.done("sessions export s");
    exported.stderr_has("20 messages of the session are not shown");
    let all = home.done("sessions export s --whole");
    all.stderr_lacks("not shown");
    assert_eq!(all.stdout, format!("{whole}{other_end}\n"));
}

#[test]
fn wrong_input_changes_nothing() {
    let home = Home::new();
    let whole = lines(40);
    home.put("log.jsonl", &whole);
    import(&home, "log.jsonl", "s");
    home.put("empty.jsonl", "");
    home.put("prose.txt", "no conversation at all");
    home.put_bytes("binary", &[0xff, 0xfe, 0x00]);
    home.put("two.jsonl", &format!("{}\n{}\n", chat(4), chat(6)));
    home.put("list.jsonl", "[1, 2, 3]\n");
    for file in [
        "empty.jsonl", "prose.txt", "binary", "two.jsonl", "list.jsonl", "nowhere.json",
    ] {
        for session in ["s", "new"] {
            let ran = home.contexture(format!("import {file} --session {session}"));
            assert_eq!(
                ran.code, 2,
                "{file} into {session}: {}{}",
                ran.stdout, ran.stderr
            );
            assert!(
                ran.stderr.contains("help: ") || ran.stderr.contains("because: "),
                "{}",
                ran.stderr
            );
        }
        assert_eq!(export(&home, "s"), whole, "{file}");
    }
    let list = done(home.contexture("sessions list --json"));
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1, "{list}");

    // A log that breaks off in its last line is an older one, or the beginning of a new one.
    home.put("cut.jsonl", &whole[..whole.len() - 30]);
    let ran = home.contexture("import cut.jsonl --session s");
    ran.exits(2);
    assert_eq!(export(&home, "s"), whole);
    let ran = home.contexture("import cut.jsonl --session new");
    ran.stderr_has("cut off");
    assert_eq!(done(ran)["new"], 39);
    home.put("mended.jsonl", &whole);
    assert_eq!(import(&home, "mended.jsonl", "new")["new"], 1);
}

/// What is exported is imported as the same conversation, whatever the format was.
#[test]
fn export_import_export_is_the_same_for_every_format() {
    let home = Home::new();
    home.put("chat.json", &chat(12));
    home.put("claude.jsonl", &claude_code_log(12));
    home.put("lines.jsonl", &lines(12));
    home.put(
        "anthropic.json",
        &json!({"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": [
        {"role": "user", "content": "compare the two"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I read both."},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a"}},
            {"type": "tool_use", "id": "t2", "name": "read", "input": {"path": "b"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "alpha"},
            {"type": "tool_result", "tool_use_id": "t2", "content": "beta"},
            {"type": "text", "text": "and?"}]},
        {"role": "assistant", "content": "They differ."}]})
        .to_string(),
    );
    home.put("responses.json", &json!({"model": "gpt-5", "input": [
        {"role": "user", "content": "list it"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I list."}]},
        {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "alpha\nbeta"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Two files."}]}]}).to_string());
    // As such files are written: with line breaks inside the messages.
    let pretty = |value: Value| serde_json::to_string_pretty(&value).unwrap();
    home.put(
        "run.traj",
        &pretty(json!({"history": [
        {"role": "system", "content": "Repair it.", "agent": "main"},
        {"role": "user", "content": "The test\nfails.", "agent": "main"},
        {"role": "assistant", "content": "I look.", "agent": "main"}]})),
    );
    home.put(
        "tau2.json",
        &pretty(json!({"simulations": [{"id": "1", "messages": [
        {"role": "user", "content": "Cancel the flight."},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "k1", "name": "cancel", "arguments": {"flight": "HAT136"}}]},
        {"role": "tool", "id": "k1", "content": "cancelled"},
        {"role": "assistant", "content": "It is cancelled."}]}]})),
    );
    home.put("codex.jsonl", &[
        json!({"timestamp": "2026-11-20T10:00:00.000Z", "type": "session_meta", "payload": {"id": "x"}}),
        json!({"timestamp": "2026-11-20T10:00:01.000Z", "type": "response_item", "payload":
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "list it"}]}}),
        json!({"timestamp": "2026-11-20T10:00:02.000Z", "type": "response_item", "payload":
            {"type": "function_call", "call_id": "c1", "name": "ls", "arguments": "{}"}}),
        json!({"timestamp": "2026-11-20T10:00:03.000Z", "type": "response_item", "payload":
            {"type": "function_call_output", "call_id": "c1", "output": "alpha"}}),
        json!({"timestamp": "2026-11-20T10:00:04.000Z", "type": "response_item", "payload":
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "One."}]}}),
    ].map(|line| format!("{line}\n")).concat());
    for file in [
        "chat.json", "claude.jsonl", "lines.jsonl", "anthropic.json", "responses.json", "run.traj",
        "tau2.json", "codex.jsonl",
    ] {
        let taken = import(&home, file, file);
        let exported = export(&home, file);
        for line in exported.lines() {
            assert!(
                serde_json::from_str::<Value>(line).unwrap().is_object(),
                "{file}: {line}"
            );
        }
        home.put("exported.jsonl", &exported);
        let again = format!("{file}-again");
        let back = import(&home, "exported.jsonl", &again);
        assert_eq!(back["new"], taken["new"], "{file}:\n{exported}");
        assert_eq!(export(&home, &again), exported, "{file}");
    }
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn real_files_come_back_as_they_were() {
    let data = shared_data();
    let home = Home::new();
    for (file, select) in [
        ("claude-code/main.jsonl", None),
        ("tau2-bench/train_sft-v1-small.jsonl", Some("3")),
        (
            "tau2-bench/toolorchestra_airline_gpt-4.1-mini.json",
            Some("7"),
        ),
        ("swe-agent/web__i_got_id_demo.traj", None),
    ] {
        let path = data.join(file).display().to_string();
        let mut args = vec!["import", path.as_str(), "--session", file];
        args.extend(select.iter().flat_map(|number| ["--select", number]));
        let taken = done(home.run(args.iter().copied()));
        assert_eq!(taken["new"], taken["messages"], "{file}");
        assert_eq!(done(home.run(args))["new"], 0, "{file} a second time");
        let exported = export(&home, file);
        home.put("exported.jsonl", &exported);
        let again = format!("{file}-again");
        assert_eq!(
            import(&home, "exported.jsonl", &again)["new"],
            taken["new"],
            "{file}"
        );
        assert!(export(&home, &again) == exported, "{file}");
    }
    assert_eq!(done(home.contexture("sessions verify"))["ok"], true);
}

/// Every kind of query over a larger file, beside a plain scan of its lines.
#[test]
fn tools_answer_what_a_plain_scan_finds() {
    let home = Home::new();
    let log = lines(1_200);
    home.put("log.jsonl", &log);
    import(&home, "log.jsonl", "s");
    let scan = |needle: &str| log.lines().filter(|line| line.contains(needle)).count();
    for (mode, pattern, expected) in [
        ("full_text", "where item", scan("Where is item")),
        ("full_text", "\"item 1000\"", 1),
        ("full_text", "在哪", scan("在哪")),
        ("full_text", "xylophonequux", 0),
        ("literal", "shelf-1002/box_1002.txt", 1),
        ("literal", "第1000件", 1),
        ("literal", "WHERE", 0),
        (
            "regex",
            r"box_10[0-9]{2}\.txt",
            scan("box_10") - scan("box_10.") - scan("box_102.") - scan("box_106."),
        ),
        ("regex", r"(?i)WHERE IS ITEM 4?0\?", 2),
    ] {
        let arguments = json!({"pattern": pattern, "mode": mode, "scope": "messages"});
        let found = tool(&home, "lcm_grep", &arguments, "s");
        assert_eq!(found["total"], expected, "{mode} {pattern}: {found:#}");
        assert_eq!(found["searched"]["messages"], 1_200);
        assert!(found["hits"].as_array().unwrap().len() <= 20);
    }

    // Page by page every hit comes once, the newest first.
    let mut arguments = json!({"pattern": "shelf", "mode": "literal", "limit": 70});
    let mut ids = Vec::new();
    loop {
        let page = tool(&home, "lcm_grep", &arguments, "s");
        assert_eq!(page["total"], 300);
        let hits = page["hits"].as_array().unwrap().iter();
        ids.extend(hits.map(|hit| hit["id"].as_str().unwrap()[1..].parse::<u64>().unwrap()));
        if page["next_cursor"].is_null() {
            break;
        }
        arguments["cursor"] = page["next_cursor"].clone();
    }
    let expected: Vec<u64> = (0..300).rev().map(|at| 4 * at + 3).collect();
    assert_eq!(ids, expected);

    // `ts` is the time of a message: five minutes hold ten of them.
    let times = json!({"pattern": "e", "mode": "literal", "since": 1_767_225_600, "until": 1_767_225_899,
                       "scope": "messages"});
    let found = tool(&home, "lcm_grep", &times, "s");
    assert_eq!(
        found["total"],
        log.lines()
            .take(10)
            .filter(|line| {
                let line: Value = serde_json::from_str(line).unwrap();
                line["content"].as_str().unwrap().contains('e') || line.get("tool_calls").is_some()
            })
            .count()
    );

    let whole = tool(&home, "lcm_expand", &json!({"id": "m3"}), "s");
    assert_eq!(whole["messages"][0]["message"], log.lines().nth(2).unwrap());
}

#[test]
fn tools_are_listed_as_json_where_that_is_asked_for() {
    let home = Home::new();
    home.put("log.jsonl", &lines(4));
    import(&home, "log.jsonl", "s");
    let tools = done(home.contexture("tool --session s --json"));
    let names: Vec<_> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| &tool["name"])
        .collect();
    assert!(names.contains(&&json!("lcm_grep")), "{names:?}");
}

#[test]
fn tools_are_listed_and_a_mistyped_one_is_told_which_there_are() {
    let home = Home::new();
    home.put("log.jsonl", &lines(8));
    import(&home, "log.jsonl", "s");
    let listed = home.done("tool --session s");
    let names: Vec<&str> = (listed.stdout.lines())
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    assert!(
        names.contains(&"lcm_grep") && names.contains(&"lcm_doctor"),
        "{names:?}"
    );
    assert!(
        listed
            .stdout
            .lines()
            .all(|line| line.contains("  ") && line.len() < 240),
        "{}",
        listed.stdout
    );

    let wrong = home.contexture("tool lcm_gerp --session s");
    assert_eq!(wrong.code, 2);
    wrong.stderr_has("no tool `lcm_gerp`");
    wrong.stderr_has("did you mean `lcm_grep`?");
    for name in names {
        assert!(wrong.stderr.contains(name), "{name}: {}", wrong.stderr);
    }

    for (arguments, says) in [
        (
            "{\"pattern\": \"hello[\", \"mode\": \"regex\"}",
            "unclosed character class",
        ),
        ("{\"patern\": \"x\"}", "unknown field `patern`"),
        ("not json", "lcm_grep"),
        ("{}", "`pattern` (exact) or `question`"),
    ] {
        let ran = home.run(["tool", "lcm_grep", arguments, "--session", "s"]);
        assert_eq!(ran.code, 2, "{arguments}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{arguments}: {}", ran.stderr);
    }
    let ran = home.run(["tool", "lcm_grep", "{}", "--session", "nobody"]);
    assert_eq!(ran.code, 2);
    ran.stderr_has("no session `nobody`");
    let piped = home.pipe(
        ["tool", "lcm_grep", "-", "--session", "s"],
        b"{\"question\": \"where is item 4?\"}",
    );
    assert_eq!(done(piped)["hits"][0]["id"], "m5");
}

#[test]
fn sessions_are_listed_backed_up_and_removed_after_a_dry_run() {
    let home = Home::new();
    home.put("log.jsonl", &lines(400));
    for session in ["a", "b"] {
        import(&home, "log.jsonl", session);
    }
    let names = |home: &Home| -> Vec<String> {
        let list = done(home.contexture("sessions list --json"));
        let sessions = list["sessions"].as_array().unwrap().iter();
        let mut names: Vec<_> = sessions
            .map(|one| one["session"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&home), ["a", "b"]);
    let table = home.done("sessions list");
    let rows: Vec<Vec<_>> = table
        .stdout
        .lines()
        .map(|line| {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect()
        })
        .collect();
    assert_eq!(rows[0], ["ID", "MESSAGES", "ENGINE", "LAST USED", "SIZE"]);
    assert_eq!(rows[1][..4], ["a", "400", "lcm", "just now"]);
    assert!(rows[1][4].ends_with(" kB"), "{}", table.stdout);
    assert_eq!(rows[2][0], "b");
    table.stdout_has("home/sessions.sqlite3");

    let backup = done(home.contexture("sessions backup copy"));
    assert!(backup["bytes"].as_u64() > Some(10_000), "{backup}");
    let twice = home.contexture("sessions backup copy");
    assert_ne!(twice.code, 0, "a backup overwrites nothing");

    let dry = home.contexture("sessions delete a");
    dry.stderr_has("--yes");
    let dry = done(dry);
    assert_eq!(
        (&dry["dry_run"], &dry["messages"]),
        (&json!(true), &json!(400))
    );
    assert_eq!(names(&home), ["a", "b"]);
    let gone = done(home.contexture("sessions delete a --yes"));
    assert_eq!(
        (&gone["messages"], &gone["bytes"]),
        (&dry["messages"], &dry["bytes"])
    );
    assert_eq!(names(&home), ["b"]);
    let tool_of_gone = home.contexture("tool lcm_recent --session a");
    tool_of_gone.exits(2);

    let could = done(home.contexture("sessions gc"))["freed_bytes"]
        .as_u64()
        .unwrap();
    assert!(could > 0);
    let stores = [home.path("home/sessions.sqlite3"), home.lcm_index()];
    let sizes = || {
        let lengths = stores.each_ref();
        lengths.map(|store| std::fs::metadata(store).unwrap().len())
    };
    let before = sizes();
    done(home.contexture("sessions gc --yes"));
    let after = sizes();
    assert!(after[0] < before[0] && after[1] < before[1]);
    assert_eq!(export(&home, "b"), lines(400));

    // The same name begins anew.
    assert_eq!(import(&home, "log.jsonl", "a")["new"], 400);
    // Nothing is old enough to go.
    let old = done(home.contexture("sessions delete --older-than 30 --yes"));
    assert_eq!(old["sessions"], json!([]));

    // The copy is a whole record: put in place of the other, it has both sessions, and is searched.
    let other = Home::new();
    std::fs::copy(
        home.path("copy/sessions.sqlite3"),
        other.path("home/sessions.sqlite3"),
    )
    .unwrap();
    assert_eq!(names(&other), ["a", "b"]);
    assert_eq!(export(&other, "a"), lines(400));
    let found = done(other.run([
        "tool",
        "lcm_grep",
        r#"{"pattern": "box_202"}"#,
        "--session",
        "a",
        "--engine",
        "lcm",
    ]));
    assert_eq!(found["total"], 1, "{found}");
}

/// Whatever befalls what the engine derived, every command answers as before.
#[test]
fn what_the_engine_derived_is_made_anew_after_any_damage() {
    let home = Home::new();
    home.put("log.jsonl", &lines(400));
    import(&home, "log.jsonl", "s");
    let store = home.lcm_index();
    let whole = std::fs::read(&store).unwrap();
    let mut flipped = whole.clone();
    for page in flipped.chunks_mut(4_096) {
        page[1_568] ^= 0x55;
        page[3_616] ^= 0x55;
    }
    let damages: [&dyn Fn(); 5] = [
        &|| std::fs::write(&store, &flipped).unwrap(),
        &|| std::fs::write(&store, "").unwrap(),
        &|| std::fs::write(&store, &whole[..5_000]).unwrap(),
        &|| std::fs::write(&store, "no database at all, but a text. ".repeat(900)).unwrap(),
        &|| std::fs::remove_dir_all(home.path("home/engines")).unwrap(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        damage();
        let pattern = json!({"pattern": "box_202", "scope": "messages"});
        assert_eq!(
            tool(&home, "lcm_grep", &pattern, "s")["total"],
            1,
            "damage {number}"
        );
        assert_eq!(import(&home, "log.jsonl", "s")["new"], 0, "damage {number}");
        assert_eq!(done(home.contexture("sessions verify"))["ok"], true);
        assert_eq!(export(&home, "s"), lines(400));
        let repair = home.contexture("sessions repair");
        assert_eq!(done(repair)["found"]["ok"], true, "damage {number}");
    }
}

#[test]
fn an_archived_session_is_whole_and_comes_back() {
    let home = Home::new();
    home.put("log.jsonl", &lines(40));
    import(&home, "log.jsonl", "s");
    let listed = |more: &[&str]| {
        let list = done(home.run([&["sessions", "list", "--json"], more].concat()));
        list["sessions"].as_array().unwrap().len()
    };
    done(home.contexture("sessions archive s"));
    assert_eq!((listed(&[]), listed(&["--all"])), (0, 1));
    assert_eq!(export(&home, "s"), lines(40));
    done(home.contexture("sessions archive s --undo"));
    assert_eq!(listed(&[]), 1);
    done(home.contexture("sessions archive s"));
    home.put("log.jsonl", &lines(44));
    import(&home, "log.jsonl", "s");
    assert_eq!(listed(&[]), 1, "going on with it takes it back");
    assert_eq!(home.contexture("sessions archive nobody").code, 2);
}

#[test]
fn the_log_is_silent_unless_asked_for() {
    let home = Home::new();
    let input = home.put("chat.json", &chat(200));
    let compress = [
        "compress", &input, "--context-length", "8000", "--engine", "lcm",
    ];
    let silent = home.run(compress).stderr;
    assert!(silent.starts_with("compacted"), "{silent}");
    let asked = home.run(compress.into_iter().chain(["-v"])).stderr;
    assert!(asked.contains("INFO"), "{asked}");
}

/// A log of Claude Code and a rollout of Codex, each with a compaction made by the agent.
fn compacted_logs() -> [(&'static str, String); 2] {
    let claude = |at: usize, more: Value| {
        let role = ["user", "assistant"][at % 2];
        let parent = at.checked_sub(1).map(|before| format!("u{before}"));
        let mut line = json!({"parentUuid": parent, "type": role, "uuid": format!("u{at}"), "sessionId": "s",
            "message": {"role": role, "content": format!("word{at}")}});
        for (key, value) in more.as_object().unwrap() {
            line[key] = value.clone();
        }
        line
    };
    let boundary = json!({"parentUuid": null, "logicalParentUuid": "u3", "type": "system",
        "subtype": "compact_boundary", "message": null});
    let claude: Vec<Value> = vec![
        claude(0, json!({})),
        claude(1, json!({})),
        claude(2, json!({})),
        claude(3, json!({})),
        claude(4, boundary),
        claude(
            5,
            json!({"type": "user", "isCompactSummary": true, "message": {"role": "user", "content": "word5"}}),
        ),
        claude(6, json!({})),
        claude(7, json!({})),
    ];
    let item = |role: &str, text: &str| {
        json!({"type": "response_item", "payload": {"type": "message", "role": role,
            "content": [{"type": "input_text", "text": text}]}})
    };
    let codex = vec![
        json!({"type": "session_meta", "payload": {"id": "c"}}),
        item("user", "word0"),
        item("assistant", "word1"),
        item("user", "word2"),
        item("assistant", "word3"),
        json!({"type": "compacted", "payload": {"message": "word5"}}),
        item("user", "word6"),
        item("assistant", "word7"),
    ];
    let log = |lines: Vec<Value>| lines.iter().map(|line| format!("{line}\n")).collect();
    [("claude.jsonl", log(claude)), ("codex.jsonl", log(codex))]
}

#[test]
fn a_log_that_its_agent_compacted_is_kept_whole_and_gone_on_with_where_the_agent_would() {
    let home = Home::new();
    for ((file, log), goes_on_with) in compacted_logs()
        .into_iter()
        .zip([&[6, 7][..], &[0, 2, 5, 6, 7]])
    {
        home.put(file, &log);
        let compressed = home.contexture(format!("compress {file} --dry-run"));
        compressed.stderr_lacks("warning");
        let ran = home.contexture(format!("import {file} --session {file}"));
        ran.stderr_lacks("warning");
        assert_eq!(done(ran)["new"], 7, "{file}");
        for word in [0, 1, 2, 3, 5, 6, 7] {
            let pattern = json!({"pattern": format!("word{word}")});
            let found = tool(&home, "lcm_grep", &pattern, file);
            let hits = found["hits"].as_array().unwrap();
            assert_eq!(hits.len(), 1, "{file}: {word}");
            // The summary is the agent's message, never the user's.
            let is_users = hits[0]["role"] == "user";
            assert_eq!(
                is_users,
                [0, 2, 6].contains(&word),
                "{file}: {word}: {found}"
            );
        }
        let words = |text: &str| -> Vec<usize> {
            (0..8)
                .filter(|word| text.contains(&format!("word{word}")))
                .collect()
        };
        let exported = export(&home, file);
        assert_eq!(words(&exported), goes_on_with, "{file}");
        let whole = home
            .contexture(format!("sessions export {file} --whole"))
            .stdout;
        assert_eq!(words(&whole), [0, 1, 2, 3, 5, 6, 7], "{file}");
        assert_eq!(import(&home, file, file)["new"], 0, "{file}");
        assert_eq!(export(&home, file), exported);
        let played = home.contexture(format!("replay {file} --report -"));
        assert_eq!(
            json(&played.stdout)["conversations"][0]["requests"],
            3,
            "{file}: {}",
            played.stderr
        );
    }
}

#[test]
fn sessions_of_engines_that_keep_nothing_are_listed_too() {
    let home = Home::new();
    home.put("log.jsonl", &lines(40));
    import(&home, "log.jsonl", "kept");
    home.done("compress log.jsonl --session recorded --engine compressor --force");
    let list = done(home.contexture("sessions list --json"));
    let sessions = list["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2, "{list}");
    assert_eq!(
        (&sessions[1]["session"], &sessions[1]["engine"]),
        (&json!("recorded"), &json!("compressor"))
    );
    let table = home.contexture("sessions list").stdout;
    assert!(
        table.contains("recorded") && table.contains("compressor"),
        "{table}"
    );
    let of_lcm = done(home.contexture("sessions list --json --engine lcm"));
    assert_eq!(of_lcm["sessions"].as_array().unwrap().len(), 1);
}

/// With an embedder, a question finds text that shares no word with it right after an import. If an earlier import left
/// messages without vectors, commands say so and `sessions index` makes them.
#[test]
fn an_import_makes_vectors_and_what_lacks_them_is_told_and_indexed() {
    let home = Home::new();
    let said = [
        "the doctor moved to tuesday",
        "the garden needs water",
        "the bread was good",
    ];
    let log: String = said
        .iter()
        .map(|text| format!("{}\n", json!({"role": "user", "content": text})))
        .collect();
    home.put("log.jsonl", &log);
    // Before there is an embedder.
    assert_eq!(import(&home, "log.jsonl", "early")["embedded"], Value::Null);
    let none = home.contexture("sessions index early");
    none.stderr_has("no embedder is configured");

    let encoder = home.path("encoder");
    tiny_encoder::write_encoder(encoder.as_ref(), &[&["doctor", "stethoscope"]]);
    let config = json!({"context": {"engine": "lcm", "engines": {"lcm": {"embedder": encoder}}}});
    home.put("home/config.yaml", &config.to_string());
    let asked = |session: &str| {
        let question = json!({"question": "stethoscope?"}).to_string();
        let ran = home.run(["tool", "lcm_grep", &question, "--session", session]);
        ran.exits(0);
        (json(&ran.stdout)["hits"][0]["id"].clone(), ran.stderr)
    };
    let missing = done(home.contexture("sessions index early --dry-run"));
    assert_eq!(missing["missing"], 3, "{missing}");
    let (_, told) = asked("early");
    assert!(
        told.contains("3 messages of the session `early` have no vectors yet"),
        "{told}"
    );
    assert!(told.contains("contexture sessions index early"), "{told}");
    let made = done(home.contexture("sessions index"));
    assert_eq!(
        (&made["missing"], &made["sessions"][0]["embedded"]),
        (&json!(0), &json!(3))
    );
    let (found, told) = asked("early");
    assert!(found.is_string() && !told.contains("vectors"), "{told}");

    assert_eq!(import(&home, "log.jsonl", "late")["embedded"], 3);
    let (found, told) = asked("late");
    assert!(found.is_string() && !told.contains("vectors"), "{told}");
}
