//! Tool calls and their results, and what they say about the work.
//!
//! Every agent has its own tools, so nothing here depends on one of them. [`Action::of`] guesses
//! what a call does from its arguments and its name. [`Call`] then describes the call (`head`) and
//! its result (`outcome`), always in the words of the source. A call that does not fit any pattern is
//! still described, by its name and one argument.

use std::borrow::Cow;
use std::ops::Range;

use crate::scan::{Find, Kind, Signal, scan};
use crate::source::Source;
use crate::text::{chars, clean_line, clip, line_around, one_line};

/// What a call does, as far as a digest distinguishes. Tools have many names, so the arguments
/// decide first, and the name only if they do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Read,
    Write,
    Edit,
    Run,
    Ask,
    Plan,
    /// Anything else: searches, fetches, sub-agents, or an airline's booking system.
    Other,
}

const PATH_KEYS: [&str; 8] = [
    "file_path", "path", "filename", "file_name", "target_file", "notebook_path", "filepath",
    "file",
];
const COMMAND_KEYS: [&str; 4] = ["command", "cmd", "script", "bash_command"];

impl Action {
    /// Determines what a call of the tool `name` with these arguments does.
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
                "old_string", "old_str", "new_string", "edits", "diff", "patch", "new_source",
            ]) || says("str_replace")
                || says("insert")
                || named(&["edit", "replace", "patch"]) && !says("view") && !says("create")
            {
                Self::Edit
            } else if has(&["content", "contents", "file_text"]) || named(&["write", "create"]) {
                Self::Write
            // A search takes a path too, but only to say in which folder to look.
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

/// A call, with the indices of the sources that hold its arguments and its result.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) message: usize,
    pub(crate) name: Cow<'a, str>,
    pub(crate) action: Action,
    pub(crate) arguments: Range<usize>,
    pub(crate) result: Option<usize>,
    /// Whether there is a result. An empty one has no source.
    pub(crate) is_answered: bool,
    /// Whether an earlier compaction shortened the result. What is left of it need not say how the call
    /// ended.
    pub(crate) is_shortened: bool,
    /// Whether the result is marked as an error. A command can fail without that.
    pub(crate) failed: bool,
}

/// A longer command is replaced by its description if the call has one. The number is in
/// characters.
const SHORT_COMMAND: usize = 56;
const RESULT_CHARS: usize = 120;
/// What is said of a failure beside the outcome: so many lines, of so many characters together.
const FAILURE_LINES: usize = 3;
const FAILURE_CHARS: usize = 240;

