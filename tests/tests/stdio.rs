//! Engines that are programs (`command` in `plugin.yaml`): the examples, and what goes wrong with a script.
// The processes are found in `/proc`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use contexture::engines::HealthState;
use contexture::session::OutcomeKind;
use contexture_engine_api::{
    About, Committed, Compaction, CompressOrder, Dropped, EngineDescription, Floor, HostInfo,
    ModelFailure, ModelRequest, OwnedMessage, OwnedToolCall, Replacement, Shortened, Summary,
    ToolCall, TranscriptPage, TranscriptRange, Usage,
};
use contexture_tests::living::Living;
use contexture_tests::{Home, engines, repository};
use serde_json::{Value, json, to_value};

const SCRIPT: &str = include_str!("faulty_engine.py");

/// Puts the files of an example into the plugin folder of a home and names its engine.
fn with_example(name: &str) -> Home {
    let home = Home::new();
    let folder = home.plugin_dir(name);
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(repository().join("examples").join(name)).unwrap() {
        let file = file.unwrap();
        if file.path().is_file() {
            std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    home.configure(&format!(
        "compression: {{timing: threshold}}\ncontext:\n  engine: {name}\n"
    ));
    home
}

/// A home with the faulty script as its engine.
fn with_script(fault: &str, supervision: &str) -> Home {
    let home = Home::new();
    let folder = home.plugin_dir("faulty");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("engine.py"), SCRIPT).unwrap();
    std::fs::write(folder.join("helper.py"), "NAME = 'faulty'\n").unwrap();
    manifest(&home, "");
    home.configure(&format!(
        "compression: {{timing: threshold}}\ncontext:\n  engine: faulty\n  supervision: {{grace_ms: 100{supervision}}}\n  \
         engines:\n    faulty: {{fault: \"{fault}\"}}\n"
    ));
    home
}

fn manifest(home: &Home, more: &str) {
    let text = format!("name: faulty\nversion: \"1\"\ncommand: [python3, engine.py]\n{more}");
    std::fs::write(home.plugin_dir("faulty").join("plugin.yaml"), text).unwrap();
}

/// The processes that run in the plugin folder of this home.
fn processes(home: &Home) -> Vec<String> {
    let folder = std::fs::canonicalize(home.path()).unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|process| {
        let within = std::fs::read_link(process.path().join("cwd")).ok()?;
        let name = process.file_name().into_string().ok()?;
        within.starts_with(&folder).then_some(name)
    })
    .collect()
}

fn compacts_and_answers(name: &str) {
    let home = with_example(name);
    let engines = engines(&home);
    let mut living = Living::under(&engines, &home, "s");
    let session = &mut living.session;
    assert_eq!(session.engine().name(), name);
    assert!(
        session
            .engine()
            .origin()
            .ends_with("in a process of its own")
    );
    let outline = || ToolCall::new("outline", "{}");
    let before = session.call_tool(outline()).unwrap();
    assert_eq!(before, "nothing has left the window yet");
    // Node and Python take other characters than the line feed for the end of a line, too.
    living.says("a line\u{2028}and\u{2029}one\u{85}more\r\nand \u{1f980}");
    let turn = living.compacted();
    let report = turn.compaction.unwrap();
    assert_eq!(report.outcome, OutcomeKind::Compacted, "{report:?}");
    assert_eq!((report.engine.as_str(), turn.warnings), (name, vec![]));
    assert!(
        turn.body
            .contains("An outline of the earlier conversation:")
    );
    let told = living.session.call_tool(outline()).unwrap();
    assert!(told.contains("user: Please look at part 0."), "{told}");
    assert!(told.contains("and \u{1f980}"), "{told}");
    let wrong = living.session.call_tool(ToolCall::new("outline", "[]"));
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .contains("takes an empty object")
    );
    assert_eq!(processes(&home).len(), 1);
    living.session.end().unwrap();
    assert!(processes(&home).is_empty());

    // A session that is opened again has what is in force.
    let mut living = Living::under(&engines, &home, "s");
    let again = living.session.call_tool(outline()).unwrap();
    assert!(again.ends_with(&told), "{again}");
}

#[test]
fn the_python_example_compacts_a_session() {
    compacts_and_answers("engine-python");
}

#[test]
fn the_typescript_example_compacts_a_session() {
    compacts_and_answers("engine-typescript");
}

