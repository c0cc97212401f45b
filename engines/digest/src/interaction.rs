//! What passes between the assistant and the user in tool calls: to-do lists, and questions with
//! their answers.

use crate::arguments::unescape;
use crate::span::Span;
use crate::text::{clean_line, clip, one_line};
use crate::tool::Action;

/// An item of a to-do list. `status` is as in the list, for instance `pending`, `in_progress` or
/// `completed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Todo {
    pub(crate) text: String,
    pub(crate) status: String,
}

/// Returns the last to-do list of the span and the message that has it. A list whose call failed
/// does not count.
pub(crate) fn last_plan(span: &Span<'_>) -> Option<(usize, Vec<Todo>)> {
    let call = span
        .calls
        .iter()
        .rev()
        .find(|call| call.action == Action::Plan && !call.failed)?;
    let mut todos: Vec<Todo> = Vec::new();
    let mut pending_status = None;
    for argument in &span.sources[call.arguments.clone()] {
        match &*argument.key {
            "content" | "step" | "task" | "title" | "text" => todos.push(Todo {
                text: clean_line(&argument.text),
                status: pending_status.take().unwrap_or_default(),
            }),
            // Some tools write the status of an item before its text, and some after it.
            "status" => match todos.last_mut() {
                Some(todo) if todo.status.is_empty() => todo.status = argument.text.to_string(),
                _ => pending_status = Some(argument.text.to_string()),
            },
            _ => {}
        }
    }
    (!todos.is_empty()).then_some((call.message, todos))
}

/// A question that the assistant asked with a tool, and the user's answer, both shortened to one
/// line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserAnswer {
    pub(crate) message: usize,
    pub(crate) question: String,
    pub(crate) answer: String,
}

/// Returns the answered questions in order. A refusal, a blank or "no answer" does not count.
pub(crate) fn answers(span: &Span<'_>) -> Vec<UserAnswer> {
    let mut answers = Vec::new();
    for call in &span.calls {
        if call.action != Action::Ask || call.failed {
            continue;
        }
        let Some(result) = call.result else { continue };
        let source = &span.sources[result];
        let mut add = |question: &str, answer: &str| {
            if is_answer(answer) {
                answers.push(UserAnswer {
                    message: source.message,
                    question: clip(&clean_line(question), 90).into_owned(),
                    answer: clean_line(&one_line(answer)),
                });
            }
        };
        // One call may ask several questions, and its result then lists them as pairs.
        let pairs = quoted_pairs(&source.text);
        if pairs.is_empty() {
            let question = call.argument(&span.sources, &["question", "prompt", "questions"]);
            add(question.unwrap_or_default(), &source.text);
        }
        for (question, answer) in pairs {
            add(&question, &answer);
        }
    }
    answers
}

/// Returns the `"question"="answer"` pairs in a result, with escapes in the answers resolved.
fn quoted_pairs(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while let Some(middle) = rest.find("\"=\"") {
        let question_start = rest[..middle].rfind(" \"").map_or(0, |at| at + 2);
        let answer = &rest[middle + 3..];
        let end = ["\", \"", "\". You", "\"\n"]
            .iter()
            .filter_map(|end| answer.find(end))
            .min()
            .unwrap_or_else(|| answer.rfind('"').unwrap_or(answer.len()));
        pairs.push((
            rest[question_start..middle]
                .trim_start_matches('"')
                .to_owned(),
            unescape(&answer[..end]).into_owned(),
        ));
        rest = &answer[end..];
    }
    pairs
}

fn is_answer(text: &str) -> bool {
    let bare = text
        .trim()
        .trim_matches(|c: char| c.is_ascii_punctuation() || c.is_whitespace())
        .to_lowercase();
    const NONE: [&str; 16] = [
        "", "no answer", "no answer provided", "no response", "no answer given", "none", "null",
        "n/a", "na", "skipped", "cancelled", "canceled", "timeout", "timed out", "无", "没有回答",
    ];
    !NONE.contains(&bare.as_str())
        && !bare.starts_with("the user did not")
        && !bare.starts_with("the user doesn't want")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn pairs_of_a_question_result_are_read() {
        let text = "User has answered your questions: \"Which \"db\"?\"=\"SQLite, please\", \"Run it?\"=\"\". You can now continue.";
        let pairs = quoted_pairs(text);
        assert_eq!(pairs[0].1, "SQLite, please");
        assert_eq!(pairs[1], ("Run it?".to_owned(), String::new()));
    }

    #[test]
    fn no_answer_is_none() {
        for text in ["", "  ", "(no answer)", "No response.", "None"] {
            assert!(!is_answer(text), "{text}");
        }
        assert!(is_answer("no, use SQLite"));
    }
}
