//! Providers, engines, disks and gateways that fail, before the real binary: the client gets a correct answer or a
//! correct error, and the session is whole afterwards.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod support;

use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use contexture_engine_api::sqlite_file;
use contexture_provider_simulator::{Answer, Fault, Simulator, address_in};
use contexture_tests::{Home, built_plugins};
use serde_json::Value;
use support::Stage;
use support::agent::{APIS, Agent, Api};

const LCM: &str = "context: {engine: lcm}\n";

/// Adds what the configuration says of the provider, and `more`.
fn before(provider: &Simulator, home: &Home, config: &str, more: &str) {
    let base = provider.base_url();
    let upstream = format!(
        "upstream:\n  idle_timeout_ms: 700\n  openai: {{base_url: \"{base}/v1\"}}\n  anthropic: {{base_url: \"{base}\"}}\n  google: {{base_url: \"{base}\"}}\n"
    );
    home.configure(&format!("{config}{upstream}{more}"));
}

/// `contexture serve`, killed when it is dropped.
struct Serving {
    child: Child,
    base: String,
    log: Option<std::thread::JoinHandle<String>>,
}

impl Serving {
    fn start(home: &Home) -> Self {
        Self::of(home.contexture(&["serve", "--listen", "127.0.0.1:0"]))
    }

