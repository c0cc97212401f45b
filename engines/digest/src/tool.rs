//! Tool calls and their results.

use std::borrow::Cow;
use std::ops::Range;

use crate::arguments::unescape;
use crate::span::{Source, Span};
use crate::text::{chars, clean_line, clip, line_around, one_line};

/// What a call does, as far as a digest distinguishes. Tools have many names, so arguments decide first,
/// then names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Looks at a file.
    Read,
    /// Writes a whole file.
    Write,
    /// Changes a part of a file.
    Edit,
    /// Runs a command.
    Run,
    /// Asks the user.
    Ask,
    /// Writes down a list of things to do.
    Plan,
    /// Anything else: searches, fetches, sub-agents, an airline's booking system.
    Other,
}

const PATH_KEYS: [&str; 8] = [
    "file_path",
    "path",
    "filename",
    "file_name",
    "target_file",
    "notebook_path",
    "filepath",
    "file",
];
const COMMAND_KEYS: [&str; 4] = ["command", "cmd", "script", "bash_command"];

impl Action {
    /// What a call of the tool `name` with these arguments does.
    pub(crate) fn of(name: &str, arguments: &[Source<'_>]) -> Self {
        let name = name.to_ascii_lowercase();
        let named = |words: &[&str]| words.iter().any(|word| name.contains(word));
        let has = |keys: &[&str]| {
            arguments
                .iter()
                .any(|argument| keys.contains(&&*argument.key))
        };
        let says = |word: &str| {
            let is = |argument: &Source<'_>| argument.key == "command" && argument.text == word;
            arguments.iter().any(is)
        };
        if named(&["todo", "update_plan"]) {
            Self::Plan
        } else if named(&["ask", "question"])
            && has(&["question", "questions", "prompt"])
            && !named(&["task"])
        {
            Self::Ask
        } else if has(&PATH_KEYS) {
            if has(&[
                "old_string",
                "old_str",
                "new_string",
                "edits",
                "diff",
                "patch",
                "new_source",
            ]) || says("str_replace")
                || says("insert")
                || named(&["edit", "replace", "patch"]) && !says("view") && !says("create")
            {
                Self::Edit
            } else if has(&["content", "contents", "file_text"]) || named(&["write", "create"]) {
                Self::Write
            } else if has(&["pattern", "query", "regex"])
                || named(&["list", "glob", "grep", "search", "find"])
            {
                Self::Other
            } else if has(&COMMAND_KEYS) && !says("view") {
                Self::Run
            } else {
                Self::Read
            }
        } else if has(&COMMAND_KEYS) || named(&["bash", "shell", "terminal"]) {
            Self::Run
        } else {
            Self::Other
        }
    }
}

/// A call, and the sources of its arguments and its result.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    /// The message of the call, counted from 0.
    pub(crate) message: usize,
    pub(crate) name: Cow<'a, str>,
    pub(crate) action: Action,
    pub(crate) arguments: Range<usize>,
    pub(crate) result: Option<usize>,
    /// The result is marked as an error.
    pub(crate) failed: bool,
}

/// Commands up to this many characters are quoted whole; longer ones by their description.
const SHORT_COMMAND: usize = 56;
/// A result line is clipped to this many characters.
const RESULT_CHARS: usize = 120;

