//! The summary model: asked, absent, failing, small, late.

use contexture_engine_api::*;

use crate::chat::*;

const WINDOW: u64 = 100_000;

fn long_chat() -> Chat {
    let mut chat = Chat::default();
    chat.user("Help me with `ledger/epoch.rs`");
    chat.assistant("Gladly.");
    chat.tool(
        "read_file",
        r#"{"path":"src/ledger/epoch.rs"}"#,
        format!("fn reconcile_epoch() {{}} {}", filler(1, 9_000)),
    );
    chat.talk(60, 3_400);
    chat
}

/// The calls that the compressor would like made over this window.
fn prepared(session: &mut Session, chat: &Chat) -> Vec<BackgroundCall> {
    session.background_of(chat, &order(chat.window(WINDOW, 500)))
}

fn waiting(chat: &Chat) -> CompressOrder {
    order(chat.window(WINDOW, 500)).may_wait_for_model(true)
}

#[test]
fn the_models_notes_with_the_facts_that_they_lack() {
    let host = ScriptedHost::with_model(200_000);
    host.model.will(Ok(
        "<think>hm</think>[CONTEXT COMPACTION]\n## Goal\nRepair the ledger.",
    ));
    let mut chat = long_chat();
    chat.messages[3]
        .text
        .push_str("\nexport KEY=sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH\n");
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    let asked = waiting(&chat)
        .focus(Some("the epoch bug".into()))
        .memory(Some("The user lives in Lyon.".into()));
    let (_, compaction) = session.compacted(&chat, &asked);
    assert!(!compaction.degraded);
    let summary = summary_of(&compaction);
    assert!(summary.contains("## Goal\nRepair the ledger.") && !summary.contains("<think>"));
    assert!(summary.contains("src/ledger/epoch.rs"), "{summary}");

    let requests = host.model.requests();
    let [request] = requests.as_slice() else {
        panic!("{} calls", requests.len())
    };
    for part in [
        "the epoch bug",
        "The user lives in Lyon.",
        "[call of read_file]",
        "Question 3:",
    ] {
        assert!(request.prompt.contains(part), "{part}");
    }
    assert!(
        request.system.contains("## Critical Context") && request.system.contains("do not answer")
    );
    assert!(
        !request
            .prompt
            .contains("abcdefghijklmnopqrstuvwxyz0123456789"),
        "secrets are masked"
    );
}

#[test]
fn every_failure_leads_to_the_digest_and_loses_no_fact() {
    for reply in [
        Err(FailureKind::NoProvider),
        Err(FailureKind::Auth),
        Err(FailureKind::RateLimited),
        Err(FailureKind::Overloaded),
        Err(FailureKind::Network),
        Err(FailureKind::Timeout),
        Err(FailureKind::Refused),
        Err(FailureKind::Empty),
        Err(FailureKind::CutOff),
        Err(FailureKind::UnknownModel),
        Err(FailureKind::Other),
        Ok("  \n"),
        Ok("I'm sorry, but I can't help with that."),
    ] {
        let host = ScriptedHost::with_model(200_000);
        host.model.will(reply);
        let mut chat = long_chat();
        let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
        let (after, compaction) = session.compacted(&chat, &waiting(&chat));
        assert!(compaction.degraded, "{reply:?}");
        assert!(
            compaction
                .notes
                .iter()
                .any(|note| note.contains("without a model")),
            "{compaction:?}"
        );
        assert!(
            summary_of(&compaction).contains("src/ledger/epoch.rs"),
            "{reply:?}"
        );
        assert_eq!(host.model.calls(), 1);

        // The cool-down holds, over a restart too, and ends.
        chat = after;
        chat.talk(60, 3_400);
        let mut again = open(&host, "{}", &chat.window(WINDOW, 500));
        let (_, compaction) = again.compacted(&chat, &waiting(&chat));
        assert!(compaction.degraded && host.model.calls() == 1, "{reply:?}");
        assert!(again.engine.status()["cool_down"]["until_ms"].is_i64());
        host.advance_clock(600_001);
        let (_, compaction) = again.compacted(&chat, &waiting(&chat));
        assert!(!compaction.degraded && host.model.calls() == 2, "{reply:?}");
    }
}