#[test]
fn what_a_script_does_wrong_costs_one_fallback_and_nothing_else() {
    for (fault, why) in [
        ("exit:compress", "its process exited with code 3"),
        ("kill:compress", "its process was killed by signal 9"),
        ("hang:compress", "did not return in time and was killed"),
        (
            "garbage:compress",
            "no message of the protocol: `thinking about it …`",
        ),
        ("nan:compress", ": `NaN}`"),
        ("null_id:compress", "its `id` is null or missing"),
        ("two_ids:compress", "duplicate field `id`"),
        (
            "text_error:compress",
            "expected an object with `code`, a number, and `message`",
        ),
        ("batch:compress", "there are no batches"),
        ("pretty:compress", "a message has one line"),
        ("unended:compress", "it wrote 11 bytes without a line feed"),
        ("other_id:compress", "waits for its answer"),
        ("float_id:compress", ".0, but call "),
        ("endless:compress", "a line of more than 64 MiB"),
        (
            "raise:compress",
            "storage: RuntimeError('raised on purpose'). The built-in",
        ),
        (
            "silent:compress",
            "an error without a message, code -5. The built-in",
        ),
        (
            "two_keys:compress",
            "an object with more than one key, of which only one is allowed",
        ),
        ("orphan:compress", "its process exited with code 4"),
        ("daemon:compress", "its process exited with code 4"),
        ("eat:compress", "MemoryError"),
    ] {
        // Only those that never return are to run into their deadline.
        let deadline = if fault.starts_with("hang") || fault.starts_with("unended") {
            1_000
        } else {
            60_000
        };
        let home = with_script(
            fault,
            &format!(
                ", memory_mb: 600, failures_before_quarantine: 9, compress_deadline_ms: {deadline}"
            ),
        );
        let engines = engines(&home);
        let mut other = Living::under(&engines, &home, "other");
        other.turn(10);
        let mut living = Living::under(&engines, &home, "s");
        assert_eq!(processes(&home).len(), 2, "{fault}");
        let began = Instant::now();
        let turn = living.compacted();
        assert!(began.elapsed() < Duration::from_secs(50), "{fault}");
        let report = turn.compaction.unwrap();
        assert_eq!(
            report.outcome,
            OutcomeKind::Compacted,
            "{fault}: {report:?}"
        );
        assert_eq!(report.engine, "compressor", "{fault}");
        let told = turn.warnings.join("\n") + &report.notes.join("\n") + &report.reason;
        assert!(told.contains(why), "{fault}: {told}");
        // The session goes on with it, in a new process, and the other one in its own.
        for living in [&mut living, &mut other] {
            let turn = living.turn(10);
            assert!(turn.compaction.is_none(), "{fault}");
            assert_eq!(living.session.engine().name(), "faulty");
            let turn = living.turn(10);
            assert!(turn.warnings.is_empty(), "{fault}: {:?}", turn.warnings);
        }
        assert_eq!(processes(&home).len(), 2, "{fault}");
        let health = engines.health();
        let health = health.iter().find(|one| one.engine == "faulty").unwrap();
        assert_eq!(health.state, HealthState::Serving, "{fault}");
        drop((living, other));
        assert!(processes(&home).is_empty(), "{fault}");
    }
}

#[test]
fn a_script_may_ask_the_host_while_it_is_called() {
    let home = with_script("ask:compress", "");
    let turn = Living::new(&home, "s").compacted();
    let report = turn.compaction.unwrap();
    let told = turn.warnings.join("\n") + &report.notes.join("\n");
    assert_eq!(report.engine, "faulty", "{told}");
    assert_eq!(report.outcome, OutcomeKind::Compacted, "{report:?}");
}

#[test]
fn what_a_script_says_to_people_is_limited() {
    for fault in ["notes:compress", "deferred:compress"] {
        let home = with_script(fault, "");
        let turn = Living::new(&home, "s").compacted();
        let report = turn.compaction.unwrap();
        let told = report.reason.len() + report.notes.concat().len() + turn.warnings.concat().len();
        assert!((4_000..200_000).contains(&told), "{fault}: {told}");
    }
}

/// Otherwise it would look as if the engine had decided never to compact.
#[test]
fn an_engine_that_cannot_decide_says_so() {
    let home = with_script("missing:should_compress", "");
    let mut living = Living::new(&home, "s");
    let told = living.turn(10).warnings.join("\n");
    assert!(told.contains("no method `should_compress`"), "{told}");
    assert_eq!(living.compacted().compaction.unwrap().engine, "compressor");
}

