//! What a host sees of the engine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};

use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, ContextEngine, CurrentCompaction, Entry,
    FailureKind, MessageId, MessageKind, MessageView, Outcome, RESTORE_WISH, RESTORED, Replacement,
    Shortened, StandaloneEngine, ToolCall, WindowState,
};
use contexture_testkit::contract::{Grouping, Limits, check};
use contexture_testkit::{Chat, START_MS, ScriptedHost, Session, count, filler, order};
use contexture_tiered::{
    COMPACTION_KEY, Compacted, Event, Steps, StructuredSummary, Tiered, TimeRange,
};
use serde_json::{Value, json};

const WINDOW: u64 = 1_000_000;

fn open(host: &Arc<ScriptedHost>, settings: &str) -> Session {
    let window = WindowState::default().context_length(WINDOW);
    Session::open::<Tiered>(host, settings, &window)
}

/// Holds a proposal to the contract with the engine's own marks, puts it in force and tells the engine.
fn committed(
    session: &mut Session,
    chat: &Chat,
    order: &CompressOrder,
    proposal: &Compaction,
) -> Chat {
    let checked = chat.with_views(|views| {
        let limits = Limits {
            marks: vec!["[COMPACTED: ".to_owned()],
            ..Limits::of(&order.window, views, Grouping::Anthropic)
        };
        check(views, proposal, &limits, count)
    });
    checked.unwrap_or_else(|violation| panic!("{violation}: {proposal:?}"));
    let committed = Committed::new(1).entries(proposal.entries.clone());
    session.engine.committed(&committed);
    chat.apply(proposal)
}

fn compacted(session: &mut Session, chat: &Chat, order: &CompressOrder) -> (Chat, Compaction) {
    assert!(order.force || session.engine.should_compress(&order.window).is_yes());
    match session.compress(chat, order) {
        Ok(Outcome::Compacted(proposal)) => (committed(session, chat, order, &proposal), proposal),
        other => panic!("not compacted: {other:?}"),
    }
}

fn replacements(proposal: &Compaction) -> Vec<&Replacement> {
    let entries = proposal.entries.iter();
    entries
        .filter_map(|entry| match entry {
            Entry::Replace(replacement) => Some(replacement),
            _ => None,
        })
        .collect()
}

fn summary(proposal: &Compaction) -> (StructuredSummary, usize) {
    let mut summaries = proposal.entries.iter().filter_map(|entry| match entry {
        Entry::Summary(summary) => Some(summary),
        _ => None,
    });
    let summary = summaries.next().expect("a summary");
    assert!(summaries.next().is_none());
    (
        serde_json::from_str(&summary.text).unwrap(),
        summary.covers.len(),
    )
}

/// A debugging session of so many messages and about so many tokens.
fn debugging(messages: usize, tokens: usize) -> Chat {
    let mut chat = Chat::default();
    chat.user("我们的生产数据库在 30 秒后超时,影响了 1200 个用户");
    let each = tokens * 8 / (messages - 4);
    let error =
        "sqlalchemy.exc.TimeoutError: QueuePool limit of size 10 overflow 0 reached, timeout 30";
    chat.tool("bash", r#"{"command": "pytest tests/test_pool.py"}"#, error)
        .is_error = true;
    while chat.messages.len() + 3 <= messages {
        let turn = chat.messages.len();
        let call = json!({"file_path": format!("src/part_{turn}.py"), "content": "pool_size = 50"});
        chat.tool("write_file", &call.to_string(), filler(turn, each));
    }
    chat.user("What is left?");
    chat
}

#[test]
fn nothing_happens_below_eighty_percent() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, "{}");
    let chat = debugging(50, 110_000);
    let at = |tokens| chat.window(WINDOW, 0).prompt_tokens(tokens);
    assert!(!session.engine.should_compress(&at(119_999)).is_yes());
    assert!(session.engine.should_compress(&at(120_000)).is_yes());
    let below = order(at(119_999));
    let outcome = session.compress(&chat, &below).unwrap();
    assert!(matches!(outcome, Outcome::NothingToDo(_)), "{outcome:?}");
    // A window smaller than the pre-rot threshold takes its place.
    assert!(
        !session
            .engine
            .should_compress(&at(79_999).context_length(100_000))
            .is_yes()
    );
    assert!(
        session
            .engine
            .should_compress(&at(80_000).context_length(100_000))
            .is_yes()
    );
}

