//! The engine with a model that answers, fails in every way, and comes back; and with a host that dies
//! between its commit and telling the engine.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use std::sync::Arc;

use contexture_engine_api::{
    Compaction, CompressOrder, CurrentCompaction, Decision, Delivery, EngineError, EngineFactory,
    Entry, FailureKind, MessageId, Outcome, ToolCall, WindowState,
};
use contexture_lcm::Lcm;
use contexture_lcm::store::FILE_NAME;
use contexture_testkit::{Chat, ScriptedHost, ScriptedModel, Session, order};
use serde_json::{Value, json};

/// A host whose model always does the same.
fn host(does: Result<String, FailureKind>) -> Arc<ScriptedHost> {
    ScriptedHost::new(ScriptedModel::new(move |_| does.clone()))
}

fn answers() -> Arc<ScriptedHost> {
    host(Ok("A summary of it.".to_owned()))
}

fn window(chat: &Chat) -> WindowState {
    chat.window(8_000, 0).max_output_tokens(500)
}

/// Opens the engine and shows it the conversation.
fn open(host: &Arc<ScriptedHost>, chat: &Chat) -> Session {
    let mut session = Session::open_by::<Lcm>(host, "{}", &window(&Chat::default()));
    session.observe(chat).unwrap();
    session
}

/// Sixty messages of about a hundred tokens.
fn chat() -> Chat {
    let mut chat = Chat::default();
    for at in 0..60 {
        let role = if at % 2 == 0 { "user" } else { "assistant" };
        let words = "More words follow. ".repeat(18);
        chat.push(
            role,
            format!("fact-{at}-x is in src/module_{at}.rs. {words}"),
        );
    }
    chat
}

fn waiting(chat: &Chat) -> CompressOrder {
    CompressOrder::default()
        .window(window(chat))
        .may_wait_for_model(true)
}

