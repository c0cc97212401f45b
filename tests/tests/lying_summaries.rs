//! A model that writes summaries claims what the messages contradict: the engines mark it, or use an extract if they are
//! configured to.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture::session::{AgentWindow, Compact, Session, TurnOptions};
use contexture_lcm as _;
use contexture_tests::rules::ENGINES;
use contexture_tests::summary_model::{Mood, SummaryModel};
use contexture_tests::{Home, chat, engines_with, under};
use contexture_tiered as _;
use contexture_two_layer as _;
use contexture_virtual_files as _;
use serde_json::json;

const LIES: &str = "## Progress\n### Done\n- Created `src/invented.rs`.\n- All tests pass.\n- Read src/module_1.rs.";
const JSON_LIES: &str = r#"{"modified_files": ["src/invented.rs"], "last_step": "All tests pass.", "key_decisions": ["Read src/module_1.rs."]}"#;

/// The window after compactions with this model and this configuration, and what users are told of them.
fn compacted(engine: &str, config: &str, words: &'static str) -> (String, String) {
    let (home, model) = (Home::new(), SummaryModel::start());
    home.configure(config);
    model.turns(Mood::Says(words));
    let all = engines_with(&home, model.client());
    let agent = AgentWindow::new("gpt-5", 48_000, 4_000);
    let mut session = Session::open(&all, None, "s", agent, under(engine)).unwrap();
    let options = TurnOptions::default()
        .compact(Compact::Force)
        .wait_for_model(Some(true));
    // An engine that shortens messages first summarises them if it is asked again and nothing is left to shorten.
    let (mut body, mut notes) = (String::new(), Vec::new());
    for turns in [60, 60, 100, 100] {
        let mut request = chat(turns, 1_800);
        // The tests fail in the last message but the request that is always kept.
        let messages = request["messages"].as_array_mut().unwrap();
        let failure = [
            json!({"role": "assistant", "content": null, "tool_calls": [{"id": "t", "type": "function", "function":
                {"name": "bash", "arguments": "{\"command\": \"cargo test\"}"}}]}),
            json!({"role": "tool", "tool_call_id": "t", "content": "test result: FAILED. 3 passed; 1 failed"}),
        ];
        messages.splice(2..2, failure);
        let request = request.to_string();
        let turn = session.turn_with(&request, None, &options).unwrap();
        notes.extend(turn.compaction.map_or(Vec::new(), |report| report.notes));
        body = turn.body.into_owned();
    }
    assert!(model.requests() > 0, "{engine} asks no model");
    (body, notes.join("\n"))
}

#[test]
fn claims_that_the_messages_contradict_are_marked() {
    for engine in ENGINES {
        let words = if engine == "tiered" { JSON_LIES } else { LIES };
        let (window, _) = compacted(engine, "", words);
        assert!(
            window.contains("[not confirmed: no tool call here changed invented.rs]"),
            "{engine}: {window:.3000}"
        );
        assert!(
            window.contains("[not confirmed: the last test run ended: "),
            "{engine}: {window:.3000}"
        );
        assert!(
            !window.contains("Read src/module_1.rs [not confirmed"),
            "{engine}"
        );
    }
}

/// A fake key, a line that is repeated, instructions that were given to the model, and characters that nobody sees.
const DIRTY: &str = "Sure! Here it is:\n\n## Goal\n[what the user wants to reach]\nShip\u{1b}[31m the \u{202e}parcels\u{0} \
    with DB_PASSWORD=hunter2Xy9zQ.\n- Read the list.\n- Read the list.\n- Read the list.";
const DIRTY_JSON: &str = "{\"user_goal\": \"Ship the \u{202e}parcels with DB_PASSWORD=hunter2Xy9zQ.\", \"key_decisions\": [\n\
    \"Read the list.\",\n\"Read the list.\",\n\"Read the list\"\n]}";

#[test]
fn what_a_model_writes_is_cleaned_whichever_engine_asks() {
    for engine in ENGINES {
        let words = if engine == "tiered" {
            DIRTY_JSON
        } else {
            DIRTY
        };
        let (window, _) = compacted(engine, "", words);
        assert!(window.contains("parcels"), "{engine}: {window:.3000}");
        for dirt in ["hunter2Xy9zQ", "\\u001b", "\\u0000", "\u{202e}"] {
            assert!(!window.contains(dirt), "{engine} {dirt:?}: {window:.3000}");
        }
        let again = |gap: &str| window.contains(&format!("Read the list.{gap}Read the list."));
        let repeats = [r"\n- ", r#"\",\n    \""#].into_iter().any(again);
        assert!(!repeats, "{engine}: {window:.3000}");
    }
}

#[test]
fn a_refusal_is_no_summary_whichever_engine_asks() {
    const REFUSAL: &str = "I'm sorry, but I can't help with that request.";
    for engine in ENGINES {
        let (window, notes) = compacted(engine, "", REFUSAL);
        assert!(!window.contains(REFUSAL), "{engine}: {window:.3000}");
        assert!(notes.contains("declined"), "{engine}: {notes}");
    }
}

#[test]
fn an_extract_replaces_a_contradicted_summary_if_configured() {
    for engine in ENGINES {
        let words = if engine == "tiered" { JSON_LIES } else { LIES };
        let (window, notes) = compacted(engine, "compression:\n  contradicted: extract\n", words);
        assert!(!window.contains("invented.rs"), "{engine}: {window:.3000}");
        assert!(notes.contains("contradict"), "{engine}: {notes}");
    }
}
