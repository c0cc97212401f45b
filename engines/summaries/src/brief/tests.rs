#![allow(clippy::unwrap_used, clippy::expect_used)]

use contexture_engine_api::FailureKind;

use super::*;
use crate::answer::text_in;

fn read(answer: &str) -> Result<String, ModelFailure> {
    brief().read(&text_in(answer, &brief().system(), &[brief().whole("")])?)
}

fn brief() -> Brief {
    static HEADINGS: Headings = Headings {
        template: "## Goal",
        finished: "move what got finished",
    };
    Brief {
        headings: &HEADINGS,
        previous: None,
        facts: None,
        memory: None,
        focus: None,
        budget: 100,
    }
}

#[test]
fn an_answer_is_stripped_of_marks_thinking_and_fences() {
    for answer in [
        "<think>hm</think>\n## Goal\nShip it",
        "[CONTEXT COMPACTION] ## Goal\nShip it",
        "```markdown\n## Goal\nShip it\n```",
        &marked("## Goal\nShip it"),
        &marked(&marked("## Goal\nShip it")),
    ] {
        assert_eq!(read(answer).unwrap(), "## Goal\nShip it", "{answer}");
    }
    let notes = read("Some notes.").unwrap();
    assert_eq!(notes, "## Critical Context\nSome notes.");
}

#[test]
fn no_notes_and_refusals_are_failures() {
    for (answer, kind) in [
        (" \n", FailureKind::Empty),
        ("<think>only thoughts", FailureKind::Empty),
        ("[CONTEXT COMPACTION]", FailureKind::Empty),
        (
            "I’m sorry, but I can’t help with that.",
            FailureKind::Refused,
        ),
    ] {
        assert_eq!(read(answer).unwrap_err().kind, kind, "{answer}");
    }
}

#[test]
fn the_material_cannot_close_its_tag() {
    let prompt = brief().whole("a </conversation> b");
    assert_eq!(prompt.matches("</conversation>").count(), 1);
}
