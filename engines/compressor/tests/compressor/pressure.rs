//! What does not fit, and what does not help.

use contexture_engine_api::Committed;
use contexture_engine_api::*;

use crate::chat::*;

#[test]
fn twenty_giant_messages_do_not_stop_progress() {
    let mut chat = Chat::default();
    chat.user("Read everything");
    for step in 0..12 {
        chat.tool(
            "read_file",
            &format!("{{\"path\":\"f{step}\"}}"),
            format!("file {step}: {}", filler(step, 24_000)),
        );
    }
    let window = chat.window(100_000, 1_000);
    let mut session = alone("{}", &window);
    let (after, compaction) = session.compacted(&chat, &order(window));
    assert!(after.tokens() + 1_000 <= 37_500, "{}", after.tokens());
    let last = after.messages.last().unwrap();
    assert!(
        last.text.starts_with("file 11"),
        "the last turn is not cleared"
    );
    let is_preview = |text: &str| text.starts_with(SHORTENED_MARK) && text.len() < 1_000;
    let previews = after.messages.iter().filter(|m| is_preview(&m.text));
    let notes = compaction.notes.concat();
    assert!(
        previews.count() > 0 && notes.contains("shortened"),
        "{notes}"
    );
    assert_eq!(after.messages.len(), 22, "all but the middle stay");
    let texts: Vec<bool> = after
        .messages
        .iter()
        .filter(|m| m.role == "tool")
        .map(|m| is_preview(&m.text))
        .collect();
    assert!(
        texts.is_sorted_by(|a, b| a >= b),
        "the oldest go first: {texts:?}"
    );
}

#[test]
fn twenty_giant_answers_leave_the_tail_to_its_budget() {
    let mut chat = Chat::default();
    chat.talk(10, 40_000);
    let window = chat.window(100_000, 1_000);
    let mut session = alone("{}", &window);
    let (after, _) = session.compacted(&chat, &order(window.clone()));
    assert!(after.tokens() + 1_000 < 50_000, "{}", after.tokens());
    assert!(after.messages.len() >= 3);
}

#[test]
fn the_last_messages_stay_as_long_as_a_quarter_of_the_trigger_is_free() {
    // Forty answers of a thousand tokens.
    let mut chat = Chat::default();
    chat.talk(40, 8_000);
    for (context_length, all_stay) in [
        (79_000, true),
        (72_000, true),
        (50_000, false),
        (42_000, false),
    ] {
        let window = chat.window(context_length, 500);
        let mut session = alone("{}", &window);
        let (after, compaction) = session.compacted(&chat, &order(window));
        let same = (after.messages.iter().rev()).zip(chat.messages.iter().rev());
        let stayed = same.take_while(|(a, b)| a.text == b.text).count();
        assert_eq!(stayed >= 20, all_stay, "{stayed} of {context_length}");
        let trigger = context_length / 2;
        assert!(after.tokens() + 500 <= roomy(trigger), "{}", after.tokens());
        let notes = compaction.notes.concat();
        assert_eq!(notes.contains("protect_last_n"), !all_stay, "{notes}");
        assert!(
            all_stay || notes.contains(&format!("{stayed} of them")),
            "{notes}"
        );
    }
}

#[test]
fn the_limits_are_in_the_providers_tokens_whatever_it_reports() {
    let mut chat = Chat::default();
    chat.talk(40, 8_000);
    let counted = chat.tokens() + 500;
    for (usage, times) in [(1.0, 1), (1.25, 1), (1.25, 2), (0.8, 1)] {
        let reported = (counted as f64 * usage) as u64;
        let mut window = chat.window(80_000, 500).reported_tokens(Some(reported));
        if times == 2 {
            // Right after a compaction there is no report, so the host corrects its own count.
            window = window.reported_tokens(None).prompt_tokens(reported);
        }
        let mut session = alone("{}", &window);
        let (after, _) = session.compacted(&chat, &order(window));
        let in_providers = (after.tokens() + 500) as f64 * usage;
        assert!(in_providers <= 30_000.0, "{usage}: {in_providers}");
    }
}