impl Call<'_> {
    /// The first argument under one of these keys.
    pub(crate) fn argument<'s>(&self, span: &'s Span<'_>, keys: &[&str]) -> Option<&'s str> {
        span.sources[self.arguments.clone()]
            .iter()
            .find(|argument| keys.contains(&&*argument.key))
            .map(|argument| argument.text.as_ref())
    }

    /// The file that the call reads, writes or edits.
    pub(crate) fn file<'s>(&self, span: &'s Span<'_>) -> Option<&'s str> {
        match self.action {
            Action::Read | Action::Write | Action::Edit => self.argument(span, &PATH_KEYS),
            _ => None,
        }
    }

    /// The whole command, the words of a list joined.
    fn command(&self, span: &Span<'_>) -> Option<String> {
        let words: Vec<&str> = span.sources[self.arguments.clone()]
            .iter()
            .filter(|argument| COMMAND_KEYS.contains(&&*argument.key))
            .map(|argument| argument.text.as_ref())
            .filter(|word| !matches!(*word, "bash" | "sh" | "-c" | "-lc"))
            .collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// What was done, in the words of the call.
    pub(crate) fn head(&self, span: &Span<'_>) -> String {
        if self.action == Action::Run
            && let Some(command) = self.command(span)
        {
            let line = clean_command(&command);
            let described = self.argument(span, &["description"]);
            return match described {
                Some(description) if chars(&line) > SHORT_COMMAND => {
                    clip(&clean_line(description), SHORT_COMMAND).into_owned()
                }
                _ => format!("`{}`", clip(&line, SHORT_COMMAND * 2)),
            };
        }
        const TELLING: [&str; 12] = [
            "description",
            "title",
            "pattern",
            "query",
            "url",
            "question",
            "name",
            "file_path",
            "path",
            "id",
            "subject",
            "",
        ];
        let telling = TELLING
            .iter()
            .find_map(|key| self.argument(span, &[key]))
            .or_else(|| {
                span.sources[self.arguments.clone()]
                    .first()
                    .map(|first| first.text.as_ref())
            });
        match telling {
            Some(value) => format!(
                "{} \"{}\"",
                self.name,
                clip(&clean_line(value), SHORT_COMMAND)
            ),
            None => self.name.to_string(),
        }
    }

    /// The outcome, in the words of the result: the result line of a test run, the line with the error, or
    /// the whole of a short result. The digest adds no verdict.
    pub(crate) fn outcome(&self, span: &Span<'_>) -> Option<String> {
        let result = &span.sources[self.result?];
        let line_at = |at: usize| {
            let line = clean_line(&result.text[line_around(&result.text, at)]);
            let plain = line.trim_matches(['=', '-', ' ']);
            clip(plain, RESULT_CHARS).into_owned()
        };
        if self.action == Action::Run
            && let Some(at) = result.outcome
        {
            return Some(line_at(at));
        }
        if self.failed {
            let first = result.text.len() - result.text.trim_start().len();
            return Some(line_at(result.error.unwrap_or(first)).replace("<tool_use_error>", ""));
        }
        if self.action == Action::Run
            && let Some(at) = result.error
        {
            return Some(line_at(at));
        }
        // `echo "=== Hooks ==="` introduces the command that follows.
        let lines = result
            .text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("=="));
        (result.text.len() <= 80).then(|| clean_line(&lines.collect::<Vec<_>>().join(" ")))
    }

    /// Whether the result reports an error, by its flag or its words.
    pub(crate) fn went_wrong(&self, span: &Span<'_>) -> bool {
        self.failed
            || self.action == Action::Run
                && self.result.is_some_and(|result| {
                    let source = &span.sources[result];
                    source.outcome.map_or(source.error.is_some(), |at| {
                        let line = &source.text[line_around(&source.text, at)];
                        line.contains("failed") && !line.contains(" 0 failed")
                    })
                })
    }
}

/// The main line of a command, without leading `cd` and variable settings.
fn clean_command(command: &str) -> String {
    let line = command
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'))
        .unwrap_or_default();
    let line = match line.split_once(" && ") {
        Some((first, rest)) if first.starts_with("cd ") => rest,
        _ => line,
    };
    one_line(line)
}

/// An item of a to-do list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Todo {
    pub(crate) text: String,
    /// `pending`, `in_progress` or `completed`, as in the list.
    pub(crate) status: String,
}

/// The last to-do list of the span, and its message.
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
            "status" => match todos.last_mut() {
                Some(todo) if todo.status.is_empty() => todo.status = argument.text.to_string(),
                _ => pending_status = Some(argument.text.to_string()),
            },
            _ => {}
        }
    }
    (!todos.is_empty()).then_some((call.message, todos))
}

/// A question that the assistant asked with a tool, and the user's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UserAnswer {
    /// The message of the answer.
    pub(crate) message: usize,
    pub(crate) question: String,
    pub(crate) answer: String,
}

/// The answered questions. A refusal, a blank or "no answer" does not count.
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
        let pairs = quoted_pairs(&source.text);
        if pairs.is_empty() {
            let question = call.argument(span, &["question", "prompt", "questions"]);
            add(question.unwrap_or_default(), &source.text);
        }
        for (question, answer) in pairs {
            add(&question, &answer);
        }
    }
    answers
}

/// The `"question"="answer"` pairs of a result.
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
        "",
        "no answer",
        "no answer provided",
        "no response",
        "no answer given",
        "none",
        "null",
        "n/a",
        "na",
        "skipped",
        "cancelled",
        "canceled",
        "timeout",
        "timed out",
        "无",
        "没有回答",
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
