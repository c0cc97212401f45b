//! What holds for every conversation.

use contexture_engine_api::Committed;
use contexture_engine_api::*;
use proptest::prelude::*;

use crate::chat::*;

#[derive(Debug, Clone)]
enum Step {
    User(usize),
    Blank,
    Assistant(usize),
    /// Parallel calls, how many of them are answered, and the size of each result.
    Calls {
        ids: Vec<u8>,
        answered: usize,
        chars: usize,
        text: bool,
    },
    Orphan,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1usize..3_000).prop_map(Step::User),
        1 => Just(Step::Blank),
        3 => (1usize..3_000).prop_map(Step::Assistant),
        6 => (prop::collection::vec(0u8..5, 1..4), 0usize..4, 0usize..9_000, any::<bool>())
            .prop_map(|(ids, answered, chars, text)| Step::Calls { ids, answered, chars, text }),
        1 => Just(Step::Orphan),
    ]
}

fn chat(steps: &[Step]) -> Chat {
    let mut chat = Chat::default();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::User(chars) => _ = chat.user(filler(at, *chars)),
            Step::Blank => _ = chat.user(" \n"),
            Step::Assistant(chars) => _ = chat.assistant(filler(at, *chars)),
            Step::Calls {
                ids,
                answered,
                chars,
                text,
            } => {
                // A few ids, used again and again; distinct within a batch, as models have it.
                let mut ids: Vec<String> = ids.iter().map(|id| format!("id{id}")).collect();
                ids.sort();
                ids.dedup();
                let calls: Vec<(&str, &str, &str)> = ids
                    .iter()
                    .map(|id| (id.as_str(), "bash", r#"{"command":"ls -l src/main.rs"}"#))
                    .collect();
                chat.calls(if *text { "Let me see." } else { "" }, &calls);
                for id in ids.iter().take(*answered) {
                    chat.result(id, "bash", filler(at, *chars));
                }
            }
            Step::Orphan => _ = chat.result(&format!("lost{at}"), "bash", "lost"),
        }
    }
    chat
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn every_proposal_holds_to_the_contract(
        steps in prop::collection::vec(step(), 0..70),
        context_length in 3_000u64..120_000,
        fixed in 0u64..2_000,
        force in any::<bool>(),
        protect_last_n in 1usize..25,
    ) {
        let mut chat = chat(&steps);
        let settings = format!(r#"{{"protect_last_n":{protect_last_n}}}"#);
        let mut session = alone(&settings, &chat.window(context_length, fixed));
        for round in 0..3 {
            let window = chat.window(context_length, fixed);
            let before = fixed + chat.tokens();
            let order = order(window).force(force);
            match session.compress(&chat, &order).unwrap() {
                Outcome::Compacted(compaction) => {
                    let after = check(&chat, &compaction, &order);
                    prop_assert!(after.is_ok(), "round {round}: {}", after.unwrap_err());
                    chat = after.unwrap();
                    session.engine.committed(&Committed::new(round));
                }
                Outcome::FloorTooHigh(floor) => {
                    prop_assert!(!force && floor.tokens > 0 && !floor.reason.is_empty());
                    prop_assert!(before >= context_length / 2, "{before} of {context_length}");
                }
                _ => {}
            }
            chat.talk(4, 2_000);
        }
    }

    #[test]
    fn pruning_keeps_every_message(steps in prop::collection::vec(step(), 0..50)) {
        let chat = chat(&steps);
        let order = order(chat.window(8_000, 500));
        let mut session = alone(r#"{"protect_last_n":3}"#, &order.window);
        let outcome = session.prune(&chat, &order).unwrap();
        if let Outcome::Compacted(compaction) = outcome {
            prop_assert_eq!(compaction.entries.len(), chat.messages.len());
            let after = chat.apply(&compaction);
            prop_assert!(after.tokens() < chat.tokens());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Over like turns and like compactions the tail stays what it is, but for the group that the boundary
    /// falls into.
    #[test]
    fn the_tail_does_not_shrink_from_one_compaction_to_the_next(
        chars in 1_000usize..16_000,
        calls in 1usize..4,
        protect_last_n in 1usize..25,
    ) {
        let mut chat = Chat::default();
        let settings = format!(r#"{{"protect_last_n":{protect_last_n}}}"#);
        let mut session = alone(&settings, &chat.window(100_000, 1_000));
        let mut tails: Vec<u64> = Vec::new();
        let mut largest_group = 0;
        for turn in 0..250 {
            chat.user(filler(turn, chars / 4));
            let ids: Vec<String> = (0..calls).map(|n| format!("t{turn}n{n}")).collect();
            let batch: Vec<(&str, &str, &str)> = ids.iter().map(|id| (id.as_str(), "bash", "{}")).collect();
            let before = chat.tokens();
            chat.calls("", &batch);
            for id in &ids {
                chat.result(id, "bash", filler(turn, chars));
            }
            largest_group = largest_group.max(chat.tokens() - before);
            chat.assistant(filler(turn, chars / 2));
            let window = chat.window(100_000, 1_000);
            if !session.engine.should_compress(&window).is_yes() {
                continue;
            }
            let order = order(window);
            if let Outcome::Compacted(compaction) = session.compress(&chat, &order).unwrap() {
                chat = check(&chat, &compaction, &order).unwrap();
                session.engine.committed(&Committed::new(turn as u64));
                let summary = chat.messages.iter().position(|m| m.kind == MessageKind::Summary).unwrap();
                tails.push(chat.messages[summary + 1..].iter().map(|m| m.tokens()).sum());
            }
        }
        for pair in tails.windows(2) {
            prop_assert!(pair[1] + largest_group >= pair[0], "{tails:?}");
        }
        prop_assert!(tails.len() > 1, "{tails:?}");
    }
}