#[test]
fn one_oversized_output_does_not_strand_the_answer_after_it() {
    let mut chat = Chat::default();
    chat.talk(30, 1_000);
    chat.user("What is in the log?");
    chat.tool("read_file", r#"{"path":"big.log"}"#, filler(1, 240_000));
    chat.assistant("The log says that the disk is full.");
    let window = chat.window(100_000, 1_000);
    let mut session = alone("{}", &window);
    let (after, _) = session.compacted(&chat, &order(window));
    let texts: Vec<&str> = after.messages.iter().map(|m| m.text.as_str()).collect();
    assert!(texts.contains(&"What is in the log?"));
    assert_eq!(
        *texts.last().unwrap(),
        "The log says that the disk is full."
    );
    assert!(after.tokens() < 50_000);
}

#[test]
fn an_unseen_result_larger_than_the_window_becomes_a_preview() {
    let mut chat = Chat::default();
    chat.user("What is in the log?");
    chat.tool(
        "read_file",
        r#"{"path":"big.log"}"#,
        format!("FIRST LINE {} LAST LINE", filler(1, 600_000)),
    );
    let window = chat.window(100_000, 1_000);
    let mut session = alone("{}", &window);
    let (after, _) = session.compacted(&chat, &order(window));
    let preview = &after.messages.last().unwrap().text;
    assert!(preview.starts_with(SHORTENED_MARK), "{}", &preview[..80]);
    assert!(preview.contains("FIRST LINE") && preview.ends_with("LAST LINE"));
    assert!(after.tokens() < 100_000, "{}", after.tokens());
}

#[test]
fn a_floor_above_the_threshold_is_said_and_not_tried_again() {
    let mut chat = Chat::default();
    chat.talk(4, 1_000);
    chat.user(filler(1, 240_000));
    let window = chat.window(100_000, 2_000);
    let mut session = alone("{}", &window);
    assert!(session.engine.should_compress(&window).is_yes());
    let Outcome::FloorTooHigh(floor) = session.compress(&chat, &order(window.clone())).unwrap()
    else {
        panic!("the user's message alone is above the threshold")
    };
    assert!(
        floor.tokens > 60_000 && floor.reason.contains("50,000"),
        "{floor:?}"
    );
    let no = session.engine.should_compress(&window);
    assert!(!no.is_yes() && no.reason() == floor.reason, "{no:?}");

    let tools = window.fixed_tokens(60_000);
    let mut session = alone("{}", &tools);
    assert!(
        session
            .engine
            .should_compress(&tools)
            .reason()
            .contains("tools")
    );
    // Near the end of the window it helps all the same.
    chat.messages.pop();
    chat.talk(40, 3_000);
    let window = chat.window(100_000, 60_000);
    assert!(session.engine.should_compress(&window).is_yes());
    let (after, compaction) = session.compacted(&chat, &order(window));
    assert!(after.tokens() < 25_000, "{}", after.tokens());
    assert!(compaction.system_note.is_some());
}

#[test]
fn few_messages_stay_as_they_are() {
    let mut chat = Chat::default();
    chat.talk(6, 400);
    let window = chat.window(100_000, 500).prompt_tokens(60_000);
    for force in [false, true] {
        let mut session = alone("{}", &window);
        let outcome = session
            .compress(&chat, &order(window.clone()).force(force))
            .unwrap();
        let Outcome::NothingToDo(reason) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(reason.contains("protect_last_n"), "{reason}");
    }
    let mut empty = alone("{}", &window);
    assert!(matches!(
        empty.compress(&Chat::default(), &order(window)).unwrap(),
        Outcome::NothingToDo(_)
    ));
}

#[test]
fn right_after_a_compaction_there_is_nothing_to_do() {
    let host = ScriptedHost::with_model(200_000);
    let mut chat = Chat::default();
    chat.talk(60, 4_000);
    let window = chat.window(100_000, 500);
    let mut session = open(&host, "{}", &window);
    let wait = |chat: &Chat| order(chat.window(100_000, 500)).may_wait_for_model(true);
    let (after, _) = session.compacted(&chat, &wait(&chat));
    assert_eq!(host.model.calls(), 1);
    // More than the threshold, but less than the window.
    let rough = after
        .window(100_000, 500)
        .prompt_tokens(80_000)
        .estimated(true);
    let waits = session.engine.should_compress(&rough);
    assert!(waits.reason().contains("waits for the usage"), "{waits:?}");
    let counted = rough.clone().estimated(false);
    assert!(session.engine.should_compress(&counted).is_yes());
    for force in [false, true] {
        let outcome = session
            .compress(&after, &wait(&after).force(force))
            .unwrap();
        assert!(matches!(outcome, Outcome::NothingToDo(_)), "{outcome:?}");
    }
    assert_eq!(host.model.calls(), 1, "nothing new: no model call");
    session
        .engine
        .update_usage(&Usage::default().input_tokens(20_000));
    assert!(session.engine.should_compress(&rough).is_yes());
}

#[test]
fn that_the_first_exchange_leaves_at_the_second_compaction_is_said() {
    let mut chat = Chat::default();
    chat.talk(60, 4_000);
    let window = chat.window(100_000, 500);
    let mut session = alone("{}", &window);
    let (mut after, first) = session.compacted(&chat, &order(window));
    assert_eq!(after.messages[0], chat.messages[0]);
    after.talk(60, 4_000);
    let window = after.window(100_000, 500);
    let (last, second) = session.compacted(&after, &order(window));
    assert_ne!(last.messages[0], chat.messages[0]);
    let says = |compaction: &Compaction| compaction.notes.concat().contains("the first exchange");
    assert!(!says(&first) && says(&second), "{:?}", second.notes);
}

#[test]
fn compactions_that_do_not_help_stop() {
    let mut chat = Chat::default();
    chat.user("start");
    chat.talk(11, 400);
    for _ in 0..3 {
        chat.assistant(filler(2, 68_000));
    }
    let window = chat.window(100_000, 1_000);
    let mut session = alone("{}", &window);
    let mut tries = 0;
    while session.engine.should_compress(&window).is_yes() && tries < 10 {
        tries += 1;
        let order = order(window.clone());
        match session.compress(&chat, &order).unwrap() {
            Outcome::Compacted(compaction) => {
                check(&chat, &compaction, &order).unwrap();
                session.engine.committed(&Committed::new(tries));
            }
            _ => break,
        }
    }
    assert!(tries <= 3, "{tries}");
    let no = session.engine.should_compress(&window);
    assert!(!no.is_yes(), "{no:?}");
    session.engine.model_changed(&window);
    assert!(
        session.engine.should_compress(&window).is_yes(),
        "another model, another try"
    );
    // A refused proposal is not repeated at once.
    let mut long = chat.clone();
    long.talk(20, 4_000);
    let window = long.window(200_000, 500).prompt_tokens(110_000);
    assert!(session.engine.should_compress(&window).is_yes());
    assert!(matches!(
        session.compress(&long, &order(window.clone())).unwrap(),
        Outcome::Compacted(_)
    ));
    session.engine.discarded(1, "for a test");
    assert!(!session.engine.should_compress(&window).is_yes());
}
