//! The link with an engine that does as it is told, without a request.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::ToolSpec;
use contexture_testkit::Script;
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::conversation::ConversationState;
use crate::testing::{agent, configured, conversation, engines, ids, talk};

fn open(session: &str, yaml: &str) -> (TempDir, EngineLink, Script) {
    let (home, engines) = engines(yaml);
    let options = SessionOptions::default().engine(Some("scripted".to_owned()));
    let transcript = EngineTranscript::of(session, None);
    let warnings = Warnings::of(session);
    let link = EngineLink::open(
        &engines,
        session,
        &configured(agent()),
        &options,
        &transcript,
        None,
        warnings,
    );
    (home, link.unwrap(), Script::of(session))
}

fn deliver(
    link: &mut EngineLink,
    current: &mut ConversationState,
    estimated: bool,
) -> Option<Decision> {
    let cursor = current.history.shown.cursor();
    let entries = current.window.entries().iter();
    let unseen = entries.filter(|entry| Some(entry.id()) > cursor).cloned();
    let state = current.state().estimated(estimated);
    let unseen = unseen.collect();
    link.deliver(current, unseen, Some(state), &mut |_| {})
        .unwrap()
}

#[test]
fn each_message_is_shown_once() {
    let (_home, mut link, script) = open("link-once", "");
    let mut current = conversation(&talk(0..3));
    deliver(&mut link, &mut current, false);
    assert_eq!(script.take_observed(), ids(1..=3));
    crate::testing::say(&mut current, &talk(3..5));
    deliver(&mut link, &mut current, false);
    assert_eq!(script.take_observed(), ids([4, 5]));
    assert_eq!(current.history.shown.cursor(), current.history.end());
}

#[test]
fn a_yes_about_an_estimate_has_to_be_asked_for_again() {
    let (_home, mut link, script) = open("link-estimate", "");
    let mut current = conversation(&talk(0..3));
    script.decides(Decision::Yes("it is large".into()));
    assert_eq!(deliver(&mut link, &mut current, true), None);
    let decided = deliver(&mut link, &mut current, false);
    assert_eq!(decided, Some(Decision::Yes("it is large".into())));
}

/// Asks a link for a decision after its engine panicked.
fn decide_after_panic(session: &str, yaml: &str) -> Result<Decision, SessionError> {
    let (_home, mut link, script) = open(session, yaml);
    let current = conversation(&talk(0..3));
    script.wants_made(|_| panic!("out of order"));
    let failed = link.background(&current);
    assert!(failed.unwrap_err().to_string().contains("out of order"));
    link.should_compress(&current)
}

#[test]
fn a_failed_engine_is_stood_in_for_as_the_configuration_says() {
    let config = |policy: &str| format!("context:\n  on_failure: {policy}\n");
    let fallback = decide_after_panic("link-fallback", &config("fallback")).unwrap();
    // The built-in compressor looked at the window.
    assert!(fallback.reason().contains("tokens"), "{fallback:?}");
    let passthrough = decide_after_panic("link-pass", &config("passthrough")).unwrap();
    assert!(!passthrough.is_yes());
    assert!(
        passthrough.reason().contains("out of order"),
        "{passthrough:?}"
    );
    let fail = decide_after_panic("link-fail", &config("fail"));
    assert!(matches!(fail, Err(SessionError::Call(_))), "{fail:?}");
}

#[test]
fn a_tool_gets_another_name_if_the_client_has_one_of_its_name() {
    let (_home, mut link, script) = open("link-tools", "");
    let tool = |name: &str| ToolSpec::new(name, "finds", json!({"type": "object"}));
    script.has_tools(vec![tool("look"), tool("find"), tool("no good name")]);
    let room = ToolRoom {
        is_compacted: false,
        hides_something: false,
        taken: &["look".to_owned()],
        room: Some(10_000),
        cost: &|_| 7,
    };
    assert_eq!(link.offer_tools(&room).unwrap(), 14);
    let offered: Vec<String> = link.offered_tools().map(str::to_owned).collect();
    assert_eq!(offered, ["scripted_look", "find"]);
    assert!(link.tools_in(true).is_empty());
    let answer = link.call_tool(ToolCall::new("scripted_look".to_owned(), "{}".to_owned()));
    assert_eq!(answer.unwrap(), "look with {}");
    let warned = link.warnings.take();
    assert!(warned[0].contains("no good name"), "{warned:?}");
}

#[test]
fn no_two_tools_of_a_request_have_the_same_name() {
    let (_home, mut link, script) = open("link-names", "");
    let tool = |name: &str| ToolSpec::new(name, "finds", json!({"type": "object"}));
    let long = "a".repeat(60);
    let own = ["twice", "twice", "look", "find", "scripted_find", &long];
    script.has_tools(own.into_iter().map(tool).collect());
    let taken = ["look", "scripted_look", "find", &long];
    let room = ToolRoom {
        is_compacted: false,
        hides_something: false,
        taken: &taken.map(str::to_owned),
        room: Some(10_000),
        cost: &|_| 7,
    };
    link.offer_tools(&room).unwrap();
    let offered: Vec<String> = link.offered_tools().map(str::to_owned).collect();
    assert_eq!(
        offered,
        ["twice", "scripted_find", "scripted_scripted_find"]
    );
    let warned = link.warnings.take().join("\n");
    for left_out in ["twice", "look", &long] {
        assert!(
            warned.contains(&format!("`{left_out}`")),
            "{left_out}: {warned}"
        );
    }
}

#[test]
fn tools_that_need_too_much_room_are_left_out() {
    let (_home, mut link, script) = open("link-room", "");
    script.has_tools(vec![ToolSpec::new("look", "", json!({"type": "object"}))]);
    let room = |tokens| ToolRoom {
        is_compacted: false,
        hides_something: false,
        taken: &[],
        room: Some(4_000),
        cost: match tokens {
            1_001 => &|_| 1_001,
            _ => &|_| 1_000,
        },
    };
    assert_eq!(link.offer_tools(&room(1_001)).unwrap(), 0);
    let warned = link.warnings.take();
    assert!(warned[0].contains("1001 tokens of the 4000"), "{warned:?}");
    assert_eq!(link.offer_tools(&room(1_000)).unwrap(), 1_000);
}

#[test]
fn a_window_of_unknown_size_has_room_for_tools() {
    let (_home, mut link, script) = open("link-unknown-room", "");
    script.has_tools(vec![ToolSpec::new("look", "", json!({"type": "object"}))]);
    let room = ToolRoom {
        is_compacted: false,
        hides_something: false,
        taken: &[],
        room: None,
        cost: &|_| 1_000,
    };
    assert_eq!(link.offer_tools(&room).unwrap(), 1_000);
}
