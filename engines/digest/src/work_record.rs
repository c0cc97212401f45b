//! Checks what a summary claims against what the messages show.
//!
//! A model that writes a summary may claim work that was not done: it says that a file was changed
//! which was only read, or that tests pass whose last run failed. The agent that reads the summary
//! believes it. [`WorkRecord::of`] keeps what is needed to notice that, and [`WorkRecord::check`]
//! marks such sentences.
//!
//! Only what tools did and what users report is evidence. The assistant's own sentences are not,
//! because they may be where the claim comes from. All of this is comparison of words. In doubt a
//! sentence passes: one about the future, one with a "not" or an "if", one about a file that a
//! command named, and one about tests of which no run is known. Sentences in other languages than
//! English and Chinese pass too, because their denials are not known.

use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};
use serde_json::{Map, Value};

use crate::files::changed;
use crate::language::{Contradiction, Language};
use crate::scan::{Find, Kind, scan};
use crate::sections::{Head, Section, heading};
use crate::shown::is_doubted;
use crate::source::Origin;
use crate::span::Span;
use crate::text::{clean_line, clip, line_around, sentences};
use crate::tool::{Action, Call};
use crate::words::Words;

/// Words with which a sentence claims that a file was changed.
static CHANGED: LazyLock<Words> = LazyLock::new(|| {
    Words::new([
        "created", "wrote", "written", "added", "modified", "edited", "updated", "changed",
        "rewrote", "rewritten", "refactored", "saved", "implemented", "patched", "extended",
        "创建", "新建", "新增", "写入", "修改", "编辑了", "更新了", "添加", "重构", "改写",
        "实现了",
    ])
});
/// Words with which a sentence claims that a run succeeded.
static PASSED: LazyLock<Words> = LazyLock::new(|| {
    Words::new([
        "pass", "passes", "passed", "passing", "green", "succeed", "succeeds", "succeeded",
        "successful", "successfully", "通过", "成功",
    ])
});
/// Words that make a sentence one about all tests.
static TESTS: LazyLock<Words> =
    LazyLock::new(|| Words::new(["tests", "suite", "specs", "测试", "用例"]));
/// Parts of the commands that run tests.
const RUNNERS: [&str; 3] = ["test", "spec", "jest"];
/// Words in a line of a test report that say that what the line names failed.
static FAILED: LazyLock<Words> =
    LazyLock::new(|| Words::new(["fail", "failed", "failure", "not ok", "✗", "✕", "×"]));
/// Programs that only read, so a file that their command names was not changed by it.
const READERS: [&str; 22] = [
    "cat", "head", "tail", "less", "more", "ls", "tree", "find", "fd", "rg", "grep", "egrep", "ag",
    "wc", "file", "stat", "nl", "bat", "cd", "pwd", "echo", "which",
];
/// Words in the name of a tool that only looks for something.
const SEARCHES: [&str; 5] = ["list", "glob", "grep", "search", "find"];
/// The ends of sentences, before which a mark stands. It is part of the sentence, which no later
/// check marks again.
const ENDS: [char; 4] = ['.', '!', '。', '！'];
/// The most characters of a run's result that a mark quotes.
const QUOTED: usize = 80;

/// What the lines of a part of a summary claim, as its heading says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ClaimContext {
    /// What the words of each sentence claim.
    #[default]
    Told,
    /// That the files were changed.
    Changed,
    /// Nothing: it is what somebody wants.
    Wanted,
}

impl ClaimContext {
    fn under(heading: &str) -> Self {
        match Head::of(heading) {
            Some(Head::Of(
                Section::Goal | Section::Constraints | Section::Requests | Section::NextSteps,
            )) => Self::Wanted,
            _ if says(&heading.to_lowercase(), &CHANGED) => Self::Changed,
            _ => Self::Told,
        }
    }
}

/// What the messages of a span show about changed files and about tests. It does not borrow the
/// messages, so it can wait for a model's answer.
#[derive(Debug, Default)]
pub struct WorkRecord {
    language: Language,
    /// The names, without folders, of the files that may have been changed.
    changed: HashSet<String>,
    /// Whether the span has no tool call, so that nothing is known of files. Some agents act by text.
    is_without_calls: bool,
    /// The names that failed in the last test run that reports them.
    failing: HashSet<String>,
    /// The result line of the last test run, if it failed.
    failed_run: Option<String>,
}

/// A model's summary in which the sentences that the messages contradict are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedSummary {
    /// The summary. After each contradicted sentence it says what the messages show instead.
    pub text: String,
    /// The number of marked sentences.
    pub contradictions: usize,
}

