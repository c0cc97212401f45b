//! The oracle of the living loop: clients that do all that clients do, against a model that knows only what was
//! said. What was said is stored once, in order; what nobody said is stored never.
//!
//! A session is a list of acts. One that goes wrong is made as short as it can be, and printed; what it was
//! belongs among the regressions. A few hundred turns are played each time; with `CONTEXTURE_ORACLE_TURNS=10000`
//! so many, in sessions of up to 200. `CONTEXTURE_ORACLE_SEED=7` begins with the session 7, with
//! `CONTEXTURE_ORACLE_TURNS=1` it is the only one, and `CONTEXTURE_ORACLE_WIRE=Chat` keeps to one format. A session
//! that goes wrong is made shorter for a minute, or for `CONTEXTURE_ORACLE_PATIENCE` seconds, as long as what is wrong with
//! it contains `CONTEXTURE_ORACLE_SAYS`: one check finds several faults. Figures are printed with `--nocapture`.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

mod act;
mod client;
mod driver;
mod explore;
mod flaky;
mod long_regressions;
mod regressions;
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

#[test]
fn engines_of_layers_with_a_client_that_does_all() {
    for engine in ["two-layer", "tiered"] {
        let mix = Mix {
            engine,
            stores: 0,
            backups: 0,
            ..Mix::ALL
        };
        explore(engine, mix);
    }
}

/// The lossless engine however it is carried; in a long run every engine.
#[test]
#[cfg(target_os = "linux")]
fn engines_however_they_are_carried() {
    let engines: &[&str] = match is_long() {
        true => &["lcm", "keep-tail", "tiered", "two-layer", "virtual-files"],
        false => &["lcm"],
    };
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
            explore(&format!("{engine}, {carrier:?}"), mix);
        }
    }
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