impl Call<'_> {
    /// Returns the first argument under one of these keys.
    pub(crate) fn argument<'s>(&self, sources: &'s [Source<'_>], keys: &[&str]) -> Option<&'s str> {
        sources[self.arguments.clone()]
            .iter()
            .find(|argument| keys.contains(&&*argument.key))
            .map(|argument| argument.text.as_ref())
    }

    /// Returns the path of the file that the call reads, writes or edits. `None` for other actions.
    pub(crate) fn file<'s>(&self, sources: &'s [Source<'_>]) -> Option<&'s str> {
        match self.action {
            Action::Read | Action::Write | Action::Edit => self.argument(sources, &PATH_KEYS),
            _ => None,
        }
    }

    /// Returns the whole command. The words of a list are joined, and a leading shell is left out.
    pub(crate) fn command(&self, sources: &[Source<'_>]) -> Option<String> {
        let words: Vec<&str> = sources[self.arguments.clone()]
            .iter()
            .filter(|argument| COMMAND_KEYS.contains(&&*argument.key))
            .map(|argument| argument.text.as_ref())
            // An agent that runs commands through a shell passes it as the first words of the list.
            .filter(|word| !matches!(*word, "bash" | "sh" | "-c" | "-lc"))
            .collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// Describes what was done, in the words of the call. For a command that is the command itself,
    /// or its description if it is long. For other calls it is the name of the tool and the
    /// argument that says most.
    pub(crate) fn head(&self, sources: &[Source<'_>]) -> String {
        if self.action == Action::Run
            && let Some(command) = self.command(sources)
        {
            let line = clean_command(&command);
            let described = self.argument(sources, &["description"]);
            return match described {
                Some(description) if chars(&line) > SHORT_COMMAND => {
                    clip(&clean_line(description), SHORT_COMMAND).into_owned()
                }
                _ => format!("`{}`", clip(&line, SHORT_COMMAND * 2)),
            };
        }
        const TELLING: [&str; 12] = [
            "description", "title", "pattern", "query", "url", "question", "name", "file_path",
            "path", "id", "subject", "",
        ];
        let telling = TELLING
            .iter()
            .find_map(|key| self.argument(sources, &[key]))
            .or_else(|| {
                sources[self.arguments.clone()]
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

    /// Returns the outcome, in the words of the result: the result line of a test run, the line
    /// with the error, or the whole of a short result. Returns `None` for a long or shortened result
    /// without either. The digest adds no verdict of its own.
    pub(crate) fn outcome(&self, sources: &[Source<'_>]) -> Option<String> {
        let result = &sources[self.result?];
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
            // A shortened result begins with a mark.
            let told = result.error.or((!self.is_shortened).then_some(first))?;
            return Some(line_at(told).replace("<tool_use_error>", ""));
        }
        if self.action == Action::Run
            // A command may print an error even if its call is not marked as failed.
            && let Some(at) = result.error
        {
            return Some(line_at(at));
        }
        // Commands such as `echo "=== Hooks ==="` only introduce the output that follows.
        let lines = result
            .text
            .lines()
            .map(str::trim)
            .filter(|line| !line.starts_with("=="));
        let is_whole = result.text.len() <= 80 && !self.is_shortened;
        is_whole.then(|| clean_line(&lines.collect::<Vec<_>>().join(" ")))
    }

    /// Whether the result was shortened and says neither how the call ended nor that it failed.
    pub(crate) fn is_unknown(&self, sources: &[Source<'_>]) -> bool {
        self.is_shortened && !self.failed && self.outcome(sources).is_none()
    }

    /// Returns the first lines of the result that say what failed and where, in brackets: lines with an
    /// error, and with a place such as `parser.rs:212`. Empty if there are no others than `outcome`.
    pub(crate) fn failure(&self, sources: &[Source<'_>], outcome: &str) -> String {
        let Some(source) = self.result.map(|result| &sources[result]) else {
            return String::new();
        };
        let first_error = source.error.unwrap_or_default();
        let mut lines: Vec<String> = Vec::new();
        let mut at = 0;
        for line in source.text.split_inclusive('\n') {
            let is_before = at + line.len() <= first_error;
            at += line.len();
            if !tells_a_failure(line) {
                continue;
            }
            let line = clean_line(line);
            if line.contains(outcome) {
                continue;
            }
            // Before the first error, only the last place is of interest.
            if is_before {
                lines.clear();
            }
            lines.push(clip(&line, RESULT_CHARS).into_owned());
            if lines.len() == FAILURE_LINES {
                break;
            }
        }
        match lines.is_empty() {
            true => String::new(),
            false => format!(" ({})", clip(&lines.join("; "), FAILURE_CHARS)),
        }
    }

    /// Whether the call is a run of tests, whose result says how many passed or failed.
    pub(crate) fn is_test(&self, sources: &[Source<'_>]) -> bool {
        self.action == Action::Run
            && (self.result).is_some_and(|result| sources[result].outcome.is_some())
    }

    /// Whether the result reports an error, by its flag or by its words. A test run that says `0
    /// failed` did not go wrong.
    pub(crate) fn went_wrong(&self, sources: &[Source<'_>]) -> bool {
        self.failed
            || self.action == Action::Run
                && self.result.is_some_and(|result| {
                    let source = &sources[result];
                    let line = |at| &source.text[line_around(&source.text, at)];
                    source
                        .outcome
                        .map_or(source.error.is_some(), |at| counts_failures(line(at)))
                })
    }
}

/// Whether a line has a word for an error, or a place in a file: `parser.rs:212`.
fn tells_a_failure(line: &str) -> bool {
    let mut tells = false;
    scan(line, |find| {
        tells |= match find {
            Find::Signal(signal, _) => signal == Signal::Error,
            Find::Fact(kind, place) => {
                let number = line[place.end..].strip_prefix(':');
                kind == Kind::Path
                    && number.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
            }
        };
    });
    tells
}

/// Whether the result line of a test run counts failures: `1 failed`, `failures=1` or `FAIL`, but
/// not `0 failed`.
fn counts_failures(line: &str) -> bool {
    let lower = line.to_ascii_lowercase();
    lower.match_indices("fail").any(|(at, _)| {
        let before = lower[..at].trim_end_matches([' ', ':']);
        let after = lower[at..].trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let after = after.trim_start_matches([':', '=', ' ']);
        let is_none = before.ends_with('0')
            && !before
                .trim_end_matches('0')
                .ends_with(|c: char| c.is_ascii_digit())
            || after.starts_with('0') && !before.ends_with(|c: char| c.is_ascii_digit());
        !is_none
    })
}

/// Returns the main line of a command, without comments and without a leading `cd`.
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
