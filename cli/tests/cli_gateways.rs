//! Several gateways before one database, of which one is killed or stopped again and again: whatever happens to a
//! gateway, no message of a conversation is lost or stored twice.
//!
//! The clients do what clients do: they send the whole conversation with each request, and if an answer does not come,
//! they send the same request to the next gateway. Every answer of the provider is another one, so that an answer that
//! a client never got is told apart from the one that it goes on with.
//!
//! `CONTEXTURE_GATEWAY_SECONDS=600` makes it the long form, in which a gateway dies every ten seconds.
#![cfg(all(feature = "postgres", unix))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cli_support;
#[path = "../../host/transcript/tests/support/network.rs"]
mod network;
#[path = "../../host/transcript/tests/support/server.rs"]
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cli_support::{Home, json, ran};
use contexture_provider_simulator::{Answer, Simulator, address_in};
use network::Network;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use server::Server;

const GATEWAYS: usize = 3;
const CLIENTS: usize = 6;
/// The requests of a conversation. Each client then begins another one.
const TURNS: usize = 30;
/// How long a client waits for an answer. It is shorter than a gateway is stopped.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a gateway is stopped: longer than its leases last.
const STOPPED: Duration = Duration::from_secs(8);

/// What the gateways said, each line with the address of its gateway.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Gateway {
    home: Home,
    url: String,
    address: String,
    process: Child,
}

impl Gateway {
    fn start(provider: &str, url: &str) -> Self {
        Self::with("", provider, url)
    }

    /// Starts one with `more` in its configuration.
    fn with(more: &str, provider: &str, url: &str) -> Self {
        let home = Home::new();
        let config = format!(
            "transcript: {{store: postgres, mode: full}}\nupstream: {{openai: {{base_url: \"{provider}\"}}}}\n{more}"
        );
        home.put("home/config.yaml", &config);
        let (process, address) = spawn(&home, url, "127.0.0.1:0");
        let url = url.to_owned();
        Self {
            home,
            url,
            address,
            process,
        }
    }

    /// Kills it, and starts it again at the same address.
    fn die(&mut self) {
        let died = format!("{} dies", self.address);
        SAID.lock().unwrap().push(died);
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        (self.process, _) = spawn(&self.home, &self.url, &self.address);
    }

    /// Ends it as an operator does: it finishes what it has begun to store.
    fn end(mut self) {
        self.signal(Signal::TERM);
        self.process.wait().unwrap();
    }

    fn signal(&self, signal: Signal) {
        let sent = format!("{} gets {signal:?}", self.address);
        SAID.lock().unwrap().push(sent);
        let id = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(home: &Home, url: &str, listen: &str) -> (Child, String) {
    let mut command = home.command(["serve", "--listen", listen]);
    command.env("CONTEXTURE_DATABASE_URL", url);
    let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(process.stderr.take().unwrap());
    let address = address_in(&mut said);
    let own = address.clone();
    std::thread::spawn(move || {
        for line in said.lines().map_while(Result::ok) {
            SAID.lock().unwrap().push(format!("{own} {line}"));
        }
    });
    (process, address)
}

/// One request, its answer, and the session that has it, if one does. None if the gateway did not answer, or said that
/// it cannot.
fn ask(address: &str, session: &str, body: &str) -> Option<(Value, Option<String>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\nauthorization: Bearer k\r\n\
         x-contexture-session: {session}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, _) = answer.split_once("\r\n\r\n")?;
    if !head.starts_with("HTTP/1.1 200") {
        return None;
    }
    let text = answer.get(answer.find('{')?..=answer.rfind('}')?)?;
    let answer: Value = serde_json::from_str(text).ok()?;
    let message = &answer["choices"][0]["message"];
    let answer = json!({"role": "assistant", "content": message["content"]});
    let name = |line: &str| Some(line.strip_prefix("x-contexture-session: ")?.to_owned());
    let is_managed = head.contains("x-contexture-status: managed");
    Some((answer, head.lines().find_map(name).filter(|_| is_managed)))
}

/// A conversation as its client has it at the end, and how long each answer took.
struct Talk {
    name: String,
    /// The session that the first answer named. If that answer did not arrive, its retry proves nothing yet, and may have
    /// begun one beside the first.
    session: String,
    messages: Vec<Value>,
    took: Vec<Duration>,
    retries: u64,
    /// The requests that went to the provider without the session, because another gateway had it open.
    passed: u64,
}

impl Talk {
    fn new(name: String) -> Self {
        Self {
            session: name.clone(),
            name,
            messages: Vec::new(),
            took: Vec::new(),
            retries: 0,
            passed: 0,
        }
    }

