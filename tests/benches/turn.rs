//! A turn of an agent that lives, from the body's bytes, with the record on disk: what the client sends is
//! taken in, the engine is shown what is new and asked, the body for the model is made, and the answer is taken
//! in. CPU time of all threads, medians.
//!
//! `cargo bench -p contexture-tests --bench turn [-- FILTER]`, the filter being an engine or part of a row's name.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod cpu;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contexture::engines::Engines;
use contexture::formats;
use contexture::session::{AgentWindow, Compact, OutcomeKind, Record, Session, TurnOptions};
use contexture_tests::{Home, built_plugins, coding_session, engines, under};
use cpu::process_cpu_ms;
use serde_json::json;
use xxhash_rust::xxh3::xxh3_64;

/// What part of a turn's time lies in the bytes of the body, in ms for each MB: the goal.
const MS_A_MB: f64 = 0.4;

fn main() {
    let filter = std::env::args().skip(1).find(|text| text != "--bench");
    let wanted = |engine: &str, row: &str| {
        let is_in = |filter: &String| engine == filter || row.contains(filter.as_str());
        filter.as_ref().is_none_or(is_in)
    };
    for engine in ["compressor", "lcm"] {
        println!("{engine}, ms");
        println!(
            "  {:<44}{:>9}{:>9}{:>9}{:>9}{:>11}{:>9}{:>9}{:>9}",
            "", "body MB", "all", "goal", "", "split+hash", "turn", "answer", "wall"
        );
        let bench = Bench::new(engine);
        for messages in [100, 1_000, 10_000] {
            let row = format!("{messages} messages, nothing due");
            if wanted(engine, &row) {
                print(&row, 0.15, &bench.turns(messages, Client::SendsAll, false));
            }
        }
        for messages in [100, 1_000, 10_000] {
            for (client, what) in [
                (Client::SendsAll, "compacted, client sends all"),
                (Client::CarriesOn, "compacted, client carries on"),
            ] {
                let row = format!("{messages} messages, {what}");
                if wanted(engine, &row) {
                    print(&row, 0.2, &bench.turns(messages, client, true));
                }
            }
        }
        for messages in [1_000, 10_000] {
            let row = format!("the turn that compacts {messages} messages");
            if wanted(engine, &row) {
                print(&row, 0.008 * messages as f64, &bench.compacting(messages));
            }
        }
    }
    if wanted("isolation", "isolation") {
        isolation();
    }
}

/// What a turn and its answer take more where the engine runs in a process of its own: wall time, for the CPU time
/// is that of two processes.
fn isolation() {
    println!(
        "keep-tail, 1,000 messages, nothing due: median ms of a turn and its answer, wall (goal 0.2 more)"
    );
    let program = built_plugins().join("contexture-engine-host");
    let wall = |isolation: &str| {
        let bench = Bench::of(
            "keep-tail",
            &format!(
                "context:\n  isolation: {isolation}\n  engine_host: {}\n",
                program.display()
            ),
        );
        median(&bench.turns(1_000, Client::SendsAll, false).wall)
    };
    let (here, there) = (wall("none"), wall("process"));
    println!(
        "  in this process {here:.3}, in its own {there:.3}: {:.3} more",
        there - here
    );
}

#[derive(Clone, Copy, PartialEq)]
enum Client {
    SendsAll,
    /// From what it was handed out.
    CarriesOn,
}

/// What a turn took.
#[derive(Default)]
struct Times {
    body_mb: Vec<f64>,
    turn: Vec<f64>,
    answer: Vec<f64>,
    all: Vec<f64>,
    wall: Vec<f64>,
    /// What finding the messages in the body and hashing them takes alone.
    split: Vec<f64>,
}

fn print(row: &str, goal: f64, times: &Times) {
    let body_mb = median(&times.body_mb);
    // A goal for a whole compaction has no part that is the body's.
    let goal = match goal < 1.0 {
        true => goal + MS_A_MB * body_mb,
        false => goal,
    };
    let all = median(&times.all);
    println!(
        "  {row:<44}{body_mb:>9.2}{all:>9.3}{goal:>9.3}{:>9}{:>11.3}{:>9.3}{:>9.3}{:>9.3}",
        if all > goal { "over" } else { "" },
        median(&times.split),
        median(&times.turn),
        median(&times.answer),
        median(&times.wall),
    );
}

fn median(times: &[f64]) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

struct Bench {
    engine: &'static str,
    home: Home,
    engines: Arc<Engines>,
    record: Arc<Record>,
}

impl Bench {
    fn new(engine: &'static str) -> Self {
        Self::of(engine, "")
    }

    fn of(engine: &'static str, more: &str) -> Self {
        let home = Home::new();
        if engine == "keep-tail" {
            home.install("plugins/context_engine/keep-tail", "keep-tail");
        }
        // What a compaction costs with the provider must not keep it from being measured.
        home.configure(&format!(
            "hygiene:\n  max_messages: 1000000\ncompression:\n  timing: threshold\n{more}"
        ));
        Self {
            engine,
            engines: engines(&home),
            record: Record::open(home.path()).unwrap(),
            home,
        }
    }

