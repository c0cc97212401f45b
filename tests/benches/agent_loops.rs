//! What engines cost for an agent that works in a loop, compared with the same loop without an engine: results of four
//! sizes in four windows, with a provider that reports the host's count and one that reports a quarter more, 60
//! requests each.
//!
//! `cargo bench -p contexture-tests --bench agent_loops [-- ENGINE]` prints a row for each loop with its compactions
//! and cost. `fits` marks conversations that fit the window without an engine. Exits with 1 if a loop exceeds its
//! bounds: two compactions within five requests although the window does not require the second, a prompt that does not
//! fit, or, for engines that promise it, a cost above 1.0 if the conversation fits.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::ExitCode;

use contexture_engine_api::grouped;
use contexture_tests::agent_loops::grid;
use contexture_tests::{Home, engines};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

const ENGINES: [&str; 5] = ["compressor", "lcm", "tiered", "two-layer", "virtual-files"];

fn main() -> ExitCode {
    let wanted = std::env::args()
        .skip(1)
        .find(|text| !text.starts_with("--"));
    let names: Vec<&'static str> = ENGINES
        .into_iter()
        .filter(|name| wanted.as_ref().is_none_or(|wanted| wanted == name))
        .collect();
    let mut faults = 0;
    print!("{:>9}{:>8}{:>7}{:>7}", "window", "result", "usage", "none");
    names.iter().for_each(|name| print!("{name:>20}"));
    println!();
    let loops = grid(&names);
    for cell in loops.chunks(names.len()) {
        let [first, ..] = cell else { continue };
        print!(
            "{:>9}{:>8}{:>7}",
            grouped(first.window),
            grouped(first.result as u64),
            first.usage
        );
        let mut found = Vec::new();
        for (at, played) in cell.iter().enumerate() {
            let home = Home::new();
            let came = played.play(&engines(&home));
            if at == 0 {
                print!("{:>7}", if came.fits { "fits" } else { "" });
            }
            let compactions = format!("{}x", came.compactions.len());
            print!("{:>20}", format!("{compactions:>5}{:>9.3}", came.cost));
            if let Some(fault) = came.fault(played) {
                found.push(format!("{}: {fault}", played.engine));
            }
        }
        println!();
        for fault in found {
            faults += 1;
            println!("          {fault}");
        }
    }
    match faults {
        0 => ExitCode::SUCCESS,
        _ => {
            println!("{faults} loops break their bounds");
            ExitCode::FAILURE
        }
    }
}
