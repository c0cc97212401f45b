//! Where a summary goes between its neighbours.
#![allow(clippy::unwrap_used)]
use serde_json::json;

use super::Placement::{InNext, InPrevious, Own};
use super::*;

const USER: usize = 0;
const ANSWER: usize = 1;
const THINKING: usize = 2;
const RESULT: usize = 3;
const SYSTEM: usize = 4;

fn conversation() -> Conversation {
    let call = json!({"type": "tool_use", "id": "c", "name": "ls", "input": {}});
    let thinking = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "none"});
    let body = json!({"max_tokens": 100, "messages": [
        {"role": "user", "content": "Which files?"},
        {"role": "assistant", "content": "I will look."},
        {"role": "assistant", "content": [thinking, call]},
        {"role": "user", "content": [result]},
        {"role": "system", "content": "The folder is empty."},
    ]});
    let read = crate::read(body.to_string(), Some(Format::Anthropic));
    read.unwrap().remove(0)
}

/// The place of a summary behind the message `previous` and before the message `next`.
fn between(
    previous: Option<usize>,
    next: Option<usize>,
    target: Format,
    own_summaries: bool,
) -> Placement {
    let conversation = conversation();
    let messages = conversation.messages();
    let previous = previous.map(|index| PlannedMessage::Kept(KeptMessage::of(&[index])));
    let next = next.map(|index| &messages[index]);
    let wire = FormatPair {
        source: Format::Anthropic,
        target,
    };
    placement(messages, previous.as_ref(), next, wire, own_summaries)
}

#[test]
fn a_summary_gets_the_role_that_neither_neighbour_has_or_joins_one() {
    let cases = [
        (None, None, Own("user")),
        (None, Some(ANSWER), Own("user")),
        (None, Some(USER), InNext),
        (Some(USER), Some(USER), Own("assistant")),
        (Some(USER), Some(ANSWER), InNext),
        (Some(ANSWER), Some(USER), InNext),
        (Some(ANSWER), None, Own("user")),
        // The answer of the model follows, so no message of its role may be the last.
        (Some(USER), None, InPrevious),
        // Thinking comes first in its message, and nothing may be put before it.
        (Some(USER), Some(THINKING), InPrevious),
        (Some(RESULT), Some(ANSWER), InNext),
        // Nothing can be put behind a result but a block of its own.
        (Some(RESULT), Some(THINKING), Own("user")),
        // A system message has to follow one of the user's.
        (Some(USER), Some(SYSTEM), InPrevious),
    ];
    for (previous, next, expected) in cases {
        let found = between(previous, next, Format::Anthropic, false);
        assert_eq!(found, expected, "between {previous:?} and {next:?}");
    }
}

#[test]
fn a_summary_at_the_head_is_a_message_of_its_own_if_that_is_wanted_and_accepted() {
    let at_the_head = |target, own| between(None, Some(USER), target, own);
    assert_eq!(at_the_head(Format::OpenAiChat, true), Own("assistant"));
    assert_eq!(at_the_head(Format::OpenAiChat, false), InNext);
    assert_eq!(at_the_head(Format::Anthropic, true), InNext);
}

#[test]
fn a_summary_behind_a_summary_is_a_block_of_its_own_or_joins_it() {
    let conversation = conversation();
    let before = PlannedMessage::Summary {
        role: "user",
        text: "What happened.".to_owned(),
    };
    let behind = |target| {
        let wire = FormatPair {
            source: Format::Anthropic,
            target,
        };
        placement(conversation.messages(), Some(&before), None, wire, false)
    };
    assert_eq!(behind(Format::Anthropic), Own("user"));
    assert_eq!(behind(Format::OpenAiChat), InPrevious);
}
