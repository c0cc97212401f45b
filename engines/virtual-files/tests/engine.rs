//! The engine alone, with a model that is told what to say: whose summary is taken, what is kept for how long, and what
//! it costs as a conversation grows.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_engine_api::{
    CompressRequest, ContextEngine, Decision, Entry, MessageKind, MessageView, Outcome,
    StandaloneEngine, Usage,
};
use contexture_testkit::{Chat, ScriptedHost, Session, count, order};
use contexture_virtual_files::VirtualFiles;

/// A conversation that is due in a window of this size.
fn full() -> Chat {
    let mut chat = Chat::default();
    chat.user("The port is 8080. Never touch the schema.");
    chat.talk(70, 1_000);
    chat
}

fn summary(chat: &Chat) -> &str {
    let is_summary = |kind| kind == MessageKind::Summary;
    let found = chat
        .messages
        .iter()
        .find(|message| is_summary(message.kind));
    &found.expect("a summary").text
}

#[test]
fn a_model_writes_nine_sections_between_turns_and_what_came_since_is_added() {
    let host = ScriptedHost::with_model(100_000);
    let mut chat = full();
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    assert!(session.engine.should_compress(&window).is_yes());
    let now = order(window.clone());
    let calls = session.background_of(&chat, &now);
    assert_eq!(calls.len(), 1);
    assert!(!calls[0].covers.is_empty());
    let system = &calls[0].request.system;
    for heading in ["## 1. ", "## 6. The User's Messages", "## 9. Next Step"] {
        assert!(system.contains(heading), "{system}");
    }
    host.model
        .will(Ok("## 1. Request and Intent\nKeep port 8080."));
    session.answer(calls);
    chat.user("Rename reconcile_epoch to settle_epoch.");
    chat.talk(6, 400);
    let (after, proposal) = session.compacted(&chat, &order(chat.window(20_000, 0)));
    assert!(!proposal.degraded);
    let text = summary(&after);
    assert!(text.contains("Keep port 8080."), "{text}");
    assert!(text.contains("[file window-"), "{text}");
    assert_eq!(host.model.calls(), 1, "nobody waited for the model");
}

#[test]
fn without_an_answer_a_digest_takes_its_place_and_says_so() {
    let host = ScriptedHost::with_model(100_000);
    let chat = full();
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    let (after, proposal) = session.compacted(&chat, &order(window));
    assert!(proposal.degraded);
    assert!(summary(&after).contains("Never touch the schema"));
    assert_eq!(host.model.calls(), 0);
}

#[test]
fn a_summary_is_updated_and_points_at_the_last_window_alone() {
    let host = ScriptedHost::without_model();
    let mut chat = full();
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    for round in 0..4 {
        let (mut after, _) = session.compacted(&chat, &order(chat.window(20_000, 0)));
        let text = summary(&after);
        assert_eq!(text.matches("[file window-").count(), 1, "{round}: {text}");
        assert!(text.contains("8080"), "{round}: {text}");
        assert_eq!(
            after
                .messages
                .iter()
                .filter(|m| m.kind == MessageKind::Summary)
                .count(),
            1
        );
        after.talk(40, 1_200);
        chat = after;
    }
    let listed = session.engine.status();
    assert_eq!(
        (&listed["files"], &listed["compactions"]),
        (&4.into(), &4.into()),
        "{listed}"
    );
}

#[test]
fn the_mark_of_a_file_is_not_what_the_user_said() {
    let host = ScriptedHost::without_model();
    let mut chat = Chat::default();
    let preview = "[file user-1.txt: 12,000 tokens; you must read it]\nNever touch the schema.";
    chat.user(preview).kind = MessageKind::Replaced;
    chat.talk(70, 1_000);
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    let (after, _) = session.compacted(&chat, &order(window));
    let text = summary(&after);
    assert!(text.contains("Never touch the schema."), "{text}");
    assert!(!text.contains("you must read it"), "{text}");
}

