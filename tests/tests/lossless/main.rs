//! The lossless engine over every real conversation at hand, played through a session in a window so small
//! that it is compacted again and again: nothing is lost, and everything distinctive is found.
//!
//! By default an even sample of it is taken; with `CONTEXTURE_ALL_DATA=1` all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod needles;
mod play;
mod sets;
mod zip;

use contexture_engine_api::StoreCommand;
use contexture_tests::{Home, shared_data};

use play::{Played, Proof};

/// Conversations of a set, and distinctive strings of a conversation, where not all are taken.
const SAMPLED_CONVERSATIONS: usize = 5;
const SAMPLED_NEEDLES: usize = 60;

fn takes_all() -> bool {
    std::env::var_os("CONTEXTURE_ALL_DATA").is_some()
}

/// At most `count` of them, evenly spread; all where all of the data is taken.
fn sample<T>(all: Vec<T>, count: usize) -> Vec<T> {
    if takes_all() || all.len() <= count {
        return all;
    }
    let step = all.len() as f64 / count as f64;
    let chosen: Vec<usize> = (0..count).map(|at| (at as f64 * step) as usize).collect();
    let numbered = all.into_iter().enumerate();
    let some = numbered.filter(|(at, _)| chosen.binary_search(at).is_ok());
    some.map(|(_, one)| one).collect()
}

/// Plays the conversations of a set as sessions of one store, and proves each of them whole.
fn prove(set: &str, conversations: Vec<sets::Chat>) {
    let all = conversations.len();
    let home = Home::new();
    // As many compactions as there can be: none waits until it pays.
    home.configure(
        "compression: {timing: threshold}\ncontext:\n  engine: lcm\n  on_failure: fail\n",
    );
    let mut sum = Proof::default();
    let mut taken = 0;
    for chat in sample(conversations, SAMPLED_CONVERSATIONS) {
        let mut played = Played::new(&home, &chat);
        sum += played.prove();
        taken += 1;
    }
    let verified = contexture_tests::engines(&home)
        .manage(Some("lcm"), &StoreCommand::Verify)
        .unwrap();
    assert_eq!(verified["ok"], true, "{verified:#}");
    assert!(sum.compactions >= 2 * taken, "{set}: {sum:?}");
    eprintln!("{set}: {taken} of {all} conversations, {sum:?}");
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn claude_code() {
    prove(
        "claude-code",
        sets::logs(&shared_data().join("claude-code")),
    );
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn tau2_bench() {
    prove("tau2-bench", sets::logs(&shared_data().join("tau2-bench")));
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn swe_agent() {
    prove("swe-agent", sets::logs(&shared_data().join("swe-agent")));
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn bfcl_memory() {
    prove(
        "bfcl-memory",
        sets::bfcl_memory(&shared_data().join("bfcl-memory")),
    );
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn crosswoz() {
    prove(
        "crosswoz",
        sets::crosswoz(&shared_data().join("crosswoz/val.json.zip")),
    );
}

#[test]
#[cfg_attr(not(shared_data), ignore = "needs ../shared/data")]
fn memorybank() {
    prove(
        "memorybank",
        sets::memorybank(&shared_data().join("memorybank/memory_bank_cn.json")),
    );
}
