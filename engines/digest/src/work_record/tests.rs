#![allow(clippy::unwrap_used, clippy::expect_used)]
use contexture_engine_api::{MessageId, MessageView, ToolCallView};

use super::*;
use crate::Digest;
use crate::shown::DOUBT;

/// A call in a play: tool, arguments, result, and whether it failed.
type Step = (&'static str, &'static str, &'static str, bool);

const READ: Step = (
    "read",
    r#"{"file_path": "src/ledger.rs"}"#,
    "fn reconcile_epoch() {}",
    false,
);
const FAILS: Step = (
    "bash",
    r#"{"command": "cargo test -p ledger"}"#,
    "test reconcile_epoch ... FAILED\ntest opens ... ok\ntest result: FAILED. 1 passed; 1 failed",
    true,
);
const PASSES: Step = (
    "bash",
    r#"{"command": "cargo test"}"#,
    "test reconcile_epoch ... ok\ntest result: ok. 2 passed; 0 failed",
    false,
);

fn record(user: &str, steps: &[Step], earlier: &str) -> WorkRecord {
    let names: Vec<String> = (0..steps.len()).map(|at| format!("c{at}")).collect();
    let calls: Vec<[ToolCallView<'_>; 1]> = (steps.iter().zip(&names))
        .map(|((tool, arguments, ..), id)| [ToolCallView::new(id, tool, arguments)])
        .collect();
    let mut messages = vec![MessageView::new(MessageId(1), "user").with_text(user)];
    for (at, (tool, _, result, failed)) in steps.iter().enumerate() {
        let id = 2 + 2 * at as u64;
        messages.push(MessageView::new(MessageId(id), "assistant").with_tool_calls(&calls[at]));
        messages.push(
            MessageView::new(MessageId(id + 1), "tool")
                .with_result_of(&names[at], tool)
                .with_text(result)
                .with_error(*failed),
        );
    }
    Digest::of(&messages, None).work_record(earlier)
}

fn marks(record: &WorkRecord, summary: &str) -> usize {
    let checked = record.check(summary);
    assert_eq!(
        checked.text.matches("[not confirmed: ").count(),
        checked.contradictions
    );
    checked.contradictions
}

#[test]
fn a_file_that_nothing_changed_is_marked() {
    let edit = (
        "edit",
        r#"{"file_path": "src/ledger.rs", "old_string": "a", "new_string": "b"}"#,
        "ok",
        false,
    );
    let fails = (edit.0, edit.1, "string not found", true);
    let shell = (
        "bash",
        r#"{"command": "sed -i s/a/b/ src/ledger.rs"}"#,
        "",
        false,
    );
    let prints = (
        "bash",
        r#"{"command": "cat src/ledger.rs | head -20"}"#,
        "fn main() {}",
        false,
    );
    let patch = (
        "apply_patch",
        r#"{"input": "*** Begin Patch\n*** Update File: src/ledger.rs\n"}"#,
        "",
        false,
    );
    let agent = (
        "task",
        r#"{"prompt": "fix it"}"#,
        "I edited src/ledger.rs",
        false,
    );
    let grep = (
        "grep",
        r#"{"pattern": "epoch"}"#,
        "src/ledger.rs:1: epoch",
        false,
    );
    let claim = "## Progress\n- Modified `src/ledger.rs` to fix the epoch.\n";
    for (steps, marked) in [
        (vec![READ], 1),
        (vec![READ, edit], 0),
        (vec![READ, fails], 1),
        (vec![fails, edit], 0),
        (vec![shell], 0),
        (vec![prints], 1),
        (vec![patch], 0),
        (vec![agent], 0),
        (vec![grep], 1),
        (vec![], 0),
    ] {
        assert_eq!(
            marks(&record("Fix it.", &steps, ""), claim),
            marked,
            "{steps:?}"
        );
    }
    // What somebody else reports, or what was done before the span, may be true.
    assert_eq!(
        marks(
            &record("I updated src/ledger.rs myself.", &[READ], ""),
            claim
        ),
        0
    );
    assert_eq!(
        marks(&record("Change src/ledger.rs!", &[READ], ""), claim),
        1
    );
    assert_eq!(
        marks(
            &record("Go on.", &[READ], "- src/ledger.rs — edited"),
            claim
        ),
        0
    );
}

#[test]
fn what_is_wanted_planned_or_denied_is_no_claim() {
    let record = record("Fix it.", &[READ, FAILS], "");
    for summary in [
        "## Goal\nModified src/ledger.rs, and all tests pass.",
        "## Next Steps\n- Updated src/ledger.rs",
        "src/ledger.rs should be modified.",
        "src/ledger.rs was not changed.",
        "Once the tests pass, src/other.rs is updated.",
        "Read src/ledger.rs.",
        "reconcile_epoch failed.",
        "The test opens passed.",
    ] {
        assert_eq!(marks(&record, summary), 0, "{summary}");
    }
}

/// A word in the name of a file is no doubt about the sentence, in any form in which names are written.
#[test]
fn a_name_that_contains_a_word_of_doubt_is_checked_like_any_other() {
    let record = record("Fix it.", &[READ, FAILS], "");
    for word in DOUBT {
        for path in [
            format!("docs/{word}.md"),
            format!("src/{word}_else.rs"),
            format!("src/or-{word}-else.rs"),
            format!("{word}/imagined.rs"),
        ] {
            for sentence in [
                format!("Created {path}."),
                format!("- Created `{path}` (new)"),
                format!("已创建 {path}。"),
            ] {
                assert_eq!(marks(&record, &sentence), 1, "{sentence}");
            }
            let doubted = format!("The tests {word} pass, and `{path}` was edited.");
            assert_eq!(marks(&record, &doubted), 0, "{doubted}");
        }
    }
}

#[test]
fn tests_that_are_said_to_pass_have_to_have_passed_last() {
    for (steps, named, all) in [
        (vec![FAILS], 1, 1),
        (vec![FAILS, PASSES], 0, 0),
        (vec![PASSES, FAILS], 1, 1),
        (vec![PASSES], 0, 0),
        (vec![READ], 0, 0),
        // Another test passed since, so only the last run as a whole passed.
        (
            vec![
                FAILS,
                (
                    "bash",
                    r#"{"command": "cargo test -p other_part"}"#,
                    "test result: ok. 3 passed; 0 failed",
                    false,
                ),
            ],
            1,
            0,
        ),
        // Python, JavaScript and Go report in other words.
        (
            vec![(
                "bash",
                r#"{"command": "pytest"}"#,
                "FAILED test_a.py::reconcile_epoch\n1 failed, 2 passed in 0.1s",
                true,
            )],
            1,
            1,
        ),
        (
            vec![(
                "bash",
                r#"{"command": "python -m unittest test_a"}"#,
                "FAIL: reconcile_epoch (test_a.T)\nRan 2 tests in 0.1s\n\nFAILED (failures=1)",
                false,
            )],
            1,
            1,
        ),
        (
            vec![(
                "bash",
                r#"{"command": "npx jest"}"#,
                "✕ reconcile_epoch (5 ms)\nTests:       1 failed, 2 passed, 3 total",
                false,
            )],
            1,
            1,
        ),
    ] {
        let record = record("Fix it.", &steps, "");
        assert_eq!(
            marks(&record, "reconcile_epoch passes now."),
            named,
            "{steps:?}"
        );
        assert_eq!(
            marks(&record, "- All tests pass. The rest is open."),
            all,
            "{steps:?}"
        );
        assert_eq!(marks(&record, "测试全部通过。"), all, "{steps:?}");
    }
}

#[test]
fn a_json_object_stays_one() {
    let record = record("Fix it.", &[READ, FAILS], "");
    let summary = r#"{"modified_files": ["src/ledger.rs"], "next_steps": ["modified src/x.rs"], "state": {"now": "All tests pass."}, "n": 1}"#;
    let checked = record.check(summary);
    assert_eq!(checked.contradictions, 2);
    let fields: Value = serde_json::from_str(&checked.text).unwrap();
    assert!(
        fields["modified_files"][0]
            .as_str()
            .unwrap()
            .starts_with("src/ledger.rs [not confirmed: ")
    );
    assert_eq!(fields["next_steps"][0], "modified src/x.rs");
    assert_eq!(
        fields["state"]["now"],
        "All tests pass [not confirmed: the last test run ended: test result: FAILED. 1 passed; 1 failed]."
    );
}

#[test]
fn a_claim_that_was_marked_is_marked_in_the_next_summary_too() {
    let lies = "- Created src/invented.rs.\n- All tests pass.\n- reconcile_epoch passes.";
    for language in [Language::English, Language::Chinese] {
        let mut before = record("Fix it.", &[READ, FAILS], "");
        before.language = language;
        let marked = before.check(lies);
        assert_eq!(marked.contradictions, 3);
        let next = |steps: &[Step]| {
            let mut next = record("Go on.", steps, &marked.text);
            if language == Language::Chinese {
                next = WorkRecord::of(&Span::default(), &marked.text, language);
                next.is_without_calls = false;
            }
            next.check(lies).contradictions
        };
        assert_eq!(next(&[READ]), 3, "{language:?}");
        if language == Language::English {
            assert_eq!(next(&[READ, PASSES]), 1);
        }
    }
}

#[test]
fn a_marked_summary_is_not_marked_again() {
    let record = record("Fix it.", &[READ, FAILS], "");
    let once = record.check("- Modified src/ledger.rs.\n- All tests pass.");
    assert_eq!(once.contradictions, 2);
    assert_eq!(record.check(&once.text).text, once.text);
}