    /// One that can make no file larger than this many blocks, and is told so as by a full disk.
    fn without_room(home: &Home, blocks: u32) -> Self {
        let serve = home.contexture(&["serve", "--listen", "127.0.0.1:0"]);
        let mut shell = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -S -f {blocks} && exec \"$0\" \"$@\"");
        shell.args(["-c", &script]).arg(serve.get_program());
        shell.args(serve.get_args()).current_dir(home.path());
        shell.env("CONTEXTURE_HOME", home.path());
        Self::of(shell)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let base = format!("http://{}", address_in(&mut stderr));
        let log = std::thread::spawn(move || {
            let mut log = String::new();
            stderr.read_to_string(&mut log).unwrap();
            log
        });
        let log = Some(log);
        Self { child, base, log }
    }

    /// Answers what it logged.
    fn kill(&mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn assert_sound(home: &Home) {
    let (told, _) = home.command(&["sessions", "verify"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["ok"], true, "{told}");
}

/// The stores are sound, and of this session just what was asked is kept, in order.
fn assert_whole(home: &Home, session: &str, asked: &[String]) {
    assert_sound(home);
    let (kept, _) = home.command(&["sessions", "export", session]);
    let questions = kept.lines().filter(|line| line.contains("Question "));
    let questions: Vec<&str> = questions.collect();
    assert_eq!(questions.len(), asked.len(), "{session}: {kept}");
    for (kept, asked) in questions.iter().zip(asked) {
        assert!(kept.contains(asked), "{session}: {asked}: {kept}");
    }
}

fn nothing_was_refused(provider: &Simulator, what: &str) {
    let refused = provider.violations();
    assert!(refused.is_empty(), "{what}: {refused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_provider_does_the_client_is_told_and_goes_on() {
    let faults = [
        Fault::Hang,
        Fault::HangAfter(300),
        Fault::ResetAfter(300),
        Fault::CloseAfter(300),
        Fault::HalfAnEvent,
        Fault::ErrorEvent,
        Fault::WrongJson,
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(529),
    ];
    let (provider, home) = (Simulator::start(), Home::new());
    before(&provider, &home, LCM, "");
    let serving = Serving::start(&home);
    let mut sessions = Vec::new();
    for api in APIS {
        for stream in [true, false] {
            for (number, fault) in faults.iter().enumerate() {
                let what = format!("{api:?} {stream} {fault:?}");
                let session = format!("{api:?}-{stream}-{number}");
                let mut agent = Agent::new(api, &serving.base, &session);
                agent.stream = stream;
                agent.user("Question 1");
                let timeless = !matches!(fault, Fault::Hang | Fault::HangAfter(_));
                let direct = match timeless {
                    true => {
                        provider.script([Answer::fault(fault.clone())]);
                        let mut direct = agent.clone();
                        direct.base = provider.base_url();
                        Some(direct.send().await)
                    }
                    false => None,
                };
                provider.forget();
                provider.script([Answer::fault(fault.clone())]);
                let said = agent.send().await;
                assert!(!said.ended, "{what}: {}", said.raw);
                let is_error = said.raw.contains("error");
                let is_json = serde_json::from_str::<Value>(&said.raw).is_ok();
                match (stream, &direct) {
                    // A stream ends as it would without the gateway. A stream of Responses always says
                    // that it failed, before the connection breaks too.
                    (true, Some(direct)) if api != Api::Responses => {
                        assert_eq!(said.broken, direct.broken, "{what}: {}", said.raw);
                    }
                    (true, _) => assert!(said.broken || is_error, "{what}: {}", said.raw),
                    // The answer is an error, or it is not valid in any format.
                    (false, _) => assert!(is_error || !is_json, "{what}: {}", said.raw),
                }
                assert!(
                    matches!(said.status, 200 | 429..),
                    "{what}: {}",
                    said.status
                );
                assert_eq!(provider.requests().len(), 1, "{what}");
                provider.script([Answer::text("Again."), Answer::text("And on.")]);
                assert_eq!(agent.go_on().await.text, "Again.", "{what}");
                let said = agent.ask("Question 2", "").await;
                assert_eq!(said[0].text, "And on.", "{what}");
                assert_eq!(said[0].header("x-contexture-status"), "managed", "{what}");
                nothing_was_refused(&provider, &what);
                sessions.push(session);
            }
        }
    }
    drop(serving);
    let asked = ["Question 1".to_owned(), "Question 2".to_owned()];
    for session in sessions.iter().step_by(7) {
        assert_whole(&home, session, &asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_an_engine_does_the_client_is_answered() {
    let program = built_plugins().join("contexture-engine-host");
    let isolated = format!(
        "  isolation: process\n  engine_host: {}\n",
        program.display()
    );
    for (fault, isolation) in [
        ("panic:compress", ""),
        ("hang:compress", ""),
        ("error:compress", ""),
        ("panic:should_compress", ""),
        ("hang:should_compress", ""),
        ("panic:open", ""),
        ("exit:compress", &*isolated),
        ("segfault:compress", &isolated),
        ("spin:compress", &isolated),
    ] {
        let (provider, home) = (Simulator::start(), Home::new());
        let limits =
            "  supervision: {grace_ms: 100, call_deadline_ms: 500, compress_deadline_ms: 1000}\n";
        home.misbehave(fault, &format!("{isolation}{limits}"));
        let config = std::fs::read_to_string(home.config()).unwrap();
        let window = "model: {context_length: 24000}\n";
        before(&provider, &home, &config, window);
        provider.set(|options| options.window = Some(24_000));
        provider.answer_with(|_| Answer::text("Yes."));
        let serving = Serving::start(&home);
        let mut agent = Agent::new(Api::Messages, &serving.base, "s");
        for number in 0..40 {
            agent.user(&format!("Question {number} {}", "of a thing ".repeat(350)));
            assert_eq!(agent.go_on().await.text, "Yes.", "{fault} {number}");
        }
        // All of it no longer fits: somebody compacted in the engine's place.
        let last = provider.requests().pop().unwrap();
        assert!(agent.body().to_string().len() > 24_000 * 5);
        assert!(last.body.len() < 24_000 * 5, "{fault}: {}", last.body.len());
        nothing_was_refused(&provider, fault);
        let overflows = provider.overflows();
        assert!(overflows.is_empty(), "{fault}: {overflows:?}");
    }
}

/// What keeps failing in one session is the affair of that session. Its requests say so as long as it lasts.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_fails_in_one_session_is_in_quarantine_there_alone() {
    let (provider, home) = (Simulator::start(), Home::new());
    let limits = "  supervision: {failures_before_quarantine: 1, quarantine_ms: 3000}\n";
    home.misbehave("error:observe", limits);
    let config = std::fs::read_to_string(home.config()).unwrap();
    let config = format!("{config}      session: bad\n      times: 1\n");
    before(&provider, &home, &config, "");
    provider.answer_with(|_| Answer::text("Yes."));
    let serving = Serving::start(&home);
    let page = async |path: &str| {
        let page = reqwest::get(format!("{}{path}", serving.base)).await;
        page.unwrap().text().await.unwrap()
    };
    let mut good = Agent::new(Api::Messages, &serving.base, "good");
    let mut bad = Agent::new(Api::Messages, &serving.base, "bad");
    bad.user("Hello");
    let said = bad.go_on().await;
    assert_eq!(said.text, "Yes.");
    assert_eq!(said.header("x-contexture-status"), "fallback");
    let reason = said.header("x-contexture-reason");
    assert!(
        reason.starts_with("quarantine: engine `misbehaving` is in quarantine"),
        "{reason}"
    );
    good.user("Hello");
    assert_eq!(good.go_on().await.header("x-contexture-status"), "managed");
    let health = page("/healthz").await;
    assert!(
        health.contains("`misbehaving` is in quarantine for 1 sessions"),
        "{health}"
    );
    let metrics = page("/metrics").await;
    for figure in [
        "contexture_engine_in_quarantine{engine=\"misbehaving\"} 0",
        "contexture_sessions_in_quarantine{engine=\"misbehaving\"} 1",
        "contexture_not_managed_total{reason=\"quarantine\"} 1",
    ] {
        assert!(metrics.contains(figure), "{figure}: {metrics}");
    }
    let until = std::time::Instant::now() + Duration::from_secs(30);
    loop {
        bad.user("And now?");
        match bad.go_on().await.header("x-contexture-status") {
            "managed" => break,
            status => assert_eq!(status, "fallback"),
        }
        assert!(std::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(page("/healthz").await, "ok\n");
    nothing_was_refused(&provider, "quarantine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_is_killed_in_a_stream_loses_nothing() {
    for api in APIS {
        let (provider, home) = (Simulator::start(), Home::new());
        before(&provider, &home, LCM, "");
        provider.set(|options| options.piece = 40);
        let mut serving = Serving::start(&home);
        let mut agent = Agent::new(api, &serving.base, "s");
        let mut asked = Vec::new();
        for wait in [0, 60, 150, 400] {
            let question = format!("Question {wait}");
            agent.user(&question);
            asked.push(question);
            let came = provider.requests().len();
            let slow = Answer::text("A word. ".repeat(200)).piece_after(Duration::from_millis(10));
            provider.script([slow]);
            let asking = agent.clone();
            let asking = tokio::spawn(async move { asking.send().await });
            while provider.requests().len() == came {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            tokio::time::sleep(Duration::from_millis(wait)).await;
            serving.kill();
            // One that was killed before its head was sent is an error of the connection.
            let ended = asking.await.is_ok_and(|said| said.ended);
            assert!(!ended, "{api:?} {wait}");
            serving = Serving::start(&home);
            agent.base = serving.base.clone();
            provider.script([Answer::text("Again.")]);
            let said = agent.go_on().await;
            assert_eq!(said.text, "Again.", "{api:?} {wait}");
            assert_eq!(said.header("x-contexture-status"), "managed");
        }
        nothing_was_refused(&provider, &format!("{api:?}"));
        drop(serving);
        assert_whole(&home, "s", &asked);
    }
}

/// After a kill, what came last is in the store's log alone. What is missing is said, and the next turn brings it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_the_index_that_is_lost_or_cut_after_a_kill_costs_nothing() {
    let (provider, home) = (Simulator::start(), Home::new());
    before(&provider, &home, LCM, "");
    provider.answer_with(|_| Answer::text("Yes."));
    let mut serving = Serving::start(&home);
    let mut agent = Agent::new(Api::Messages, &serving.base, "s");
    let mut asked = Vec::new();
    for number in 0..5 {
        asked.push(format!("Question {number}"));
        agent.user(&asked[number]);
        assert_eq!(agent.go_on().await.text, "Yes.");
    }
    serving.kill();
    let store = home
        .path()
        .join("engines/lcm")
        .join(contexture_lcm::store::FILE_NAME);
    let wal = sqlite_file(&store, "-wal");
    let files = [&store, &wal].map(|path| std::fs::read(path).unwrap());
    let size = files[1].len();
    assert!(size > 40_000, "{size}");
    for room in [
        None,
        Some(0),
        Some(size / 4),
        Some(size / 2),
        Some(size - 1),
    ] {
        std::fs::write(&store, &files[0]).unwrap();
        let _ = std::fs::remove_file(store.with_extension("sqlite3-shm"));
        match room {
            None => std::fs::remove_file(&wal).unwrap(),
            Some(bytes) => std::fs::write(&wal, &files[1][..bytes]).unwrap(),
        }
        let run = |args: &[&str]| {
            let output = home.contexture(args).output().unwrap();
            let text = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8(text).unwrap())
        };
        let grep = [
            "tool",
            "lcm_grep",
            r#"{"pattern": "Question"}"#,
            "--session",
            "s",
        ];
        let (code, found) = run(&grep);
        assert!(
            code == Some(0) && found.contains("\"total\":5"),
            "{room:?}: {found}"
        );
        let (code, verified) = run(&["sessions", "verify"]);
        assert_eq!(code, Some(0), "{room:?}: {verified}");
        let (code, exported) = run(&["sessions", "export", "s"]);
        assert_eq!(code, Some(0), "{room:?}: {exported}");
        assert_eq!(
            exported.matches("Question ").count(),
            5,
            "{room:?}: {exported}"
        );
    }
    serving = Serving::start(&home);
    agent.base = serving.base.clone();
    asked.push("Question 5".to_owned());
    agent.user("Question 5");
    assert_eq!(agent.go_on().await.text, "Yes.");
    drop(serving);
    assert_whole(&home, "s", &asked);
}

/// Whichever engine compacts meanwhile: what could not be kept is warned of, and comes in with the next turn that has
/// room.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_costs_no_answer_and_no_session() {
    for engine in ["compressor", "lcm", "tiered", "two-layer", "virtual-files"] {
        let (provider, home) = (Simulator::start(), Home::new());
        let config = format!("context: {{engine: {engine}}}\n");
        before(
            &provider,
            &home,
            &config,
            "model: {context_length: 64000}\n",
        );
        provider.answer_with(|_| Answer::text("Yes."));
        let mut agent = Agent::new(Api::Messages, "", "s");
        let mut asked = Vec::new();
        for room in [None, Some(256), None] {
            let mut serving = match room {
                Some(blocks) => Serving::without_room(&home, blocks),
                None => Serving::start(&home),
            };
            agent.base = serving.base.clone();
            for number in 0..5 {
                let question = format!("Question {room:?} {number}");
                // What no store makes smaller.
                let words = (1..2_000_u64).map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number);
                let words: String = words.map(|word| format!("{word:x} ")).collect();
                agent.user(&format!("{question} {words}"));
                asked.push(question);
                assert_eq!(agent.go_on().await.text, "Yes.", "{engine}");
            }
            let log = serving.kill();
            // The index of lcm is a file that has to be written. Without it requests leave as they came.
            let is_seen = log.contains("goes on in memory")
                || engine == "lcm" && log.contains("failed in open");
            let warned = log.contains("disk I/O error") && is_seen;
            assert_eq!(warned, room.is_some(), "{engine}: {log}");
        }
        nothing_was_refused(&provider, engine);
        assert_sound(&home);
        if engine == "lcm" {
            assert_whole(&home, "s", &asked);
        }
    }
}

/// The gateway goes on meanwhile. As long as something is not stored, the answers and the health check say so.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_disk_did_not_take_is_stored_once_there_is_room() {
    for engine in ["compressor", "lcm", "two-layer"] {
        let (provider, home) = (Simulator::start(), Home::new());
        let config = format!("context: {{engine: {engine}}}\ntranscript: {{mode: full}}\n");
        before(&provider, &home, &config, "");
        // The turn is stored meanwhile.
        let wait = Duration::from_millis(100);
        provider.answer_with(move |_| Answer::text("Yes.").headers_after(wait));
        let mut serving = Serving::without_room(&home, 1_000_000);
        let id = serving.child.id().to_string();
        let limit_files = |most: &str| {
            let mut limit = Command::new("prlimit");
            limit.args(["--pid", &id, &format!("--fsize={most}:")]);
            assert!(limit.status().unwrap().success());
        };
        let page = async |path: &str| {
            let page = reqwest::get(format!("{}{path}", serving.base)).await;
            page.unwrap().text().await.unwrap()
        };
        let agent = |session: &&str| Agent::new(Api::Messages, &serving.base, session);
        let mut agents: Vec<Agent> = ["a", "b", "c"].iter().map(agent).collect();
        let mut number = 0;
        // What each answer says is wrong.
        let mut go_on = async |agents: &mut Vec<Agent>| {
            number += 1;
            let mut reasons = Vec::new();
            for agent in agents {
                agent.user(&format!("Question {number}."));
                let said = agent.go_on().await;
                assert_eq!(said.text, "Yes.", "{engine}");
                assert_eq!(said.header("x-contexture-status"), "managed", "{engine}");
                reasons.push(said.header("x-contexture-reason").to_owned());
            }
            reasons
        };
        go_on(&mut agents).await;
        assert_eq!(go_on(&mut agents).await, [""; 3], "{engine}");
        limit_files("4096");
        // A session may begin now. The store of lcm is one more that it needs.
        if engine != "lcm" {
            agents.push(agent(&"d"));
        }
        for _ in 0..3 {
            for reason in go_on(&mut agents).await {
                assert!(
                    reason.contains("goes on in memory until"),
                    "{engine}: {reason}"
                );
            }
        }
        let health = page("/healthz").await;
        let count = format!("{} sessions handled", agents.len());
        assert!(health.contains(&count), "{engine}: {health}");
        let metrics = page("/metrics").await;
        let failures = "contexture_engine_failures_total{part=";
        let none_of = |part: &str| metrics.contains(&format!("{failures}\"{part}\"}} 0\n"));
        assert!(
            !none_of("store") && none_of("engine"),
            "{engine}: {metrics}"
        );
        limit_files("unlimited");
        let until = std::time::Instant::now() + Duration::from_secs(30);
        loop {
            let reasons = go_on(&mut agents).await;
            // What the engine does in the background is noted with the next turn.
            let health = page("/healthz").await;
            if reasons.iter().all(String::is_empty) && health == "ok\n" {
                break;
            }
            assert!(std::time::Instant::now() < until, "{engine}: {health}");
        }
        let log = serving.kill();
        assert!(log.contains("is stored again"), "{engine}: {log}");
        assert!(!log.contains("in quarantine"), "{engine}: {log}");
        nothing_was_refused(&provider, engine);
        for (agent, session) in agents.iter().zip(["a", "b", "c", "d"]) {
            let users = agent
                .history
                .iter()
                .filter(|message| message["role"] == "user");
            let asked: Vec<String> = (users.map(|said| said["content"].as_str()))
                .map(|said| said.unwrap().to_owned())
                .collect();
            assert_whole(&home, session, &asked);
        }
    }
}

/// What is configured again holds for the next request, timeouts too.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_is_that_of_the_configuration_as_it_is_now() {
    let stage = Stage::new("");
    let gateway = stage.gateway().await;
    stage.configure("  idle_timeout_ms: 300\n");
    let handle = gateway.handle.clone();
    let reloaded = tokio::task::spawn_blocking(move || handle.reload()).await;
    reloaded.unwrap().unwrap();
    stage.provider.script([Answer::fault(Fault::Hang)]);
    let mut agent = Agent::new(Api::Messages, &gateway.base, "s");
    agent.user("Hello");
    let said = tokio::time::timeout(Duration::from_secs(30), agent.send()).await;
    assert_eq!(said.expect("it waits as long as it did").status, 504);
}

/// A configuration is put in force whole or not at all, wherever its error is.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_that_is_refused_changes_nothing() {
    let stage = Stage::new("context: {engine: compressor}\n");
    let gateway = stage.gateway().await;
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let wrong = [
        "gateway: {hosts: [\"a b\"]}",
        "gateway: {origins: [\"x\"]}",
        "gateway: {tokens: {alice: A_VARIABLE_THAT_IS_NOT_SET}}",
        "gateway: {tokens: {alice: PATH, bob: PATH}}",
        "gateway: {tls: {certificate: no.pem, key: no.key}}",
        "gateway: {max_hold_ms: no}",
        "model: {context_length: no}",
    ];
    for (number, wrong) in wrong.into_iter().enumerate() {
        let engine = |name: &str| format!("context: {{engine: {name}}}\n");
        stage.configure(&format!("{}{wrong}\n", engine("lcm")));
        let handle = gateway.handle.clone();
        let reloaded = tokio::task::spawn_blocking(move || handle.reload()).await;
        assert!(reloaded.unwrap().is_err(), "{wrong}");
        let mut agent = Agent::new(Api::Chat, &gateway.base, &format!("s{number}"));
        agent.user("Hello");
        let said = agent.go_on().await;
        let session = said.header("x-contexture-session").to_owned();
        let mut url = reqwest::Url::parse(&format!("{}/contexture/session", gateway.base)).unwrap();
        url.query_pairs_mut().append_pair("id", &session);
        let shown = reqwest::get(url).await.unwrap().text().await.unwrap();
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(shown["engine"], "compressor", "{wrong}: {shown}");
    }
}

/// An engine that panics loses its session, which is reported once. Its tools leave the requests, and a developer sees
/// where it panicked and on which thread.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_panics_offers_no_tools_any_more_and_is_warned_of_once() {
    let (provider, home) = (Simulator::start(), Home::new());
    home.misbehave("panic:call_tool", "");
    let config = std::fs::read_to_string(home.config()).unwrap();
    before(
        &provider,
        &home,
        &config,
        "model: {context_length: 24000}\n",
    );
    provider.answer_with(|_| Answer::text("Yes."));
    let mut serve = home.contexture(&["serve", "--listen", "127.0.0.1:0"]);
    serve.env("RUST_BACKTRACE", "1");
    let mut serving = Serving::of(serve);
    let mut agent = Agent::new(Api::Messages, &serving.base, "s");
    let long = "of a thing ".repeat(350);
    let offers = |provider: &Simulator| {
        provider
            .requests()
            .pop()
            .unwrap()
            .tool_names()
            .contains(&"poke")
    };
    for number in 0..60 {
        agent.user(&format!("Question {number} {long}"));
        agent.go_on().await;
        if offers(&provider) {
            break;
        }
    }
    assert!(offers(&provider), "its tools come with a compaction");
    provider.script([
        Answer::call("poke", serde_json::json!({})),
        Answer::text("It failed."),
    ]);
    agent.user("Poke it.");
    assert_eq!(agent.go_on().await.text, "It failed.");
    for number in 0..12 {
        agent.user(&format!("Then {number} {long}"));
        let said = agent.go_on().await;
        assert_eq!(said.header("x-contexture-status"), "fallback");
        assert!(
            said.header("x-contexture-reason")
                .contains("panicked in call_tool")
        );
        assert!(!offers(&provider), "{number}");
    }
    let log = serving.kill();
    let warned: Vec<_> = log
        .lines()
        .filter(|line| line.contains("WARN") && line.contains("panicked in call_tool"))
        .collect();
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert!(
        log.contains("stack backtrace:") && log.contains("thread `engine misbeha"),
        "{log}"
    );
}

/// A program that does not start may start a moment later, and one that ends before the first turn is started again.
/// Neither costs a session its engine, or a request its session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_gets_its_engine_as_soon_as_its_program_starts() {
    let script = include_str!("../../tests/tests/faulty_engine.py");
    let begins = "settings = {}\n";
    let stage = Stage::new("");
    let folder = stage.home.path().join("plugins/context_engine/faulty");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name);
    let starts = format!("{begins}if os.path.exists(\"broken\"): sys.exit(7)\n");
    std::fs::write(file("engine.py"), script.replace(begins, &starts)).unwrap();
    std::fs::write(file("helper.py"), "NAME = \"faulty\"\n").unwrap();
    let manifest = "name: faulty\nversion: \"1\"\ncommand: [python3, engine.py]\n";
    std::fs::write(file("plugin.yaml"), manifest).unwrap();
    stage.configure(
        "context: {engine: faulty, supervision: {quarantine_ms: 200}, engines: {faulty: {fault: \"exit:tools\"}}}\n",
    );
    stage.provider.answer_with(|_| Answer::text("Yes."));
    let gateway = stage.gateway().await;
    let mut agent = Agent::new(Api::Messages, &gateway.base, "a");
    let status = async |agent: &mut Agent| {
        agent.user("Hello");
        let said = agent.go_on().await;
        let header = |name| said.header(name).to_owned();
        (header("x-contexture-status"), header("x-contexture-reason"))
    };
    std::fs::write(file("broken"), "").unwrap();
    // The last of them is in quarantine.
    for _ in 0..4 {
        let (told, why) = status(&mut agent).await;
        assert!(why.contains("exited with code 7"), "{why}");
        assert_eq!(told, "fallback");
    }
    std::fs::remove_file(file("broken")).unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(10);
    while status(&mut agent).await.0 != "managed" {
        assert!(std::time::Instant::now() < until);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let mut new = Agent::new(Api::Messages, &gateway.base, "b");
    assert_eq!(status(&mut new).await.0, "managed");
}

