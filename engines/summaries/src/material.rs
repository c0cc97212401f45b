//! Messages in the compact form in which they go to a summariser: long texts as excerpts, arguments
//! shortened, secrets masked.
//!
//! The model is spared most of the tool output. What that would lose, hashes, paths, figures, is taken
//! from the untouched originals by the digest, which goes along.

use std::collections::HashMap;
use std::fmt::Write as _;

use contexture_digest::{mask_secrets, shorten_arguments};
use contexture_engine_api::{MessageId, MessageKind, MessageView, ToolCallView, tool_groups};

use crate::excerpt::{ARGUMENT_MARK, asks_the_user, excerpt, tool_of};

const USER_CHARS: usize = 6_000;
const ASSISTANT_CHARS: usize = 4_000;
const ERROR_CHARS: usize = 1_000;
const RESULT_CHARS: usize = 400;
const ARGUMENT_CHARS: usize = 1_200;

/// A message as far as a summariser needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The message's id.
    pub id: MessageId,
    /// The original's tokens.
    pub tokens: u64,
    role: String,
    kind: MessageKind,
    text: String,
    calls: Vec<NotedCall>,
    result_of: Option<(String, String)>,
    is_error: bool,
    has_media: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NotedCall {
    id: String,
    name: String,
    arguments: String,
}

impl Noted {
    /// The compact form of a message; `caller` is the message with its call, for a tool result.
    pub fn of<'a>(message: &MessageView<'a>, caller: Option<&MessageView<'a>>) -> Self {
        let tool = tool_of(message, caller);
        let chars = match message.role() {
            "tool" if asks_the_user(tool) => USER_CHARS,
            "tool" if message.is_error() => ERROR_CHARS,
            "tool" => RESULT_CHARS,
            "assistant" => ASSISTANT_CHARS,
            _ => USER_CHARS,
        };
        Self {
            id: message.id(),
            tokens: message.tokens(),
            role: message.role().to_owned(),
            kind: message.kind(),
            // Masked before it is cut: half a secret has no shape to know it by.
            text: excerpt(&mask_secrets(message.text()), chars),
            calls: message
                .tool_calls()
                .iter()
                .map(|call| NotedCall {
                    id: call.id().to_owned(),
                    name: mask_secrets(call.name()).into_owned(),
                    arguments: compact_arguments(call.arguments()),
                })
                .collect(),
            result_of: message
                .tool_call_id()
                .map(|id| (id.to_owned(), mask_secrets(tool).into_owned())),
            is_error: message.is_error(),
            has_media: message.has_media(),
        }
    }

    /// A view of the compact form. `calls` is what [`Self::call_views`] gave.
    pub fn view<'a>(&'a self, calls: &'a [ToolCallView<'a>]) -> MessageView<'a> {
        let view = MessageView::new(self.id, &self.role)
            .with_kind(self.kind)
            .with_text(&self.text)
            .with_tool_calls(calls)
            .with_error(self.is_error)
            .with_media(self.has_media)
            .with_tokens(self.tokens);
        match &self.result_of {
            Some((id, tool)) => view.with_result_of(id, tool),
            None => view,
        }
    }

    /// Views of its calls.
    pub fn call_views(&self) -> Vec<ToolCallView<'_>> {
        self.calls
            .iter()
            .map(|call| ToolCallView::new(&call.id, &call.name, &call.arguments))
            .collect()
    }

    fn render(&self, into: &mut String) {
        let media = if self.has_media {
            " with an image or a document"
        } else {
            ""
        };
        match &self.result_of {
            Some((_, tool)) => {
                let what = match (self.is_error, asks_the_user(tool)) {
                    (true, _) => "error",
                    (false, true) => "user's answer",
                    (false, false) => "result",
                };
                let _ = writeln!(into, "[{what} of {tool}{media}] {}", self.text);
            }
            None if self.text.trim().is_empty() && media.is_empty() => {}
            None => {
                let _ = writeln!(into, "[{}{media}] {}", self.role, self.text);
            }
        }
        for call in &self.calls {
            let _ = writeln!(into, "[call of {}] {}", call.name, call.arguments);
        }
    }
}

