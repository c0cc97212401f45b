//! Engines in processes of their own (`context.isolation: process`): the same as in this one, but what ends them.
// The processes are found in `/proc`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::time::{Duration, Instant};

use contexture::engines::HealthState;
use contexture::session::{OutcomeKind, Record, Session, SessionOptions};
use contexture_engine_api::ToolCall;
use contexture_tests::living::{Living, agent};
use contexture_tests::{Home, built_plugins, chat, engines};
use serde_json::Value;

/// What the configuration says of isolation.
fn isolated() -> String {
    let program = built_plugins().join("contexture-engine-host");
    format!(
        "  isolation: process\n  engine_host: {}\n",
        program.display()
    )
}

fn misbehaving(fault: &str, more: &str) -> Home {
    let home = Home::new();
    let limits = "  supervision: {grace_ms: 100";
    home.misbehave(fault, &format!("{}{limits}{more}}}\n", isolated()));
    home
}

/// The processes that run an engine of this home.
fn processes(home: &Path) -> Vec<String> {
    let home = home.to_str().unwrap();
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|process| {
        let told = std::fs::read_to_string(process.path().join("cmdline")).ok()?;
        let name = process.file_name().into_string().ok()?;
        (told.contains("contexture-engine-host") && told.contains(home)).then_some(name)
    })
    .collect()
}

