//! What a host sees of the engine.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::Arc;

use contexture_digest::{RULES_HEADING, Rules};
use contexture_engine_api::{
    Committed, Compaction, CompressOrder, CompressRequest, Entry, FailureKind, HostInfo, LogLevel,
    MessageId, MessageKind, MessageView, Outcome, StandaloneEngine, WindowState,
};
use contexture_testkit::contract::{Grouping, Limits, Purpose, check};
use contexture_testkit::{Chat, ScriptedHost, Session, count, filler, order};
use contexture_two_layer::{SUMMARY_MARK, TwoLayer, estimate};
use proptest::prelude::*;
use serde_json::Value;

const WINDOW: u64 = 200_000;

fn open(host: &Arc<ScriptedHost>, settings: &str) -> Session {
    let window = WindowState::default().context_length(WINDOW);
    Session::open::<TwoLayer>(host, settings, &window)
}

fn alone(settings: &str) -> Session {
    open(&ScriptedHost::without_model(), settings)
}

fn ordered(chat: &Chat) -> CompressOrder {
    order(chat.window(WINDOW, 0)).system(Some("你是豆豆。".to_owned()))
}

/// Holds a proposal to the contract with the engine's own marks, puts it in force and tells the engine.
fn committed(
    session: &mut Session,
    chat: &Chat,
    order: &CompressOrder,
    proposal: &Compaction,
    purpose: Purpose,
) -> Chat {
    let checked = chat.with_views(|views| {
        let limits = Limits {
            purpose,
            marks: vec![SUMMARY_MARK.to_owned(), "[truncated: ".to_owned()],
            ..Limits::of(&order.window, views, Grouping::Anthropic)
        };
        check(views, proposal, &limits, count)
    });
    checked.unwrap_or_else(|violation| panic!("{violation}: {proposal:?}"));
    let next = chat.apply(proposal);
    let is_new = |id: &MessageId| chat.get(*id).is_none();
    let inserted = next
        .messages
        .iter()
        .map(|message| message.id)
        .filter(is_new);
    let committed = Committed::new(1)
        .entries(proposal.entries.clone())
        .inserted(inserted.collect());
    session.engine.committed(&committed);
    next
}