#[test]
fn without_a_model_the_digest_is_no_failure() {
    let chat = long_chat();
    let mut session = alone("{}", &chat.window(WINDOW, 500));
    let (_, compaction) = session.compacted(&chat, &waiting(&chat));
    assert!(!compaction.degraded);
    assert!(
        compaction
            .notes
            .iter()
            .any(|note| note.contains("no summary model"))
    );
    assert!(session.background().is_empty());
}

#[test]
fn a_focus_counts_without_a_model_too() {
    let mut chat = long_chat();
    chat.messages[40]
        .text
        .push_str("\nThe retry queue drops a job on every third restart.");
    let window = chat.window(WINDOW, 500);
    let summary = |focus: Option<&str>| {
        let mut session = alone("{}", &window);
        let focus = focus.map(str::to_owned);
        let (_, compaction) = session.compacted(&chat, &order(window.clone()).focus(focus));
        summary_of(&compaction).to_owned()
    };
    let focused = summary(Some("Retry Queue"));
    assert!(focused.contains("The retry queue drops a job"), "{focused}");
    assert!(focused.contains("src/ledger/epoch.rs"));
    assert!(!summary(Some("")).contains("On \"\""));
}

#[test]
fn a_small_summary_model_gets_pieces() {
    for window in [4_000, 8_000, 16_000] {
        let host = ScriptedHost::with_model(window);
        let chat = long_chat();
        let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
        let (_, compaction) = session.compacted(&chat, &waiting(&chat));
        assert!(!compaction.degraded, "{window}: {compaction:?}");
        let requests = host.model.requests();
        assert!(requests.len() > 2, "{}", requests.len());
        assert!(requests[0].prompt.starts_with("This is part 1 of"));
        let all: String = requests
            .iter()
            .map(|request| request.prompt.as_str())
            .collect();
        for turn in [0, 20, 40] {
            assert!(
                all.contains(&format!("Question {turn}:")),
                "no piece is left out"
            );
        }
        assert!(
            requests
                .last()
                .unwrap()
                .prompt
                .contains("The model's notes.")
        );
    }
}

#[test]
fn too_long_means_smaller_pieces() {
    let host = ScriptedHost::with_model(200_000);
    host.model.will(Err(FailureKind::TooLong));
    let chat = long_chat();
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    let (_, compaction) = session.compacted(&chat, &waiting(&chat));
    assert!(!compaction.degraded && host.model.calls() >= 2);
    // And an end, where no piece is small enough.
    let host = ScriptedHost::with_model(200_000);
    (0..50).for_each(|_| host.model.will(Err(FailureKind::TooLong)));
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    let (_, compaction) = session.compacted(&chat, &waiting(&chat));
    assert!(
        compaction.degraded && host.model.calls() < 50,
        "{}",
        host.model.calls()
    );
}

#[test]
fn the_earlier_summary_is_updated_never_wrapped() {
    let host = ScriptedHost::with_model(200_000);
    host.model
        .will(Ok("## Goal\nFirst notes about `alpha_module`."));
    host.model
        .will(Ok("[CONTEXT COMPACTION] ## Goal\nSecond notes."));
    let mut session = open(&host, "{}", &long_chat().window(WINDOW, 500));
    let (mut chat, _) = session.compacted(&long_chat(), &waiting(&long_chat()));
    chat.talk(60, 3_400);
    let (chat, compaction) = session.compacted(&chat, &waiting(&chat));
    let prompt = host.model.requests()[1].prompt.clone();
    assert!(
        prompt.contains("<previous-notes>\n## Goal\nFirst notes about `alpha_module`."),
        "{prompt}"
    );
    assert!(prompt.contains("Update the previous notes") && !prompt.contains(SUMMARY_MARK));
    assert!(summary_of(&compaction).contains("Second notes."));
    assert_eq!(
        chat.messages
            .iter()
            .filter(|m| m.text.contains(SUMMARY_MARK))
            .count(),
        1
    );
}