#[test]
fn fifty_messages_of_120k_are_compacted_and_two_hundred_of_142k_summarised() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, "{}");
    let chat = debugging(50, 122_000);
    let order_ = order(chat.window(WINDOW, 0));
    assert!((120_000..142_500).contains(&order_.window.prompt_tokens));
    let (after, proposal) = compacted(&mut session, &chat, &order_);
    assert_eq!(after.messages.len(), 50);
    assert_eq!(after.messages[40..], chat.messages[40..], "the newest ten");
    assert!(
        after.tokens() * 10 < chat.tokens() * 3,
        "{} of {}",
        after.tokens(),
        chat.tokens()
    );
    for replaced in replacements(&proposal) {
        let text = replaced.text.as_ref().unwrap();
        assert!(
            text.starts_with("[COMPACTED: ")
                && (text.contains("write_file src/part_")
                    || text.contains("bash pytest")
                    || text.contains("数据库"))
                && text.ends_with(']'),
            "{text}"
        );
    }

    let chat = debugging(200, 144_000);
    let order_ = order(chat.window(WINDOW, 0));
    assert!(order_.window.prompt_tokens >= 142_500);
    let (after, proposal) = compacted(&mut session, &chat, &order_);
    let (summary, covers) = summary(&proposal);
    // One more than ten stays: a call stays with its result.
    assert_eq!((covers, summary.count), (189, 189));
    assert_eq!(after.messages.len(), 12);
    assert!(
        summary.user_goal.contains("超时")
            || summary
                .key_decisions
                .iter()
                .any(|said| said.contains("超时")),
        "{summary:?}"
    );
    assert!(
        summary
            .modified_files
            .iter()
            .any(|file| file.starts_with("src/part_")),
        "{summary:?}"
    );
    assert!(
        !summary.last_step.is_empty() && !summary.critical_context.is_empty(),
        "{summary:?}"
    );
    assert!(
        after.tokens() * 10 < chat.tokens() * 3,
        "{} of {}",
        after.tokens(),
        chat.tokens()
    );
}

