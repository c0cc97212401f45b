//! Many sessions, and for each that goes wrong the shortest one that goes wrong in the same way.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::act::{Act, Mix, plays};
use crate::client::{Client, Figures, Wrong};
use crate::driver::{Driver, PATIENT};
use crate::flaky::{DEADLINE_MS, FLAKY};
use crate::play::Play;
use crate::wire::Wire;

/// Turns and the time of a run of which nobody asked more.
const FEW_TURNS: usize = 300;
const SHORT: Duration = Duration::from_secs(10);
/// The most acts of a session, in such a run and in a long one.
const FEW_ACTS: usize = 40;
const MANY_ACTS: usize = 200;
/// For how many seconds a session that went wrong is made shorter.
const PATIENCE: u64 = 60;

/// Whether somebody asked for a long run.
pub(crate) fn is_long() -> bool {
    number("CONTEXTURE_FUZZER_TURNS").is_some()
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Plays a session from its beginning to its end; with an engine that fails where anything is to fail.
pub(crate) fn run(play: &Play) -> (Figures, Result<(), Wrong>) {
    let fails = play.acts.iter().any(|act| matches!(act, Act::Fail(_)));
    let impatient = format!(
        "  supervision:\n    call_deadline_ms: {DEADLINE_MS}\n    compress_deadline_ms: {DEADLINE_MS}\n    \
         grace_ms: 50\n    abandoned_threads: 64\n    failures_before_quarantine: 1000\n"
    );
    let driver = match fails {
        true => Driver::new(FLAKY, play.carrier, play.window, &impatient),
        // Small enough for what is said here.
        false if play.engine == "two-layer" => {
            let small = "  engines: {two-layer: {token_threshold: 1000, max_tool_length: 80}}\n";
            let more = format!("{PATIENT}{small}");
            Driver::new(play.engine, play.carrier, play.window, &more)
        }
        false => Driver::new(play.engine, play.carrier, play.window, PATIENT),
    };
    let mut client = Client::new(driver, play.wire);
    let played = catch_unwind(AssertUnwindSafe(|| client.play(play)));
    let result = played.unwrap_or_else(|panic| {
        let what = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        Err(Wrong {
            check: "panic",
            what,
        })
    });
    (client.figures, result)
}

/// What came of many sessions.
#[derive(Default)]
struct Explored {
    figures: Figures,
    failed: usize,
    /// The first session for each check that found something, as short as it can be.
    found: BTreeMap<&'static str, (u64, Wrong, Play)>,
}

/// Plays sessions; fails where any goes wrong, and says how.
pub(crate) fn explore(name: &str, mix: Mix) {
    let found = play_many(mix).tell(name);
    assert!(found.is_empty(), "{name}: {found:?} went wrong");
}

/// The same for several mixes: all are played, whatever goes wrong.
pub(crate) fn each<N: Display>(name: &str, mixes: &[(N, Mix)]) {
    let of_one = |(mix, what): &(N, Mix)| play_many(*what).tell(&format!("{name}, {mix}"));
    let found: BTreeSet<_> = mixes.iter().flat_map(of_one).collect();
    assert!(found.is_empty(), "{name}: {found:?} went wrong");
}

fn play_many(mix: Mix) -> Explored {
    let wanted = number("CONTEXTURE_FUZZER_TURNS").map(|turns| turns as usize);
    let acts = if wanted.is_some() {
        MANY_ACTS
    } else {
        FEW_ACTS
    };
    let wires = match std::env::var("CONTEXTURE_FUZZER_WIRE") {
        Ok(name) => vec![serde_json::from_value(name.into()).unwrap()],
        Err(_) => Wire::ALL.to_vec(),
    };
    let began = Instant::now();
    let mut explored = Explored::default();
    for seed in number("CONTEXTURE_FUZZER_SEED").unwrap_or(0).. {
        let is_late = wanted.is_none() && began.elapsed() > SHORT;
        if is_late || explored.figures.turns >= wanted.unwrap_or(FEW_TURNS) {
            break;
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(Config::default(), random);
        let play = plays(mix, &wires, acts)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let (figures, result) = run(&play);
        explored.figures += figures;
        let Err(wrong) = result else { continue };
        explored.failed += 1;
        if !explored.found.contains_key(wrong.check) {
            eprintln!("seed {seed}: {}: {}", wrong.check, wrong.what);
            let (wrong, shortest) = shorten(play, wrong);
            explored.found.insert(wrong.check, (seed, wrong, shortest));
        }
    }
    explored
}

/// The shortest session found that goes wrong in the same way: acts are left out, many at a time and then one by
/// one, and what is left is made plain.
fn shorten(mut shortest: Play, mut wrong: Wrong) -> (Wrong, Play) {
    let began = Instant::now();
    let patience = Duration::from_secs(number("CONTEXTURE_FUZZER_PATIENCE").unwrap_or(PATIENCE));
    let says = std::env::var("CONTEXTURE_FUZZER_SAYS").unwrap_or_default();
    let try_acts = |shortest: &mut Play, wrong: &mut Wrong, acts: Vec<Act>| {
        let play = Play {
            acts,
            ..shortest.clone()
        };
        let same = began.elapsed() < patience && !play.acts.is_empty();
        let same = same
            .then(|| run(&play).1.err())
            .flatten()
            .filter(|same| same.check == wrong.check && same.what.contains(&says));
        let is_same = same.is_some();
        if let Some(same) = same {
            (*shortest, *wrong) = (play, same);
        }
        is_same
    };
    let mut chunk = shortest.acts.len();
    while chunk > 0 {
        let mut at = 0;
        while at < shortest.acts.len() {
            let mut acts = shortest.acts.clone();
            acts.drain(at..(at + chunk).min(acts.len()));
            if !try_acts(&mut shortest, &mut wrong, acts) {
                at += chunk;
            }
        }
        chunk /= 2;
    }
    for at in 0..shortest.acts.len() {
        for way in 0..shortest.acts[at].plainer().len() {
            let mut acts = shortest.acts.clone();
            acts[at] = acts[at].plainer().swap_remove(way);
            if acts[at] != shortest.acts[at] {
                try_acts(&mut shortest, &mut wrong, acts);
            }
        }
    }
    (wrong, shortest)
}

impl Explored {
    /// Prints it; answers the checks that found something.
    fn tell(self, name: &str) -> Vec<&'static str> {
        eprintln!(
            "{name}: {:?}, {} sessions went wrong",
            self.figures, self.failed
        );
        for (check, (seed, wrong, shortest)) in &self.found {
            eprintln!(
                "\n{name}: {check} (seed {seed}): {}\n{shortest}",
                wrong.what
            );
        }
        self.found.into_keys().collect()
    }
}
