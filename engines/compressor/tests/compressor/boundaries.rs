//! Head, tail, tool pairs, clearing.

use contexture_engine_api::*;

use crate::chat::*;

#[test]
fn the_head_is_the_first_exchange_once_and_then_only_the_summary() {
    let mut chat = Chat::default();
    chat.talk(100, 2_400);
    let mut session = alone("{}", &chat.window(100_000, 500));
    let (mut after, _) = session.compacted(&chat, &order(chat.window(100_000, 500)));
    assert_eq!([after.messages[0].id.0, after.messages[1].id.0], [1, 2]);
    assert_eq!(after.messages[2].kind, MessageKind::Summary);
    // Without a system prompt the history itself has the three.
    let (bare, _) = session.compacted(&chat, &order(chat.window(100_000, 0)));
    assert_eq!([bare.messages[0].id.0, bare.messages[2].id.0], [1, 3]);
    assert_eq!(bare.messages[3].kind, MessageKind::Summary);
    // Tools alone are no system prompt.
    let tools = chat.window(100_000, 500).has_system_prompt(Some(false));
    let (bare, _) = session.compacted(&chat, &order(tools));
    assert_eq!([bare.messages[0].id.0, bare.messages[2].id.0], [1, 3]);

    for round in 0..3 {
        after.talk(80, 2_400);
        let (next, compaction) = session.compacted(&after, &order(after.window(100_000, 500)));
        after = next;
        assert_eq!(
            after.messages[0].kind,
            MessageKind::Summary,
            "round {round}"
        );
        let summary = summary_of(&compaction);
        assert!(summary.len() / 4 <= 5_000 + 10, "{} bytes", summary.len());
    }
    assert_eq!(
        after
            .messages
            .iter()
            .filter(|m| m.kind == MessageKind::Summary)
            .count(),
        1
    );
}

#[test]
fn the_users_last_message_and_the_last_answer_survive_a_long_tool_run() {
    let mut chat = Chat::default();
    chat.talk(3, 1_000);
    chat.assistant("The plan: first the parser.");
    chat.user("Go ahead with the migration of `billing_v2`");
    chat.user("  \n");
    for step in 0..120 {
        chat.tool(
            "bash",
            &format!("{{\"command\":\"step {step}\"}}"),
            filler(step, 4_000),
        );
    }
    let window = chat.window(128_000, 1_000);
    let mut session = alone("{}", &window);
    let (after, compaction) = session.compacted(&chat, &order(window));
    let texts: Vec<&str> = after.messages.iter().map(|m| m.text.as_str()).collect();
    let summary = texts
        .iter()
        .position(|text| text.starts_with(SUMMARY_MARK))
        .unwrap();
    assert_eq!(texts[summary + 1], "The plan: first the parser.");
    assert_eq!(
        texts[summary + 2],
        "Go ahead with the migration of `billing_v2`"
    );
    assert!(
        !texts.contains(&"  \n"),
        "a blank message is not the user's"
    );
    assert!(after.tokens() < 40_000, "{}", after.tokens());
    assert!(
        compaction
            .notes
            .iter()
            .all(|note| !note.contains("protected messages were shortened"))
    );
}

