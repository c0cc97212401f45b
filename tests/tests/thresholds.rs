//! A threshold that `config.yaml` sets for a model counts under every engine, and for the model that the session has now.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Compact, Session, TurnOptions};
use contexture_engine_api::Decision;
use contexture_lcm as _;
use contexture_tests::rules::ENGINES;
use contexture_tests::{Home, chat, engines, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;

const CONFIG: &str = "compression:
  timing: threshold
  models:
    gpt-6*: {threshold: 12k}
    gpt-6-large: {threshold: 0.9}
    small-*: {context_length: 16k, threshold: 1.0}
";

fn agent(model: &str) -> AgentWindow {
    AgentWindow::new(model.to_owned(), 100_000, 2_000)
}

/// The decision of the session's engine about a conversation of about 20,000 tokens.
fn decision(session: &mut Session) -> Decision {
    let options = TurnOptions::default().compact(Compact::Never);
    let body = chat(40, 1_800).to_string();
    let turn = session.turn_with(&body, None, &options).unwrap();
    let tokens = session.state().best_prompt_tokens();
    assert!((14_000..40_000).contains(&tokens), "{tokens}");
    turn.decision
}

#[test]
fn the_threshold_of_a_model_counts_under_every_engine() {
    for engine in ENGINES {
        for (model, is_due) in [
            ("gpt-6-mini", true),
            ("openai/GPT-6", true),
            ("gpt-6-large", false),
            ("small-1", true),
        ] {
            let home = Home::new();
            home.configure(CONFIG);
            let all = engines(&home);
            let open = Session::open(&all, None, "s", agent(model), under(engine));
            let decision = decision(&mut open.unwrap());
            assert_eq!(decision.is_yes(), is_due, "{engine}, {model}: {decision:?}");
        }
    }
}

#[test]
fn a_session_that_changes_its_model_changes_its_threshold() {
    for engine in ENGINES {
        let home = Home::new();
        home.configure(CONFIG);
        let all = engines(&home);
        let mut session =
            Session::open(&all, None, "s", agent("gpt-6-large"), under(engine)).unwrap();
        assert!(!decision(&mut session).is_yes(), "{engine}");
        session.set_model(agent("gpt-6")).unwrap();
        assert!(decision(&mut session).is_yes(), "{engine}");
    }
}