/// New sessions use a build that is installed while a gateway runs, without a signal. A session that meets a
/// half-finished installation falls back, says so, and changes over as soon as possible.
#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_is_installed_beside_a_running_gateway_runs() {
    let (provider, home) = (Simulator::start(), Home::new());
    home.install("plugins/context_engine/keep-tail", "keep-tail");
    let folder = home.plugin_dir("keep-tail");
    let (manifest, library) = (
        folder.join("plugin.yaml"),
        folder.join(contexture_tests::library_name("keep-tail")),
    );
    let unpinned = std::fs::read_to_string(&manifest).unwrap();
    let replace = |path: &Path, bytes: &[u8]| {
        let new = folder.join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(&new, path).unwrap();
    };
    let pin = || {
        let pinned = format!(
            "{}\nsha256: {}\n",
            unpinned.trim_end(),
            contexture_tests::sha256(&library)
        );
        replace(&manifest, pinned.as_bytes());
    };
    pin();
    before(&provider, &home, "context: {engine: keep-tail}\n", "");
    provider.answer_with(|_| Answer::text("Yes."));
    let serving = Serving::start(&home);
    let status = async |session: &str| {
        let mut agent = Agent::new(Api::Messages, &serving.base, session);
        agent.user("Hello");
        let said = agent.go_on().await;
        (
            said.header("x-contexture-status").to_owned(),
            said.header("x-contexture-reason").to_owned(),
        )
    };
    assert_eq!(status("before").await.0, "managed");
    // Bytes after a library's end change nothing but its digest.
    let mut build = std::fs::read(&library).unwrap();
    build.extend_from_slice(b"another build");
    replace(&library, &build);
    let (told, reason) = status("between").await;
    assert_eq!(told, "fallback");
    assert!(reason.contains("sha256"), "{reason}");
    pin();
    assert_eq!(status("after").await.0, "managed");
    assert_eq!(status("between").await.0, "managed");
    assert_eq!(status("before").await.0, "managed");
}
