#![allow(clippy::unwrap_used, clippy::expect_used)]
use proptest::prelude::*;

use super::*;

#[test]
fn reasoning_is_cut_and_nothing_else() {
    for (text, answer) in [
        ("<think>hm</think>\n\nyes", "yes"),
        ("\n<think>a\nb</think><think>c</think> yes ", "yes"),
        ("swallowed the tag\n</think>\n\nyes", "yes"),
        ("yes", "yes"),
        (
            "the user asked about <think> and </think>",
            "the user asked about <think> and </think>",
        ),
        (
            "closes with `</think>` inline",
            "closes with `</think>` inline",
        ),
        (
            "see\n<think>\nx\n</think>\nend",
            "see\n<think>\nx\n</think>\nend",
        ),
    ] {
        assert_eq!(answer_text(text).unwrap(), answer);
    }
    for text in [
        "",
        " \n\t",
        "<think>never ends",
        "<think>only</think>",
        "<think></think>\n",
    ] {
        assert_eq!(
            answer_text(text).unwrap_err().kind,
            FailureKind::Empty,
            "{text:?}"
        );
    }
}

proptest! {
    #[test]
    fn an_answer_is_a_trimmed_end_of_the_text(text in "(<think>|</think>|\n|[a-zé ]{0,6}){0,12}") {
        if let Ok(answer) = answer_text(&text) {
            prop_assert!(text.trim_end().ends_with(&answer));
            prop_assert!(!answer.trim().is_empty());
        }
    }
}