#[test]
fn a_proposal_that_is_refused_leaves_no_file_behind() {
    let host = ScriptedHost::without_model();
    let chat = full();
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    let files = || -> usize {
        let folders = std::fs::read_dir(host.data_dir()).unwrap();
        let folders = folders
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir());
        folders
            .map(|folder| std::fs::read_dir(folder).unwrap().count())
            .sum()
    };
    let before = files();
    let proposed = session.compress(&chat, &order(window)).unwrap();
    assert!(matches!(proposed, Outcome::Compacted(_)));
    assert_eq!(files(), before + 1);
    session.engine.discarded(1, "no");
    assert_eq!(files(), before);
    assert_eq!(session.engine.status()["files"], 0);
}

#[test]
fn what_cannot_be_made_smaller_is_not_tried_on_every_turn() {
    let host = ScriptedHost::without_model();
    let mut chat = Chat::default();
    chat.user("word ".repeat(100));
    let window = chat.window(10_000, 9_000);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    assert!(session.engine.should_compress(&window).is_yes());
    let outcome = session.compress(&chat, &order(window.clone())).unwrap();
    assert!(!matches!(outcome, Outcome::Compacted(_)), "{outcome:?}");
    match session.engine.should_compress(&window) {
        Decision::No(reason) => assert!(reason.contains("which stay"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_turn_with_nothing_due_writes_no_more_as_the_conversation_grows() {
    let host = ScriptedHost::without_model();
    let mut chat = Chat::default();
    chat.talk(2, 100);
    let window = chat.window(1_000_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    let journal = || -> u64 {
        let mut folders = std::fs::read_dir(host.data_dir()).unwrap();
        let folder = folders.find(|entry| entry.as_ref().unwrap().path().is_dir());
        let journal = folder.unwrap().unwrap().path().join("journal.jsonl");
        std::fs::metadata(journal).unwrap().len()
    };
    let mut step = |turns: usize| {
        let before = journal();
        for _ in 0..turns {
            chat.user("go on");
            chat.push("assistant", "yes");
            session.observe(&chat).unwrap();
        }
        (journal() - before) / turns as u64
    };
    let early = step(10);
    step(1_000);
    let late = step(10);
    assert!(late <= early + 16, "{late} bytes a turn after {early}");
}

#[test]
fn the_notices_of_many_files_stay_short() {
    let host = ScriptedHost::without_model();
    let settings = r#"{"file_tokens": 100, "preview_tokens": 10}"#;
    let mut chat = Chat::default();
    for at in 0..200 {
        chat.user(format!("{at} {}", "word ".repeat(200)));
        chat.push("assistant", "yes");
    }
    chat.user("go on");
    let window = chat.window(1_000_000, 0);
    let mut engine = VirtualFiles::open(&host.open_request(settings, &window)).unwrap();
    let now = order(window);
    let proposal = chat.with_views(|views| engine.rewrite(&CompressRequest::new(views, &now)));
    let proposal = proposal.unwrap().unwrap();
    let Some(Entry::Notice(notice)) = proposal.entries.last() else {
        panic!("no notice: {:?}", proposal.entries.last());
    };
    assert!(
        notice.text.starts_with("[virtual files] "),
        "{}",
        notice.text
    );
    assert!(
        notice.text.contains("188 more in file_list"),
        "{}",
        notice.text
    );
    assert!(notice.text.len() < 800, "{}", notice.text);
    let replaced = |entry: &&Entry| matches!(entry, Entry::Replace(_));
    assert_eq!(proposal.entries.iter().filter(replaced).count(), 200);
}

#[test]
fn wrong_settings_are_named() {
    let host = ScriptedHost::without_model();
    let window = Chat::default().window(1_000, 0);
    let error =
        VirtualFiles::open(&host.open_request(r#"{"file_token": 1}"#, &window)).unwrap_err();
    assert!(error.to_string().contains("file_token"), "{error}");
}

#[test]
fn a_forgotten_conversation_leaves_nothing() {
    let host = ScriptedHost::without_model();
    let chat = full();
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    session.observe(&chat).unwrap();
    session.compacted(&chat, &order(window));
    session.engine.update_usage(&Usage::default());
    session.engine.reset().unwrap();
    assert_eq!(session.engine.status()["files"], 0);
    assert_eq!(
        session.engine.observed_through(),
        Some(contexture_engine_api::Observed::NOTHING)
    );
    let is_real = |view: &MessageView<'_>| view.is_real_user();
    assert!(chat.with_views(|views| views.iter().any(is_real)));
}

#[test]
fn what_has_left_the_window_is_given_back_until_it_is_cut_off() {
    let host = ScriptedHost::without_model();
    let mut chat = full();
    chat.user("word ".repeat(8_000));
    chat.push("assistant", "yes");
    chat.user("go on");
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    session.observe(&chat).unwrap();
    let (after, _) = session.compacted(&chat, &order(window));
    let is_gone = |id| {
        let there = after.messages.iter().find(|there| there.id == id);
        there.is_none_or(|there| there.kind == MessageKind::Replaced)
    };
    let gone: Vec<_> = (chat.messages.iter())
        .filter(|message| is_gone(message.id))
        .map(|message| (message.id, message.raw()))
        .collect();
    assert!(gone.len() > 50, "{} messages", gone.len());
    let ids: Vec<_> = gone.iter().map(|(id, _)| *id).collect();
    let said: Vec<_> = gone.iter().map(|(_, raw)| Some(raw.clone())).collect();
    assert_eq!(session.engine.recall(&ids).unwrap(), said);
    // It is the folder that has them, not the object.
    let window = after.window(20_000, 0);
    session.engine = Box::new(VirtualFiles::open(&host.open_request("{}", &window)).unwrap());
    assert_eq!(session.engine.recall(&ids).unwrap(), said);
    session.cut(Some(ids[9])).unwrap();
    let left = session.engine.recall(&ids).unwrap();
    assert_eq!(left[..10], said[..10]);
    assert!(left[10..].iter().all(Option::is_none), "{left:?}");
    session.engine.reset().unwrap();
    let left = session.engine.recall(&ids).unwrap();
    assert!(left.iter().all(Option::is_none));
}

#[test]
fn the_limits_are_those_of_the_text() {
    let host = ScriptedHost::without_model();
    let of = |tokens: u64| {
        let mut text = "word ".repeat(tokens as usize);
        while count(&text) < tokens {
            text.push_str("word ");
        }
        while count(&text) > tokens {
            text.truncate(text.trim_end().rfind(' ').unwrap_or(0));
        }
        assert_eq!(count(&text), tokens);
        text
    };
    for (limit, preview, settings) in [
        (10_000, 1_000, "{}"),
        (
            1_000,
            100,
            r#"{"file_tokens": 1000, "preview_tokens": 100}"#,
        ),
    ] {
        for (tokens, becomes_a_file) in [(limit - 1, false), (limit, false), (limit + 1, true)] {
            for role in ["user", "tool"] {
                let text = of(tokens);
                let mut chat = Chat::default();
                match role {
                    "user" => _ = chat.user(text.clone()),
                    _ => {
                        chat.user("read it");
                        chat.tool("read", "{}", text.clone());
                    }
                }
                let window = chat.window(200_000, 0);
                let mut session = Session::open::<VirtualFiles>(&host, settings, &window);
                let now = order(window);
                let rewrite = chat.with_views(|views| {
                    session
                        .engine
                        .rewrite(&CompressRequest::new(views, &now))
                        .unwrap()
                });
                let entries = rewrite.into_iter().flat_map(|proposal| proposal.entries);
                let shown = entries
                    .filter_map(|entry| match entry {
                        Entry::Replace(replacement) => replacement.text,
                        _ => None,
                    })
                    .next();
                assert_eq!(shown.is_some(), becomes_a_file, "{tokens} of {role}");
                if let Some(shown) = shown {
                    let (_, shown) = shown.split_once('\n').unwrap();
                    assert_eq!(count(shown), preview, "{role}");
                    assert!(text.starts_with(shown));
                }
            }
        }
    }
}
