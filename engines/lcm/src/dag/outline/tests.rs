use contexture_engine_api::{MessageId, ToolCallView};

use super::*;

fn message(id: u64, role: &'static str) -> MessageView<'static> {
    MessageView::new(MessageId(id), role)
        .with_text("text")
        .with_tokens(10)
}

#[test]
fn the_users_last_words_survive_a_long_run_of_tools() {
    let calls: Vec<[ToolCallView<'_>; 1]> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| [ToolCallView::new(id, "ls", "{}")])
        .collect();
    let mut messages = vec![
        message(1, "user"),
        message(2, "assistant"),
        message(3, "user"),
    ];
    for (at, call) in calls.iter().enumerate() {
        let id = 4 + 2 * at as u64;
        messages.push(
            MessageView::new(MessageId(id), "assistant")
                .with_tool_calls(call)
                .with_tokens(10),
        );
        messages.push(
            MessageView::new(MessageId(id + 1), "tool")
                .with_result_of(call[0].id(), "ls")
                .with_tokens(10),
        );
    }
    let split = Outline::of(&messages).split(Protection {
        last_answer: true,
        ..Protection::LEAST
    });
    assert_eq!(
        split.tail, 7,
        "the cut moves before the call of the third last"
    );
    assert_eq!(split.islands, [1..2, 2..3]);
}

#[test]
fn calls_in_flight_and_results_not_yet_seen_are_tail() {
    let two = [
        ToolCallView::new("a", "ls", "{}"),
        ToolCallView::new("b", "ls", "{}"),
    ];
    let mut messages: Vec<_> = (1..10).map(|id| message(id, "user")).collect();
    messages.push(
        MessageView::new(MessageId(10), "assistant")
            .with_tool_calls(&two)
            .with_tokens(10),
    );
    for id in 11..20 {
        messages.push(
            MessageView::new(MessageId(id), "tool")
                .with_result_of("a", "ls")
                .with_tokens(10),
        );
    }
    let outline = Outline::of(&messages);
    assert_eq!(outline.in_flight, Some(9..19));
    assert_eq!(outline.split(Protection::LEAST).tail, 9);
}