#[test]
fn a_failure_names_the_method() {
    let home = with_script("garbage:should_compress", "");
    let mut living = Living::new(&home, "s");
    let turn = living.turn(10);
    let told = turn.warnings.join("\n") + &living.session.take_warnings().join("\n");
    assert!(told.contains("should_compress"), "{told}");
}

#[test]
fn an_end_while_the_engine_only_looks_costs_nothing_either() {
    for fault in ["exit:observe", "garbage:should_compress", "kill:observe"] {
        let home = with_script(fault, ", failures_before_quarantine: 99");
        let mut living = Living::new(&home, "s");
        for _ in 0..3 {
            let turn = living.turn(10);
            assert!(turn.body.contains("And now the last part"), "{fault}");
        }
        living
            .session
            .end()
            .unwrap_or_else(|error| panic!("{fault}: {error}"));
    }
}

/// Whatever keeps an engine from being opened may pass. After a few failures there is a pause between two tries.
#[test]
fn an_engine_that_fails_to_open_is_tried_again_by_the_next_turns() {
    let home = with_script("", ", quarantine_ms: 1000");
    let file = |name: &str| home.plugin_dir("faulty").join(name);
    let opens = "    if method == \"open\":\n";
    let fails = format!(
        "{opens}        open(\"opened\", \"a\").write(\".\")\n        if os.path.exists(\"broken\"): sys.exit(3)\n"
    );
    std::fs::write(file("engine.py"), SCRIPT.replace(opens, &fails)).unwrap();
    std::fs::write(file("broken"), "").unwrap();
    let mut living = Living::new(&home, "s");
    let told = living.session.take_warnings().join("\n");
    assert!(
        told.contains("the built-in compressor runs for now") && told.contains("failed in open"),
        "{told}"
    );
    for _ in 0..3 {
        assert_eq!(living.session.engine().quarantine(), None);
        living.turn(10);
    }
    assert!(living.session.engine().quarantine().is_some());
    let tries = std::fs::read(file("opened")).unwrap().len();
    assert_eq!(tries, 3, "one with the session, and two with turns");
    std::fs::remove_file(file("broken")).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while living.session.stands_in().is_some() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
        living.turn(10);
    }
    let report = living.compacted().compaction.unwrap();
    assert_eq!(report.engine, "faulty");
}

#[test]
fn a_script_that_does_not_begin_is_replaced_by_the_built_in() {
    let opened = |home: &Home| {
        let mut living = Living::new(home, "s");
        assert_eq!(living.session.engine().name(), "compressor");
        let told = living.session.take_warnings().join("\n");
        assert!(processes(home).is_empty());
        told
    };
    let script = |text: &str, supervision: &str| {
        let home = with_script("", supervision);
        std::fs::write(home.plugin_dir("faulty").join("engine.py"), text).unwrap();
        home
    };
    let told = opened(&script(
        "import time\ntime.sleep(600)",
        ", call_deadline_ms: 500",
    ));
    assert!(
        told.contains(
            "engine.py: the engine did not describe itself: it did not answer within 500 ms"
        ),
        "{told}"
    );
    for (text, why) in [
        // It lives on, and the call deadline is no longer than that of the load.
        (
            "import os, time\nos.close(1)\ntime.sleep(600)",
            "its process closed its standard output",
        ),
        (
            "import json, time\nprint(json.dumps({'id': 1, 'result': {'name': 'faulty', 'api': '2.0'}}), \
             flush=True)\ntime.sleep(600)",
            "is for version 2.0 of the interface",
        ),
        (
            "import json, time\nprint(json.dumps({'id': 1, 'result': {'name': 'other'}}), flush=True)\ntime.sleep(600)",
            "calls its engine `other`",
        ),
    ] {
        let told = opened(&script(text, ", call_deadline_ms: 1000"));
        assert!(told.contains(why), "{told}");
    }
    let told = opened(&script("raise SystemExit(4)", ""));
    assert!(told.contains("its process exited with code 4"), "{told}");
    let told = opened(&script("print('hello')", ""));
    assert!(
        told.contains("no message of the protocol: `hello`"),
        "{told}"
    );
    let home = with_script("", "");
    std::fs::write(
        home.plugin_dir("faulty").join("helper.py"),
        "NAME = 'other'\n",
    )
    .unwrap();
    let told = opened(&home);
    assert!(
        told.contains("calls its engine `other`, but its plugin.yaml says `faulty`"),
        "{told}"
    );
    let home = with_script("", "");
    let path = home.plugin_dir("faulty").join("plugin.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("python3", "no-such-interpreter")).unwrap();
    let told = opened(&home);
    assert!(
        told.contains("`no-such-interpreter`") && told.contains("not on the PATH"),
        "{told}"
    );
}

#[test]
fn files_that_others_may_write_are_refused() {
    let refused = |home: &Home| {
        let mut living = Living::new(home, "s");
        let name = living.session.engine().name().to_owned();
        let warnings = living.session.take_warnings().join("\n");
        assert_eq!(
            name == "compressor",
            !warnings.is_empty(),
            "{name}: {warnings}"
        );
        warnings
    };
    let opened = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // The script, a file that it imports, and a folder in which one could be put.
    for file in ["engine.py", "helper.py", "more"] {
        let home = with_script("", "");
        assert_eq!(refused(&home), "");
        let path = home.plugin_dir("faulty").join(file);
        if file == "more" {
            std::fs::create_dir(&path).unwrap();
        }
        opened(&path, 0o777);
        let told = refused(&home);
        assert!(
            told.contains(&format!("{file} is world-writable")),
            "{told}"
        );
        opened(&path, 0o755);
        assert_eq!(refused(&home), "");
    }
    // A script outside, by a link or by a path.
    let outside = tempfile::tempdir().unwrap();
    let script = outside.path().join("engine.py");
    std::fs::write(&script, SCRIPT).unwrap();
    let home = with_script("", "");
    let path = home.plugin_dir("faulty").join("engine.py");
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&script, &path).unwrap();
    let told = refused(&home);
    assert!(told.contains("is a link to"), "{told}");
    let manifest = home.plugin_dir("faulty").join("plugin.yaml");
    for command in [
        format!("[python3, {}]", script.display()),
        "[python3, ../engine.py]".to_owned(),
    ] {
        std::fs::write(
            &manifest,
            format!("name: faulty\nversion: \"1\"\ncommand: {command}\n"),
        )
        .unwrap();
        let told = refused(&home);
        assert!(told.contains("which names no file beside it"), "{told}");
    }
}