/// Layer 1, as the host has it done before a request.
fn rewritten(session: &mut Session, chat: &Chat) -> Chat {
    session.observe(chat).unwrap();
    let order = ordered(chat);
    let rewrite =
        |views: &[MessageView<'_>]| session.engine.rewrite(&CompressRequest::new(views, &order));
    match chat.with_views(rewrite).unwrap() {
        Some(proposal) => committed(session, chat, &order, &proposal, Purpose::Rewrite),
        None => chat.clone(),
    }
}

/// Layer 2, where the engine says that it is due.
fn summarised(session: &mut Session, chat: &Chat, order: &CompressOrder) -> (Chat, Compaction) {
    assert!(session.engine.should_compress(&order.window).is_yes());
    match session.compress(chat, order) {
        Ok(Outcome::Compacted(proposal)) => (
            committed(session, chat, order, &proposal, Purpose::Compaction),
            proposal,
        ),
        other => panic!("not compacted: {other:?}"),
    }
}

fn estimated(chat: &Chat) -> u64 {
    chat.with_views(estimate)
}

fn summaries(proposal: &Compaction) -> Vec<(&str, Vec<u64>)> {
    let entries = proposal.entries.iter();
    let summaries = entries.filter_map(|entry| match entry {
        Entry::Summary(summary) => {
            assert!(summary.in_system_role);
            let text = summary.text.strip_prefix("【历史摘要】\n").unwrap();
            Some((text, summary.covers.iter().map(|id| id.0).collect()))
        }
        _ => None,
    });
    summaries.collect()
}

/// The one summary, and what it covers.
fn summary(proposal: &Compaction) -> (&str, Vec<u64>) {
    let summaries = summaries(proposal);
    assert_eq!(summaries.len(), 1, "{summaries:?}");
    summaries[0].clone()
}

/// A conversation of so many turns, each with one call of `search` and its result of so many characters.
fn searches(turns: usize, chars: usize) -> Chat {
    let mut chat = Chat::default();
    for turn in 0..turns {
        chat.user(format!("Question {turn}?"));
        chat.tool("search", r#"{"query": "ledger"}"#, filler(turn, chars));
        chat.assistant(format!("Answer {turn}."));
    }
    chat.user("And the last question?");
    chat
}

// Layer 1.

#[test]
fn two_messages_or_fewer_are_left_alone() {
    let mut session = alone(r#"{"token_threshold": 10}"#);
    let mut chat = Chat::default();
    chat.assistant(filler(1, 2_000));
    assert_eq!(
        rewritten(&mut session, &chat),
        chat,
        "a system prompt and one message"
    );
    let order = ordered(&chat).force(true);
    let outcome = session.compress(&chat, &order).unwrap();
    assert!(matches!(outcome, Outcome::NothingToDo(_)), "{outcome:?}");
    chat.user("go on");
    assert_ne!(
        rewritten(&mut session, &chat),
        chat,
        "a system prompt and two"
    );
}

#[test]
fn all_but_the_newest_four_results_become_placeholders() {
    let mut chat = searches(6, 500);
    chat.messages[2].text = "好".repeat(500);
    chat.messages[6].text = "short".to_owned();
    let after = rewritten(&mut alone("{}"), &chat);
    assert_eq!(after.messages[2].text, "[truncated: 500 chars]");
    assert_eq!(
        after.messages[6].text, "short",
        "no shorter than its placeholder"
    );
    let rest = |chat: &Chat| chat.messages[7..].to_vec();
    assert_eq!(rest(&after), rest(&chat), "the newest four");
    assert_eq!(
        rewritten(&mut alone("{}"), &after),
        after,
        "once cut, it stays"
    );
}

#[test]
fn parallel_calls_are_one_round() {
    let mut chat = Chat::default();
    chat.user("look");
    let calls: Vec<(String, &str, &str)> =
        (0..6).map(|n| (format!("c{n}"), "read", "{}")).collect();
    let borrowed: Vec<_> = calls
        .iter()
        .map(|(id, tool, arguments)| (id.as_str(), *tool, *arguments))
        .collect();
    chat.calls("", &borrowed);
    for (id, tool, _) in &calls {
        chat.result(id, tool, filler(1, 500));
    }
    let after = rewritten(&mut alone(r#"{"keep_recent_tools": 1}"#), &chat);
    assert_eq!(after, chat, "nobody has seen them yet");
}

#[test]
fn protected_tools_are_not_cut() {
    let long = serde_json::json!({"command": filler(3, 900)}).to_string();
    let mut chat = Chat::default();
    chat.user("go");
    for tool in ["Skill", "bash", "search"] {
        for _ in 0..7 {
            chat.tool(tool, &long, filler(2, 900));
        }
    }
    let cut = |settings: &str| {
        let after = rewritten(&mut alone(settings), &chat);
        let results = after
            .messages
            .iter()
            .filter(|message| message.role == "tool");
        let calls = after
            .messages
            .iter()
            .filter(|message| !message.calls.is_empty());
        let of = |tool: &str| {
            let cut = results.clone().filter(|result| {
                result.result_of.as_ref().unwrap().1 == tool
                    && result.text == "[truncated: 903 chars]"
            });
            let arguments = calls
                .clone()
                .filter(|call| call.calls[0].name == tool && call.calls[0].arguments.len() < 400);
            (cut.count(), arguments.count())
        };
        (of("Skill"), of("bash"), of("search"))
    };
    assert_eq!(chat.messages[2].text.chars().count(), 903);
    assert_eq!(cut("{}"), ((0, 0), (7, 7), (3, 3)));
    // The document's example of a builder.
    let custom = r#"{"token_threshold": 80000, "keep_recent_tools": 6, "max_tool_length": 300,
        "protected_tools": ["Skill", "bash"]}"#;
    assert_eq!(cut(custom), ((0, 0), (0, 0), (1, 1)));
}

#[test]
fn long_arguments_are_cut_and_stay_valid_json() {
    let mut chat = searches(6, 10);
    let content = "x\n\"é好😀 ".repeat(300);
    let long = serde_json::json!({"path": "src/a.rs", "content": content, "numbers": vec![1; 20]});
    chat.messages[1].calls[0].arguments = long.to_string();
    chat.messages[5].calls[0].arguments = "*** no JSON ".repeat(50);
    let after = rewritten(&mut alone("{}"), &chat);
    let cut = &after.messages[1].calls[0].arguments;
    let value: Value = serde_json::from_str(cut).unwrap();
    assert_eq!(value["path"], "src/a.rs");
    assert!(
        cut.chars().count() <= 200
            && value["content"]
                .as_str()
                .unwrap()
                .ends_with("… [truncated]"),
        "{cut}"
    );
    assert_eq!(after.messages[5], chat.messages[5]);
}

#[test]
fn long_texts_are_cut_but_never_the_current_question() {
    let mut chat = Chat::default();
    chat.user(filler(1, 500));
    chat.assistant("好".repeat(201));
    chat.user("");
    chat.assistant("好".repeat(200));
    chat.user(filler(2, 5_000));
    let after = rewritten(&mut alone("{}"), &chat);
    let text = |at: usize| after.messages[at].text.as_str();
    let whole = chat.messages[0].text.as_str();
    let opening = format!(
        "[truncated: {} chars] {}",
        whole.chars().count(),
        &whole[..100]
    );
    assert!(text(0).starts_with(&opening) && text(0).chars().count() <= 200);
    assert!(
        text(1).starts_with("[truncated: 201 chars] 好好")
            && format!("{}{SEAL}", text(1)).chars().count() == 200
    );
    assert_eq!(after.messages[2..], chat.messages[2..]);
}

#[test]
fn calls_in_flight_and_current_thinking_are_not_touched() {
    let mut chat = searches(2, 500);
    // About an earlier question, what stands beside thinking is cut, but not what a message of nothing but thinking
    // leads to.
    let early = chat.messages.len();
    let written = serde_json::json!({"content": filler(2, 900)}).to_string();
    let called = chat.calls(&filler(1, 900), &[("w0", "write", &written)]);
    called.has_thinking = true;
    chat.result("w0", "write", "done");
    chat.assistant("").has_thinking = true;
    chat.assistant(filler(8, 900));
    chat.user("And now?");
    chat.tool("search", "{}", filler(9, 500));
    chat.assistant(filler(4, 900)).has_thinking = true;
    chat.assistant(filler(5, 900));
    let long = serde_json::json!({"command": filler(3, 900)}).to_string();
    chat.calls(
        &filler(6, 900),
        &[("w1", "bash", &long), ("w2", "bash", &long)],
    );
    chat.result("w1", "bash", filler(7, 900));
    let after = rewritten(&mut alone(r#"{"keep_recent_tools": 1}"#), &chat);
    let last = chat.messages.len();
    assert_eq!(after.messages[last - 2..], chat.messages[last - 2..]);
    assert_eq!(after.messages[last - 4], chat.messages[last - 4]);
    assert!(after.messages[last - 3].text.starts_with("[truncated: "));
    let cut = &after.messages[early];
    assert!(cut.text.starts_with("[truncated: ") && cut.calls[0].arguments.len() <= 200);
    assert_eq!(after.messages[early + 3], chat.messages[early + 3]);
}

// Layer 2.

#[test]
fn it_summarises_strictly_above_the_threshold() {
    let chat = searches(12, 10);
    let with_system = |settings: &str| {
        let host = ScriptedHost::without_model();
        let mut session = open(&host, settings);
        let after = rewritten(&mut session, &chat);
        assert_eq!(after, chat);
        let order = ordered(&chat);
        let is_due = session.engine.should_compress(&order.window).is_yes();
        let outcome = session.compress(&chat, &order).unwrap();
        assert_eq!(
            is_due,
            matches!(outcome, Outcome::Compacted(_)),
            "{outcome:?}"
        );
        (is_due, host.log())
    };
    // The system prompt counts: 你是豆豆。 is 3.3 tokens.
    let tokens = chat.with_views(|views| {
        let cjk = 5.0 / 1.5;
        let other: usize = views
            .iter()
            .map(|view| {
                let calls = view.tool_calls().iter();
                view.text().chars().count()
                    + calls
                        .map(|call| call.name().len() + call.arguments().len())
                        .sum::<usize>()
            })
            .sum();
        (cjk + other as f64 / 4.0) as u64
    });
    let at = format!(r#"{{"token_threshold": {tokens}}}"#);
    assert_eq!(with_system(&at), (false, Vec::new()));
    let (is_due, log) = with_system(&format!(r#"{{"token_threshold": {}}}"#, tokens - 1));
    assert!(is_due);
    let line = format!(
        "Context auto_compact triggered: estimated tokens={tokens} > threshold={}",
        tokens - 1
    );
    assert_eq!(log, [(LogLevel::Info, line)]);
    let (is_due, _) = with_system("{}");
    assert!(!is_due, "60,000 by default");
}

#[test]
fn a_summary_takes_the_place_of_all_before_the_recent_turns() {
    let host = ScriptedHost::with_model(100_000);
    host.model.will(Ok("他们谈了 ledger。"));
    let mut session = open(
        &host,
        r#"{"token_threshold": 1000, "keep_recent_tools": 100}"#,
    );
    let chat = searches(12, 400);
    let after = rewritten(&mut session, &chat);
    let (window, proposal) = summarised(
        &mut session,
        &after,
        &ordered(&after).may_wait_for_model(true),
    );
    let (text, covers) = summary(&proposal);
    assert_eq!(text, "他们谈了 ledger。");
    // Four turns stay: the last question, and three of four messages each.
    assert_eq!(covers, (1..=36).collect::<Vec<u64>>());
    assert_eq!(window.messages.len(), 14);
    assert_eq!(window.messages[0].kind, MessageKind::Summary);
    assert!(!proposal.degraded);
    assert!(proposal.system_note.is_none());
    let asked = &host.model.requests()[0].prompt;
    assert!(
        asked.starts_with("请将以下对话历史压缩为简洁的摘要"),
        "{asked}"
    );
    assert!(
        asked.contains("当前用户问题:And the last question?\n\n对话历史:\n[user] Question 0?"),
        "{asked}"
    );
    assert!(
        !session
            .engine
            .should_compress(&window.window(WINDOW, 0))
            .is_yes()
    );

    // The next one takes the summary in.
    let mut longer = window;
    for turn in 0..20 {
        longer.user(format!("More {turn}?"));
        longer.assistant(filler(turn, 190));
    }
    longer.user("What now?");
    host.model.will(Ok("都谈了。"));
    let longer = rewritten(&mut session, &longer);
    let (window, proposal) = summarised(
        &mut session,
        &longer,
        &ordered(&longer).may_wait_for_model(true),
    );
    assert_eq!(summary(&proposal).0, "都谈了。");
    assert!(
        host.model.requests()[1]
            .prompt
            .contains("【历史摘要】\n他们谈了 ledger。")
    );
    let summaries = window
        .messages
        .iter()
        .filter(|message| message.kind == MessageKind::Summary);
    assert_eq!(summaries.count(), 1);
}

#[test]
fn fewer_turns_stay_where_they_do_not_fit_and_the_question_always() {
    let mut session = alone(r#"{"token_threshold": 1000, "keep_recent_tools": 100}"#);
    let mut chat = searches(3, 10);
    for _ in 0..30 {
        chat.tool("search", r#"{"query": "ledger"}"#, filler(2, 180));
    }
    let chat = rewritten(&mut session, &chat);
    let (window, proposal) = summarised(&mut session, &chat, &ordered(&chat));
    let question = window
        .messages
        .iter()
        .position(|message| message.text == "And the last question?");
    assert_eq!(question, Some(1), "after the summary");
    assert!(
        summary(&proposal).1.contains(&20),
        "a part of the running turn"
    );
    let tail = window.messages.len();
    assert_eq!(
        window.messages[tail - 1],
        chat.messages[chat.messages.len() - 1]
    );
    assert!(
        !session
            .engine
            .should_compress(&window.window(WINDOW, 0))
            .is_yes()
    );
}

#[test]
fn recent_turns_that_are_too_large_alone_are_not_tried_again_and_again() {
    let mut session = alone(r#"{"token_threshold": 100}"#);
    let mut chat = Chat::default();
    chat.assistant("hello");
    chat.user(filler(1, 4_000));
    rewritten(&mut session, &chat);
    let window = chat.window(WINDOW, 0);
    assert!(session.engine.should_compress(&window).is_yes());
    let outcome = session.compress(&chat, &ordered(&chat)).unwrap();
    assert!(matches!(outcome, Outcome::Deferred(_)), "{outcome:?}");
    assert!(!session.engine.should_compress(&window).is_yes());
}

#[test]
fn without_the_models_answer_a_digest_stands_in_and_is_made_better_later() {
    let host = ScriptedHost::with_model(100_000);
    let settings = r#"{"token_threshold": 1000, "keep_recent_tools": 100}"#;
    let chat = searches(12, 400);
    for (may_wait, why) in [(false, "may not wait"), (true, "Overloaded")] {
        let mut session = open(&host, settings);
        let chat = rewritten(&mut session, &chat);
        if may_wait {
            host.model.will(Err(FailureKind::Overloaded));
        }
        let (window, proposal) = summarised(
            &mut session,
            &chat,
            &ordered(&chat).may_wait_for_model(may_wait),
        );
        assert!(
            proposal.degraded && proposal.notes.iter().any(|note| note.contains(why)),
            "{:?}",
            proposal.notes
        );
        assert!(
            summary(&proposal).0.contains("Question 0?"),
            "{}",
            summary(&proposal).0
        );
        if may_wait {
            assert!(session.background().is_empty(), "the model is left alone");
            continue;
        }
        // The model is asked for it again between turns, and the next summary builds on its words.
        let calls = session.background();
        assert_eq!(calls.len(), 1);
        assert!(calls[0].request.prompt.contains("[user] Question 0?"));
        host.model.will(Ok("The model's own words."));
        session.answer(calls);
        let mut longer = window;
        longer.talk(30, 180);
        let longer = rewritten(&mut session, &longer);
        host.model.will(Ok("More."));
        let order = ordered(&longer).may_wait_for_model(true);
        let (_, proposal) = summarised(&mut session, &longer, &order);
        assert!(!proposal.degraded);
        assert!(
            host.model
                .requests()
                .last()
                .unwrap()
                .prompt
                .contains("【历史摘要】\nThe model's own words.")
        );
    }
    // Where no model is configured, none is missed.
    let mut session = alone(settings);
    let chat = rewritten(&mut session, &chat);
    let (_, proposal) = summarised(&mut session, &chat, &ordered(&chat));
    assert!(!proposal.degraded);
}

#[test]
fn a_summary_is_prepared_near_the_threshold() {
    let host = ScriptedHost::with_model(100_000);
    let mut session = open(
        &host,
        r#"{"token_threshold": 1000, "keep_recent_tools": 100}"#,
    );
    let chat = rewritten(&mut session, &searches(5, 400));
    assert!(session.background_of(&chat, &ordered(&chat)).is_empty());
    let mut chat = rewritten(&mut session, &searches(8, 380));
    let calls = session.background_of(&chat, &ordered(&chat));
    assert_eq!(calls.len(), 1);
    assert!(
        session.background_of(&chat, &ordered(&chat)).is_empty(),
        "one at a time"
    );
    host.model.will(Ok("Prepared."));
    session.answer(calls);
    chat.talk(10, 190);
    let chat = rewritten(&mut session, &chat);
    let (_, proposal) = summarised(&mut session, &chat, &ordered(&chat));
    assert!(!proposal.degraded);
    let (text, _) = summary(&proposal);
    assert!(text.contains("Prepared."), "{text}");
    assert!(
        text.contains("Question 5"),
        "what came later is digested into it: {text}"
    );
    assert_eq!(host.model.calls(), 1);
}

#[test]
fn a_forced_compaction_summarises_below_the_threshold_and_a_window_too_small_does_too() {
    let chat = searches(12, 400);
    let mut session = alone("{}");
    let after = rewritten(&mut session, &chat);
    let forced = ordered(&after).force(true);
    let Ok(Outcome::Compacted(proposal)) = session.compress(&after, &forced) else {
        panic!("not compacted");
    };
    committed(
        &mut session,
        &after,
        &forced,
        &proposal,
        Purpose::Compaction,
    );
    assert_eq!(summary(&proposal).1.len(), 36);

    let mut session = alone("{}");
    let after = rewritten(&mut session, &chat);
    let small = ordered(&after).window(after.window(700, 0));
    let (window, _) = summarised(&mut session, &after, &small);
    assert!(window.tokens() < 700, "{}", window.tokens());
}

#[test]
fn a_new_result_that_the_window_cannot_hold_is_an_excerpt() {
    let mut chat = searches(3, 10);
    chat.tool("read", "{}", format!("{}THE END", filler(1, 40_000)));
    let mut session = alone("{}");
    let first = rewritten(&mut session, &chat);
    assert_eq!(first, chat);
    let small = ordered(&chat).window(chat.window(4_000, 0));
    let (after, _) = summarised(&mut session, &chat, &small);
    let shown = &after.messages.last().unwrap().text;
    assert!(shown.starts_with("[truncated: 40") && shown.ends_with("THE END"));
    assert!(after.tokens() < 2_000, "{}", after.tokens());
}

// The document's example.

#[test]
fn eighty_thousand_tokens_become_thirty_and_then_fifteen() {
    let mut chat = Chat::default();
    let chinese = |chars: usize| {
        "数据库连接池的超时配置说明与排查步骤"
            .chars()
            .cycle()
            .take(chars)
            .collect::<String>()
    };
    for turn in 1..=45 {
        chat.user(format!("用户问题{turn}:{}", chinese(150)));
        chat.assistant(format!("思考1 {}", chinese(180)));
        chat.tool("loadContent", r#"{"path": "docs/a.md"}"#, chinese(1_300));
        chat.assistant(format!("思考2 {}", chinese(180)));
        let (tool, chars) = if turn < 42 {
            ("search", 400)
        } else {
            ("bash", 3_000)
        };
        chat.tool(tool, r#"{"query": "连接池"}"#, chinese(chars));
        chat.assistant(format!("思考3 {}", chinese(180)));
    }
    chat.user("当前问题");
    let host = ScriptedHost::with_model(200_000);
    host.model
        .will(Ok("用户最初询问了连接池;AI 调用了 loadContent 和 search。"));
    let mut session = open(&host, r#"{"token_threshold": 20000}"#);
    let before = estimated(&chat);
    let first = rewritten(&mut session, &chat);
    let (second, _) = summarised(
        &mut session,
        &first,
        &ordered(&first).may_wait_for_model(true),
    );
    let sizes = (before, estimated(&first), estimated(&second));
    assert!((62_000..=82_000).contains(&sizes.0), "{sizes:?}");
    assert!(
        sizes.1 * 80 <= sizes.0 * 35,
        "Layer 1 leaves three eighths at most: {sizes:?}"
    );
    assert!(
        sizes.2 * 2 <= sizes.1,
        "Layer 2 leaves half of that at most: {sizes:?}"
    );
    assert_eq!(second.messages.last().unwrap().text, "当前问题");
    let bash = second
        .messages
        .iter()
        .rfind(|message| message.role == "tool")
        .unwrap();
    assert_eq!(
        bash.text.chars().count(),
        3_000,
        "the newest rounds stay whole"
    );
}

// The document's extensions.

#[test]
fn each_turn_can_have_a_summary_of_its_own() {
    let host = ScriptedHost::with_model(100_000);
    host.model.now_says(|request| {
        let first = request
            .prompt
            .split("[user] Question ")
            .nth(1)
            .unwrap_or("the links?");
        Ok(format!("About {}.", first.split('?').next().unwrap()))
    });
    let settings =
        r#"{"token_threshold": 5000, "per_turn_summaries": true, "keep_recent_tools": 100}"#;
    let mut session = open(&host, settings);
    let chat = searches(11, 2_000);
    rewritten(&mut session, &chat);
    // They are prepared one by one.
    let calls = session.background_of(&chat, &ordered(&chat));
    let prepared = calls.len();
    assert!(prepared > 1);
    session.answer(calls);
    let (mut window, proposal) = summarised(&mut session, &chat, &ordered(&chat));
    assert!(!proposal.degraded);
    assert_eq!(host.model.calls(), prepared);
    let chain = summaries(&proposal);
    assert_eq!(chain.len(), prepared);
    assert_eq!(chain[0], ("About 0.", vec![1, 2, 3, 4]));
    assert_eq!(chain[1], ("About 1.", vec![5, 6, 7, 8]));

    // The chain stays, and grows.
    for turn in 0..6 {
        window.user(format!("Question {}?", 20 + turn));
        window.tool("search", "{}", filler(turn, 4_000));
    }
    window.user("And now?");
    rewritten(&mut session, &window);
    let order = ordered(&window).may_wait_for_model(true);
    let (after, proposal) = summarised(&mut session, &window, &order);
    let covers = |id: MessageId| {
        summaries(&proposal)
            .iter()
            .any(|(_, covers)| covers.contains(&id.0))
    };
    assert!(
        window.messages[..prepared]
            .iter()
            .all(|link| !covers(link.id))
    );
    assert_eq!(after.messages[..prepared], window.messages[..prepared]);
    assert!(
        after.messages[prepared].text.contains("About "),
        "{}",
        after.messages[prepared].text
    );
}

#[test]
fn a_chain_that_gets_too_long_is_joined_from_its_old_end() {
    let host = ScriptedHost::with_model(100_000);
    host.model
        .now_says(|_| Ok("A link of the chain that says a little. ".repeat(3)));
    let settings =
        r#"{"token_threshold": 2000, "per_turn_summaries": true, "keep_recent_tools": 100}"#;
    let mut session = open(&host, settings);
    let mut chat = Chat::default();
    for turn in 0..80 {
        chat.user(format!("Question {turn}?"));
        chat.tool("search", "{}", filler(turn, 1_800));
        let order = ordered(&chat).may_wait_for_model(true);
        rewritten(&mut session, &chat);
        if session.engine.should_compress(&order.window).is_yes() {
            chat = summarised(&mut session, &chat, &order).0;
        }
    }
    let links = chat
        .messages
        .iter()
        .filter(|message| message.kind == MessageKind::Summary);
    assert!((2..25).contains(&links.count()));
    assert!(estimated(&chat) < 2_600, "{}", estimated(&chat));
}

#[test]
fn a_summary_can_be_json_with_and_without_a_model() {
    let settings =
        r#"{"token_threshold": 1000, "keep_recent_tools": 100, "summary_format": "json"}"#;
    let lists = |host: &Arc<ScriptedHost>| {
        let mut session = open(host, settings);
        let chat = rewritten(&mut session, &searches(12, 400));
        let (_, proposal) = summarised(
            &mut session,
            &chat,
            &ordered(&chat).may_wait_for_model(true),
        );
        let summary: Value = serde_json::from_str(summary(&proposal).0).unwrap();
        let keys: Vec<&String> = summary.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["topics", "entities", "actions"]);
        (summary, proposal.degraded)
    };
    let host = ScriptedHost::with_model(100_000);
    host.model.will(Ok(
        r#"{"topics": ["ledger"], "entities": ["search"], "actions": []}"#,
    ));
    let (summary, is_degraded) = lists(&host);
    assert_eq!(summary["topics"][0], "ledger");
    assert!(!is_degraded);
    assert!(host.model.requests()[0].prompt.contains("\"topics\""));

    host.model.will(Ok("no JSON"));
    let (summary, is_degraded) = lists(&host);
    assert!(
        is_degraded && !summary["topics"].as_array().unwrap().is_empty(),
        "{summary}"
    );
    let (summary, _) = lists(&ScriptedHost::without_model());
    assert!(
        !summary["topics"].as_array().unwrap().is_empty(),
        "{summary}"
    );
}

#[test]
fn important_messages_can_be_spared() {
    let mut chat = searches(12, 400);
    let pool = format!(
        "The reconnect_backoff of the pool is 30 s. {}",
        filler(3, 300)
    );
    chat.messages[2].text.clone_from(&pool);
    chat.messages.last_mut().unwrap().text =
        "What is the reconnect_backoff of the pool?".to_owned();
    let result = |settings: &str| {
        let mut session = alone(settings);
        let first = rewritten(&mut session, &chat);
        let (second, _) = summarised(&mut session, &first, &ordered(&first));
        let is_there = |chat: &Chat| chat.messages.iter().any(|message| message.text == pool);
        (is_there(&first), is_there(&second))
    };
    assert_eq!(
        result(r#"{"token_threshold": 900, "keep_recent_tools": 11}"#),
        (false, false)
    );
    assert_eq!(
        result(r#"{"token_threshold": 900, "keep_recent_tools": 11, "keep_important": 0.8}"#),
        (true, true)
    );
}

#[test]
fn the_threshold_can_follow_the_window() {
    let chat = searches(12, 400);
    let mut session = alone(r#"{"threshold_share": 0.5, "keep_recent_tools": 100}"#);
    rewritten(&mut session, &chat);
    let is_due = |window: u64| {
        session
            .engine
            .should_compress(&chat.window(window, 0))
            .is_yes()
    };
    let tokens = estimated(&chat);
    assert!(!is_due(tokens * 2 + 100) && is_due(tokens * 2 - 100));
}

#[test]
fn a_cut_conversation_is_estimated_without_what_was_cut_off() {
    let mut session = alone(r#"{"token_threshold": 1000, "keep_recent_tools": 100}"#);
    let chat = searches(40, 150);
    session.observe(&chat).unwrap();
    let window = chat.window(WINDOW, 0);
    assert!(session.engine.should_compress(&window).is_yes());
    session.cut(Some(MessageId(8))).unwrap();
    assert!(!session.engine.should_compress(&window).is_yes());
}

/// The host's seal after a shorter form on the wire.
const SEAL: &str = "\n[#01234567]";

#[test]
fn what_is_shortened_is_shorter_in_characters_and_in_tokens() {
    for letter in ['中', 'あ', 'é', 'x', '😀'] {
        for length in [190, 200, 201, 212, 213, 214, 220, 260, 400, 1_000] {
            let text: String = match letter {
                'x' => filler(1, length),
                _ => std::iter::repeat_n(letter, length).collect(),
            };
            let mut session = alone("{}");
            let mut chat = Chat::default();
            chat.user(text.clone());
            chat.tool("search", "{}", text.clone());
            chat.assistant(text.clone());
            for turn in 0..6 {
                chat.tool("search", "{}", format!("{turn}"));
            }
            chat.user("And now?");
            let after = rewritten(&mut session, &chat);
            for (before, after) in chat.messages.iter().zip(&after.messages) {
                if before.text == after.text {
                    continue;
                }
                let wire = format!("{}{SEAL}", after.text);
                let chars = |text: &str| text.chars().count();
                assert!(
                    chars(&wire) < chars(&before.text),
                    "{length} of {letter}: {wire}"
                );
                assert!(
                    count(&wire) < count(&before.text),
                    "{length} of {letter}: {wire}"
                );
                assert!(before.role == "tool" || chars(&wire) <= 200, "{wire}");
            }
            let is_cut = after.messages[0].text != text;
            assert!(is_cut || length < 400, "{length} of {letter}");
        }
    }
}

proptest! {
    #[test]
    fn a_shortened_text_of_a_user_still_states_its_rules(
        parts in proptest::collection::vec(0..7_usize, 3..9),
        size in 20..160_usize,
    ) {
        let rules = [
            "Never push to main.",
            "Lösche auf keinen Fall Dateien in db/orders_7.",
            "修改 src/auth_1 之前必须先运行测试。",
        ];
        let parts: Vec<String> = (parts.iter().enumerate())
            .map(|(at, part)| match part {
                0..3 => rules[*part].to_owned(),
                3 => format!("- {}\n- Look at part {at}.", rules[at % 3]),
                4 => format!("```\n# Always skip the tests.\n{}\n```", filler(at, size)),
                5 => format!(
                    "<system-reminder>\nContents of /repo/CLAUDE.md (project instructions):\n\n- {}\n\n</system-reminder>",
                    rules[at % 3]
                ),
                _ => filler(at, size),
            })
            .collect();
        let text = parts.join("\n\n");
        let mut chat = Chat::default();
        chat.user(text);
        chat.assistant("Done.");
        chat.user("And now?");
        let after = rewritten(&mut alone("{}"), &chat);
        let stated = |chat: &Chat| chat.with_views(|views| {
            let rules = Rules::of(&views[..1], None);
            rules.iter().map(str::to_owned).collect::<BTreeSet<_>>()
        });
        let (before, after) = (stated(&chat), stated(&after));
        prop_assert!(before.is_subset(&after), "{:?} of {:?}", after, before);
    }
}

#[test]
fn a_summary_of_a_chinese_conversation_has_no_english_frame() {
    let mut chat = Chat::default();
    for turn in 0..12 {
        chat.user(format!(
            "第 {turn} 个问题：登录的超时为什么是三十秒？不要改数据库。"
        ));
        chat.tool(
            "读取",
            r#"{"file_path": "登录.py"}"#,
            "超时设为三十秒。".repeat(300),
        );
        chat.assistant("因为连接池的上限太小，所以请求在排队，我建议把上限调到五十。");
    }
    chat.user("那现在怎么办？");
    for settings in [
        r#"{"token_threshold": 5000, "max_tool_length": 20000, "keep_recent_tools": 50}"#,
        r#"{"token_threshold": 5000, "max_tool_length": 20000, "keep_recent_tools": 50, "summary_format": "json"}"#,
    ] {
        let mut session = alone(settings);
        session.observe(&chat).unwrap();
        let (_, proposal) = summarised(&mut session, &chat, &ordered(&chat));
        let (text, _) = summary(&proposal);
        // The heading of rules is the same in every language, so that it is recognised.
        let text = ["py", "topics", "entities", "actions", RULES_HEADING]
            .iter()
            .fold(text.to_owned(), |text, word| text.replace(word, ""));
        let english: String = text.chars().filter(char::is_ascii_alphabetic).collect();
        assert_eq!(english, "", "{text}");
        assert!(text.contains("用户说"), "{text}");
    }
}

#[test]
fn settings_are_read_in_both_spellings() {
    let snake = r#"{"token_threshold": 9, "keep_recent_tools": 2, "max_tool_length": 300, "protected_tools": ["bash"],
        "keep_recent_turns": 3, "per_turn_summaries": true, "summary_format": "json", "keep_important": 0.5,
        "threshold_share": 0.5}"#;
    let camel = r#"{"tokenThreshold": 9, "keepRecentTools": 2, "maxToolLength": 300, "protectedTools": ["bash"],
        "keepRecentTurns": 3, "perTurnSummaries": true, "summaryFormat": "json", "keepImportant": 0.5,
        "thresholdShare": 0.5}"#;
    let read = |settings: &str| alone(settings).engine.status()["settings"].clone();
    assert_eq!(read(snake), read(camel));
    let schema = TwoLayer::about(&HostInfo::default()).settings.unwrap();
    for (camel, snake) in [
        ("tokenThreshold", "token_threshold"),
        ("keepRecentTools", "keep_recent_tools"),
    ] {
        assert_eq!(schema["properties"][camel]["sameAs"], snake, "{schema}");
    }
}