fn summary(compaction: &Compaction) -> String {
    let texts = compaction.entries.iter().filter_map(|entry| match entry {
        Entry::Summary(summary) => Some(summary.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn whatever_the_model_does_a_compaction_gets_below_the_threshold() {
    let (chat, kinds) = (
        chat(),
        [
            FailureKind::NoProvider,
            FailureKind::Auth,
            FailureKind::RateLimited,
            FailureKind::Overloaded,
            FailureKind::Network,
            FailureKind::Timeout,
            FailureKind::Refused,
            FailureKind::Empty,
            FailureKind::CutOff,
            FailureKind::TooLong,
            FailureKind::UnknownModel,
            FailureKind::Other,
        ],
    );
    let endless = "words without end ".repeat(4_000);
    let behaviours = kinds
        .into_iter()
        .map(Err)
        .chain([Ok(endless), Ok(String::new())]);
    for behaviour in behaviours {
        let said = format!("{behaviour:.60?}");
        let mut session = open(&host(behaviour), &chat);
        let (_, compaction) = session.compacted(&chat, &waiting(&chat));
        assert!(compaction.degraded, "{said}");
        let text = summary(&compaction);
        assert!(text.len() / 4 < 1_500 && !text.is_empty(), "{said}: {text}");
        assert!(text.contains("src/module_"), "{said}: {text}");
        for at in [0, 17, 59] {
            let message = &chat.messages[at];
            let back = session.tool("lcm_expand", &json!({"id": message.id.to_string()}));
            let back = &back["messages"][0]["message"];
            assert_eq!(*back, json!(message.raw()), "{said}");
        }
    }
}

#[test]
fn a_degraded_summary_is_redone_when_the_model_is_back() {
    let chat = chat();
    let host = host(Err(FailureKind::Refused));
    let mut session = open(&host, &chat);
    let (next, compaction) = session.compacted(&chat, &waiting(&chat));
    assert!(compaction.degraded);

    host.model
        .now_says(|_| Ok("The model's own words.".to_owned()));
    // A model that fails at several texts in a row is left alone for a while.
    host.advance_clock(600_000);
    assert!(matches!(
        session.engine.should_compress(&window(&Chat::default())),
        Decision::No(_)
    ));
    let calls = session.background_of(&next, &order(window(&next)));
    assert!(!calls.is_empty(), "degraded summaries are to be redone");
    session.answer(calls);
    // The first call is a test of the model.
    loop {
        let calls = session.background_of(&next, &order(window(&next)));
        if calls.is_empty() {
            break;
        }
        session.answer(calls);
    }
    // Only staged: what is stored changes with the next compaction.
    let first = json!({"id": "s1"});
    assert_eq!(
        session.tool("lcm_describe", &first)["level"],
        "deterministic"
    );
    let forced = order(window(&next)).force(true);
    let (_, again) = session.compacted(&next, &forced);
    assert!(!summary(&again).is_empty());
    assert_eq!(session.tool("lcm_describe", &first)["level"], "normal");
}

/// The text of the compaction that a session of this conversation proposes, and never hears of again.
fn never_told_of(host: &Arc<ScriptedHost>, chat: &Chat) -> String {
    let mut session = open(host, chat);
    let Ok(Outcome::Compacted(compaction)) = session.compress(chat, &waiting(chat)) else {
        panic!("it proposes");
    };
    assert!(!compaction.degraded);
    // The host has written its record; the process ends before the engine hears of it.
    std::mem::forget(session);
    summary(&compaction)
}

/// A session that is opened with this text in force.
fn open_with_summary(host: &Arc<ScriptedHost>, chat: &Chat, text: String) -> Session {
    let current = CurrentCompaction::new(1, "lcm", MessageId(40)).summaries(vec![text]);
    let factory = Lcm::create(&host.factory_request("{}")).unwrap();
    let engine = factory.open(
        &host
            .open_request("{}", &window(chat))
            .compaction(Some(&current)),
    );
    Session::of(host, engine.unwrap())
}

#[test]
fn a_compaction_that_the_engine_was_never_told_of_is_taken_over() {
    let chat = chat();
    let host = answers();
    let text = never_told_of(&host, &chat);
    let mut session = open_with_summary(&host, &chat, text);
    let status = session.engine.status();
    assert!(status["frontier"]["nodes"].as_u64() > Some(0), "{status}");
    assert_eq!(status["frontier"]["compaction"], json!(1));
    let doctor = session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
}

#[test]
fn a_summary_of_another_store_is_not_taken_for_one_with_its_id() {
    let (chat, mut shorter) = (chat(), chat());
    let host = answers();
    never_told_of(&host, &chat);
    shorter.messages.truncate(50);
    // A store that was lost, and in the end put back from an older copy.
    let text = never_told_of(&answers(), &shorter);
    assert!(text.contains("[s1 | "), "{text}");
    let mut session = open_with_summary(&host, &chat, text);
    let status = session.engine.status();
    assert_eq!(status["frontier"]["nodes"], json!(0), "{status}");
    let doctor = session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
}

fn in_conversation(session: &mut Session) -> u64 {
    let status = session.tool("lcm_status", &json!({}));
    status["in_conversation"].as_u64().unwrap()
}

#[test]
fn a_call_that_returns_late_revives_nothing_that_was_cut_off() {
    let (host, chat) = (answers(), chat());
    let mut begun = chat.clone();
    begun.messages.truncate(40);
    let mut late = open(&host, &begun);
    // The host gave up the call that showed it the rest, and opened the engine again.
    let mut session = open(&host, &chat);
    session.cut(Some(MessageId(40))).unwrap();
    host.cancel_after(0);
    let shown = chat.with_views(|views| late.engine.observe(&Delivery::new(&views[40..])));
    host.cancel_after(u64::MAX);
    assert_eq!(shown, Err(EngineError::Cancelled));
    assert_eq!(in_conversation(&mut session), 40);
    // If the client sends them after all, they are part of the conversation again.
    let again = chat.with_views(|views| {
        let delivery = Delivery::new(&views[40..]);
        host.record(&delivery);
        session.engine.observe(&delivery)
    });
    assert_eq!((again, in_conversation(&mut session)), (Ok(()), 60));
    let doctor = session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
}

#[test]
fn an_older_copy_of_the_index_learns_of_a_cut_that_nothing_followed() {
    let (host, chat) = (answers(), chat());
    let file = host.data_dir().join(FILE_NAME);
    drop(open(&host, &chat));
    let copy = std::fs::read(&file).unwrap();
    let mut session = open(&host, &chat);
    session.cut(Some(MessageId(40))).unwrap();
    drop(session);
    std::fs::write(&file, copy).unwrap();
    let mut session = Session::open_by::<Lcm>(&host, "{}", &window(&chat));
    assert_eq!(in_conversation(&mut session), 40);
}

#[test]
fn summaries_that_still_hold_are_kept_when_the_session_comes_back() {
    let (host, chat) = (answers(), chat());
    let mut session = open(&host, &chat);
    session.compacted(&chat, &waiting(&chat));
    let nodes = session.engine.status()["frontier"]["nodes"].clone();
    assert!(nodes.as_u64() > Some(0));
    drop(session);
    // Another engine had it in between, so all of it is shown again.
    let mut session = Session::open_by::<Lcm>(&host, "{}", &window(&chat));
    let shown = chat.with_views(|views| {
        let delivery = Delivery::new(views);
        host.record(&delivery);
        session.engine.observe(&delivery)
    });
    assert_eq!((shown, in_conversation(&mut session)), (Ok(()), 60));
    assert_eq!(session.engine.status()["frontier"]["nodes"], nodes);
    let doctor = session.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
}

#[test]
fn search_is_exact_and_its_errors_show_where() {
    let chat = chat();
    let mut session = open(&answers(), &chat);
    session.compacted(&chat, &waiting(&chat));
    let fact = json!({"pattern": "fact-3-x", "scope": "messages"});
    let found = session.tool("lcm_grep", &fact);
    assert_eq!(
        (&found["total"], &found["hits"][0]["id"]),
        (&json!(1), &json!("m4"))
    );
    assert_eq!(found["groups"][0]["hits"], json!(["m4"]));
    assert_eq!(
        found["groups"][0]["summary"],
        found["hits"][0]["covered_by"]
    );
    let mut ids = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let mut arguments =
            json!({"pattern": "words", "scope": "messages", "limit": 7, "sort": "oldest"});
        if !cursor.is_null() {
            arguments["cursor"] = cursor;
        }
        let page = session.tool("lcm_grep", &arguments);
        assert_eq!(page["total"], json!(60));
        ids.extend(
            page["hits"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hit| hit["id"].to_string()),
        );
        cursor = page["next_cursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(
        ids,
        (1..=60).map(|at| format!("\"m{at}\"")).collect::<Vec<_>>()
    );
    let bad = ToolCall::new(
        "lcm_grep",
        json!({"pattern": "hello[", "mode": "regex"}).to_string(),
    );
    let error = session.engine.call_tool(&bad).unwrap_err();
    assert!(error.to_string().contains("hello["), "{error}");
    let other = ToolCall::new(
        "lcm_grep",
        json!({"pattern": "x", "sessions": ["another"]}).to_string(),
    );
    assert!(
        session
            .engine
            .call_tool(&other)
            .unwrap_err()
            .to_string()
            .contains("searchable_sessions")
    );
}

#[test]
fn two_objects_of_a_session_that_take_turns_store_each_message_once() {
    let host = answers();
    let mut chat = chat();
    let mut one = open(&host, &chat);
    let mut other = open(&host, &chat);
    for at in 0..4 {
        chat.push("user", format!("question {at}"));
        one.observe(&chat).unwrap();
        chat.push("assistant", format!("answer {at}"));
        // It is shown what the other one was shown, too.
        other.observe(&chat).unwrap();
        std::mem::swap(&mut one, &mut other);
    }
    let found = one.tool("lcm_grep", &json!({"pattern": "answer 3"}));
    assert_eq!(found["total"], 1, "{found}");
    assert_eq!(in_conversation(&mut one), 68);
    let doctor = one.tool("lcm_doctor", &json!({}));
    assert_eq!(doctor["ok"], json!(true), "{doctor}");
}
