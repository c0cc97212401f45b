//! The share of rules stated by users that are in the window word for word after ten compactions, by engine and
//! language, and the share of sentences of others that were taken for rules.
//!
//! `cargo bench -p contexture-tests --bench rules [-- ENGINE] [lost]` prints a row for each engine, one for sessions that
//! change the engine after each compaction, and one with a model that writes the summaries. `lost` lists what was lost or
//! taken. Exits with 1 if a cell is below 98 % or more than 2 % were taken.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::process::ExitCode;

use contexture_lcm as _;
use contexture_tests::rules::{ENGINES, Scenario, Survival, Tongue};
use contexture_tests::summary_model::SummaryModel;
use contexture_tests::{Home, engines, engines_with};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

const SEEDS: u64 = 20;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|text| !text.starts_with("--"))
        .collect();
    let lists = arguments.iter().any(|argument| argument == "lost");
    let wanted = |name: &str| {
        arguments
            .iter()
            .all(|argument| argument == "lost" || argument == name)
    };
    print!("{:<24}", "");
    Tongue::ALL
        .iter()
        .for_each(|tongue| print!("{:>11}", format!("{tongue:?}")));
    println!("{:>9}{:>9}{:>9}", "rules", "decoys", "taken");
    let mut rows: Vec<(String, Vec<&str>, bool)> = Vec::new();
    for name in ENGINES {
        rows.push((name.to_owned(), vec![name], false));
    }
    for name in ["compressor", "lcm"] {
        rows.push((format!("{name}, with a model"), vec![name], true));
    }
    rows.push(("all, by turns".to_owned(), ENGINES.to_vec(), false));
    let mut is_good = true;
    for (row, names, has_model) in rows {
        if !wanted(&row) {
            continue;
        }
        let mut total = Survival::default();
        print!("{row:<24}");
        for tongue in Tongue::ALL {
            let mut sum = Survival::default();
            for seed in 0..SEEDS {
                let home = Home::new();
                let model = has_model.then(SummaryModel::start);
                let all = match &model {
                    Some(model) => engines_with(&home, model.client()),
                    None => engines(&home),
                };
                sum += Scenario::of(tongue, seed).play(&all, &names);
            }
            print!("{:>11}", format!("{:.1} %", 100.0 * sum.share()));
            is_good &= sum.share() >= 0.98;
            total += sum;
        }
        is_good &= total.taken_share() <= 0.02;
        println!(
            "{:>9}{:>9}{:>9}",
            total.rules,
            total.decoys,
            format!("{:.1} %", 100.0 * total.taken_share())
        );
        if lists {
            total
                .faults
                .iter()
                .for_each(|fault| println!("    {fault}"));
        }
    }
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