/// One message as the engine is shown it, with this state.
fn with_state<T>(text: &str, state: &str, work: impl FnOnce(&[MessageView<'_>]) -> T) -> T {
    let filler = filler(1, 4_000);
    let messages = [
        MessageView::new(MessageId(1), "user")
            .with_text(text)
            .with_state(state)
            .with_raw("{}"),
        MessageView::new(MessageId(2), "assistant").with_text(&filler),
        MessageView::new(MessageId(3), "user").with_text("go on"),
    ];
    work(&messages)
}

#[test]
fn a_compacted_event_has_the_documents_shape() {
    let host = ScriptedHost::without_model();
    let text = "用户认证实现请求\n我需要帮助实现一个用户认证系统,包含 JWT tokens、密码哈希和基于角色的访问控制,并且需要写测试。";
    let state = r#"{"userGoal":"implement auth","complexity":"medium"}"#;
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let forced = order(WindowState::default().context_length(WINDOW)).force(true);
    let outcome = with_state(text, state, |messages| {
        session
            .engine
            .compress(&CompressRequest::new(messages, &forced))
    });
    let Ok(Outcome::Compacted(proposal)) = outcome else {
        panic!("{outcome:?}")
    };
    let replaced = replacements(&proposal)[0];
    assert_eq!(replaced.id, MessageId(1));
    let short = "[COMPACTED: 用户认证实现请求]";
    assert_eq!(replaced.text.as_deref(), Some(short));
    let state = replaced.state.as_ref().unwrap();
    let saved = count(text) - count(short);
    assert_eq!(
        *state,
        json!({
            "userGoal": "implement auth",
            "complexity": "medium",
            "__compaction__": {
                "tokens_saved": saved,
                "compacted_at": "2027-01-15T08:00:00Z",
                "strategy": "compaction",
            },
        })
    );
    assert_eq!(START_MS, 1_800_000_000_000);
}

#[test]
fn code_has_a_strategy_of_its_own_and_long_arguments_are_cut() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let mut chat = Chat::default();
    chat.user(format!("Look at this:\n```rust\n{}\n```", filler(1, 2_000)));
    let long = json!({"path": "a.rs", "content": filler(2, 3_000)}).to_string();
    chat.calls(&filler(3, 500), &[("w", "write", &long)]);
    chat.result("w", "write", "ok");
    chat.user("go on");
    let (after, proposal) = compacted(
        &mut session,
        &chat,
        &order(chat.window(WINDOW, 0)).force(true),
    );
    assert_eq!(after.messages[0].text, "[COMPACTED: Look at this:]");
    let states: Vec<&Value> = replacements(&proposal)
        .iter()
        .map(|each| each.state.as_ref().unwrap())
        .collect();
    assert_eq!(states[0][COMPACTION_KEY]["strategy"], "code_compression");
    let cut: Value = serde_json::from_str(&after.messages[1].calls[0].arguments).unwrap();
    assert_eq!(cut["path"], "a.rs");
    assert_eq!(states[1][COMPACTION_KEY]["strategy"], "compaction");
    let again = session
        .compress(&after, &order(after.window(WINDOW, 0)))
        .unwrap();
    assert!(matches!(again, Outcome::NothingToDo(_)), "{again:?}");
}

#[test]
fn what_cannot_be_changed_is_left_alone() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 0}}"#);
    let mut chat = Chat::default();
    let long = format!(r#"{{"content":"{}"}}"#, filler(5, 2_000));
    chat.user(filler(1, 2_000));
    chat.assistant(filler(2, 2_000)).has_thinking = true;
    chat.calls("", &[("x", "write", &long)]).has_thinking = true;
    chat.result("x", "write", "ok");
    // From the question on it is thought about.
    chat.user(filler(3, 2_000));
    chat.assistant(filler(6, 2_000)).has_thinking = true;
    chat.calls("", &[("a", "read", "{}"), ("b", "read", "{}")]);
    chat.result("a", "read", filler(4, 2_000));
    let (after, _) = compacted(
        &mut session,
        &chat,
        &order(chat.window(WINDOW, 0)).force(true),
    );
    for message in &after.messages[..2] {
        assert!(message.text.starts_with("[COMPACTED: "), "{message:?}");
    }
    let short = &after.messages[2];
    assert!(
        short.calls[0].arguments.contains("… [COMPACTED]"),
        "{short:?}"
    );
    assert_eq!(short.text, "");
    assert_eq!(after.messages[3..], chat.messages[3..]);
}

#[test]
fn by_itself_or_when_asked() {
    let host = ScriptedHost::without_model();
    let chat = debugging(50, 122_000);
    let full = order(chat.window(WINDOW, 0));
    for settings in [
        r#"{"enable_context_management": false}"#,
        r#"{"enableContextManagement": false}"#,
    ] {
        let mut session = open(&host, settings);
        assert!(!session.engine.should_compress(&full.window).is_yes());
        let outcome = session.compress(&chat, &full).unwrap();
        assert!(matches!(outcome, Outcome::NothingToDo(_)), "{outcome:?}");
        let forced = full.clone().force(true);
        compacted(&mut session, &chat, &forced);
    }
    assert!(
        open(&host, "{}")
            .engine
            .should_compress(&full.window)
            .is_yes()
    );
}

