//! What the user wants of summaries is in each request that the summary model gets, whichever engine asks.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Compact, Session, TurnOptions};
use contexture_lcm as _;
use contexture_tests::rules::ENGINES;
use contexture_tests::summary_model::SummaryModel;
use contexture_tests::{Home, chat, engines_with, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

const GUIDANCE: &str = "Name every failing test by its full path.";
const TEMPLATE: &str = "## Failing tests\n[one line for each]\n## Everything else";

/// The system prompts of the requests that the summary model gets for some compactions.
fn asked(engine: &str, config: &str) -> Vec<String> {
    let (home, model) = (Home::new(), SummaryModel::start());
    home.configure(config);
    std::fs::write(home.path().join("layout.md"), TEMPLATE).unwrap();
    let all = engines_with(&home, model.client());
    let agent = AgentWindow::new("gpt-5", 48_000, 4_000);
    let mut session = Session::open(&all, None, "s", agent, under(engine)).unwrap();
    let options = TurnOptions::default()
        .compact(Compact::Force)
        .wait_for_model(Some(true));
    // An engine that shortens messages first summarises them if it is asked again and nothing is left to shorten.
    for turns in [60, 60, 100, 100] {
        let body = chat(turns, 1_800).to_string();
        session.turn_with(&body, None, &options).unwrap();
    }
    let bodies = model.bodies();
    assert!(!bodies.is_empty(), "{engine} asks no model");
    let system =
        |body: &serde_json::Value| body["messages"][0]["content"].as_str().unwrap().to_owned();
    bodies.iter().map(system).collect()
}

#[test]
fn every_request_for_a_summary_has_the_guidance_and_the_layout() {
    let config = format!("compression:\n  guidance: {GUIDANCE}\n  template: layout.md\n");
    for engine in ENGINES {
        let before = asked(engine, "");
        for system in asked(engine, &config) {
            assert!(system.ends_with(GUIDANCE), "{engine}: {system}");
            // The fields of its summary are read by the engine itself.
            assert_eq!(
                system.contains(TEMPLATE),
                engine != "tiered",
                "{engine}: {system}"
            );
            assert!(!system.contains("## Goal"), "{engine}: {system}");
        }
        let is_own = |system: &String| !system.contains(GUIDANCE) && !system.contains(TEMPLATE);
        assert!(before.iter().all(is_own), "{engine}: {before:?}");
    }
}