#[test]
fn an_engine_does_in_a_process_of_its_own_what_it_does_in_this_one() {
    let play = |isolation: &str| {
        let home = Home::new();
        home.install("plugins/context_engine/lcm", "lcm");
        home.configure(&format!(
            "compression: {{timing: threshold}}\ncontext:\n  engine: lcm\n{isolation}"
        ));
        let engines = engines(&home);
        let mut living = Living::under(&engines, &home, "s");
        let mut bodies: Vec<String> = (0..4).map(|_| living.turn(5_000).body).collect();
        bodies.extend((0..8).map(|_| living.turn(5_000).body));
        assert!(bodies.last().unwrap().contains("CONTEXT COMPACTION"));
        let found = (living.session)
            .call_tool(ToolCall::new("lcm_grep", r#"{"pattern": "answer 17"}"#))
            .unwrap();
        assert!(found.contains("answer 17"), "{found}");
        let origin = living.session.engine().origin().to_owned();
        living.session.end().unwrap();
        let record = Record::open(home.path()).unwrap();
        (bodies, record.conversation("s").unwrap(), origin)
    };
    let (here, there) = (play(""), play(&isolated()));
    assert!(there.2.ends_with("in a process of its own"), "{}", there.2);
    assert!(!here.2.ends_with("in a process of its own"), "{}", here.2);
    assert_eq!(here.0, there.0);
    assert_eq!(here.1, there.1);
    assert_eq!(here.1.len(), 37);
}

/// What ends a process ends a call, for which the built-in engine stands in.
#[test]
fn what_ends_an_engine_costs_one_fallback_and_nothing_else() {
    for (fault, why) in [
        ("segfault:compress", "was killed by signal 11"),
        ("exit:compress", "exited with code 0"),
        ("spin:compress", "did not return in time"),
        ("eat:compress", "memory limit"),
    ] {
        // Only the one that never returns is to run into its deadline.
        let deadline = if fault.starts_with("spin") {
            1_000
        } else {
            60_000
        };
        let limits = format!(
            ", memory_mb: 600, failures_before_quarantine: 9, compress_deadline_ms: {deadline}"
        );
        let home = misbehaving(fault, &limits);
        let engines = engines(&home);
        let mut other = Living::under(&engines, &home, "other");
        other.turn(10);
        let mut living = Living::under(&engines, &home, "s");
        let turn = living.compacted();
        let report = turn.compaction.unwrap();
        assert_eq!(
            report.outcome,
            OutcomeKind::Compacted,
            "{fault}: {report:?}"
        );
        assert_eq!(report.engine, "compressor", "{fault}");
        let told = turn.warnings.join("\n") + &report.notes.join("\n") + &report.reason;
        assert!(told.contains(why), "{fault}: {told}");
        // Both sessions go on with it, in a new process.
        for living in [&mut living, &mut other] {
            let turn = living.turn(10);
            assert!(turn.compaction.is_none(), "{fault}");
            assert_eq!(living.session.engine().name(), "misbehaving");
            let turn = living.turn(10);
            assert!(turn.warnings.is_empty(), "{fault}: {:?}", turn.warnings);
        }
        assert_eq!(processes(home.path()).len(), 1, "{fault}");
        let health = engines.health();
        let health = health
            .iter()
            .find(|one| one.engine == "misbehaving")
            .unwrap();
        assert_eq!(health.state, HealthState::Serving, "{fault}");
        drop((living, other));
        drop(engines);
        assert!(processes(home.path()).is_empty(), "{fault}");
    }
}

#[test]
fn an_end_while_the_engine_only_looks_costs_nothing_either() {
    for fault in [
        "exit:observe",
        "segfault:should_compress",
        "exit:update_usage",
    ] {
        let home = misbehaving(fault, ", failures_before_quarantine: 99");
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

#[test]
fn a_session_that_cannot_be_opened_leaves_the_process_to_others() {
    let home = misbehaving("error:open", "");
    let engines = engines(&home);
    let mut living = Living::under(&engines, &home, "s");
    let why = living.session.stands_in().unwrap();
    assert!(why.contains("failed in open"), "{why}");
    let before = processes(home.path());
    assert_eq!(before.len(), 1);
    drop(Living::under(&engines, &home, "other"));
    living.turn(10);
    assert_eq!(processes(home.path()), before);
}

#[test]
fn sessions_that_open_at_once_share_one_process() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let (program, starts) = (home.path().join("slow"), home.path().join("starts"));
    // Notes each start, and takes long enough for both sessions to wait for it.
    let script = format!(
        "#!/bin/sh\necho >> '{}'\nsleep 0.5\nexec '{}' \"$@\"\n",
        starts.display(),
        built_plugins().join("contexture-engine-host").display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
    home.misbehave(
        "",
        &format!(
            "  isolation: process\n  engine_host: {}\n",
            program.display()
        ),
    );
    let engines = engines(&home);
    let opened = std::thread::scope(|scope| {
        ["one", "other"]
            .map(|id| {
                let (engines, home) = (&engines, &home);
                scope.spawn(move || Living::under(engines, home, id))
            })
            .map(|thread| thread.join().unwrap())
    });
    for living in opened {
        assert!(!living.session.engine().is_stalled());
    }
    assert_eq!(std::fs::read_to_string(starts).unwrap().lines().count(), 1);
}

#[test]
fn an_engine_that_cannot_be_isolated_does_not_run_at_all() {
    let home = Home::new();
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let opened = |yaml: &str| {
        home.configure(yaml);
        let opened = Session::open(
            &engines(&home),
            None,
            "s",
            agent(20_000),
            SessionOptions::default(),
        );
        opened
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    };
    let missing = opened(
        "context:\n  engine: keep-tail\n  isolation: process\n  engine_host: /nowhere/contexture-engine-host\n",
    );
    assert!(
        missing.contains("`context.engine_host`: cannot read /nowhere"),
        "{missing}"
    );
    // The rule for plugins applies to the program.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let program = home.path().join("open-to-all");
        std::fs::write(&program, "").unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o777)).unwrap();
        let program = program.display();
        let refused = opened(&format!(
            "context:\n  engine: keep-tail\n  isolation: process\n  engine_host: {program}\n"
        ));
        assert!(
            refused.contains(&format!("`chmod o-w '{program}'`")),
            "{refused}"
        );
    }
    let linked = opened(&format!("context:\n  engine: lcm\n{}", isolated()));
    assert!(
        linked.contains("it is linked into this program"),
        "{linked}"
    );
    // Its own setting counts, and is none of the engine's.
    let own = opened(&format!(
        "context:\n  engine: keep-tail\n{}  engines:\n    keep-tail: {{isolation: none}}\n",
        isolated()
    ));
    assert_eq!(own, "");
}

#[test]
fn the_command_says_how_a_process_ended_and_ends_it_when_it_is_killed() {
    let home = misbehaving("spin:compress", ", compress_deadline_ms: 1000");
    std::fs::write(home.path().join("chat.json"), chat(30, 2_000).to_string()).unwrap();
    let args = ["compress", "chat.json", "--context-length", "20000"];
    let output = home.contexture(&args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(
        told.contains("did not return in time and was killed"),
        "{told}"
    );
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());

    let home = misbehaving("print:compress", "");
    std::fs::write(home.path().join("chat.json"), chat(30, 2_000).to_string()).unwrap();
    let output = home.contexture(&args).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("printed on purpose in compress"), "{told}");
    assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());

    // A host that is killed takes its engines with it, whatever they are at.
    let home = Home::new();
    let patient = "  supervision: {compress_deadline_ms: 600000}\n";
    home.misbehave("spin:compress", &format!("{}{patient}", isolated()));
    std::fs::write(home.path().join("chat.json"), chat(30, 2_000).to_string()).unwrap();
    let mut command = home.contexture(&args);
    let command = command
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let mut running = command.spawn().unwrap();
    let wait_for = |count: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        while processes(home.path()).len() != count {
            assert!(Instant::now() < until, "{:?}", processes(home.path()));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    wait_for(1);
    running.kill().unwrap();
    running.wait().unwrap();
    wait_for(0);
}

#[test]
fn a_process_whose_host_was_killed_before_it_connected_ends() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let mut process = std::process::Command::new(built_plugins().join("contexture-engine-host"))
        .args(["library", "copy", "0"])
        .stdout(std::os::fd::OwnedFd::from(listener))
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while process.try_wait().unwrap().is_none() {
        if Instant::now() > until {
            process.kill().unwrap();
            panic!("it waits for ever");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