#[test]
fn a_forced_compaction_runs_the_lowest_tier_that_shrinks() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, "{}");
    let chat = debugging(60, 20_000);
    let (after, proposal) = compacted(
        &mut session,
        &chat,
        &order(chat.window(WINDOW, 0)).force(true),
    );
    assert!(!replacements(&proposal).is_empty());
    let (last, proposal) = compacted(
        &mut session,
        &after,
        &order(after.window(WINDOW, 0)).force(true),
    );
    assert_eq!(summary(&proposal).1, 49);
    assert_eq!(last.messages.len(), 12);
}

#[test]
fn a_summary_builds_on_the_one_before() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, "{}");
    let mut chat = debugging(200, 144_000);
    for (at, message) in chat.messages.iter_mut().enumerate() {
        message.time_ms = Some(START_MS + at as i64 * 60_000);
    }
    let (mut after, proposal) = compacted(&mut session, &chat, &order(chat.window(WINDOW, 0)));
    let (first, _) = summary(&proposal);
    assert_eq!(
        first.time_range,
        TimeRange {
            start: Some("2027-01-15T08:00:00Z".to_owned()),
            end: Some("2027-01-15T11:08:00Z".to_owned()),
        }
    );
    assert_eq!(first.timestamp, "2027-01-15T08:00:00Z");
    for turn in 0..60 {
        after.tool("read", r#"{"path": "b.rs"}"#, filler(turn, 10_000));
    }
    after.user("And now?");
    let (_, proposal) = compacted(&mut session, &after, &order(after.window(WINDOW, 0)));
    let (second, covers) = summary(&proposal);
    assert_eq!(second.count, 189 + covers as u64 - 1);
    assert_eq!(second.time_range.start, first.time_range.start);
    assert!(
        second
            .modified_files
            .iter()
            .any(|file| file.starts_with("src/part_")),
        "{second:?}"
    );
}

#[test]
fn the_model_fills_the_fields_and_reads_what_was_compacted_as_it_was_said() {
    let host = ScriptedHost::with_model(400_000);
    let mut session = open(&host, "{}");
    let mut chat = debugging(60, 20_000);
    chat.messages[2].text = format!("{} THE_SECRET_OF_THE_POOL", chat.messages[2].text);
    // Shown compacted, with the original in the state.
    let original = chat.messages[2].text.clone();
    let forced = order(chat.window(WINDOW, 0))
        .force(true)
        .may_wait_for_model(true);
    host.model.will(Ok(
        r#"{"user_goal": "修复超时", "last_step": "更新了连接池配置", "count": 7,
        "key_decisions": ["将池大小从 10 增加到 50"], "modified_files": ["database.py"],
        "critical_context": {"affected_users": 1200, "urgency": "critical"}}"#,
    ));
    let state = json!({COMPACTION_KEY: {"original_content": original}}).to_string();
    let owned: Vec<_> = chat.messages.clone();
    let outcome = chat.with_views(|views| {
        let mut views = views.to_vec();
        for view in &mut views[..50] {
            *view = view.with_kind(MessageKind::Replaced);
        }
        views[2] = views[2]
            .with_text("[COMPACTED: write_file]")
            .with_state(&state);
        session
            .engine
            .compress(&CompressRequest::new(&views, &forced))
    });
    assert_eq!(owned.len(), 60);
    let Ok(Outcome::Compacted(proposal)) = outcome else {
        panic!("{outcome:?}")
    };
    let (summary, _) = summary(&proposal);
    assert_eq!(summary.user_goal, "修复超时");
    assert_eq!(summary.critical_context["affected_users"], 1200);
    assert_eq!((summary.count, proposal.degraded), (49, false));
    let asked = &host.model.requests()[0].prompt;
    assert!(
        asked.contains("THE_SECRET_OF_THE_POOL") && asked.contains("user_goal"),
        "{asked}"
    );
}

