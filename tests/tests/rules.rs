//! Rules that users state are in the window word for word after ten compactions, under every engine, and what others say
//! does not become one. The benchmark `rules` plays more of these sessions.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_lcm as _;
use contexture_tests::rules::{COMPACTIONS, ENGINES, Scenario, Survival, Tongue};
use contexture_tests::summary_model::SummaryModel;
use contexture_tests::{Home, engines, engines_with};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

fn play(seed: u64, names: &[&str], model: Option<&SummaryModel>) -> Survival {
    let mut sum = Survival::default();
    for tongue in Tongue::ALL {
        let home = Home::new();
        let all = match model {
            Some(model) => engines_with(&home, model.client()),
            None => engines(&home),
        };
        sum += Scenario::of(tongue, seed).play(&all, names);
    }
    sum
}

fn assert_kept(survival: &Survival, what: &str) {
    let sessions = Tongue::ALL.len();
    assert!(
        survival.compactions >= sessions * (COMPACTIONS - 2),
        "{what}: {survival:?}"
    );
    assert!(
        survival.rules >= 5 * sessions && survival.decoys > survival.rules,
        "{what}: {survival:?}"
    );
    assert!(
        survival.share() >= 0.98 && survival.taken_share() <= 0.02,
        "{what}: {survival:#?}"
    );
}

#[test]
fn rules_survive_ten_compactions_under_every_engine() {
    for engine in ENGINES {
        assert_kept(&play(1, &[engine], None), engine);
    }
}

#[test]
fn rules_survive_a_change_of_the_engine_after_each_compaction() {
    assert_kept(&play(2, &ENGINES, None), "all by turns");
}

#[test]
fn a_rule_that_was_replaced_does_not_come_back() {
    for seed in 0..3 {
        let scenario = Scenario::of_changes(seed);
        let by_turns = [&ENGINES[..]];
        for names in ENGINES.chunks(1).chain(by_turns) {
            let home = Home::new();
            let survival = scenario.play(&engines(&home), names);
            assert!(survival.compactions >= COMPACTIONS - 2, "{survival:?}");
            assert!(
                survival.faults.is_empty(),
                "{names:?} {seed}: {}",
                survival.faults.join("\n")
            );
        }
    }
}

#[test]
fn rules_survive_and_end_if_only_the_window_is_seen_again() {
    let changes = (0..3).map(Scenario::of_changes);
    let scenarios = changes.chain([Scenario::of(Tongue::English, 4)]);
    for (at, scenario) in scenarios.enumerate() {
        for engine in ENGINES {
            let home = Home::new();
            let survival = scenario.play_windows(&engines(&home), &[engine]);
            assert!(survival.compactions >= COMPACTIONS - 2, "{survival:?}");
            let faults = survival.faults.join("\n");
            assert!(faults.is_empty(), "{engine} {at}: {faults}");
        }
    }
}

#[test]
fn rules_survive_summaries_by_a_model_that_does_not_mention_them() {
    let model = SummaryModel::start();
    for engine in ENGINES {
        assert_kept(&play(3, &[engine], Some(&model)), engine);
    }
    assert!(model.requests() > 0);
}