impl WorkRecord {
    /// Reads a span. `earlier` is the summary before it: files that it names may have been changed
    /// before the span.
    pub(crate) fn of(span: &Span<'_>, earlier: &str, language: Language) -> Self {
        let mut record = Self {
            language,
            is_without_calls: span.calls.is_empty(),
            ..Self::default()
        };
        record
            .changed
            .extend(changed(span).iter().map(|path| file_name(path).to_owned()));
        // A sentence with a mark or a doubt tells of no change.
        let told = sentences(earlier).filter(|it| !is_doubted(it, ""));
        told.for_each(|sentence| record.add_files_of(sentence));
        for source in &span.sources {
            if source.origin == Origin::User {
                let reports = sentences(&source.text).filter(|sentence| says(sentence, &CHANGED));
                reports.for_each(|sentence| record.add_files_of(sentence));
            }
        }
        // What failed, with the command that showed it.
        let mut failing: HashMap<String, String> = HashMap::new();
        // What was found before this span still holds until a run shows otherwise.
        for shown in language.contradictions_in(earlier) {
            match shown {
                Contradiction::Failed(name) => drop(failing.insert(name.to_owned(), String::new())),
                Contradiction::LastRun(result) => record.failed_run = Some(result.to_owned()),
                Contradiction::Unchanged(_) => {}
            }
        }
        for call in &span.calls {
            if may_change(call, span) {
                for source in call.arguments.clone().chain(call.result) {
                    record.add_files_of(&span.sources[source].text);
                }
            }
            if let Some(run) = TestRun::of(call, span) {
                run.update(&mut failing);
                record.failed_run = (!run.passed).then_some(run.result);
            }
        }
        record.failing = failing.into_keys().collect();
        record
    }

    fn add_files_of(&mut self, text: &str) {
        self.changed.extend(files_in(text).map(str::to_owned));
    }

    /// Marks each sentence of a model's summary that the messages contradict. If the summary is a
    /// JSON object, its strings are checked and it stays one.
    pub fn check(&self, summary: &str) -> CheckedSummary {
        let mut contradictions = 0;
        let text = match serde_json::from_str::<Map<String, Value>>(summary) {
            Ok(mut fields) => {
                for (name, value) in &mut fields {
                    let part = ClaimContext::under(&name.replace('_', " "));
                    self.check_value(value, part, &mut contradictions);
                }
                serde_json::to_string_pretty(&fields).unwrap_or_else(|_| summary.to_owned())
            }
            Err(_) => self.check_text(summary, ClaimContext::default(), &mut contradictions),
        };
        CheckedSummary {
            text,
            contradictions,
        }
    }

    fn check_value(&self, value: &mut Value, part: ClaimContext, contradictions: &mut usize) {
        match value {
            Value::String(text) => *text = self.check_text(text, part, contradictions),
            Value::Array(values) => {
                for value in values {
                    self.check_value(value, part, contradictions);
                }
            }
            Value::Object(fields) => {
                for value in fields.values_mut() {
                    self.check_value(value, part, contradictions);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn check_text(&self, text: &str, mut part: ClaimContext, contradictions: &mut usize) -> String {
        let mut checked = String::with_capacity(text.len());
        for line in text.split_inclusive('\n') {
            if let Some(heading) = heading(line.trim()) {
                part = ClaimContext::under(heading);
            }
            let mut rest = line;
            for sentence in sentences(line) {
                let Some(shown) = self.contradiction(sentence, part) else {
                    continue;
                };
                let end = rest
                    .find(sentence)
                    .map_or(rest.len(), |at| at + sentence.trim_end_matches(ENDS).len());
                let (before, after) = rest.split_at(end);
                checked.push_str(before);
                checked.push_str(&self.language.contradicted(shown));
                *contradictions += 1;
                rest = after;
            }
            checked.push_str(rest);
        }
        checked
    }

    /// What the messages show instead of what this sentence claims, or `None` if it may be true.
    fn contradiction<'s>(
        &'s self,
        sentence: &'s str,
        part: ClaimContext,
    ) -> Option<Contradiction<'s>> {
        let lower = sentence.to_lowercase();
        let claims_change = part == ClaimContext::Changed || says(&lower, &CHANGED);
        let claims_success = says(&lower, &PASSED);
        if part == ClaimContext::Wanted
            || !claims_change && !claims_success
            || is_doubted(sentence, "")
        {
            return None;
        }
        let failed = || names(sentence).find(|name| self.failing.contains(*name));
        let last_run = || {
            let is_general = says(&lower, &TESTS) && names(sentence).next().is_none();
            self.failed_run.as_deref().filter(|_| is_general)
        };
        let unchanged = || files_in(sentence).find(|name| !self.changed.contains(*name));
        let of_tests = || {
            failed()
                .map(Contradiction::Failed)
                .or_else(|| last_run().map(Contradiction::LastRun))
        };
        let of_tests = claims_success.then(of_tests).flatten();
        let knows_files = claims_change && !self.is_without_calls;
        of_tests.or_else(|| {
            knows_files
                .then(unchanged)
                .flatten()
                .map(Contradiction::Unchanged)
        })
    }
}

/// A command that ran tests.
struct TestRun<'s> {
    command: String,
    output: &'s str,
    passed: bool,
    /// The line of the output that says how it ended.
    result: String,
}

impl<'s> TestRun<'s> {
    fn of(call: &Call<'_>, span: &'s Span<'_>) -> Option<Self> {
        if call.action != Action::Run {
            return None;
        }
        let command = call.command(&span.sources)?;
        let source = &span.sources[call.result?];
        // A word of a test report alone is not enough: a log that was printed may have it, too.
        let runs_tests = RUNNERS.iter().any(|part| command.contains(part));
        let at = source.outcome.filter(|_| runs_tests)?;
        let result = clean_line(&source.text[line_around(&source.text, at)]);
        Some(Self {
            passed: !call.went_wrong(&span.sources),
            output: &source.text,
            result: clip(result.trim_matches(['=', '-', ' ']), QUOTED).into_owned(),
            command,
        })
    }