#[test]
fn a_summary_is_prepared_from_eighty_percent_and_used_without_waiting() {
    let host = ScriptedHost::with_model(200_000);
    let mut chat = Chat::default();
    chat.user("Help me with the ledger");
    chat.talk(30, 3_400);
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    session.observe(&chat).unwrap();
    assert!(
        prepared(&mut session, &chat).is_empty(),
        "{} tokens are no 80 %",
        chat.tokens()
    );

    chat.talk(20, 3_400);
    session.observe(&chat).unwrap();

    let calls = prepared(&mut session, &chat);
    let [call] = calls.as_slice() else {
        panic!("{} calls at {} tokens", calls.len(), chat.tokens())
    };
    assert!(prepared(&mut session, &chat).is_empty(), "asked once");
    assert!(call.request.prompt.contains("Question 5:") && call.covers.len() > 40);
    session.engine.background_done(
        call.id,
        Ok(ScriptedModel::answer("## Goal\nPrepared notes.")),
    );
    assert!(
        prepared(&mut session, &chat).is_empty(),
        "ready, so nothing more to ask"
    );

    // Later messages come before the compaction does.
    chat.tool(
        "bash",
        r#"{"command":"cargo test"}"#,
        "test settle_window ... FAILED\n3 passed; 1 failed",
    );
    chat.talk(12, 3_400);
    session.observe(&chat).unwrap();
    let (_, compaction) = session.compacted(&chat, &order(chat.window(WINDOW, 500)));
    assert!(
        !compaction.degraded && host.model.calls() == 0,
        "{:?}",
        compaction.notes
    );
    let summary = summary_of(&compaction);
    assert!(summary.contains("Prepared notes."), "{summary}");
    assert!(
        summary.contains("settle_window"),
        "what came after it is digested: {summary}"
    );
}

#[test]
fn a_digest_is_redone_when_the_model_is_back() {
    let host = ScriptedHost::with_model(200_000);
    let chat = long_chat();
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    let (mut after, compaction) = session.compacted(&chat, &order(chat.window(WINDOW, 500)));
    assert!(
        compaction.degraded && host.model.calls() == 0,
        "nobody waited"
    );

    let call = session.background().remove(0);
    session.engine.background_done(
        call.id,
        Err(ModelFailure::new(FailureKind::RateLimited, "slow down")),
    );
    assert!(
        session.background().is_empty(),
        "the cool-down holds in the background too"
    );
    host.advance_clock(60_001);
    let call = session.background().remove(0);
    assert!(call.request.prompt.contains("Question 3:"));
    session.engine.background_done(
        call.id,
        Ok(ScriptedModel::answer("## Goal\nThe redone notes.")),
    );
    assert!(session.background().is_empty());

    after.talk(60, 3_400);
    let (_, compaction) = session.compacted(&after, &waiting(&after));
    assert!(!compaction.degraded);
    let prompt = host.model.requests()[0].prompt.clone();
    assert!(
        prompt.contains("<previous-notes>\n## Goal\nThe redone notes."),
        "{prompt}"
    );
}

#[test]
fn what_was_prepared_for_a_branch_is_not_used() {
    let host = ScriptedHost::with_model(200_000);
    let chat = long_chat();
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    session.observe(&chat).unwrap();
    let call = prepared(&mut session, &chat).remove(0);
    session.cut(Some(MessageId(30))).unwrap();
    session
        .engine
        .background_done(call.id, Ok(ScriptedModel::answer("## Goal\nStale notes.")));
    let (_, compaction) = session.compacted(&chat, &order(chat.window(WINDOW, 500)));
    assert!(!summary_of(&compaction).contains("Stale notes."));
    session.engine.reset().unwrap();
    assert_eq!(session.engine.status()["compactions"], 0);
}

#[test]
fn a_long_answer_is_cut_to_the_budget_by_lines() {
    let host = ScriptedHost::with_model(200_000);
    let long: String = (0..4_000)
        .map(|n| format!("- detail {n} of many\n"))
        .collect();
    host.model.will(Ok(&format!(
        "## Goal\nShip.\n## Progress\n### Done\n{long}## Next Steps\nRelease."
    )));
    let chat = long_chat();
    let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
    let (_, compaction) = session.compacted(&chat, &waiting(&chat));
    let summary = summary_of(&compaction);
    assert!(summary.len() / 4 <= 5_000, "{}", summary.len());
    assert!(summary.contains("Release.") && summary.contains("- detail 0 of many"));
}