/// The compact forms of messages, each given with the message that holds its call: those in the log, the
/// others made now.
pub fn noted<'m, 'a: 'm>(
    messages: impl Iterator<Item = (&'m MessageView<'a>, Option<&'m MessageView<'a>>)>,
    log: &[Noted],
) -> Vec<Noted> {
    let known: HashMap<MessageId, &Noted> = log.iter().map(|note| (note.id, note)).collect();
    messages
        .map(|(message, caller)| match known.get(&message.id()) {
            Some(note) => (*note).clone(),
            None => Noted::of(message, caller),
        })
        .collect()
}

fn compact_arguments(arguments: &str) -> String {
    let masked = mask_secrets(arguments);
    let short = shorten_arguments(&masked, ARGUMENT_MARK);
    excerpt(short.as_deref().unwrap_or(&masked), ARGUMENT_CHARS)
}

/// Views of compact messages. `calls` is what [`call_views`] gave for them.
pub fn views<'a>(notes: &'a [Noted], calls: &'a [Vec<ToolCallView<'a>>]) -> Vec<MessageView<'a>> {
    notes
        .iter()
        .zip(calls)
        .map(|(note, calls)| note.view(calls))
        .collect()
}

/// Views of the calls of compact messages, for [`views`].
pub fn call_views(notes: &[Noted]) -> Vec<Vec<ToolCallView<'_>>> {
    notes.iter().map(Noted::call_views).collect()
}

/// Messages as text, in pieces that may be read apart: a tool call and its results are one.
pub fn material(messages: &[MessageView<'_>]) -> Vec<String> {
    let mut callers: HashMap<&str, &MessageView<'_>> = HashMap::new();
    let mut with_callers = Vec::with_capacity(messages.len());
    for message in messages {
        let caller = message.tool_call_id().and_then(|id| callers.get(id));
        with_callers.push((message, caller.copied()));
        callers.extend(message.tool_calls().iter().map(|call| (call.id(), message)));
    }
    units(&noted(with_callers.into_iter(), &[]))
}

/// The messages as text, in pieces that may be told apart: a tool call and its results are one.
pub fn units(notes: &[Noted]) -> Vec<String> {
    let calls = call_views(notes);
    let mut groups = tool_groups(&views(notes, &calls)).into_iter().peekable();
    let mut units = Vec::new();
    let mut at = 0;
    while at < notes.len() {
        let end = groups
            .next_if(|group| group.start <= at)
            .map_or(at + 1, |group| group.end.max(at + 1));
        let mut unit = String::new();
        for note in &notes[at..end] {
            note.render(&mut unit);
        }
        if !unit.is_empty() {
            units.push(unit);
        }
        at = end;
    }
    units
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use super::*;

    #[test]
    fn results_are_excerpts_and_errors_are_called_errors() {
        let output = format!("BEGIN{}END", "x".repeat(5_000));
        let calls = [ToolCallView::new("c", "bash", r#"{"command":"make"}"#)];
        let call = MessageView::new(MessageId(1), "assistant").with_tool_calls(&calls);
        let result = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "")
            .with_text(&output);
        let failed = result.with_error(true);
        let notes = [Noted::of(&call, None), Noted::of(&result, Some(&call))];
        let units = units(&notes);
        assert_eq!(units.len(), 1, "a call and its result are one piece");
        assert!(
            units[0].starts_with("[call of bash] {\"command\":\"make\"}\n[result of bash] BEGIN")
        );
        assert!(
            units[0].trim_end().ends_with("END") && units[0].len() < 600,
            "{}",
            units[0]
        );
        let mut text = String::new();
        Noted::of(&failed, Some(&call)).render(&mut text);
        assert!(text.starts_with("[error of bash]"));
    }

    #[test]
    fn a_users_answer_is_kept_whole_and_named() {
        let answer = "I prefer tabs. ".repeat(60);
        let result = MessageView::new(MessageId(2), "tool")
            .with_result_of("c", "AskUserQuestion")
            .with_text(&answer);
        let mut text = String::new();
        Noted::of(&result, None).render(&mut text);
        assert!(text.contains(answer.trim()) && text.contains("user's answer"));
    }
}
