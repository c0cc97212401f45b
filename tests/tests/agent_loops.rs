//! An agent in a loop pays no more with an engine than without, as long as its conversation fits the window, and it is
//! not compacted again and again. For the whole grid, run `cargo bench -p contexture-tests --bench agent_loops`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Compact, OutcomeKind, Session, TurnOptions};
use contexture_tests::agent_loops::Loop;
use contexture_tests::{Home, chat, engines, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

/// Result, window, usage, requests.
const LOOPS: [(usize, u64, f64, usize); 6] = [
    // Large results. The protected messages alone reach the trigger.
    (5_900, 128_000, 1.0, 45),
    (10_000, 64_000, 1.25, 30),
    // Small results, with a provider that counts more.
    (500, 32_000, 1.25, 40),
    (2_000, 64_000, 1.0, 45),
    // The conversation fits, and reaches the threshold shortly before the end.
    (500, 64_000, 1.0, 57),
    (2_000, 200_000, 1.25, 45),
];

#[test]
fn no_engine_compacts_again_and_again_or_costs_more_than_none() {
    let mut faults = Vec::new();
    for (result, window, usage, turns) in LOOPS {
        for engine in ENGINES {
            let played = Loop {
                engine,
                result,
                window,
                usage,
                turns,
            };
            let came = played.play(&engines(&Home::new()));
            if let Some(fault) = came.fault(&played) {
                faults.push(format!("{played:?}: {fault}; {:?}", came.compactions));
            }
            // A conversation that does not fit has to be compacted, which is cheaper as well.
            if !came.fits && matches!(engine, "compressor" | "lcm") {
                assert!(!came.compactions.is_empty(), "{played:?}");
                assert!(came.cost <= 1.0, "{played:?}: {}", came.cost);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];

fn open(home: &Home, engine: &str, context_length: u64) -> Session {
    let agent = AgentWindow::new("claude-sonnet-4-5", context_length, context_length / 10);
    Session::open(&engines(home), None, "test", agent, under(engine)).unwrap()
}

#[test]
fn with_compression_off_no_engine_compacts_by_itself() {
    let body = chat(40, 4_000).to_string();
    for engine in ENGINES {
        // A nearly full window, then one that is too small.
        for window in [60_000, 30_000] {
            let home = Home::new();
            home.configure("compression:\n  enabled: false\n");
            let mut session = open(&home, engine, window);
            let turn = session.turn(&body).unwrap();
            assert!(
                !turn.changed && !turn.decision.is_yes(),
                "{engine}: {turn:?}"
            );
            let outcome = turn
                .compaction
                .map(|report| (report.outcome, report.reason));
            let fits = session.state().fits();
            let said = outcome.as_ref().is_some_and(|(outcome, reason)| {
                *outcome == OutcomeKind::FloorTooHigh
                    && reason.contains("compression.enabled: false")
            });
            assert_eq!(said, !fits, "{engine}: {outcome:?}");
            let force = TurnOptions::default().compact(Compact::Force);
            let asked = session.turn_with(&body, None, &force).unwrap();
            let report = asked.compaction.unwrap();
            assert_eq!(report.outcome, OutcomeKind::Compacted, "{report:?}");
        }
    }
}

#[test]
fn tiered_without_context_management_is_left_alone_by_hygiene() {
    let body = chat(40, 4_000).to_string();
    for window in [60_000, 30_000] {
        let home = Home::new();
        home.configure(
            "context:\n  engines:\n    tiered:\n      enable_context_management: false\n",
        );
        let mut session = open(&home, "tiered", window);
        let turn = session.turn(&body).unwrap();
        assert!(!turn.changed, "{:?}", turn.compaction);
        let reason = turn.compaction.unwrap().reason;
        assert!(reason.contains("enable_context_management"), "{reason}");
    }
}

#[test]
fn no_compaction_makes_a_prompt_larger_however_small_it_is() {
    for engine in ENGINES {
        for turns in [1, 2, 5, 12, 40] {
            for size in [20, 200, 1_000] {
                let home = Home::new();
                let mut session = open(&home, engine, 200_000);
                let body = chat(turns, size).to_string();
                let force = TurnOptions::default().compact(Compact::Force);
                let turn = session.turn_with(&body, None, &force).unwrap();
                let report = turn.compaction.unwrap();
                let smaller = report.tokens_after < report.tokens_before;
                let compacted = report.outcome == OutcomeKind::Compacted;
                assert_eq!(
                    smaller, compacted,
                    "{engine}, {turns} of {size}: {report:?}"
                );
            }
        }
    }
}