/// An author's language may write null for what has no value.
#[test]
fn a_field_that_the_page_calls_optional_may_be_null() {
    fn read<T: serde::de::DeserializeOwned>(value: Value) -> Result<(), String> {
        serde_json::from_value::<T>(value)
            .map(drop)
            .map_err(|error| error.to_string())
    }
    type Read = fn(Value) -> Result<(), String>;
    // A shape that an engine writes, by its first fields on the page; the fields that it must have.
    let shapes: [(&str, Value, Read); 10] = [
        (
            "name, version",
            json!({"name": "a", "version": "1"}),
            read::<EngineDescription>,
        ),
        ("settings?", json!({}), read::<About>),
        ("entries", json!({"entries": []}), read::<Compaction>),
        (
            "id, text?, arguments?",
            json!({"id": 1}),
            read::<Replacement>,
        ),
        ("id, text?, state?", json!({"id": 1}), read::<Shortened>),
        (
            "text, covers",
            json!({"text": "a", "covers": []}),
            read::<Summary>,
        ),
        ("id, reason?", json!({"id": 1}), read::<Dropped>),
        ("session?", json!({"limit": 1}), read::<TranscriptRange>),
        (
            "purpose",
            json!({"purpose": "a", "system": "a", "prompt": "a", "max_tokens": 1}),
            read::<ModelRequest>,
        ),
        (
            "kind",
            json!({"kind": "auth", "message": "a"}),
            read::<ModelFailure>,
        ),
    ];
    let page = repository().join("docs/engine-protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let spans = page.split('`').skip(1).step_by(2);
    let spans = spans.filter_map(|span| span.strip_prefix('{')?.strip_suffix('}'));
    let mut seen = 0;
    for span in spans.filter(|span| span.contains('?')) {
        let mut shapes = shapes.iter();
        let shape = shapes.find(|(first, ..)| span.starts_with(first));
        let (_, fields, read) = shape.unwrap_or_else(|| panic!("nothing reads {span}"));
        let names = span
            .split(',')
            .filter_map(|name| name.trim().strip_suffix('?'));
        for name in names {
            let mut fields = fields.clone();
            fields[name] = Value::Null;
            assert_eq!(read(fields), Ok(()), "{name} of {span}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn the_page_about_the_protocol_names_every_method_and_field() {
    fn keys(value: &Value, all: &mut Vec<String>) {
        for (key, value) in value.as_object().into_iter().flatten() {
            all.push(key.clone());
            keys(value, all);
        }
    }
    let page = repository().join("docs/engine-protocol.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut all = HostInfo::new("1").features;
    // The host never sends it to a program.
    all.retain(|feature| feature != "follow");
    for shape in [
        to_value(About::default()),
        to_value(Committed::default()),
        to_value(Compaction::default()),
        to_value(CompressOrder::default()),
        to_value(EngineDescription::default()),
        to_value(Floor::default()),
        to_value(HostInfo::default()),
        to_value(OwnedMessage::default()),
        to_value(OwnedToolCall::default()),
        to_value(TranscriptPage::default()),
        to_value(TranscriptRange::default()),
        to_value(Usage::default()),
    ] {
        keys(&shape.unwrap(), &mut all);
    }
    let is_named = |word: &String| {
        let mut words = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|one| one == word)
    };
    let missing: Vec<_> = all.into_iter().filter(|word| !is_named(word)).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_pin_is_of_every_file_of_the_plugin() {
    let home = with_script("", "");
    let folder = home.plugin_dir("faulty");
    let shown = tempfile::tempdir().unwrap();
    let (source, name) = (shown.path().join("faulty"), "faulty");
    std::fs::rename(&folder, &source).unwrap();
    std::fs::create_dir(source.join("parts")).unwrap();
    std::fs::write(source.join("parts/data.json"), "{}").unwrap();
    let source = source.to_str().unwrap();
    let (printed, told) = home.command(&["plugins", "install", source, "--yes"]);
    assert!(told.contains("runs         python3 engine.py"), "{told}");
    assert!(printed.contains("installed faulty 1 in"), "{printed}");
    assert!(folder.join("parts/data.json").is_file());
    let runs = || {
        let mut living = Living::new(&home, "s");
        living.turn(10);
        living.session.engine().name().to_owned()
    };
    assert_eq!(runs(), name);
    // Running it has changed nothing in its folder.
    assert_eq!(runs(), name);
    for (file, text) in [("parts/data.json", "{\"a\": 1}"), ("parts/new.py", "")] {
        let path = folder.join(file);
        let before = std::fs::read(&path).ok();
        std::fs::write(&path, text).unwrap();
        assert_eq!(runs(), "compressor", "{file}");
        match before {
            Some(before) => std::fs::write(&path, before).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        assert_eq!(runs(), name, "{file}");
    }
    // A file of the version before does not stay.
    std::fs::remove_dir_all(Path::new(source).join("parts")).unwrap();
    home.command(&["plugins", "install", source, "--yes"]);
    assert!(!folder.join("parts").exists());
    assert_eq!(runs(), name);
}

#[test]
fn a_host_that_is_killed_leaves_no_script_behind() {
    let home = with_script("wait:compress", ", compress_deadline_ms: 600000");
    let chat = contexture_tests::chat(30, 2_000).to_string();
    std::fs::write(home.path().join("chat.json"), chat).unwrap();
    let mut running = home
        .contexture(&["compress", "chat.json", "--context-length", "20000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait_for = |what: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !what() {
            assert!(Instant::now() < until, "{:?}", processes(&home));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(&|| home.plugin_dir("faulty").join("waits").exists());
    running.kill().unwrap();
    running.wait().unwrap();
    wait_for(&|| processes(&home).is_empty());
}

/// A host that ends in order kills a script that is in a call: nobody reads its answer.
#[test]
fn a_gateway_that_is_stopped_leaves_no_script_behind() {
    let home = with_script("stuck:observe", ", call_deadline_ms: 600000");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut gateway = home
        .contexture(&["serve", "--listen", &address.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let wait_for = |what: &mut dyn FnMut() -> bool| {
        let until = Instant::now() + Duration::from_secs(60);
        while !what() {
            assert!(Instant::now() < until, "{:?}", processes(&home));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let mut stream = None;
    wait_for(&mut || {
        stream = std::net::TcpStream::connect(address).ok();
        stream.is_some()
    });
    let body =
        "{\"model\": \"gpt-4o\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}";
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer k\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    std::io::Write::write_all(&mut stream.as_mut().unwrap(), request.as_bytes()).unwrap();
    wait_for(&mut || home.plugin_dir("faulty").join("waits").exists());
    // The second signal ends the gateway without waiting for answers.
    wait_for(&mut || {
        let id = gateway.id().to_string();
        let sent = std::process::Command::new("kill")
            .args(["-TERM", &id])
            .status();
        sent.unwrap();
        gateway.try_wait().unwrap().is_some()
    });
    assert_eq!(processes(&home), Vec::<String>::new());
}
