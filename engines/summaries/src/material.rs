//! Renders messages in the compact form that a summariser reads: long texts as excerpts, arguments
//! shortened, secrets masked.
//!
//! The model does not see most of the tool output, which would fill its window. Exact values that
//! this loses, such as hashes, paths and figures, are extracted from the unshortened originals by
//! the digest and go along with the material. [`material`] is the only entry point. It keeps a tool
//! call and its results in one piece, so that [`Summariser`](crate::Summariser) can distribute the
//! pieces over several calls. The limits below are the characters that are kept of each kind of
//! text.

use std::fmt::Write as _;

use contexture_digest::shorten_arguments;
use contexture_engine_api::{MessageView, ToolPairs, tool_groups};
use contexture_secrets::mask_secrets;

use crate::excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};

const USER_CHARS: usize = 6_000;
const ASSISTANT_CHARS: usize = 4_000;
const ERROR_CHARS: usize = 1_000;
const RESULT_CHARS: usize = 400;
const ARGUMENT_CHARS: usize = 1_200;

/// Renders messages as text, in pieces that may be read separately. A tool call and its results are
/// one piece, and messages without text or calls give none.
pub fn material(messages: &[MessageView<'_>]) -> Vec<String> {
    let mut groups = tool_groups(messages).into_iter().peekable();
    let pairs = ToolPairs::of(messages);
    let mut pieces = Vec::new();
    let mut at = 0;
    while at < messages.len() {
        let end = groups
            .next_if(|group| group.start <= at)
            .map_or(at + 1, |group| group.end.max(at + 1));
        let mut piece = String::new();
        for (at, message) in (at..).zip(&messages[at..end]) {
            let caller = pairs.call_of(at).map(|call| &messages[call]);
            render(message, caller, &mut piece);
        }
        if !piece.is_empty() {
            pieces.push(piece);
        }
        at = end;
    }
    pieces
}

/// Appends a message to a piece. For a tool result, `caller` is the message with its call, which
/// may name the tool.
fn render<'a>(message: &MessageView<'a>, caller: Option<&MessageView<'a>>, into: &mut String) {
    let tool = tool_of(message, caller);
    let asks = asks_the_user(tool);
    let is_result = message.tool_call_id().is_some();
    // An answer that the user gave through a tool is as valuable as a message of the user.
    let (chars, what) = match (message.role(), message.is_error()) {
        ("tool", true) if asks => (USER_CHARS, "error"),
        ("tool", true) => (ERROR_CHARS, "error"),
        ("tool", false) if asks => (USER_CHARS, "user's answer"),
        ("tool", false) => (RESULT_CHARS, "result"),
        ("assistant", _) => (ASSISTANT_CHARS, "result"),
        _ => (USER_CHARS, "result"),
    };
    // Mask before cutting: half a secret has no shape to recognise it by.
    let text = excerpt(&mask_secrets(message.text()), chars);
    let media = match message.has_media() {
        true => " with an image or a document",
        false => "",
    };
    // Writing to a string cannot fail.
    let _ = match is_result {
        true => writeln!(into, "[{what} of {}{media}] {text}", mask_secrets(tool)),
        false if text.trim().is_empty() && media.is_empty() => Ok(()),
        false => writeln!(into, "[{}{media}] {text}", message.role()),
    };
    for call in message.tool_calls() {
        let arguments = compact_arguments(call.arguments());
        let _ = writeln!(into, "[call of {}] {arguments}", mask_secrets(call.name()));
    }
}

fn compact_arguments(arguments: &str) -> String {
    let masked = mask_secrets(arguments);
    // Shorten inside the JSON first, so that the keys survive. The excerpt may break it.
    let short = shorten_arguments(&masked, ARGUMENT_MARK);
    excerpt(short.as_deref().unwrap_or(&masked), ARGUMENT_CHARS)
}

#[cfg(test)]
mod tests {
    use contexture_engine_api::{MessageId, ToolCallView};

    use super::*;

    #[test]
    fn results_are_excerpts_and_errors_are_called_errors() {
        let output = format!("BEGIN{}END", "x".repeat(5_000));
        let calls = [ToolCallView::new("c", "bash", r#"{"command":"make"}"#)];
        let call = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
        let result = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "")
            .with_text(&output);
        let [piece] = &material(&[call, result])[..] else {
            panic!("a call and its result are one piece");
        };
        assert!(piece.starts_with("[call of bash] {\"command\":\"make\"}\n[result of bash] BEGIN"));
        assert!(
            piece.trim_end().ends_with("END") && piece.len() < 600,
            "{piece}"
        );
        let pieces = material(&[call, result.with_error(true)]);
        assert!(pieces[0].contains("\n[error of bash]"));
    }

    #[test]
    fn a_users_answer_is_kept_whole_and_named() {
        let answer = "I prefer tabs. ".repeat(60);
        let result = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "AskUserQuestion")
            .with_text(&answer);
        let pieces = material(&[result]);
        assert!(pieces[0].contains(answer.trim()) && pieces[0].contains("user's answer"));
    }
}
