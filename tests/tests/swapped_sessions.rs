//! Engines swapped in the middle of a session by a line of `config.yaml`, with the real command: what was said under
//! the lossless engine stays, and of what a lossy one let go the host says how much it is.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_tests::{Home, chat};
use serde_json::{Value, json};

/// Messages between two runs of the command, and those after which another engine takes over.
const STEP: usize = 12;
const FIRST: usize = 48;
const SECOND: usize = 96;
const ALL: usize = 144;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Client {
    SendsAll,
    /// Goes on with what it was handed out.
    CarriesOn,
}

/// A session of which `lcm` has the beginning and the end, and `other` what lies between.
struct Swapped {
    said: Vec<Value>,
    exported: Vec<Value>,
    /// What was said on stderr.
    told: String,
}

impl Swapped {
    fn play(other: &str, client: Client) -> Self {
        let home = Home::new();
        if other == "keep-tail" {
            home.install("plugins/context_engine/keep-tail", "keep-tail");
        }
        let body = chat(ALL / 4, 1_500);
        let messages = body["messages"].as_array().unwrap();
        let (system, said) = (&messages[..1], &messages[1..=ALL]);
        let mut holds = system.to_vec();
        let mut told = String::new();
        for end in (STEP..=ALL).step_by(STEP) {
            let engine = match end {
                end if end > FIRST && end <= SECOND => other,
                _ => "lcm",
            };
            home.configure(&format!("context: {{engine: {engine}}}\n"));
            holds.extend_from_slice(&said[end - STEP..end]);
            let input = json!({"model": "gpt-5", "messages": holds});
            std::fs::write(home.path().join("in.json"), input.to_string()).unwrap();
            let arguments = ["compress", "in.json", "--output", "out.json"];
            let session = ["--session", "work", "--context-length", "8000"];
            told += &home.command(&[arguments.as_slice(), &session].concat()).1;
            if client == Client::CarriesOn {
                let output = std::fs::read_to_string(home.path().join("out.json")).unwrap();
                let output: Value = serde_json::from_str(&output).unwrap();
                holds = output["messages"].as_array().unwrap().clone();
            }
        }
        let (lines, _) = home.command(&["sessions", "export", "work"]);
        let lines = lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        Self {
            said: said.to_vec(),
            exported: lines.collect(),
            told,
        }
    }
}

const LOSSY: [&str; 4] = ["compressor", "keep-tail", "tiered", "two-layer"];
/// What it takes out of the window it keeps, so that nothing is gone.
const KEEPS: &str = "virtual-files";

#[test]
fn a_client_that_sends_everything_loses_nothing_to_any_engine() {
    for other in LOSSY.into_iter().chain([KEEPS]) {
        let session = Swapped::play(other, Client::SendsAll);
        assert_eq!(session.exported, session.said, "{other}");
        assert!(!session.told.contains("any more"), "{}", session.told);
    }
}

#[test]
fn what_a_lossy_engine_let_go_is_told_and_the_rest_is_there() {
    for other in LOSSY {
        let Swapped {
            said,
            exported,
            told,
        } = Swapped::play(other, Client::CarriesOn);
        // What is there is in the order in which it was said.
        let mut rest = said.iter();
        let is_next = |message: &Value| rest.any(|said| said == message);
        assert!(exported.iter().all(is_next), "{other}");
        for (at, message) in said.iter().enumerate() {
            let was_others = (FIRST..SECOND).contains(&at);
            assert!(was_others || exported.contains(message), "{other}, {at}");
        }
        let gone = said.len() - exported.len();
        assert!(
            gone > 0,
            "{other} lets nothing go: this client is no trial of it"
        );
        let warning =
            format!("warning: {gone} earlier messages are neither in the request nor in a store");
        assert!(told.contains(&warning), "{other}, {gone}: {told}");
    }
}

#[test]
fn what_another_engine_keeps_comes_back_with_the_lossless_one() {
    let session = Swapped::play(KEEPS, Client::CarriesOn);
    assert_eq!(session.exported, session.said);
    assert!(!session.told.contains("any more"), "{}", session.told);
}