/// Notes with an item in every progress section and one next step, and the headings in both languages.
const NOTES: [(&str, [&str; 4], [&str; 4]); 2] = [
    (
        "## Goal\nRepair the ledger\n\n## Progress\n### Done\n- Created main.py\n### In Progress\n\
         - Fixing 2 failing tests (test_create_user)\n### Blocked\n- Waiting for the staging key\n\n\
         ## Next Steps\n- Write the release notes\n\n## Progress\n### Done\n- Chose port 8080",
        [
            "Created main.py",
            "Fixing 2 failing tests",
            "Waiting for the staging key",
            "Write the release notes",
        ],
        [
            "### Done", "### In Progress", "### Blocked", "## Next Steps",
        ],
    ),
    (
        "## 目标\n修好账本\n\n## 进展\n### 已完成\n- 创建了 main.py\n### 进行中\n\
         - 修复 2 个失败的测试 (test_create_user)\n### 受阻\n- 等待测试环境的密钥\n\n\
         ## 下一步\n- 编写发布说明\n\n## 进展\n### 已完成\n- 选了 8080 端口",
        [
            "创建了 main.py",
            "修复 2 个失败的测试",
            "等待测试环境的密钥",
            "编写发布说明",
        ],
        ["### 已完成", "### 进行中", "### 受阻", "## 下一步"],
    ),
];

/// Checks that each item is under its heading and that no heading is repeated.
fn stands_as_noted(summary: &str, items: &[&str], headings: &[&str]) {
    for (item, heading) in items.iter().zip(headings) {
        let mut under = "";
        let mut found = None;
        for line in summary.lines() {
            if line.starts_with('#') {
                under = line;
            } else if line.contains(item) {
                found.get_or_insert(under);
            }
        }
        assert_eq!(found, Some(*heading), "{item} in {summary}");
    }
    let titles: Vec<&str> = summary
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    for title in &titles {
        let count = titles.iter().filter(|other| *other == title).count();
        assert_eq!(count, 1, "{title} in {summary}");
    }
}

#[test]
fn nothing_is_called_done_that_nobody_showed_to_be_done() {
    for (notes, items, headings) in NOTES {
        // Prepared between turns, with the later messages digested into it.
        let host = ScriptedHost::with_model(200_000);
        let mut chat = long_chat();
        let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
        session.observe(&chat).unwrap();
        let call = prepared(&mut session, &chat).remove(0);
        let answer = Ok(ScriptedModel::answer(notes));
        session.engine.background_done(call.id, answer);
        chat.talk(12, 3_400);
        session.observe(&chat).unwrap();
        let (mut after, compaction) = session.compacted(&chat, &order(chat.window(WINDOW, 500)));
        assert!(!compaction.degraded);
        stands_as_noted(summary_of(&compaction), &items, &headings);

        // The model fails at the second compaction.
        host.model.will(Err(FailureKind::Overloaded));
        after.talk(60, 3_400);
        let (_, compaction) = session.compacted(&after, &waiting(&after));
        assert!(compaction.degraded);
        stands_as_noted(summary_of(&compaction), &items, &headings);

        // A foreground compaction, twice. The material for the model must not call anything done, either.
        let host = ScriptedHost::with_model(200_000);
        let chat = long_chat();
        let mut session = open(&host, "{}", &chat.window(WINDOW, 500));
        host.model.will(Ok(notes));
        let (mut after, compaction) = session.compacted(&chat, &waiting(&chat));
        stands_as_noted(summary_of(&compaction), &items, &headings);
        after.talk(60, 3_400);
        host.model.will(Ok(notes));
        let (_, compaction) = session.compacted(&after, &waiting(&after));
        assert!(!compaction.degraded);
        stands_as_noted(summary_of(&compaction), &items, &headings);
        let prompt = host.model.requests()[1].prompt.clone();
        let facts = prompt.split("<extracted-facts>").nth(1).unwrap();
        let facts = facts.split("</extracted-facts>").next().unwrap();
        stands_as_noted(facts, &items, &headings);
    }
}
