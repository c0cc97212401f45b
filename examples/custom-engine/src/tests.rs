//! What an author tests beside `conforms!`: the engine's own promises, with the kit.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::{EngineError, FailureKind, LogLevel, ToolCall};
use contexture_testkit::{Chat, ScriptedHost, Session, order};

use super::CustomEngine;

const WINDOW: u64 = 20_000;

fn chat() -> Chat {
    let mut chat = Chat::default();
    chat.user("Find out why the nightly build fails.");
    chat.talk(20, 4_000);
    chat
}

fn open(host: &std::sync::Arc<ScriptedHost>, chat: &Chat) -> Session {
    let mut session = Session::open::<CustomEngine>(host, "{}", &chat.window(WINDOW, 0));
    session.observe(chat).unwrap();
    session
}

#[test]
fn the_page_tells_requests_notes_and_what_a_model_wrote() {
    let (host, chat) = (ScriptedHost::with_model(100_000), chat());
    host.model
        .will(Ok("The build fails in release mode alone."));
    let mut session = open(&host, &chat);
    session.tool("note", &serde_json::json!({"text": "Port 8443 is taken."}));

    let order = order(chat.window(WINDOW, 0)).may_wait_for_model(true);
    let (after, proposal) = session.compacted(&chat, &order);
    let page = &after.messages[0].text;
    for part in [
        "- Find out why the nightly build fails.",
        "- Port 8443 is taken.",
        "The build fails in release mode alone.",
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
    assert!(!proposal.degraded && after.tokens() < 7_500);
    let figures = std::fs::read_to_string(host.data_dir().join("compactions.jsonl")).unwrap();
    assert_eq!(figures.lines().count(), 1, "{figures}");
}

#[test]
fn a_model_that_fails_is_logged_and_an_outline_stands_in() {
    let (host, chat) = (ScriptedHost::with_model(100_000), chat());
    host.model.will(Err(FailureKind::Overloaded));
    let mut session = open(&host, &chat);
    let order = order(chat.window(WINDOW, 0)).may_wait_for_model(true);
    let (after, proposal) = session.compacted(&chat, &order);
    assert!(proposal.degraded && after.messages[0].text.contains("- assistant : Answer 10:"));
    let log = host.log();
    let (level, line) = &log[0];
    assert!(
        *level == LogLevel::Warn && line.contains("Overloaded"),
        "{log:?}"
    );
}

#[test]
fn what_was_prepared_between_turns_is_used_without_waiting_and_survives_a_restart() {
    let (host, chat) = (ScriptedHost::with_model(100_000), chat());
    host.model.will(Ok("Prepared: the linker is too old."));
    let mut session = open(&host, &chat);
    let order = order(chat.window(WINDOW, 0));
    let calls = session.background_of(&chat, &order);
    assert_eq!(calls.len(), 1);
    assert!(
        session.background_of(&chat, &order).is_empty(),
        "it asks once"
    );
    session.answer(calls);

    let mut again = Session::open::<CustomEngine>(&host, "{}", &chat.window(WINDOW, 0));
    let (after, _) = again.compacted(&chat, &order);
    assert!(after.messages[0].text.contains("the linker is too old"));
    assert_eq!(host.model.calls(), 1);
}

#[test]
fn a_note_that_was_written_after_a_cut_goes_with_what_was_cut_off() {
    let (host, chat) = (ScriptedHost::without_model(), chat());
    let mut session = open(&host, &chat);
    session.tool("note", &serde_json::json!({"text": "Later."}));
    assert_eq!(session.engine.status()["notes"], 1);
    session.cut(Some(chat.messages[3].id)).unwrap();
    assert_eq!(session.engine.status()["notes"], 0);
}

#[test]
fn what_is_shown_twice_is_written_down_once() {
    let (host, chat) = (ScriptedHost::without_model(), chat());
    let once = open(&host, &chat).engine.status();
    let again = Session::open::<CustomEngine>(&host, "{}", &chat.window(WINDOW, 0));
    assert_eq!(again.engine.status()["requests"], once["requests"]);
    assert_eq!(
        open(&host, &chat).engine.status()["requests"],
        once["requests"]
    );
}

#[test]
fn wrong_arguments_are_refused_with_what_to_write_instead() {
    let (host, chat) = (ScriptedHost::without_model(), Chat::default());
    let mut session = open(&host, &chat);
    let long = format!("{{\"text\": {:?}}}", "x".repeat(1_001));
    for (arguments, says) in [
        ("", "missing field `text`"),
        ("[\"a\"]", "expected a map"),
        ("{\"text\": 7}", "expected a string"),
        ("{\"note\": \"a\"}", "expected `text`"),
        ("{\"text\": \" \"}", "1 to 1000 bytes"),
        (&long, "1 to 1000 bytes"),
    ] {
        let answer = session.engine.call_tool(&ToolCall::new("note", arguments));
        let Err(EngineError::InvalidInput(why)) = answer else {
            panic!("{arguments} is answered with {answer:?}");
        };
        assert!(why.contains(says), "{arguments}: {why}");
    }
}