#[test]
fn where_the_model_does_not_answer_the_engine_reads_the_fields_itself() {
    let host = ScriptedHost::with_model(400_000);
    let chat = debugging(200, 144_000);
    for (answer, may_wait) in [
        (Err(FailureKind::Timeout), true),
        (Ok("no fields"), true),
        (Ok("{}"), false),
    ] {
        let mut session = open(&host, "{}");
        host.set_clock(START_MS);
        if may_wait {
            host.model.will(answer);
        }
        let order_ = order(chat.window(WINDOW, 0)).may_wait_for_model(may_wait);
        let (_, proposal) = compacted(&mut session, &chat, &order_);
        assert!(proposal.degraded);
        assert_eq!(summary(&proposal).0.count, 189);
        host.advance_clock(86_400_000);
        let _ = std::fs::remove_file(host.data_dir().join("cooldown.json"));
    }
    // A summary that is prepared between turns needs nobody to wait.
    let mut session = open(&host, "{}");
    let near = debugging(180, 135_000);
    let order_ = order(near.window(WINDOW, 0));
    let calls = session.background_of(&near, &order_);
    assert_eq!(calls.len(), 1);
    host.model
        .will(Ok(r#"{"user_goal": "prepared", "last_step": "x"}"#));
    session.answer(calls);
    let (_, proposal) = compacted(&mut session, &near, &order(near.window(WINDOW, 10_000)));
    assert!(!proposal.degraded);
    assert_eq!(summary(&proposal).0.user_goal, "prepared");
    // And none is asked where the settings say so.
    let calls = host.model.calls();
    let mut session = open(&host, r#"{"summarizer": "extract"}"#);
    let order_ = order(chat.window(WINDOW, 0)).may_wait_for_model(true);
    assert!(!compacted(&mut session, &chat, &order_).1.degraded);
    assert_eq!(host.model.calls(), calls);
}

#[test]
fn an_extracted_summary_is_redone_and_keeps_its_figures() {
    let host = ScriptedHost::with_model(400_000);
    let chat = debugging(200, 144_000);
    let mut session = open(&host, "{}");
    let (mut after, proposal) = compacted(&mut session, &chat, &order(chat.window(WINDOW, 0)));
    assert!(proposal.degraded);
    let calls = session.background();
    assert_eq!(calls.len(), 1);
    host.model
        .will(Ok(r#"{"user_goal": "redone", "last_step": "x"}"#));
    session.answer(calls);
    assert!(session.background().is_empty());
    after.talk(60, 9_600);
    host.model
        .will(Ok(r#"{"user_goal": "next", "last_step": "y"}"#));
    let waiting = order(after.window(WINDOW, 0)).may_wait_for_model(true);
    let (_, proposal) = compacted(&mut session, &after, &waiting);
    let asked = &host.model.requests()[1].prompt;
    assert!(asked.contains("redone") && asked.contains("\"count\": 189"));
    let (summary, covers) = summary(&proposal);
    assert_eq!(summary.user_goal, "next");
    assert_eq!(summary.count, 188 + covers as u64);
}

static STORED: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// The document's own memory, which has every step its own way.
#[derive(Default)]
struct Custom;

impl Steps for Custom {
    fn compact_event(&mut self, event: &Event<'_>) -> Option<Compacted> {
        match event.has_code() {
            true => Some(event.compacted_to("[COMPACTED: 代码讨论]", "code_compression")),
            false => event.compacted(),
        }
    }

    fn summarise(&mut self, _events: &[MessageView<'_>]) -> Option<StructuredSummary> {
        Some(StructuredSummary {
            user_goal: "mine".to_owned(),
            ..StructuredSummary::default()
        })
    }

    fn store_summary(&mut self, session: &str, summary: &StructuredSummary) {
        STORED
            .lock()
            .unwrap()
            .push((session.to_owned(), summary.user_goal.clone()));
    }

    fn clear_summarised(&mut self, events: &[MessageView<'_>], _keep: usize) -> usize {
        events.len() - 20
    }
}

#[test]
fn every_step_can_be_replaced() {
    let host = ScriptedHost::without_model();
    let window = WindowState::default().context_length(WINDOW);
    let mut session = Session::open::<Tiered<Custom>>(&host, "{}", &window);
    let mut chat = debugging(200, 144_000);
    chat.messages[2].text = format!("```\n{}\n```", filler(1, 500));
    let forced = order(chat.window(WINDOW, 0)).force(true);
    let (after, _) = compacted(&mut session, &chat, &forced);
    assert_eq!(after.messages[2].text, "[COMPACTED: 代码讨论]");
    let (last, proposal) = compacted(&mut session, &chat, &order(chat.window(WINDOW, 0)));
    let (summary, covers) = summary(&proposal);
    assert_eq!(
        (summary.user_goal.as_str(), summary.count, covers),
        ("mine", 179, 179)
    );
    assert_eq!(last.messages.len(), 22);
    assert_eq!(
        *STORED.lock().unwrap(),
        [("s".to_owned(), "mine".to_owned())]
    );
}

#[test]
fn a_call_that_restores_nothing_says_what_would() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let refused = |session: &mut Session, arguments: &str, said: &str| {
        let call = ToolCall::new("restore", arguments);
        let error = session.engine.call_tool(&call).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    };
    refused(&mut session, "{}", "missing");
    refused(&mut session, "nonsense", "expected");
    refused(
        &mut session,
        r#"{"message": "m9"}"#,
        "0 messages are compacted",
    );
    // The transcript lacks what the session was never shown.
    let chat = repetitive();
    let forced = order(chat.window(WINDOW, 0)).force(true);
    let (_, proposal) = compacted(&mut session, &chat, &forced);
    let first = replacements(&proposal)[0];
    let arguments = json!({"message": first.text}).to_string();
    let said = format!("the text of message {} is damaged or missing", first.id);
    refused(&mut session, &arguments, &said);
    assert_eq!(session.engine.wants_restored(), []);
}

/// The result of a call of `restore` with these words.
fn restore(engine: &mut dyn ContextEngine, words: &str) -> Value {
    let arguments = json!({"message": words}).to_string();
    let answer = engine.call_tool(&ToolCall::new("restore", arguments));
    serde_json::from_str(&answer.unwrap_or_else(|error| panic!("{words}: {error}"))).unwrap()
}

/// A conversation whose messages are compacted to long, equal and shortened topics.
fn repetitive() -> Chat {
    let mut chat = Chat::default();
    for turn in 0..4 {
        chat.user(format!(
            "Please have a very close look at the pool of connections in [part {turn}] and tell me. {}",
            filler(turn, 2_000)
        ));
        chat.tool("bash", r#"{"command": "pytest"}"#, filler(turn + 9, 2_000));
        chat.tool("bash", r#"{"command": "pytest"}"#, filler(turn + 19, 2_000));
        chat.assistant(format!(
            "登录模块的超时已经改成三十秒, {}",
            filler(turn + 29, 2_000)
        ));
    }
    let long = json!({"path": "a.rs", "content": filler(2, 3_000)}).to_string();
    chat.calls("", &[("w", "write", &long)]);
    chat.result("w", "write", "ok");
    chat.user("go on");
    chat
}

#[test]
fn every_message_is_restored_by_what_stands_in_its_place() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let chat = repetitive();
    let forced = order(chat.window(WINDOW, 0)).force(true);
    session.observe(&chat).unwrap();
    let (after, proposal) = compacted(&mut session, &chat, &forced);
    let mut texts = std::collections::HashSet::new();
    for replaced in replacements(&proposal) {
        let original = chat.get(replaced.id).unwrap();
        let shown = after.get(replaced.id).unwrap();
        let Some(text) = &replaced.text else {
            // Only its arguments were cut, and what is left of them identifies it.
            let answer = restore(&mut *session.engine, "\"path\":\"a.rs\"");
            assert_eq!(answer["id"], replaced.id.to_string());
            assert_eq!(
                answer["arguments"][0]["arguments"],
                original.calls[0].arguments
            );
            continue;
        };
        assert_eq!(text, &shown.text);
        assert!(texts.insert(text.clone()), "{text} stands for two");
        let topic = text
            .strip_prefix("[COMPACTED: ")
            .unwrap()
            .strip_suffix(']')
            .unwrap();
        for words in [
            text.clone(),
            format!("{text}\n[#bd8e4c03]"),
            topic.to_owned(),
            topic.trim_end_matches('…').to_owned(),
            format!("  [COMPACTED:   {topic} ]"),
            format!("{}...", topic.trim_end_matches('…')),
            replaced.id.to_string(),
        ] {
            let answer = restore(&mut *session.engine, &words);
            assert_eq!(
                answer["id"],
                replaced.id.to_string(),
                "{words:?} of {text:?}"
            );
            assert_eq!(answer["content"], original.text, "{words:?}");
        }
    }
    assert!(texts.len() >= 15, "{texts:?}");
    // Also by words of its text.
    let answer = restore(&mut *session.engine, "in [part 2] and");
    assert_eq!(
        answer["content"],
        chat.messages[chat.messages.len() / 2 - 1].text
    );
}

#[test]
fn a_session_opened_beside_restores_what_the_record_has_and_says_what_is_wanted() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let chat = repetitive();
    session.observe(&chat).unwrap();
    let forced = order(chat.window(WINDOW, 0)).force(true);
    let (_, proposal) = compacted(&mut session, &chat, &forced);
    let shortened = replacements(&proposal).into_iter().map(|replaced| {
        Shortened::new(replaced.id)
            .text(replaced.text.clone())
            .state(replaced.state.clone())
    });
    let current = CurrentCompaction::new(1, "tiered", MessageId(0)).shortened(shortened.collect());
    let window = WindowState::default().context_length(WINDOW);
    let request = host.open_request("{}", &window).compaction(Some(&current));
    let mut beside = Tiered::<contexture_tiered::Standard>::open(&request).unwrap();
    assert_eq!(beside.wants_restored(), []);
    let first = replacements(&proposal)[0];
    let answer = restore(&mut beside, first.text.as_ref().unwrap());
    assert_eq!(answer["id"], first.id.to_string());
    assert_eq!(answer["content"], chat.get(first.id).unwrap().text);
    assert_eq!(beside.wants_restored(), [first.id]);
    assert_eq!(beside.wants_restored(), [], "asked once");
}

/// What `rewrite` makes of a message with this state.
fn rewritten(session: &mut Session, state: &str, text: &str) -> Option<Entry> {
    let order = order(WindowState::default().context_length(WINDOW));
    with_state(text, state, |messages| {
        let mut messages = messages.to_vec();
        messages[0] = messages[0].with_kind(MessageKind::Replaced);
        let rewrite = session
            .engine
            .rewrite(&CompressRequest::new(&messages, &order));
        rewrite.unwrap().map(|proposal| {
            session
                .engine
                .committed(&Committed::new(1).entries(proposal.entries.clone()));
            proposal.entries.into_iter().next().unwrap()
        })
    })
}

#[test]
fn a_message_can_be_restored_again_when_it_comes_back_compacted() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, "{}");
    let kept = json!({COMPACTION_KEY: {"original_content": "said"}});
    let mut wished = kept.clone();
    wished[RESTORE_WISH] = json!(true);
    let (kept, wished) = (kept.to_string(), wished.to_string());
    for _ in 0..3 {
        let entry = rewritten(&mut session, &wished, "[COMPACTED: x]");
        assert_eq!(entry, Some(Entry::Restore(MessageId(1))));
        // From an earlier body, before it was restored, and from a host that knows of the restoration.
        let mut back = json!({COMPACTION_KEY: {"original_content": "said"}});
        back[RESTORED] = json!(true);
        let back = back.to_string();
        let entry = rewritten(&mut session, &back, "[COMPACTED: x]");
        assert_eq!(entry, Some(Entry::Restore(MessageId(1))));
        assert_eq!(rewritten(&mut session, &kept, "[COMPACTED: x]"), None);
    }
}

/// Runs `compress` on messages some of which are already compacted, each with its state.
fn compressed_with_states(session: &mut Session, chat: &Chat, compacted: &Compaction) -> Outcome {
    let states: std::collections::HashMap<MessageId, String> = replacements(compacted)
        .into_iter()
        .map(|replaced| (replaced.id, replaced.state.as_ref().unwrap().to_string()))
        .collect();
    let forced = order(chat.window(WINDOW, 0)).force(true);
    let outcome = chat.with_views(|views| {
        let views: Vec<_> = (views.iter())
            .map(|view| match states.get(&view.id()) {
                Some(state) => view.with_kind(MessageKind::Replaced).with_state(state),
                None => *view,
            })
            .collect();
        session
            .engine
            .compress(&CompressRequest::new(&views, &forced))
    });
    outcome.unwrap()
}

#[test]
fn a_summary_reads_the_arguments_of_compacted_calls_as_they_were() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let mut chat = Chat::default();
    chat.user("Fix the pool.");
    let path = format!("/home/somebody/{}/pool.rs", "a-long-folder/".repeat(9));
    for turn in 0..6 {
        let edit = json!({"file_path": path, "old_string": "a".repeat(400), "new_string": "b".repeat(400)});
        chat.tool("Edit", &edit.to_string(), filler(turn, 4_000));
    }
    chat.user("go on");
    session.observe(&chat).unwrap();
    let forced = order(chat.window(WINDOW, 0)).force(true);
    let (after, proposal) = compacted(&mut session, &chat, &forced);
    assert!(
        !after.messages[1].calls[0].arguments.contains(&path),
        "{:?}",
        after.messages[1]
    );
    let Outcome::Compacted(proposal) = compressed_with_states(&mut session, &after, &proposal)
    else {
        panic!("nothing is summarised")
    };
    assert_eq!(summary(&proposal).0.modified_files, [path]);
}

#[test]
fn files_that_were_edited_are_modified_files_too() {
    let host = ScriptedHost::without_model();
    let mut session = open(&host, r#"{"thresholds": {"keep_recent_count": 1}}"#);
    let mut chat = Chat::default();
    chat.user("Fix the pool.");
    for file in 0..8 {
        let edit = json!({"file_path": format!("src/edited_{file}.rs"), "old_string": "a", "new_string": "b"});
        chat.tool("Edit", &edit.to_string(), filler(file, 4_000));
        let write = json!({"file_path": format!("src/written_{file}.rs"), "content": "b"});
        chat.tool("Write", &write.to_string(), filler(file, 4_000));
        let read = json!({"file_path": format!("src/read_{file}.rs")});
        chat.tool("Read", &read.to_string(), filler(file, 4_000));
    }
    chat.user("go on");
    let window = chat.window(WINDOW, 0).prompt_tokens(150_000);
    let (_, proposal) = compacted(&mut session, &chat, &order(window));
    let (summary, _) = summary(&proposal);
    for file in 0..8 {
        for kind in ["edited", "written"] {
            let file = format!("src/{kind}_{file}.rs");
            assert!(
                summary.modified_files.contains(&file),
                "{file} in {summary:?}"
            );
        }
    }
    assert!(
        !summary
            .modified_files
            .iter()
            .any(|file| file.contains("read")),
        "{summary:?}"
    );
}
