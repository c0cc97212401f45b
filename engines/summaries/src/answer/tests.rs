#![allow(clippy::unwrap_used)]
use proptest::prelude::*;

use super::*;

const SYSTEM: &str =
    "You write notes.\n\n## Goal\n[what the user wants]\n\n## Next\n[what remains]";
const PROMPT: &str = "<conversation>\n\n</conversation>\n\nNow write.";

fn read(answer: &str) -> Result<String, ModelFailure> {
    text_in(answer, SYSTEM, &[PROMPT.to_owned()])
}

#[test]
fn what_does_not_belong_into_a_summary_is_removed() {
    for (answer, text) in [
        (
            "Sure! Here is the summary:\n\n## Goal\nShip it",
            "## Goal\nShip it",
        ),
        (
            "The goal:\n## Other\nShip it",
            "The goal:\n## Other\nShip it",
        ),
        (
            "## Goal\nShip it\n\n## Next\n[what remains]",
            "## Goal\nShip it\n\n## Next",
        ),
        (
            "Fix\0 the \u{1b}pars\u{202e}er\r\nnow\u{85}",
            "Fix the parser\nnow",
        ),
        ("DB_PASSWORD=hunter2Xy9zQ", "DB_PASSWORD=[secret masked]"),
        ("DB_PASS\0WORD=hunter2Xy9zQ", "DB_PASSWORD=[secret masked]"),
        (&"- read it\n".repeat(91), "- read it"),
        (&"- a\n\n- b\n\n".repeat(40), "- a\n\n- b"),
        (&format!("- a\n{}", "- b\n- c\n".repeat(3)), "- a\n- b\n- c"),
        // The same line under two others, and brackets, are no loop.
        (
            "- a.rs\n  - read\n- b.rs\n  - read\n}\n}",
            "- a.rs\n  - read\n- b.rs\n  - read\n}\n}",
        ),
    ] {
        assert_eq!(read(answer).unwrap(), text, "{answer}");
    }
}

#[test]
fn an_answer_of_which_nothing_is_left_is_a_failure() {
    for (answer, kind) in [
        ("\u{1b}\0 \n", FailureKind::Empty),
        ("<think>hm", FailureKind::Empty),
        (
            "## Goal\n[what the user wants]\n\n## Next",
            FailureKind::Empty,
        ),
        ("Sorry, that is private.\0", FailureKind::Refused),
        (SYSTEM, FailureKind::Other),
        ("<conversation>\n[user] Ship it", FailureKind::Other),
    ] {
        let failure = read(answer).unwrap_err();
        assert_eq!(failure.kind, kind, "{answer}");
    }
}

#[test]
fn trimming_takes_from_the_longest_section_and_keeps_the_last() {
    let long: String = (0..200)
        .map(|n| format!("- step {n} of a long list\n"))
        .collect();
    let notes = format!(
        "## Goal\nShip it\n\n## Progress\n### Done\n{long}\n## Critical Context\nport 8080"
    );
    let services = Services::none();
    let short = trim(notes.clone(), 300, &services);
    assert!(services.count_tokens(&short) <= 300);
    assert!(
        short.contains("Ship it") && short.contains("port 8080") && short.contains("- step 0 ")
    );
    assert!(!short.contains("step 199"));
    assert_eq!(trim(notes.clone(), 10_000, &services), notes);
}

proptest! {
    #[test]
    fn trimmed_notes_fit_and_never_panic(notes in "(#{0,3} ?\\PC{0,80}\n){0,30}", budget in 1u64..200) {
        let services = Services::none();
        let short = trim(notes, budget, &services);
        prop_assert!(services.count_tokens(&short) <= budget + 20);
    }
}