    /// Updates what failed so far, each with the command that showed it.
    fn update(&self, failing: &mut HashMap<String, String>) {
        if self.passed {
            // Everything that a run covers passed, and what its output names.
            failing.retain(|_, shown_by| !covers(&self.command, shown_by));
        }
        for line in self.output.lines() {
            let failed = says(line, &FAILED);
            for name in names(line) {
                if failed && !self.passed {
                    failing.insert(name.to_owned(), self.command.clone());
                } else if !failed {
                    failing.remove(name);
                }
            }
        }
    }
}

/// Whether a command that runs tests runs those of another one too: if that begins like it, or if it
/// does not name what to test.
pub(crate) fn covers(command: &str, other: &str) -> bool {
    other.starts_with(command) || names(command).next().is_none()
}

/// Whether a call may have changed files that its arguments or its result name. Unknown tools may.
fn may_change(call: &Call<'_>, span: &Span<'_>) -> bool {
    match call.action {
        Action::Run => call
            .command(&span.sources)
            .is_none_or(|command| !only_reads(&command)),
        Action::Other => {
            let name = call.name.to_ascii_lowercase();
            !SEARCHES.iter().any(|word| name.contains(word))
        }
        // `changed` knows the files of calls that write and edit.
        Action::Read | Action::Write | Action::Edit | Action::Ask | Action::Plan => false,
    }
}

/// Whether every part of a shell command runs a program that only reads, without redirection.
fn only_reads(command: &str) -> bool {
    let quiet = command.replace("2>&1", "").replace("2>/dev/null", "");
    let reads = |part: &str| {
        let mut words = part.split_whitespace();
        match words.next() {
            None => true,
            Some("sed") => words.next() == Some("-n"),
            Some(program) => READERS.contains(&program),
        }
    };
    !quiet.contains('>') && quiet.split(['|', ';', '&', '\n']).all(reads)
}

/// Whether a text has one of these words. Words in Latin letters count only if they are whole.
fn says(text: &str, words: &Words) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut from = 0;
    while let Some((_, found)) = words.find(text, from) {
        let is_inside = text[found.clone()].is_ascii()
            && (is_letter(text[..found.start].chars().next_back())
                || is_letter(text[found.end..].chars().next()));
        if !is_inside {
            return true;
        }
        from = found.end;
    }
    false
}

/// Returns the name of each file in a text, without its folders.
fn files_in(text: &str) -> impl Iterator<Item = &str> {
    let paths = facts(text)
        .into_iter()
        .filter(|(kind, _)| *kind == Kind::Path);
    let names = paths.map(|(_, path)| file_name(path));
    // Without an ending it may be a folder, whose files have other names.
    names.filter(|name| name.trim_start_matches('.').contains('.'))
}

/// Returns each name of a function, test or file in a text.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let is_name = |kind: &Kind| matches!(kind, Kind::Name | Kind::Test | Kind::Path);
    let facts = facts(text).into_iter();
    facts
        .filter(move |(kind, _)| is_name(kind))
        .map(|(_, name)| name)
}

fn facts(text: &str) -> Vec<(Kind, &str)> {
    let mut facts = Vec::new();
    scan(text, |find| {
        if let Find::Fact(kind, range) = find {
            facts.push((kind, &text[range]));
        }
    });
    facts
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
