//! The engine alone, with a model that is told what to say: whose summary is taken, what is kept for how long, and what
//! it costs as a conversation grows.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

use contexture_engine_api::{
    CompressRequest, ContextEngine, Decision, Entry, HostServices, MessageId, MessageKind, Outcome,
    StandaloneEngine, ToolCall, Usage,
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
    let files = || host.artifacts("").unwrap().len();
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
    assert_eq!(host.artifacts("").unwrap(), [""; 0]);
}

/// What the model can read: the list, and the beginning of each file on it.
fn readable(session: &mut Session) -> Vec<String> {
    let mut ask = |tool: &str, arguments: String| {
        let answer = session.engine.call_tool(&ToolCall::new(tool, arguments));
        answer.unwrap_or_else(|error| panic!("{tool}: {error}"))
    };
    let mut read = vec![ask("file_list", "{}".into())];
    let names: Vec<String> = (read[0].lines())
        .filter_map(|line| Some(line.split_once(": ")?.0.to_owned()))
        .collect();
    let file = |name| serde_json::json!({"name": name}).to_string();
    read.extend(names.into_iter().map(|name| ask("file_read", file(name))));
    read
}

#[test]
fn files_come_from_the_transcript_until_their_messages_are_cut_off() {
    let host = ScriptedHost::without_model();
    let mut chat = full();
    let log = chat.user("word ".repeat(8_000)).id;
    chat.push("assistant", "yes");
    chat.user("go on");
    let window = chat.window(20_000, 0);
    let mut session = Session::open::<VirtualFiles>(&host, "{}", &window);
    session.observe(&chat).unwrap();
    let (after, _) = session.compacted(&chat, &order(window));
    assert!(
        after
            .get(log)
            .is_none_or(|log| log.kind == MessageKind::Replaced)
    );
    let before = readable(&mut session);
    assert!(
        before[1].contains("=== user ===\nThe port is 8080."),
        "{}",
        before[1]
    );
    // Another object, over a directory in which nothing is.
    let window = after.window(20_000, 0);
    let reopen = || VirtualFiles::open(&host.open_request("{}", &window)).unwrap();
    session.engine = Box::new(reopen());
    assert_eq!(readable(&mut session), before);
    session.cut(Some(MessageId(9))).unwrap();
    let nothing = ["There are no files yet.".to_owned()];
    assert_eq!(readable(&mut session), nothing);
    session.engine = Box::new(reopen());
    assert_eq!(readable(&mut session), nothing);
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
                    let used = count(shown);
                    match role {
                        "user" => assert!(
                            (preview * 9 / 10..=preview).contains(&used)
                                && shown.contains("characters left out"),
                            "{used} of {preview}"
                        ),
                        _ => {
                            assert_eq!(used, preview);
                            assert!(text.starts_with(shown));
                        }
                    }
                }
            }
        }
    }
}
