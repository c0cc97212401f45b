//! No secret reaches a digest.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

#[path = "../../secrets/tests/support/secrets.rs"]
mod corpus;

use contexture_digest::{Budget, Digest};
use contexture_engine_api::{MessageId, MessageView, ToolCallView};
use corpus::{leak, placements, secrets};

#[test]
fn a_digest_holds_no_secret_of_any_place() {
    for case in secrets(3, 1) {
        let placed = placements(&case.text);
        let calls: Vec<Vec<ToolCallView<'_>>> = placed
            .iter()
            .map(|placed| {
                let arguments = placed.arguments.iter();
                arguments
                    .map(|json| ToolCallView::new("c", "run", json))
                    .collect()
            })
            .collect();
        let views: Vec<MessageView<'_>> = (1..)
            .zip(placed.iter().zip(&calls))
            .map(|(id, (placed, calls))| {
                let view = MessageView::new(MessageId(id), placed.role)
                    .with_text(&placed.text)
                    .with_tool_calls(calls);
                match placed.role {
                    "tool" => view.with_result_of("c", "run"),
                    _ => view,
                }
            })
            .collect();
        let digest = Digest::of(&views, None);
        for text in [
            digest.render(Budget::chars(20_000)),
            digest.missing_from("", Budget::chars(20_000)),
        ] {
            assert!(
                leak(&text, std::slice::from_ref(&case)).is_none(),
                "{}: {text}",
                case.kind
            );
        }
    }
}
