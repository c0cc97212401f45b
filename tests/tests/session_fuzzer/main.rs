//! The session fuzzer: random clients do all that clients do, and after every turn the session is compared with a
//! reference model that knows only what was said. Every message that was said has to be stored once, in order, and
//! nothing else may be.
//!
//! A session is a list of acts, a [play](play). If one goes wrong, the fuzzer makes it as short as it can and prints it.
//! To keep it as a regression test, copy what it prints into a file `plays/NAME.play`; the test `play::NAME` plays it from
//! then on. Start with `act.rs` for what can happen, `client.rs` for what is checked, and `truth.rs` for the reference
//! model.
//!
//! A few hundred turns are played by default. These environment variables change that:
//!
//! | variable | |
//! |---|---|
//! | `CONTEXTURE_FUZZER_TURNS=10000` | play so many turns for each behaviour, in sessions of up to 200 acts |
//! | `CONTEXTURE_FUZZER_SEED=7` | begin with session 7; with `CONTEXTURE_FUZZER_TURNS=1` it is the only one |
//! | `CONTEXTURE_FUZZER_WIRE=chat` | only this wire format: `chat`, `anthropic` or `responses` |
//! | `CONTEXTURE_FUZZER_PATIENCE=60` | for how many seconds a session that went wrong is made shorter |
//! | `CONTEXTURE_FUZZER_SAYS=lost` | a shorter session counts only if what is wrong with it contains this text |
//!
//! Each session has a directory of its own with its databases. With `TMPDIR=/dev/shm` they are in memory, and a run takes a
//! third of the time.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod act;
mod client;
mod driver;
mod explore;
mod flaky;
mod play;
mod rules;
mod truth;
mod wire;

// Linked in, so that they can be named.
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

use act::{Carrier, Mix};
use explore::{each, explore, is_long};

#[test]
fn a_client_sends_everything_and_changes_it() {
    let mix = Mix {
        dialects: Mix::RESPELLS,
        edits: 1,
        rewinds: 1,
        repeats: 2,
        restarts: 3,
        windows: 1,
        ..Mix::PLAIN
    };
    explore("sends everything", mix);
}

/// Many clients join neighbours of one role, or the parts of a message, into one text before they send it.
#[test]
fn a_client_joins_what_stands_side_by_side() {
    explore("joins", Mix::JOINS);
}

#[test]
fn a_client_sends_everything_after_losses() {
    let mix = Mix {
        dialects: Mix::RESPELLS,
        rewinds: 1,
        restarts: 2,
        records: 1,
        stores: 1,
        backups: 1,
        ..Mix::PLAIN
    };
    explore("losses", mix);
}

#[test]
fn a_client_does_all_that_clients_do() {
    explore("all", Mix::ALL);
}

/// The built-in keeps nothing of its own, so what was said is with the host alone.
#[test]
fn the_built_in_with_a_client_that_does_all() {
    let mix = Mix {
        engine: "compressor",
        engines: 0,
        stores: 0,
        backups: 0,
        ..Mix::ALL
    };
    explore("compressor", mix);
}

#[test]
fn engines_of_layers_with_a_client_that_does_all() {
    let of = |engine| Mix {
        engine,
        stores: 0,
        backups: 0,
        ..Mix::ALL
    };
    let mixes = ["two-layer", "tiered"].map(|engine| (engine, of(engine)));
    each("layers", &mixes);
}

/// The lossless engine however it is carried; in a long run every engine.
#[test]
#[cfg(target_os = "linux")]
fn engines_however_they_are_carried() {
    let engines: &[&str] = match is_long() {
        true => &["lcm", "keep-tail", "tiered", "two-layer", "virtual-files"],
        false => &["lcm"],
    };
    let mut mixes = Vec::new();
    for engine in engines {
        for carrier in [Carrier::Cdylib, Carrier::Process] {
            let mix = Mix {
                engine,
                carrier,
                // A library stays loaded as long as the program runs.
                restarts: if carrier == Carrier::Process { 3 } else { 0 },
                engines: 0,
                stores: 0,
                backups: 0,
                ..Mix::ALL
            };
            mixes.push((format!("{engine}, {carrier:?}"), mix));
        }
    }
    each("carried", &mixes);
}

#[test]
fn an_engine_fails() {
    let mix = Mix {
        faults: 3,
        ..Mix::PLAIN
    };
    explore("an engine fails", mix);
}

#[test]
fn an_engine_fails_a_client_that_does_all() {
    let mix = Mix {
        faults: 3,
        engines: 0,
        stores: 0,
        backups: 0,
        ..Mix::ALL
    };
    explore("an engine fails, all", mix);
}

#[test]
fn virtual_files_are_played_to_a_client_that_sends_everything() {
    let mix = Mix {
        engine: "virtual-files",
        dialects: Mix::RESPELLS,
        edits: 1,
        rewinds: 1,
        repeats: 2,
        restarts: 3,
        windows: 1,
        ..Mix::PLAIN
    };
    explore("virtual files", mix);
}

#[test]
fn virtual_files_are_played_to_a_client_that_does_all() {
    let mix = Mix {
        engine: "virtual-files",
        engines: 0,
        ..Mix::ALL
    };
    explore("virtual files, all", mix);
}

/// Which behaviour goes wrong, where none hides another.
#[test]
#[ignore = "takes minutes; run it to find out which behaviour goes wrong"]
fn each_behaviour_alone() {
    for (name, base) in [
        ("everything", Mix::PLAIN),
        ("carries on", Mix::CARRIES_ON),
        ("both", Mix::BOTH),
    ] {
        each(
            name,
            &[
                ("nothing else", base),
                ("marks", Mix { marks: 2, ..base }),
                (
                    "respells",
                    Mix {
                        dialects: Mix::RESPELLS,
                        ..base
                    },
                ),
                ("edits", Mix { edits: 3, ..base }),
                ("rewinds", Mix { rewinds: 3, ..base }),
                ("inserts", Mix { inserts: 3, ..base }),
                ("repeats", Mix { repeats: 3, ..base }),
                (
                    "restarts",
                    Mix {
                        restarts: 3,
                        ..base
                    },
                ),
                ("windows", Mix { windows: 3, ..base }),
                ("engines", Mix { engines: 3, ..base }),
                ("records", Mix { records: 3, ..base }),
                ("stores", Mix { stores: 3, ..base }),
                ("backups", Mix { backups: 3, ..base }),
                ("faults", Mix { faults: 3, ..base }),
            ],
        );
    }
}