    /// Says something, and sends it to one gateway after the other until one of them answers.
    fn go_on(&mut self, addresses: &[String], first: usize) {
        let said = format!("Question {} of {}.", self.took.len(), self.name);
        self.messages.push(json!({"role": "user", "content": said}));
        let body = json!({"model": "gpt-4o", "messages": self.messages}).to_string();
        let began = Instant::now();
        let mut tried = 0;
        let (answer, session) = loop {
            let address = &addresses[(first + tried) % addresses.len()];
            if let Some(answer) = ask(address, &self.name, &body) {
                break answer;
            }
            tried += 1;
            self.retries += 1;
            let name = &self.name;
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{name}: no gateway answers"
            );
            std::thread::sleep(Duration::from_millis(50));
        };
        match session {
            Some(session) if self.took.is_empty() => self.session = session,
            Some(session) => assert_eq!(session, self.session),
            None => self.passed += 1,
        }
        self.took.push(began.elapsed());
        self.messages.push(answer);
    }
}

/// What is known of a conversation, for the error if it is not stored as it was.
fn story(talk: &Talk) -> String {
    let said = SAID.lock().unwrap();
    let is_about = |line: &&String| {
        let ends = [" dies", "gets"].iter().any(|event| line.contains(event));
        ends || line.contains(&talk.name)
    };
    let lines: Vec<&str> = said.iter().filter(is_about).map(String::as_str).collect();
    let (retries, passed) = (talk.retries, talk.passed);
    let head = format!("{}: {retries} retries, {passed} passed", talk.session);
    format!(
        "{head}, answered after {:?}\n{}",
        talk.took,
        lines.join("\n")
    )
}

/// Runs a command that succeeds, with the database of this server. Returns what it prints.
fn store(home: &Home, server: &Server, line: &str) -> String {
    let mut command = home.command(line.split_whitespace());
    command.env("CONTEXTURE_DATABASE_URL", server.url());
    let done = ran(command.stdin(Stdio::null()).output().unwrap());
    done.exits(0);
    done.stdout
}

#[test]
fn gateways_that_die_lose_no_message_and_store_none_twice() {
    let Some(server) = Server::start() else {
        return;
    };
    let seconds = std::env::var("CONTEXTURE_GATEWAY_SECONDS");
    let seconds: u64 = seconds.map_or(20, |text| text.parse().unwrap());
    let pause = Duration::from_secs((seconds / 6).min(10));
    let provider = Simulator::start();
    let answers = AtomicU64::new(0);
    provider.answer_with(move |_| {
        Answer::text(format!("Answer {}.", answers.fetch_add(1, Ordering::Relaxed)).as_str())
    });

    let home = Home::new();
    home.put(
        "home/config.yaml",
        "transcript: {store: postgres, mode: full}\n",
    );
    let store = |line: &str| store(&home, &server, line);
    store("store migrate");
    let mut gateways: Vec<_> = (0..GATEWAYS)
        .map(|_| Gateway::start(&provider.base_url(), &server.url()))
        .collect();
    let addresses: Vec<_> = gateways.iter().map(|one| one.address.clone()).collect();

    let ended = Arc::new(AtomicBool::new(false));
    let talks = Mutex::new(Vec::new());
    let mut deaths = 0;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (ended, talks, addresses) = (&ended, &talks, &addresses);
            scope.spawn(move || {
                for number in 0.. {
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let mut talk = Talk::new(format!("load-{client}-{number}"));
                    for turn in 0..TURNS {
                        if ended.load(Ordering::Relaxed) {
                            break;
                        }
                        talk.go_on(addresses, client + turn);
                    }
                    talks.lock().unwrap().push(talk);
                }
            });
        }
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(seconds) {
            std::thread::sleep(pause);
            let gateway = &mut gateways[deaths % GATEWAYS];
            // Every third one is stopped instead, and wakes up when others have taken its sessions over.
            match deaths % 3 {
                2 => {
                    gateway.signal(Signal::STOP);
                    std::thread::sleep(STOPPED);
                    gateway.signal(Signal::CONT);
                }
                _ => gateway.die(),
            }
            deaths += 1;
        }
        ended.store(true, Ordering::Relaxed);
    });
    let exported = |session: &str| -> Vec<Value> {
        let lines = store(&format!("sessions export {session}"));
        // The store has an answer as the provider sent it, with more members than the client repeats.
        let repeated = |line| {
            let message = json(line);
            json!({"role": message["role"], "content": message["content"]})
        };
        lines.lines().map(repeated).collect()
    };
    let mut talks = talks.into_inner().unwrap();
    // A gateway that dies in the moment after an answer has not stored it. Nothing else may be missing, and the client
    // brings that along when it goes on.
    let mut late = 0;
    for talk in &mut talks {
        let stored = exported(&talk.session);
        assert!(talk.messages.starts_with(&stored), "{}", story(talk));
        late += usize::from(stored.len() < talk.messages.len());
        talk.go_on(&addresses, 0);
    }
    gateways.into_iter().for_each(Gateway::end);
    let mut messages = 0;
    for talk in &talks {
        let stored = exported(&talk.session);
        assert_eq!(stored, talk.messages, "{}", story(talk));
        messages += stored.len();
    }
    store("sessions verify");
    let mut took: Vec<_> = talks.iter().flat_map(|talk| talk.took.clone()).collect();
    took.sort();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100].as_millis();
    let retries: u64 = talks.iter().map(|talk| talk.retries).sum();
    let passed: u64 = talks.iter().map(|talk| talk.passed).sum();
    println!(
        "{deaths} times a gateway died or was stopped, {} conversations, {messages} messages held, {late} of them \
         with an end that only their next request brought, {retries} retries, {passed} requests passed, p50 {} ms, p99 {} ms, longest {} ms",
        talks.len(),
        at(50),
        at(99),
        at(100)
    );
}

