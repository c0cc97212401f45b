//! The document's example: 45 messages of about 95,000 tokens.

use contexture_engine_api::*;

use crate::chat::*;

/// The system prompt stands outside the history, so 44 messages here.
fn example() -> Chat {
    let mut chat = Chat::default();
    chat.user("Help me set up a FastAPI project");
    chat.tool(
        "terminal",
        r#"{"command":"mkdir project"}"#,
        "directory created",
    );
    chat.tool(
        "write_file",
        r#"{"path":"main.py"}"#,
        "file written (2.3KB)",
    );
    for turn in 0..16 {
        let path = format!("{{\"path\":\"app/module_{turn}.py\"}}");
        chat.tool(
            "read_file",
            &path,
            format!("def handler_{turn}():\n{}", filler(turn, 20_000)),
        );
    }
    chat.tool(
        "terminal",
        r#"{"command":"pytest"}"#,
        format!("8 passed, 2 failed\n{}", filler(1, 5_000)),
    );
    chat.user("Fix the failing tests");
    chat.tool(
        "read_file",
        r#"{"path":"tests/test_api.py"}"#,
        format!("import pytest\n{}", filler(2, 3_000)),
    );
    chat.assistant("I see the issue with the test fixtures...");
    chat.user("Great, also add error handling");
    chat
}

#[test]
fn the_documents_example() {
    let chat = example();
    assert_eq!(chat.messages.len(), 44);
    // 190,000 × 0.5 is reached.
    let window = chat.window(190_000, 10_000).prompt_tokens(95_000);
    let mut session = alone("{}", &window);
    assert!(session.engine.should_compress(&window).is_yes());
    let (after, compaction) = session.compacted(&chat, &order(window));

    assert_eq!(after.messages[0].text, "Help me set up a FastAPI project");
    assert!(
        after.messages[1]
            .text
            .starts_with("[CONTEXT COMPACTION] Earlier turns were compacted")
    );
    // The boundary falls into a tool group and moves back: head, summary, then twenty and more as they were.
    let tail = &after.messages[2..];
    assert!((20..=24).contains(&tail.len()), "{}", tail.len());
    for (kept, original) in tail.iter().rev().zip(chat.messages.iter().rev()) {
        assert_eq!((kept.id, &kept.text), (original.id, &original.text));
    }
    assert_eq!(tail[0].role, "assistant");
    assert_eq!(compaction.system_note.as_deref(), Some(COMPACTION_NOTE));
    assert!(after.tokens() < 60_000, "{}", after.tokens());

    let summary = summary_of(&compaction);
    assert!(summary.contains("## "), "{summary}");
    for fact in ["main.py", "app/module_0.py", "handler_0", "app/module_7.py"] {
        assert!(summary.contains(fact), "{fact} is missing from {summary}");
    }
}

#[test]
fn below_the_threshold_no_at_it_yes() {
    let chat = example();
    let session = alone("{}", &chat.window(200_000, 0));
    let decide = |prompt_tokens, reported_tokens| {
        let window = chat
            .window(200_000, 0)
            .prompt_tokens(prompt_tokens)
            .reported_tokens(reported_tokens);
        session.engine.should_compress(&window)
    };
    let no = decide(99_999, None);
    assert!(
        !no.is_yes() && no.reason().contains("99,999") && no.reason().contains("100,000"),
        "{no:?}"
    );
    assert!(decide(100_000, None).is_yes());
    assert!(
        decide(50_000, Some(100_000)).is_yes(),
        "what the provider reported counts"
    );
    assert!(!decide(150_000, Some(90_000)).is_yes());
}

#[test]
fn both_ends_of_the_thresholds_range_compact() {
    let chat = example();
    let window = |prompt_tokens| {
        chat.window(200_000, 500)
            .prompt_tokens(prompt_tokens)
            .max_output_tokens(10_000)
    };
    // At 0.0 always, where there is something to compact.
    let settings = r#"{"threshold":0.0}"#;
    let mut session = alone(settings, &window(0));
    assert!(session.engine.should_compress(&window(0)).is_yes());
    assert!(session.engine.should_compress(&window(150_000)).is_yes());
    let (after, compaction) = session.compacted(&chat, &order(window(chat.tokens())));
    assert!(after.messages.len() <= 24, "{}", after.messages.len());
    assert!(
        compaction
            .notes
            .iter()
            .all(|note| !note.contains("above the threshold"))
    );
    assert!(matches!(
        session.compress(&after, &order(after.window(200_000, 500))),
        Ok(Outcome::NothingToDo(_))
    ));
    // At 1.0 once no room is left for the answer.
    let mut session = alone(r#"{"threshold":1}"#, &window(0));
    assert!(!session.engine.should_compress(&window(189_999)).is_yes());
    assert!(session.engine.should_compress(&window(190_000)).is_yes());
    let mut long = chat.clone();
    long.talk(100, 5_000);
    session.compacted(&long, &order(long.window(200_000, 500)));
}

#[test]
fn switching_the_model_moves_the_threshold_both_ways() {
    let chat = example();
    let session = alone("{}", &chat.window(200_000, 0));
    for (context_length, yes) in [
        (200_000, false),
        (128_000, true),
        (1_000_000, false),
        (32_000, true),
    ] {
        let window = chat.window(context_length, 0).prompt_tokens(90_000);
        assert_eq!(
            session.engine.should_compress(&window).is_yes(),
            yes,
            "{context_length}"
        );
    }
    let unknown = WindowState::default().prompt_tokens(90_000);
    assert!(
        session
            .engine
            .should_compress(&unknown)
            .reason()
            .contains("not known")
    );
}

#[test]
fn switched_off_it_says_so_and_is_still_there_for_who_forces_it() {
    let chat = example();
    let window = chat.window(128_000, 0);
    let mut session = alone(r#"{"enabled":false}"#, &window);
    let no = session.engine.should_compress(&window);
    assert!(!no.is_yes() && no.reason().contains("compression.enabled"));
    assert!(matches!(
        session.compress(&chat, &order(window.clone())).unwrap(),
        Outcome::NothingToDo(_)
    ));
    session.compacted(&chat, &order(window).force(true));
}
