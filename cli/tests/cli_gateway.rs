//! `contexture serve` and `contexture run`: the real binary before a provider.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod cli_support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};

use cli_support::Home;
use contexture_provider_simulator::{Answer, Simulator, address_in};

fn home(provider: &Simulator, more: &str) -> Home {
    let home = Home::new();
    let base = provider.base_url();
    let config = format!(
        "upstream: {{openai: {{base_url: \"{base}\"}}, anthropic: {{base_url: \"{base}\"}}}}\n{more}"
    );
    home.put("home/config.yaml", &config);
    home
}

/// A gateway that serves, and the port that it says.
struct Serving(Child, String, BufReader<std::process::ChildStderr>);

impl Serving {
    fn start(home: &Home, arguments: &[&str]) -> Self {
        let mut all = vec!["serve"];
        all.extend(arguments);
        let mut child = home
            .command(all)
            .env("T_TOKEN", "secret")
            .env("B_TOKEN", "other")
            .env("F_TOKEN_FILE", home.path("token"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let address = address_in(&mut stderr);
        Self(child, address, stderr)
    }

    fn ask(&self, request: &str) -> String {
        let address = self.1.replace("0.0.0.0", "127.0.0.1");
        let mut stream = TcpStream::connect(&address).unwrap();
        let request = request.replace("host: x\r\n", &format!("host: {address}\r\n"));
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn post(&self, text: &str, header: &str) -> String {
        self.send(
            &format!("{{\"role\": \"user\", \"content\": \"{text}\"}}"),
            header,
        )
    }

    fn send(&self, messages: &str, header: &str) -> String {
        let body = format!("{{\"model\": \"gpt-4o\", \"messages\": [{messages}]}}");
        self.ask(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer k\r\n{header}\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Reads the log up to a line with this text.
    fn wait_for_line(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.2.read_line(&mut line).unwrap(), 0, "no `{text}`");
        }
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.0.id()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(unix)]
#[test]
fn it_serves_reads_its_configuration_again_and_stops_when_told() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Hello yourself."));
    let home = home(&provider, "");
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
    let answer = serving.post("Hello", "");
    assert!(
        answer.contains("Hello yourself.") && answer.contains("x-contexture-status: managed"),
        "{answer}"
    );
    // A file that somebody is writing changes nothing.
    let config = home.read("home/config.yaml");
    home.put("home/config.yaml", "");
    serving.signal(rustix::process::Signal::HUP);
    serving.wait_for_line("is empty or gone");
    // The engine of the configuration as it is now.
    home.put(
        "home/config.yaml",
        &format!(
            "{config}gateway: {{mode: observe, listen: \"127.0.0.1:9\", max_connections: 7, \
             telemetry: {{endpoint: \"http://127.0.0.1:1\"}}}}\ntranscript: {{store: postgres}}\n"
        ),
    );
    serving.signal(rustix::process::Signal::HUP);
    let mut seen = String::new();
    for _ in 0..100 {
        seen = serving.post("Hello again", "");
        if seen.contains("x-contexture-status: observed") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(seen.contains("x-contexture-status: observed"), "{seen}");
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    serving.2.read_to_string(&mut log).unwrap();
    assert!(!log.contains("Bearer") && !log.contains(" k "), "{log}");
    for key in [
        "gateway.listen",
        "gateway.max_connections",
        "gateway.telemetry",
        "transcript.store",
    ] {
        let said = log.matches(&format!("`{key}` changed, ")).count();
        assert_eq!(said, 1, "{key}: {log}");
    }
    assert!(!log.contains("transcript.tenant"), "{log}");
    assert!(!log.contains("is empty or gone"), "it is said twice: {log}");
}

/// Container platforms mount secrets as files, and replace them while the gateway runs.
#[cfg(unix)]
#[test]
fn a_token_in_a_file_is_read_again_with_the_configuration() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Hello yourself."));
    let home = home(&provider, "gateway: {tokens: {team: F_TOKEN}}\n");
    let none = home.contexture("serve --listen 127.0.0.1:0");
    none.exits(2).stderr_has("F_TOKEN_FILE to a file");

    home.put("token", "first\n");
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
    let status = |serving: &Serving, token: &str| {
        let answer = serving.post("Hello", &format!("x-contexture-token: {token}\r\n"));
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(status(&serving, "first"), "200");
    assert_eq!(status(&serving, "second"), "401");
    home.put("token", "second\n");
    serving.signal(rustix::process::Signal::HUP);
    serving.wait_for_line("read again");
    assert_eq!(status(&serving, "first"), "401");
    assert_eq!(status(&serving, "second"), "200");
    // Without the file, the tokens stay as they were.
    std::fs::remove_file(home.path("token")).unwrap();
    serving.signal(rustix::process::Signal::HUP);
    serving.wait_for_line("F_TOKEN_FILE");
    assert_eq!(status(&serving, "first"), "401");
    assert_eq!(status(&serving, "second"), "200");
}

/// A reader of the log that stalls, such as a full pipe, holds nothing up. What it reads later is complete.
#[cfg(unix)]
#[test]
fn nobody_waits_for_the_reader_of_the_log() {
    const REQUESTS: usize = 600;
    let provider = Simulator::start();
    let home = home(&provider, "");
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0", "--log-format", "json"]);
    let mut stream = TcpStream::connect(&serving.1).unwrap();
    let wait = std::time::Duration::from_secs(20);
    stream.set_read_timeout(Some(wait)).unwrap();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\n\r\n", serving.1);
    for number in 0..REQUESTS {
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 1_000];
        let read = stream
            .read(&mut answer)
            .unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{number}");
    }
    drop(stream);
    serving.signal(rustix::process::Signal::TERM);
    let mut log = String::new();
    serving.2.read_to_string(&mut log).unwrap();
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let lines = json_lines(&log);
    let answered = lines.iter().filter(|line| line["message"] == "answered");
    assert_eq!(answered.count(), REQUESTS);
}

/// What a gateway logged, one JSON object a line.
fn json_lines(log: &str) -> Vec<serde_json::Value> {
    let lines = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        for key in ["timestamp", "level", "target", "message"] {
            assert!(line[key].is_string(), "{key}: {line}");
        }
        line
    });
    lines.collect()
}

#[cfg(unix)]
#[test]
fn a_json_log_names_the_request_and_the_trace_of_each_line() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let parent = format!("00-{TRACE}-b7ad6b7169203331-01");
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let config =
        "model: {context_length: 20000}\ncompression: {threshold: 0.5, timing: threshold}\n";
    let home = home(&provider, config);
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0", "--log-format", "json"]);
    let words = "word ".repeat(15_000);
    let said = format!(
        r#"{{"role": "user", "content": "{words}"}}, {{"role": "assistant", "content": "Yes."}}, {{"role": "user", "content": "And?"}}"#
    );
    let header =
        format!("x-request-id: first\r\ntraceparent: {parent}\r\nx-contexture-session: s\r\n");
    let answer = serving.send(&said, &header);
    assert!(
        answer.contains("x-contexture-request: first\r\n"),
        "{answer}"
    );
    let sent = provider.requests().pop().unwrap();
    assert_eq!(sent.header("traceparent"), Some(parent.as_str()));
    let secret = format!("sk-ant-{}", "a1".repeat(20));
    let answer = serving.ask(&format!(
        "GET /v1/models/{secret} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    ));
    let (_, own) = answer.split_once("x-contexture-request: ").expect(&answer);
    let own = own.lines().next().unwrap();
    serving.signal(rustix::process::Signal::TERM);
    assert_eq!(serving.0.wait().unwrap().code(), Some(0));
    let mut log = String::new();
    serving.2.read_to_string(&mut log).unwrap();
    assert!(!log.contains("a1a1") && !log.contains("Bearer"), "{log}");
    let lines = json_lines(&log);
    let of = |id: &str, message: &str| {
        let mut found = lines.iter().filter(|line| line["request_id"] == id);
        let found = found.find(|line| line["message"].as_str().unwrap().contains(message));
        found.unwrap_or_else(|| panic!("{message}: {log}"))
    };
    let answered = of("first", "answered");
    assert_eq!(answered["trace_id"], TRACE);
    assert_eq!(
        (&answered["status"], &answered["session"]),
        (&200.into(), &"s".into())
    );
    assert_eq!(answered["outcome"], "managed");
    assert!(answered["ms"].as_f64().unwrap() > 0.0);
    // This line is written on another thread.
    assert_eq!(of("first", "compact")["trace_id"], TRACE);
    let other = of(own, "answered");
    assert!(
        other["trace_id"].is_null() && other["path"].as_str().unwrap().starts_with("/v1/models/")
    );

    // What keeps it from starting is a line, too.
    home.put("home/config.yaml", "gateway: {listen: nowhere}\n");
    let mut command = home.command(["serve", "--log-format", "json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let lines = json_lines(&String::from_utf8(output.stderr).unwrap());
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(
        last["because"].as_str().unwrap().contains("`nowhere`"),
        "{last}"
    );
}

/// The engine's own figures, or those of the safety net if it overruled the engine.
#[cfg(unix)]
#[test]
fn the_log_of_a_compaction_shows_the_figures_that_triggered_it() {
    let late = "tiered, engines: {tiered: {thresholds: {compactionTrigger: 0.94}}}";
    let due = "a compaction is due from 10,000, in a window of 20,000";
    let hygiene = "hygiene fires at 17,000, 85 % of a window of 20,000";
    let section =
        "model: {context_length: 20000}\ncompression: {threshold: 0.5, timing: threshold}\n";
    let of_model =
        "compression: {timing: threshold, models: {'*': {context_length: 20k, threshold: 10k}}}\n";
    for (engine, section, least, figures) in [
        ("compressor", section, 10_000, due),
        ("compressor", of_model, 10_000, due),
        ("lcm", section, 10_000, due),
        ("lcm", of_model, 10_000, due),
        (late, section, 17_000, hygiene),
    ] {
        let provider = Simulator::start();
        provider.answer_with(|_| Answer::text("Yes."));
        let config = format!("{section}context: {{engine: {engine}}}\n");
        let home = home(&provider, &config);
        let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
        let mut said = Vec::new();
        for turn in 0..16 {
            let words = "word ".repeat(900);
            said.push(format!(
                r#"{{"role": "user", "content": "{turn} {words}"}}"#
            ));
            let answer = serving.send(&said.join(","), "x-contexture-session: s\r\n");
            assert!(answer.contains("200 OK"), "{answer}");
            said.push(r#"{"role": "assistant", "content": "Yes."}"#.to_owned());
        }
        serving.signal(rustix::process::Signal::TERM);
        serving.0.wait().unwrap();
        let mut log = String::new();
        serving.2.read_to_string(&mut log).unwrap();
        let mut lines = log.lines();
        let made = "outcome=\"compacted\" before=";
        let line = lines.find(|line| line.contains("session=s") && line.contains(made));
        let line = line.unwrap_or_else(|| panic!("{engine}: {log}"));
        assert!(
            line.contains(figures) && line.contains("window=20000"),
            "{line}"
        );
        let (_, prompt) = line.split_once("the prompt has ").unwrap();
        let (prompt, _) = prompt.split_once(" tokens").unwrap();
        let prompt: u64 = prompt.replace(',', "").parse().unwrap();
        assert!((least..20_000).contains(&prompt), "{line}");
    }
}

#[test]
fn other_machines_need_a_token_and_have_sessions_of_their_own() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let home_without = home(&provider, "");
    let refused = home_without
        .command(["serve", "--listen", "0.0.0.0:0"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("gateway.tokens"));
    let home_wrong = home(&provider, "gateway: {tokens: {a/b: T_TOKEN}}\n");
    let mut refused = home_wrong.command(["serve", "--listen", "0.0.0.0:0"]);
    let refused = refused.env("T_TOKEN", "x").output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("gateway.tokens.a/b"));
    let home = home(
        &provider,
        "gateway: {tokens: {alice: T_TOKEN, bob: B_TOKEN}}\n",
    );
    let serving = Serving::start(&home, &["--listen", "0.0.0.0:0"]);
    assert!(serving.post("Hello", "").starts_with("HTTP/1.1 401"));
    assert!(
        serving
            .post("Hello", "x-contexture-token: wrong\r\n")
            .starts_with("HTTP/1.1 401")
    );
    let answer = serving.post(
        "Hello",
        "x-contexture-token: secret\r\nx-contexture-session: bob/s\r\n",
    );
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(
        answer.contains("x-contexture-session: alice/bob/s"),
        "{answer}"
    );
    let requests = provider.requests();
    assert_eq!(requests.len(), 1);
    assert!(requests[0].header("x-contexture-token").is_none());
    // The page is anybody's; what it shows is not.
    let get = |path: &str, header: &str| {
        serving.ask(&format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{header}\r\n"
        ))
    };
    assert!(get("/", "").starts_with("HTTP/1.1 200"));
    let (alice, bob) = (
        "x-contexture-token: secret\r\n",
        "x-contexture-token: other\r\n",
    );
    let (list, one) = ("/contexture/sessions", "/contexture/session?id=alice/bob/s");
    for path in [list, one] {
        assert!(get(path, "").starts_with("HTTP/1.1 401"));
        assert!(
            get(path, alice).contains("\"id\":\"alice/bob/s\""),
            "{path}"
        );
    }
    assert!(get(list, bob).ends_with("\"sessions\":[]}"));
    assert!(get(one, bob).starts_with("HTTP/1.1 404"));
    assert_eq!(provider.requests().len(), 1);
}

#[cfg(unix)]
#[test]
fn run_tells_a_command_where_the_gateway_is() {
    let provider = Simulator::start();
    let home = home(&provider, "");
    let script = "echo $ANTHROPIC_BASE_URL $OPENAI_BASE_URL $GOOGLE_GEMINI_BASE_URL $1 $2; exit 7";
    let ran = home
        .command(["run", "--", "sh", "-c", script, "sh", "--flag", "x"])
        .output()
        .unwrap();
    let stdout = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(
        ran.status.code(),
        Some(7),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let words: Vec<&str> = stdout.split_whitespace().collect();
    assert!(words[0].starts_with("http://127.0.0.1:"), "{stdout}");
    assert_eq!(words[1], format!("{}/v1", words[0]));
    assert_eq!(words[2], words[0]);
    assert_eq!(words[3..], ["--flag", "x"]);
    let missing = home
        .command(["run", "--", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
}

/// From version 0.169 on, a Codex that is logged in uses a base URL only if its provider has a name of its own.
#[cfg(unix)]
#[test]
fn run_gives_codex_a_provider_of_its_own_if_it_is_logged_in() {
    let provider = Simulator::start();
    let home = home(&provider, "");
    let codex = home.put(
        "codex",
        "#!/bin/sh\nfor it in \"$@\"; do echo \"$it\"; done\n",
    );
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&codex, mode).unwrap();
    let run = |folder: &str, arguments: &[&str]| {
        let all = [&["run", "--", codex.as_str()], arguments].concat();
        let mut command = home.command(all);
        command.env("CODEX_HOME", home.path(folder));
        let ran = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let given: Vec<String> = text(ran.stdout).lines().map(str::to_owned).collect();
        (given, text(ran.stderr))
    };
    home.put(
        "key/auth.json",
        r#"{"auth_mode": "apikey", "OPENAI_API_KEY": "x"}"#,
    );
    for folder in ["nothing", "key"] {
        let (given, _) = run(folder, &["exec", "go"]);
        assert!(
            given[1].starts_with("openai_base_url=\"http://127.0.0.1:"),
            "{given:?}"
        );
        assert_eq!([&given[..1], &given[2..]].concat(), ["-c", "exec", "go"]);
    }
    let login =
        r#"{"auth_mode": "chatgpt", "OPENAI_API_KEY": null, "tokens": {"access_token": "x"}}"#;
    home.put("login/auth.json", login);
    let (given, _) = run("login", &["exec", "go"]);
    assert_eq!(
        [&given[..3], &given[4..]].concat(),
        ["-c", "model_provider=\"contexture\"", "-c", "exec", "go"]
    );
    let (base, settings) = given[3].split_once("/backend-api/codex\"").unwrap();
    let before = "model_providers.contexture={name=\"contexture\",base_url=\"http://127.0.0.1:";
    assert!(base.starts_with(before), "{given:?}");
    assert_eq!(
        settings,
        ",requires_openai_auth=true,wire_api=\"responses\"}"
    );
    // Another provider that the user chose stays, and the command says so.
    home.put("other/auth.json", login);
    home.put("other/config.toml", "model_provider = \"corp\"\n");
    let chosen = ["-c", "model_provider=corp", "exec", "go"];
    for (folder, arguments) in [("other", &chosen[2..]), ("login", &chosen[..])] {
        let (given, said) = run(folder, arguments);
        assert_eq!(given, arguments);
        let first = said.lines().next().unwrap();
        assert!(
            first.contains("its provider `corp`") && first.contains("not managed"),
            "{said}"
        );
    }
}

/// A command that runs under `contexture run` until it is told to end. The variables that it was given are read first.
#[cfg(unix)]
struct Under(Child, Vec<String>);

#[cfg(unix)]
impl Under {
    fn start(home: &Home, env: &[(&str, &str)]) -> Self {
        let names = "ANTHROPIC_BASE_URL OPENAI_BASE_URL OPENAI_API_BASE _CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL";
        let echo = names.split(' ').map(|name| format!("echo ${name}"));
        let script = format!("{}; read line; exit 0", echo.collect::<Vec<_>>().join("; "));
        let mut command = home.command(["run", "--", "sh", "-c", &script]);
        command.envs(env.iter().copied());
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let line = |_| {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
            line.trim().to_owned()
        };
        let told = (0..4).map(line).collect();
        Self(child, told)
    }

    /// Ends it and returns its stderr and exit code.
    fn end(mut self) -> (String, i32) {
        drop(self.0.stdin.take());
        let ended = self.0.wait_with_output().unwrap();
        (
            String::from_utf8(ended.stderr).unwrap(),
            ended.status.code().unwrap(),
        )
    }
}

#[cfg(unix)]
fn ask(base: &str, path: &str) -> String {
    ask_with(base, path, "corp")
}

#[cfg(unix)]
fn ask_with(base: &str, path: &str, key: &str) -> String {
    let address = base.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).unwrap();
    let body = "{\"model\": \"gpt-4o\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}";
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer {key}\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[cfg(unix)]
#[test]
fn run_goes_on_to_the_address_of_the_environment_and_keeps_off_the_screen() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let corp = format!("{}/v1", provider.base_url());
    let bare = Home::new();
    let env = [
        ("OPENAI_BASE_URL", corp.as_str()),
        ("OPENAI_API_BASE", "https://other.example/v1"),
        ("RUST_LOG", "trace"),
    ];
    let under = Under::start(&bare, &env);
    let [anthropic, openai, other, first_party] = &under.1.clone()[..] else {
        panic!()
    };
    assert_eq!(*openai, format!("{anthropic}/v1"));
    // A key is never sent to an address that it was not meant for.
    assert_eq!(other, "https://other.example/v1");
    assert_eq!(
        first_party, "1",
        "what goes on to Anthropic's own address keeps its window"
    );
    let answer = ask(anthropic, "/v1/chat/completions");
    assert!(
        answer.contains("Yes.") && answer.contains("x-contexture-status: managed"),
        "{answer}"
    );
    assert_eq!(
        provider.requests().pop().unwrap().header("authorization"),
        Some("Bearer corp")
    );
    let (stderr, code) = under.end();
    assert_eq!(code, 0);
    let lines: Vec<_> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{stderr}");
    for said in [
        anthropic.as_str(),
        "engine compressor",
        "window",
        corp.as_str(),
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE stays",
    ] {
        assert!(lines[0].contains(said), "{said}: {stderr}");
    }
    assert!(
        lines[1].contains("1 request managed in 1 session, 0 compactions, 0 tokens saved"),
        "{stderr}"
    );
    let log = bare.path("home/logs/run.log");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&log).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);

    // The configuration has precedence, and the command says so.
    let home = home(&provider, "");
    let under = Under::start(
        &home,
        &[
            ("OPENAI_BASE_URL", "http://127.0.0.1:9/v1"),
            ("_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL", "1"),
        ],
    );
    assert_eq!(under.1[3], "", "the upstream is not Anthropic's");
    assert!(ask(&under.1[0], "/v1/chat/completions").contains("Yes."));
    let (stderr, _) = under.end();
    assert!(
        stderr.contains("not to the http://127.0.0.1:9/v1 of OPENAI_BASE_URL"),
        "{stderr}"
    );
    let refused = home
        .command(["run", "--", "true"])
        .env("OPENAI_BASE_URL", "corp.example")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

/// Whatever the agent is, it sends the gateway's token in its own way, and the provider gets the configured key.
#[cfg(unix)]
#[test]
fn run_gives_its_command_the_token_and_never_the_key() {
    const SCRIPT: &str = "#!/bin/sh\necho \"$OPENAI_API_KEY|$ANTHROPIC_API_KEY|$CODEX_API_KEY|$GEMINI_API_KEY|\
        $OPENCODE_CONFIG_CONTENT|$CONTEXTURE_GATEWAY_TOKEN|$@|\"\necho \"$ANTHROPIC_CUSTOM_HEADERS\"\n\
        echo \"$GEMINI_CLI_CUSTOM_HEADERS\"\n";
    let provider = Simulator::start();
    let base = provider.base_url();
    let upstream = |key: &str| {
        format!(
            "upstream: {{openai: {{base_url: \"{base}\"{key}}}, anthropic: {{base_url: \"{base}\"{key}}}, \
             google: {{base_url: \"{base}\"{key}}}}}\n"
        )
    };
    let key = ", api_key_env: T_KEY";
    let tenants = "gateway: {tokens: {alice: T_TOKEN}}\n";
    let home = Home::new();
    let program = |name: &str| {
        let path = home.put(name, SCRIPT);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        path
    };
    // The configuration, the agent, and which of the variables hold the token.
    for (config, agent, holds) in [
        (upstream(""), "agent", "-------"),
        (
            upstream(key) + "gateway: {open_key: true}\n",
            "agent",
            "-------",
        ),
        (upstream(key), "agent", "oa-g-th"),
        (upstream(key), "claude", "o--g-th"),
        (upstream(key), "codex", "oacg-th"),
        (upstream(key), "opencode", "oa-gjth"),
        (upstream("") + tenants, "agent", "-----th"),
        (upstream("") + tenants, "claude", "-----th"),
        (upstream("") + tenants, "opencode", "----jth"),
        (upstream("") + tenants, "gemini", "-----th"),
        (upstream(key) + tenants, "agent", "oa-g-th"),
    ] {
        home.put("home/config.yaml", &config);
        let mut run = home.command(["run", "--", &program(agent), "-p"]);
        run.env("T_KEY", "sk-the-real-key").env("T_TOKEN", "alices");
        run.env("OPENAI_API_KEY", "own")
            .env("ANTHROPIC_API_KEY", "own");
        run.env("ANTHROPIC_CUSTOM_HEADERS", "x-corp: 1");
        run.env("GEMINI_CLI_CUSTOM_HEADERS", "x-corp:2");
        let ran = run.output().unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        let token = home.read("home/gateway.token").trim().to_owned();
        let (variables, headers) = said.split_once("|\n").unwrap();
        let (headers, of_gemini) = headers.split_at(headers.find("x-corp:2").unwrap());
        let is_in_headers = headers.contains(&token);
        assert_eq!(is_in_headers, of_gemini.contains(&token), "{of_gemini}");
        let variables: Vec<&str> = variables.split('|').collect();
        let found: String = "oacgjt"
            .chars()
            .zip(&variables)
            .map(|(letter, text)| if text.contains(&token) { letter } else { '-' })
            .chain([if is_in_headers { 'h' } else { '-' }])
            .collect();
        assert_eq!(found, holds, "{agent} {config}{said}");
        assert!(headers.starts_with("x-corp: 1\n"), "{headers}");
        assert!(
            !variables[6].contains(&token),
            "the arguments are public: {said}"
        );
        assert!(!said.contains("sk-the-real-key"), "{said}");
        let stderr = String::from_utf8(ran.stderr).unwrap();
        assert!(!stderr.contains(&token), "{stderr}");
        let is_told = stderr.contains("CONTEXTURE_GATEWAY_TOKEN");
        assert_eq!(is_told, agent == "agent" && holds == "-----th", "{stderr}");
    }
    // As an SDK sends it.
    home.put("home/config.yaml", &upstream(key));
    let script = "echo $ANTHROPIC_BASE_URL; echo $OPENAI_API_KEY; read line; exit 0";
    let mut run = home.command(["run", "--", "sh", "-c", script]);
    let pipes = run
        .env("T_KEY", "sk-the-real-key")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = pipes.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
        line.trim().to_owned()
    };
    provider.answer_with(|_| Answer::text("Yes."));
    let (base, token) = (line(), line());
    assert!(ask_with(&base, "/v1/chat/completions", &token).contains("Yes."));
    let sent = provider.requests().pop().unwrap();
    assert_eq!(sent.header("authorization"), Some("Bearer sk-the-real-key"));
    drop(child.stdin.take());
    child.wait().unwrap();
}

#[cfg(unix)]
#[test]
fn run_ends_with_what_was_refused_as_too_long() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let home = home(&provider, "");
    let under = Under::start(&home, &[]);
    assert!(ask(&under.1[0], "/v1/chat/completions").contains("Yes."));
    provider.set(|options| options.window = Some(1));
    let refused = ask(&under.1[0], "/v1/chat/completions");
    assert!(refused.contains("context_length_exceeded"), "{refused}");
    let (stderr, _) = under.end();
    let last = stderr.lines().last().unwrap();
    assert!(
        last.contains("1 request refused as too long") && last.contains("logs/run.log"),
        "{stderr}"
    );
    let log = home.read("home/logs/run.log");
    assert!(log.contains("no shorter one could be sent"), "{log}");
}

/// `serve` says where the token is, and an agent that has none is told the same.
#[test]
fn serve_says_where_the_token_is() {
    let provider = Simulator::start();
    let base = provider.base_url();
    let home = Home::new();
    let config = format!("upstream: {{openai: {{base_url: \"{base}\", api_key_env: T_TOKEN}}}}\n");
    home.put("home/config.yaml", &config);
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut serving.2, &mut line).unwrap();
    let path = home.path("home/gateway.token");
    assert!(
        line.contains(&path) && line.contains("upstream.openai.api_key_env"),
        "{line}"
    );
    let get = "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
    let refused = serving.ask(&format!("{get}\r\n"));
    assert!(
        refused.starts_with("HTTP/1.1 401") && refused.contains(&path),
        "{refused}"
    );
    let token = home.read("home/gateway.token");
    let token = token.trim();
    let answer = serving.ask(&format!("{get}authorization: Bearer {token}\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(
        provider.requests().pop().unwrap().header("authorization"),
        Some("Bearer secret")
    );
}

#[cfg(unix)]
#[test]
fn run_ends_as_its_command_did_and_says_if_nothing_came() {
    let provider = Simulator::start();
    let home = home(&provider, "");
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let ran = home.run(["run", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        ran.exits(code);
    }
    for (agent, hint) in [
        ("pi", "models.json"),
        ("hermes", "--provider custom"),
        ("codex", "model_provider"),
        ("other", "contexture serve"),
    ] {
        let program = home.put(agent, "#!/bin/sh\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
        let ran = home.contexture(format!("run -- {program}"));
        ran.stderr_has("no request arrived");
        ran.stderr_has(hint);
    }
}

/// The first Ctrl-C waits for answers in progress, the second one does not.
#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_at_once() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::fault(contexture_provider_simulator::Fault::Hang));
    let home = home(&provider, "");
    let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
    let address = serving.1.clone();
    let asking = std::thread::spawn(move || {
        std::panic::catch_unwind(|| ask(&address, "/v1/chat/completions"))
    });
    while provider.requests().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    serving.signal(rustix::process::Signal::INT);
    std::thread::sleep(std::time::Duration::from_millis(500));
    assert!(serving.0.try_wait().unwrap().is_none(), "it waits");
    serving.signal(rustix::process::Signal::INT);
    assert_eq!(serving.0.wait().unwrap().code(), Some(130));
    drop(asking.join());
}

#[cfg(unix)]
#[test]
fn a_session_that_is_deleted_beside_its_gateway_begins_anew() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    for (engine, delete) in [
        ("compressor", "sessions delete s --yes"),
        ("lcm", "sessions delete s --yes"),
        ("lcm", "sessions delete --older-than 0 --yes"),
    ] {
        let config = format!("context: {{engine: {engine}}}\ntranscript: {{mode: full}}\n");
        let home = home(&provider, &config);
        let mut serving = Serving::start(&home, &["--listen", "127.0.0.1:0"]);
        let mut said = Vec::new();
        for turn in 0..3 {
            said.push(format!("{{\"role\": \"user\", \"content\": \"{turn}\"}}"));
            let answer = serving.send(&said.join(","), "x-contexture-session: s\r\n");
            assert!(
                !answer.contains("x-contexture-reason"),
                "{delete}: {answer}"
            );
            said.push(r#"{"role": "assistant", "content": "Yes."}"#.to_owned());
            if turn == 1 {
                home.done(delete).stdout_has("\"s\"");
            }
        }
        // The last answer is stored after its client has it.
        serving.signal(rustix::process::Signal::TERM);
        serving.0.wait().unwrap();
        let exported = home.done("sessions export s");
        assert_eq!(exported.stdout.lines().count(), 6, "{}", exported.stdout);
    }
}

/// A gateway with a key for Azure, whose host is this provider by way of a proxy.
#[test]
fn azures_paths_are_turns_and_its_key_has_a_header_of_its_own() {
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let home = Home::new();
    home.put(
        "home/config.yaml",
        "upstream: {openai: {base_url: \"http://r.openai.azure.com/openai/v1\", api_key_env: T_TOKEN}}\n\
         gateway: {open_key: true}\n",
    );
    let mut child = home
        .command(["serve", "--listen", "127.0.0.1:0"])
        .env("T_TOKEN", "secret")
        .env("http_proxy", provider.base_url())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let serving = Serving(child, address_in(&mut stderr), stderr);
    let chat = r#""messages": [{"role": "user", "content": "Hello"}]"#;
    for (path, body, sent) in [
        (
            "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
            format!("{{{chat}}}"),
            "/openai/deployments/gpt-4o/chat/completions",
        ),
        (
            "/openai/deployments/gpt-4o/chat/completions?api-version=2024-10-21",
            format!("{{{chat}, \"stream\": true}}"),
            "/openai/deployments/gpt-4o/chat/completions",
        ),
        (
            "/openai/v1/chat/completions?api-version=preview",
            format!("{{\"model\": \"gpt-4o\", {chat}}}"),
            "/openai/v1/chat/completions",
        ),
        (
            "/v1/responses",
            r#"{"model": "gpt-4o", "input": "Hello"}"#.to_owned(),
            "/openai/v1/responses",
        ),
    ] {
        let answer = serving.ask(&format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\napi-key: mine\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        ));
        assert!(answer.contains("\"Yes"), "{path}: {answer}");
        assert!(
            answer.contains("x-contexture-status: managed"),
            "{path}: {answer}"
        );
        let request = provider.requests().pop().unwrap();
        assert_eq!(request.path, sent);
        let query = path.split_once('?').map(|(_, query)| query);
        assert_eq!(request.query.as_deref(), query);
        assert_eq!(request.header("api-key"), Some("secret"));
        assert_eq!(request.header("authorization"), None);
    }
    assert!(
        provider.violations().is_empty(),
        "{:#?}",
        provider.violations()
    );
}