/// The value of a metric, summed over its labels.
fn metric(address: &str, name: &str) -> f64 {
    let page = get(address, "/metrics");
    let lines = page.lines().filter(|line| line.starts_with(name));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    values.sum()
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// The reason is the database, and every monitor says so as long as it lasts and no longer. A conversation that begins
/// meanwhile is one session.
#[test]
fn while_the_database_is_away_requests_say_so_and_nothing_is_left_of_it() {
    let Some(server) = Server::start() else {
        return;
    };
    let provider = Simulator::start();
    provider.answer_with(|_| Answer::text("Yes."));
    let home = Home::new();
    home.put("home/config.yaml", "transcript: {store: postgres}\n");
    let store = |line: &str| store(&home, &server, line);
    store("store migrate");
    let hold = "gateway: {max_hold_ms: 2000}\n";
    let gateway = Gateway::with(hold, &provider.base_url(), &server.url());
    let address = [gateway.address.clone()];
    let mut old = Talk::new("old".to_owned());
    old.go_on(&address, 0);
    assert_eq!(old.passed, 0);
    let held = metric(&address[0], "contexture_hold_seconds_count");
    server.crash();
    // Another gateway that starts meanwhile serves, too.
    let late = Gateway::with(hold, &provider.base_url(), &server.url());
    let late_address = [late.address.clone()];
    let mut third = Talk::new("third".to_owned());
    third.go_on(&late_address, 0);
    assert_eq!(third.passed, 1);
    assert!(get(&late.address, "/healthz").contains("degraded"));
    let mut new = Talk::new("new".to_owned());
    let both = |old: &mut Talk, new: &mut Talk| {
        std::thread::scope(|scope| {
            scope.spawn(|| old.go_on(&address, 0));
            scope.spawn(|| new.go_on(&address, 0));
        });
    };
    both(&mut old, &mut new);
    both(&mut old, &mut new);
    assert_eq!((old.passed, new.passed), (2, 2));
    // Once it is known to be away, nobody waits for it.
    assert!(new.took[1] < Duration::from_millis(1_500), "{:?}", new.took);
    assert!(get(&address[0], "/healthz").contains("degraded"));
    let away = metric(
        &address[0],
        "contexture_engine_failures_total{part=\"store\"}",
    );
    assert_eq!(away, 4.0);
    let reason = "contexture_failed_open_total{reason=\"record\"}";
    assert_eq!(metric(&address[0], reason), 4.0);
    let now = metric(&address[0], "contexture_hold_seconds_count");
    assert_eq!(now - held, 4.0);
    server.start_again();
    both(&mut old, &mut new);
    both(&mut old, &mut new);
    assert_eq!((old.passed, new.passed), (2, 2));
    third.go_on(&late_address, 0);
    assert_eq!(third.passed, 1);
    for address in [&address[0], &late.address] {
        assert!(get(address, "/healthz").ends_with("ok\n"));
    }
    gateway.end();
    late.end();
    let listed = json(&store("sessions list --json"));
    let sessions = listed["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 3, "{listed}");
    store("sessions verify");
}

/// A gateway that reaches its database through a network, with the server, the provider and a home for commands.
struct Far {
    server: Server,
    network: Network,
    gateway: Gateway,
    home: Home,
    _provider: Simulator,
}

impl Far {
    /// None if PostgreSQL is not installed.
    fn start(max_hold_ms: u64) -> Option<Self> {
        let server = Server::start()?;
        let network = Network::before(server.address());
        let provider = Simulator::start();
        provider.answer_with(|_| Answer::text("Yes."));
        let home = Home::new();
        home.put("home/config.yaml", "transcript: {store: postgres}\n");
        store(&home, &server, "store migrate");
        let hold = format!("gateway: {{max_hold_ms: {max_hold_ms}}}\n");
        let gateway = Gateway::with(&hold, &provider.base_url(), &network.url(&server));
        Some(Self {
            server,
            network,
            gateway,
            home,
            _provider: provider,
        })
    }

    /// Has all go on at once. Returns how many of them passed without their session, and how long the longest took.
    fn go_on(&self, talks: &mut [Talk]) -> (u64, Duration) {
        let address = [self.gateway.address.clone()];
        let passed = |talks: &[Talk]| talks.iter().map(|talk| talk.passed).sum::<u64>();
        let before = passed(talks);
        std::thread::scope(|scope| {
            for talk in &mut *talks {
                scope.spawn(|| talk.go_on(&address, 0));
            }
        });
        let took = talks.iter().filter_map(|talk| talk.took.last().copied());
        (passed(talks) - before, took.max().unwrap())
    }

    /// Has all go on until none passes without its session.
    fn go_on_until_managed(&self, talks: &mut [Talk], most: Duration) {
        let began = Instant::now();
        while self.go_on(talks).0 > 0 {
            assert!(began.elapsed() < most);
        }
    }

    fn health(&self) -> String {
        get(&self.gateway.address, "/healthz")
    }

    fn metric(&self, name: &str) -> f64 {
        metric(&self.gateway.address, name)
    }
}

fn talks(count: u64) -> Vec<Talk> {
    let name = |number| Talk::new(format!("talk-{number}"));
    (0..count).map(name).collect()
}

const OF_STORE: &str = "contexture_engine_failures_total{part=\"store\"}";

#[test]
fn a_database_that_hangs_holds_up_only_the_requests_under_way() {
    let Some(far) = Far::start(2_000) else {
        return;
    };
    let mut talks = talks(4);
    assert_eq!(far.go_on(&mut talks).0, 0);
    far.network.hang(true);
    let (passed, took) = far.go_on(&mut talks);
    assert_eq!(passed, 4);
    assert!(took < Duration::from_secs(4), "{took:?}");
    // It is known to hang soon after.
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..3 {
        let (passed, took) = far.go_on(&mut talks);
        assert_eq!(passed, 4);
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
    let health = far.health();
    assert!(
        health.contains("4 sessions") && health.contains("(16 in all"),
        "{health}"
    );
    assert_eq!(far.metric(OF_STORE), 16.0);
    far.network.hang(false);
    far.go_on_until_managed(&mut talks, Duration::from_secs(4));
    assert!(far.health().ends_with("ok\n"));
    let Far {
        gateway,
        home,
        server,
        ..
    } = far;
    gateway.end();
    store(&home, &server, "sessions verify");
}

/// Whoever watches the gateway learns that it is the database that makes requests fail.
#[test]
fn a_database_that_is_too_slow_is_named() {
    let Some(far) = Far::start(1_000) else {
        return;
    };
    let mut known = talks(1);
    assert_eq!(far.go_on(&mut known).0, 0);
    far.network.delay(Duration::from_millis(250));
    let mut talks = talks(4);
    let (passed, _) = far.go_on(&mut talks);
    assert_eq!(passed, 4);
    assert_eq!(far.metric(OF_STORE), 4.0);
    let health = far.health();
    assert!(health.contains("degraded: 4 sessions"), "{health}");
    far.network.delay(Duration::ZERO);
    far.go_on_until_managed(&mut talks, Duration::from_secs(10));
    assert!(far.health().ends_with("ok\n"));
}