    fn session(&self, id: &str, context_length: u64) -> Session {
        let agent = AgentWindow::new("gpt-5", context_length, context_length / 10);
        let options = under(self.engine);
        assert!(self.home.path().is_dir());
        Session::open(&self.engines, Some(&self.record), id, agent, options).unwrap()
    }

    /// Turns after `messages` messages of 1 KiB, in a window that they fill by a third.
    fn turns(&self, messages: usize, client: Client, is_compacted: bool) -> Times {
        let id = format!("{messages}-{is_compacted}-{}", client == Client::CarriesOn);
        let mut session = self.session(&id, (messages as u64 + 150) * 900);
        let mut history: Vec<String> = (0..messages).map(message).collect();
        let mut said = messages;
        let only_look = TurnOptions::default().compact(Compact::Never);
        session
            .turn_with(&body(&history), None, &only_look)
            .unwrap();
        if is_compacted {
            let force = TurnOptions::default().compact(Compact::Force);
            let body = body(&history);
            let turn = session.turn_with(&body, None, &force).unwrap();
            let outcome = turn.compaction.unwrap().outcome;
            assert_eq!(outcome, OutcomeKind::Compacted);
            if client == Client::CarriesOn {
                history = messages_of(&turn.body);
            }
        }
        let mut times = Times::default();
        for at in 0..64 {
            history.push(message(said));
            let body = body(&history);
            let answer = message(said + 1);
            said += 2;
            let before = process_cpu_ms();
            black_box(split_and_hash(&body));
            let split = process_cpu_ms() - before;
            let began = Instant::now();
            let before = process_cpu_ms();
            let turn = session.turn(&body).unwrap();
            let between = process_cpu_ms();
            session.answer(&[&answer], None).unwrap();
            let after = process_cpu_ms();
            let wall = began.elapsed().as_secs_f64() * 1e3;
            assert!(turn.compaction.is_none(), "{:?}", turn.decision);
            assert_eq!(turn.changed, is_compacted);
            if client == Client::CarriesOn {
                history = messages_of(&turn.body);
            }
            history.push(answer);
            // The first turns find nothing warm.
            if at < 4 {
                continue;
            }
            times.body_mb.push(body.len() as f64 / 1e6);
            times.split.push(split);
            times.turn.push(between - before);
            times.answer.push(after - between);
            times.all.push(after - before);
            times.wall.push(wall);
        }
        times
    }

    /// The turn that compacts a coding session, all of which was counted, observed and indexed before.
    fn compacting(&self, messages: usize) -> Times {
        let body = coding_session(messages).to_string();
        let only_look = TurnOptions::default().compact(Compact::Never);
        let mut times = Times::default();
        for run in 0..15 {
            let mut session = self.session(&format!("compacting {run}"), 400_000);
            session.turn_with(&body, None, &only_look).unwrap();
            wait_until_idle();
            let before = process_cpu_ms();
            black_box(split_and_hash(&body));
            times.split.push(process_cpu_ms() - before);
            let began = Instant::now();
            let before = process_cpu_ms();
            let turn = session.turn(&body).unwrap();
            let time = process_cpu_ms() - before;
            times.wall.push(began.elapsed().as_secs_f64() * 1e3);
            let compaction = turn.compaction.as_ref();
            let outcome = compaction.map(|compaction| &compaction.outcome);
            assert_eq!(
                outcome,
                Some(&OutcomeKind::Compacted),
                "{:?}",
                turn.decision
            );
            times.body_mb.push(body.len() as f64 / 1e6);
            times.turn.push(time);
            times.all.push(time);
            times.answer.push(0.0);
        }
        times
    }
}

/// Waits until no thread works in the background any more.
fn wait_until_idle() {
    let mut before = f64::NEG_INFINITY;
    while process_cpu_ms() - before > 1.0 {
        before = process_cpu_ms();
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn split_and_hash(body: &str) -> u64 {
    let wire = formats::split(body, None).unwrap();
    let hashes = wire.messages.iter().map(|raw| xxh3_64(raw.as_bytes()));
    hashes.fold(0, |sum, hash| sum ^ hash)
}

fn message(at: usize) -> String {
    let filler = "the pump station reported \"no fault\" at line 17 of its log;\n".repeat(17);
    let role = ["user", "assistant"][at % 2];
    json!({"role": role, "content": format!("{at} {filler}")}).to_string()
}

fn body(messages: &[String]) -> String {
    format!(
        r#"{{"model":"gpt-5","messages":[{{"role":"system","content":"You keep the pumps."}},{}]}}"#,
        messages.join(",")
    )
}

fn messages_of(body: &str) -> Vec<String> {
    let messages = formats::split(body, None).unwrap().messages;
    messages.iter().map(|&raw| raw.to_owned()).collect()
}