#[test]
fn the_last_answer_is_not_followed_by_another_one() {
    // A user's message in the tail, and nothing but calls since the answer before it.
    for again in [false, true] {
        let mut chat = Chat::default();
        chat.talk(2, 400);
        chat.user("Now the migration");
        for step in 0..40 {
            chat.tool("bash", "{}", filler(step, 2_000));
        }
        chat.user("And the tests");
        chat.tool("bash", "{}", filler(7, 2_000));
        let order = order(chat.window(100_000, 500)).force(true);
        let mut session = alone(r#"{"protect_last_n":6}"#, &order.window);
        let (mut after, _) = session.compacted(&chat, &order);
        if again {
            for step in 0..40 {
                after.tool("bash", "{}", filler(step, 2_000));
            }
            (after, _) = session.compacted(&after, &order);
        }
        let summaries = after
            .messages
            .iter()
            .filter(|m| m.kind == MessageKind::Summary);
        assert_eq!(summaries.count(), 1);
        assert!(
            after
                .messages
                .iter()
                .any(|m| m.text.starts_with("Answer 1"))
        );
    }
}

#[test]
fn every_cut_is_safe() {
    // The tail boundary is swept over every message of a conversation with parallel and late results.
    let mut chat = Chat::default();
    chat.user("start");
    for round in 0..8 {
        chat.calls(
            "",
            &[("same", "ls", "{}"), (&format!("p{round}"), "cat", "{}")],
        );
        chat.result(&format!("p{round}"), "cat", filler(round, 4_000));
        chat.result("same", "ls", filler(round + 1, 4_000));
        chat.assistant(filler(round, 4_000));
        chat.user(format!("next {round}"));
    }
    for protect_last_n in 1..chat.messages.len() {
        let settings = format!(r#"{{"protect_last_n":{protect_last_n},"target_ratio":0.1}}"#);
        let window = chat.window(100_000, 500);
        let mut session = alone(&settings, &window);
        let forced = order(window).force(true);
        match session.compress(&chat, &forced).unwrap() {
            Outcome::Compacted(compaction) => {
                let after = check(&chat, &compaction, &forced).unwrap();
                let tail = after
                    .messages
                    .iter()
                    .rev()
                    .take_while(|m| m.kind == MessageKind::Original);
                assert!(tail.count() >= protect_last_n);
            }
            Outcome::NothingToDo(_) => assert!(protect_last_n > 30, "{protect_last_n}"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn orphans_go_and_calls_without_a_result_get_a_stub() {
    let mut chat = Chat::default();
    chat.user("start");
    chat.assistant("on it");
    chat.talk(40, 4_000);
    chat.result("nowhere", "ls", "a result whose call is gone");
    chat.calls("I will look.", &[("a", "ls", "{}"), ("b", "cat", "{}")]);
    chat.result("b", "cat", "text of the file");
    chat.user("never mind the first");
    chat.calls("", &[("x", "make", "{}"), ("y", "test", "{}")]);
    chat.result("x", "make", "built");
    let window = chat.window(64_000, 500);
    let mut session = alone("{}", &window);
    let (after, compaction) = session.compacted(&chat, &order(window));
    assert!(
        compaction.entries.iter().any(
            |entry| matches!(entry, Entry::Drop(dropped) if dropped.reason.contains("nowhere"))
        )
    );
    let stubs: Vec<(MessageId, usize)> = compaction
        .entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::StubResult(stub) => Some((stub.call, stub.index)),
            _ => None,
        })
        .collect();
    let caller = after
        .messages
        .iter()
        .find(|m| m.text == "I will look.")
        .unwrap();
    assert_eq!(stubs, [(caller.id, 0)], "none for the batch in flight");
}

#[test]
fn pruning_alone_clears_old_results_and_nothing_else() {
    let mut chat = Chat::default();
    chat.user("start");
    chat.tool("read_file", r#"{"path":"a"}"#, filler(1, 3_000));
    chat.tool("ls", "{}", "short");
    chat.calls(
        "",
        &[("q", "AskUserQuestion", r#"{"q":"Tabs or spaces?"}"#)],
    );
    chat.result("q", "AskUserQuestion", "Tabs, ".repeat(80));
    let content = serde_json::json!({"path": "b.py", "content": filler(3, 9_000), "mode": 420, "force": true});
    chat.tool("write_file", &content.to_string(), "written");
    chat.talk(30, 800);
    chat.tool("read_file", r#"{"path":"c"}"#, filler(9, 3_000));
    let window = chat.window(64_000, 500);
    let mut session = alone("{}", &window);
    let order = order(window);
    let outcome = session.prune(&chat, &order).unwrap();
    let Outcome::Compacted(compaction) = outcome else {
        panic!("{outcome:?}")
    };
    let after = check(&chat, &compaction, &order).unwrap();
    assert_eq!(after.messages.len(), chat.messages.len());
    assert_eq!(after.messages[2].text, CLEARED_TOOL_OUTPUT);
    let changed: Vec<usize> = (0..after.messages.len())
        .filter(|at| after.messages[*at].text != chat.messages[*at].text)
        .collect();
    assert_eq!(
        changed,
        [2],
        "short results, the user's answer and the tail stay"
    );
    let arguments: serde_json::Value =
        serde_json::from_str(&after.messages[7].calls[0].arguments).unwrap();
    assert_eq!(
        (&arguments["path"], &arguments["mode"], &arguments["force"]),
        (&"b.py".into(), &420.into(), &true.into())
    );
    assert!(arguments["content"].as_str().unwrap().len() < 300);

    let again = session.prune(&after, &order).unwrap();
    assert!(matches!(again, Outcome::NothingToDo(_)), "{again:?}");
}

#[test]
fn facts_are_taken_from_the_uncleared_originals() {
    let mut chat = Chat::default();
    chat.user("Find out which commits broke the build");
    for n in 0..60u64 {
        let hash = format!("{:016x}", (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let output = format!(
            "{}\ncommit {hash} touched it\n{}",
            filler(1, 1_500),
            filler(2, 1_500)
        );
        chat.tool("bash", r#"{"command":"git show"}"#, output);
    }
    chat.assistant("That is all of them.");
    chat.user("Thanks. Next?");
    chat.talk(10, 100);
    let window = chat.window(80_000, 500);
    let mut session = alone("{}", &window);
    let (after, compaction) = session.compacted(&chat, &order(window));
    let summary = summary_of(&compaction);
    let hash = |n: u64| format!("{:016x}", (n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let left: Vec<String> = (0..60)
        .map(hash)
        .filter(|hash| {
            !after
                .messages
                .iter()
                .any(|m| m.kind == MessageKind::Original && m.text.contains(hash))
        })
        .collect();
    assert!(left.len() > 40, "{}", left.len());
    let kept = left.iter().filter(|hash| summary.contains(*hash)).count();
    assert!(
        kept * 10 >= left.len() * 9,
        "{kept} of {} hashes: {summary}",
        left.len()
    );
}

/// The budget of a small span is small, and still its rules stay.
#[test]
fn a_span_of_a_few_short_messages_keeps_its_rule() {
    let rule = "Never rename the q77 module, its name is in the contracts of our customers.";
    let mut compacted = 0;
    for chars in [2_700, 3_000, 3_300, 3_600, 4_200] {
        let mut chat = Chat::default();
        chat.talk(3, 100);
        chat.user(rule);
        chat.assistant(filler(1, chars));
        chat.talk(30, 100);
        let window = chat.window(20_000, 500);
        let mut session = alone("{}", &window);
        let outcome = session.compress(&chat, &order(window).force(true));
        if let Outcome::Compacted(compaction) = outcome.unwrap() {
            let after = chat.apply(&compaction);
            let kept = after.messages.iter().any(|m| m.text.contains(rule));
            assert!(kept, "{chars}: {compaction:?}");
            compacted += usize::from(
                compaction
                    .entries
                    .iter()
                    .any(|entry| matches!(entry, Entry::Summary(_))),
            );
        }
    }
    assert!(compacted > 0);
}
