//! The kit does what it says, so that an engine's test fails for the engine's reasons alone.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_engine_api::*;
use contexture_testkit::{Chat, IMAGE_TOKENS, START_MS, ScriptedHost, Session, count, order};
use serde_json::{Value, json};

/// Proposes what its settings say; keeps what it was shown.
struct Puppet {
    proposal: Compaction,
    seen: Vec<u64>,
}

impl StandaloneEngine for Puppet {
    fn open(request: &OpenRequest<'_>) -> Result<Self, EngineError> {
        let proposal = request.settings()?;
        let seen = Vec::new();
        Ok(Self { proposal, seen })
    }
}

impl ContextEngine for Puppet {
    fn should_compress(&self, _window: &WindowState) -> Decision {
        Decision::Yes("always".into())
    }

    fn observe(&mut self, delivery: &Delivery<'_>) -> Result<(), EngineError> {
        self.seen
            .extend(delivery.messages.iter().map(|message| message.id().0));
        Ok(())
    }

    fn compress(&mut self, _request: &CompressRequest<'_>) -> Result<Outcome, EngineError> {
        Ok(Outcome::Compacted(self.proposal.clone()))
    }

    fn status(&self) -> Value {
        json!(self.seen)
    }
}

/// A question, a call and its result, an image with a question.
fn chat() -> Chat {
    let mut chat = Chat::default();
    chat.user("What is in the file? ".repeat(20));
    chat.tool("read", r#"{"path":"a"}"#, "A long line of it. ".repeat(20));
    chat.image("And in this picture?");
    chat
}

fn compacted(entries: Vec<Entry>) -> (Chat, Session) {
    let (chat, host) = (chat(), ScriptedHost::without_model());
    let settings = serde_json::to_string(&Compaction::new(entries)).unwrap();
    let window = chat.window(10_000, 100);
    let mut session = Session::open::<Puppet>(&host, &settings, &window);
    session.observe(&chat).unwrap();
    let (mut after, proposal) = session.compacted(&chat, &order(window));
    let checked = chat
        .check(&proposal, &order(chat.window(10_000, 100)))
        .unwrap();
    assert_eq!(
        checked.tokens_after,
        after.tokens() + 100,
        "one way to count"
    );
    after.user("Thanks.");
    session.observe(&after).unwrap();
    (after, session)
}

fn summary(covers: impl IntoIterator<Item = u64>) -> Entry {
    Entry::summary(
        "They read a file.",
        covers.into_iter().map(MessageId).collect(),
    )
}

#[test]
fn a_proposal_becomes_the_window_and_the_engine_sees_what_was_said_once() {
    let short =
        Entry::Replace(Replacement::new(MessageId(3)).text(Some(CLEARED_TOOL_OUTPUT.into())));
    let keep = |id| Entry::Keep(MessageId(id));
    let (after, session) = compacted(vec![summary([1]), keep(2), short, keep(4)]);
    let ids: Vec<u64> = after.messages.iter().map(|message| message.id.0).collect();
    assert_eq!(ids, [5, 2, 3, 4, 6]);
    assert_eq!(after.messages[0].kind, MessageKind::Summary);
    assert!(after.messages[0].text.starts_with(SUMMARY_MARK));
    assert_eq!(session.engine.status(), json!([1, 2, 3, 4, 6]));
}

#[test]
#[should_panic(expected = "the proposal breaks the contract: m4 is the user's last message")]
fn a_proposal_that_breaks_the_contract_fails_the_test() {
    compacted(vec![summary(1..=4)]);
}

#[test]
fn messages_are_on_the_wire_as_a_client_sends_them() {
    let chat = chat();
    let raw = |at: usize| serde_json::from_str::<Value>(&chat.messages[at].raw()).unwrap();
    assert_eq!(raw(1)["tool_calls"][0]["function"]["name"], "read");
    assert_eq!(raw(2)["tool_call_id"], raw(1)["tool_calls"][0]["id"]);
    assert_eq!(raw(3)["content"][1]["type"], "image_url");
    assert_eq!(
        chat.messages[3].tokens(),
        4 + IMAGE_TOKENS + count("And in this picture?")
    );
}

#[test]
fn the_model_keeps_to_its_script_and_its_window() {
    let host = ScriptedHost::without_model();
    let mut request = ModelRequest::new("summary", String::new(), "1234", 99);
    let ask = |request: &ModelRequest| match host.services().complete(request) {
        Ok(answer) => Ok(answer.text),
        Err(failure) => Err(failure.kind),
    };
    assert_eq!(ask(&request), Err(FailureKind::NoProvider));
    host.model.becomes("small", 100);
    host.model.now_says(|request| Ok(request.purpose.clone()));
    host.model.will(Err(FailureKind::Refused));
    assert_eq!(ask(&request), Err(FailureKind::Refused));
    assert_eq!(ask(&request), Ok("summary".into()));
    request.prompt.push('5');
    assert_eq!(ask(&request), Err(FailureKind::TooLong));
    assert_eq!(host.model.calls(), 4);
    assert_eq!(host.model.requests()[3], request);
}

#[test]
fn the_host_is_what_the_test_makes_of_it() {
    let host = ScriptedHost::without_model();
    let services = host.services();
    host.advance_clock(-5);
    assert_eq!(services.now_ms(), START_MS - 5);
    host.set_clock(7);
    assert_eq!(services.now_ms(), 7);
    host.cancel_after(2);
    assert_eq!(
        [(); 4].map(|()| services.is_cancelled()),
        [false, false, true, true]
    );
    host.cancel_after(u64::MAX);
    assert!(!services.is_cancelled());
    assert_eq!(services.count_tokens("12345"), 2);
    host.count_with(|text| text.len() as u64);
    assert_eq!(services.count_tokens("12345"), 5);
    services.log(LogLevel::Warn, "look");
    assert_eq!(host.log(), [(LogLevel::Warn, "look".to_owned())]);
}
