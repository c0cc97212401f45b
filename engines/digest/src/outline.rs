//! The candidate lines of a summary, before any budget: each with its section, position, value and
//! facts.
//!
//! [`outline`] builds them from three sources: what users said, what tools and the assistant did,
//! and the lines of an earlier summary. Every fact belongs to exactly one line, usually that of its
//! file or its call. Lines of the earlier summary stay in their section unless [`Evidence`] in the
//! new messages shows that an item was done. Which lines and facts are written is decided in
//! `render`. The values are on one scale, on which the goal has 10 and a detail about a file 2.

mod carried;

use std::sync::LazyLock;

use hashbrown::{HashMap, HashSet};

use self::carried::carry;
use crate::files::files;
use crate::interaction::{answers, last_plan};
use crate::language::{Language, last_said, said as user_said};
use crate::rank::Fact;
use crate::sections::{Section, sections};
use crate::source::Origin;
use crate::span::Span;
use crate::text::{chars, clean_line, clip, sentences};
use crate::tool::{Action, Call};
use crate::user::{quote, quotes};
use crate::words::Words;
use crate::work_record::covers;

/// A candidate line of a summary. `order` is the position within its section, and `head_chars` the
/// length of `head` in characters.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) section: Section,
    pub(crate) order: usize,
    /// What the line is about, in the words of its source.
    pub(crate) head: String,
    pub(crate) head_chars: usize,
    /// The value of the line without its facts. It is 0 if only its facts justify the line.
    pub(crate) value: f32,
    /// The indices of its facts, in order of position. They are written after the head.
    pub(crate) facts: Vec<usize>,
    /// Whether the line comes from the earlier summary.
    pub(crate) is_carried: bool,
}

/// Lines of at least this value say how to go on: the goal, requests, open work, what fails, answers, and
/// the last decision.
pub(crate) const KEY_VALUE: f32 = 6.0;
/// The order of the first new line. Carried lines have smaller orders, so they come before
/// everything new.
const FIRST_NEW: usize = 1 << 20;

/// Words of a decision. The first [`REASONS`] may also give a reason for something else.
static DECISION_WORDS: LazyLock<Words> = LazyLock::new(|| {
    Words::new([
        "instead of", "rather than", "important:", "因为", "原因", "decided", "decision:",
        "root cause", "the fix is", "we will use", "chose to", "决定", "entschieden",
        "entscheidung:", "décidé", "décision :", "decidido", "decidimos", "decisión:", "決定",
        "決め",
    ])
});
const REASONS: usize = 5;

/// Returns the lines of the span and of the summary before it. `task` is what the user asked for
/// before the span, and becomes the goal unless the summary has one. If neither has one, the first
/// request of the span is the goal.
pub(crate) fn outline(
    span: &Span<'_>,
    facts: &[Fact],
    previous: &str,
    task: Option<&str>,
    language: Language,
) -> Vec<Line> {
    let mut outline = Outline {
        span,
        language,
        lines: Vec::new(),
    };
    let carried = sections(previous);
    let goal_is_carried = carried.iter().any(|(section, _)| *section == Section::Goal);
    let is_first = task.is_none() && carried.is_empty();
    if let Some(task) = task.filter(|_| !goal_is_carried).and_then(quote) {
        let head = language.said(&task);
        let line = outline.add(Section::Goal, 0, 10.0, head);
        outline.lines[line].is_carried = true;
    }
    outline.add_user(is_first);
    outline.add_plan();
    outline.add_reports();
    let of_call = outline.add_calls_and_files();
    // The facts are in the order of their sources, so consecutive facts usually share a line.
    let mut last = None;
    for (at, fact) in facts.iter().enumerate() {
        // `in_progress` is a word of the tool.
        if span.sources[fact.source].key == "status" {
            continue;
        }
        let line = match last {
            Some((source, line)) if source == fact.source => line,
            _ => outline.line_of(fact.source, &of_call),
        };
        last = Some((fact.source, line));
        outline.lines[line].facts.push(at);
    }
    carry(&mut outline, carried);
    outline.value_last_decision();
    outline.value_repeated_requests();
    for line in &mut outline.lines {
        line.head_chars = chars(&line.head);
    }
    outline.lines
}

struct Outline<'s, 'a> {
    span: &'s Span<'a>,
    language: Language,
    lines: Vec<Line>,
}

impl Outline<'_, '_> {
    fn add(&mut self, section: Section, message: usize, value: f32, head: String) -> usize {
        self.lines.push(Line {
            section,
            order: FIRST_NEW + message,
            head_chars: 0,
            head,
            value,
            facts: Vec::new(),
            is_carried: false,
        });
        self.lines.len() - 1
    }

    fn recency(&self, message: usize) -> f32 {
        message as f32 / self.span.messages.max(1) as f32
    }

    /// Adds what users said. The first request is the goal if the span `is_first`.
    fn add_user(&mut self, is_first: bool) {
        let quotes = quotes(self.span);
        let requests = quotes.iter().filter(|quote| !quote.is_rule).count();
        let mut request = 0;
        for quote in quotes {
            let said = self.language.said(&quote.text);
            if quote.is_rule {
                self.add(Section::Constraints, quote.message, 9.0, said);
                continue;
            }
            request += 1;
            if request == 1 && is_first {
                self.add(Section::Goal, quote.message, 10.0, said);
            // If only one request exists and it is the goal, this branch does not repeat it.
            } else if request == requests {
                let head = self.language.last_said(&quote.text);
                self.add(Section::InProgress, quote.message, 9.5, head);
            } else {
                let value = KEY_VALUE + 2.4 / (requests - request) as f32;
                self.add(Section::Requests, quote.message, value, said);
            }
        }
        for answer in answers(self.span) {
            let head = self.language.answered(
                &answer.question.replace('"', "'"),
                &clip(&answer.answer, 240).replace('"', "'"),
            );
            self.add(Section::Decisions, answer.message, 8.5, head);
        }
    }

    fn add_plan(&mut self) {
        let Some((message, todos)) = last_plan(self.span) else {
            return;
        };
        let mut left = Vec::new();
        for todo in todos {
            match todo.status.as_str() {
                // A cancelled item is neither done nor left, so it is not mentioned.
                "cancelled" | "canceled" => continue,
                "in_progress" => {
                    let head = self.language.listed(&todo.text);
                    self.add(Section::InProgress, message, 8.0, head)
                }
                "completed" | "done" => self.add(Section::Done, message, 3.0, todo.text),
                _ => {
                    left.push(todo.text);
                    continue;
                }
            };
        }
        if !left.is_empty() {
            let head = self.language.left(&clip(&left.join("; "), 500));
            self.add(Section::NextSteps, message, 7.0, head);
        }
    }

    /// Adds what the assistant concluded: decisions, and the first sentences of the last text of
    /// each turn.
    fn add_reports(&mut self) {
        let span = self.span;
        let mut sources = span.sources.iter().peekable();
        let mut seen = HashSet::new();
        while let Some(source) = sources.next() {
            if source.origin != Origin::Assistant {
                // The last text before the user speaks again is the answer. Earlier ones announce
                // steps.
                continue;
            }
            let ends_turn = sources
                .peek()
                .is_none_or(|next| next.origin == Origin::User);
            if ends_turn {
                let text: Vec<String> = sentences(&source.text)
                    // A heading or a row of a table reports nothing.
                    .filter(|sentence| !sentence.starts_with(['#', '|', '`']))
                    .map(clean_line)
                    .filter(|sentence| chars(sentence) > 20)
                    .take(2)
                    .collect();
                if !text.is_empty() {
                    let head = self.language.reported(&clip(&text.join(" "), 180));
                    self.add(
                        Section::Done,
                        source.message,
                        4.5 + self.recency(source.message),
                        head,
                    );
                }
            }
            if !DECISION_WORDS.are_in(&source.text) {
                continue;
            }
            // If a text is very long, its decisions usually stand in its first sentences.
            for sentence in sentences(&source.text).take(60) {
                if sentence.len() < 400 && DECISION_WORDS.are_in(sentence) {
                    let text = clean_line(sentence);
                    if text.len() > 30 && seen.insert(text.clone()) {
                        let value = 3.0 + self.recency(source.message);
                        self.add(
                            Section::Decisions,
                            source.message,
                            value,
                            clip(&text, 200).into_owned(),
                        );
                    }
                }
            }
        }
    }

    /// Raises the value of the last decision, whether it is new or carried.
    fn value_last_decision(&mut self) {
        let decides = |line: &&mut Line| {
            let word = DECISION_WORDS.find(&line.head, 0);
            line.section == Section::Decisions && word.is_some_and(|(word, _)| word >= REASONS)
        };
        let decisions = self.lines.iter_mut().filter(decides);
        if let Some(last) = decisions.max_by_key(|line| line.order) {
            last.value = last.value.max(7.5);
        }
    }

    /// Lowers the value of earlier requests that later ones repeat, except for numbers: "Go on with
    /// step 3." Two of them say as much as twenty.
    fn value_repeated_requests(&mut self) {
        let mut said: Vec<(usize, usize, String)> = Vec::new();
        for (at, line) in self.lines.iter().enumerate() {
            if line.section != Section::Goal
                && let Some(words) = user_said(&line.head).or(last_said(&line.head))
            {
                let letters = words.chars().filter(|c| c.is_alphabetic());
                said.push((
                    line.order,
                    at,
                    letters.flat_map(char::to_lowercase).collect(),
                ));
            }
        }
        said.sort_unstable_by_key(|(order, ..)| std::cmp::Reverse(*order));
        let mut times: HashMap<String, usize> = HashMap::new();
        for (_, at, words) in said {
            let times = times.entry(words).or_default();
            *times += 1;
            if *times > 2 && self.lines[at].section == Section::Requests {
                self.lines[at].value = 2.5;
            }
        }
    }

    /// Adds a line for every file and for every other call. Returns the index of the line for each
    /// call.
    fn add_calls_and_files(&mut self) -> Vec<usize> {
        let span = self.span;
        let (files, file_of_call) = files(span);
        let first_file = self.lines.len();
        for file in &files {
            let value = if file.is_changed() { 5.0 } else { 2.0 } + self.recency(file.last);
            let head = format!("{} — {}", file.path, file.note(self.language));
            self.add(Section::Files, file.last, value, head);
        }
        let planned = self.add(Section::Critical, 0, 0.0, self.language.planned());
        let first_call = self.lines.len();
        let last_request = span
            .user_sources()
            .next_back()
            .map_or(0, |(_, said)| said.message);
        // A result is recent if it is among the last messages and the user has said nothing since.
        let recent = span.messages.saturating_sub(12).max(last_request);
        let last_run = span.calls.iter().rposition(|call| went_right(call, span));
        let passed: Vec<(usize, String)> = passed_tests(span).collect();
        for (index, call) in span.calls.iter().enumerate() {
            let outcome = call
                .outcome(&span.sources)
                .filter(|outcome| !outcome.is_empty());
            let wrong = call.went_wrong(&span.sources);
            let is_unknown = call.is_unknown(&span.sources);
            let mut head = match call.result {
                // A result without its call is named by its own first words.
                Some(result) if call.arguments.is_empty() && outcome.is_none() && !is_unknown => {
                    title(&span.sources[result].text)
                }
                _ => call.head(&span.sources),
            };
            // If the same command runs again later, only its last result says how things are.
            let is_last_of_its_kind = || {
                let begins = call.head(&span.sources);
                !span.calls[index + 1..]
                    .iter()
                    .take(200)
                    .any(|later| later.action == call.action && later.head(&span.sources) == begins)
            };
            let is_test = call.is_test(&span.sources);
            // No later run says otherwise, of the same tests if it is one of tests.
            let still_fails = || match call.command(&span.sources).filter(|_| is_test) {
                Some(command) => !(passed.iter())
                    .any(|(later, passed)| *later > index && covers(passed, &command)),
                None => Some(index) > last_run,
            };
            let told = matches!(call.action, Action::Run | Action::Other);
            let is_now =
                told && wrong && (call.message >= recent || still_fails()) && is_last_of_its_kind();
            if let Some(outcome) = outcome {
                match call.failed {
                    true => head.extend([self.language.failed(), ": "]),
                    false => head.push_str(" → "),
                }
                head.push_str(&outcome);
                if is_now {
                    head.push_str(&call.failure(&span.sources, &outcome));
                }
            } else if call.failed {
                head.push_str(self.language.failed());
            }
            let is_of_file = file_of_call[index].is_some();
            let (section, value) = match told {
                false if call.failed && is_of_file => (Section::Done, 3.5),
                false => (Section::Done, 0.0),
                true => self.section_of_call(call, is_now, last_request, recent),
            };
            self.add(section, call.message, value, head);
        }
        let of_call = file_of_call.iter().enumerate();
        let line = |(call, file): (usize, &Option<usize>)| match file {
            Some(file) => first_file + file,
            // The last list has lines of its own, and says what became of the earlier ones.
            None if span.calls[call].action == Action::Plan => planned,
            None => first_call + call,
        };
        of_call.map(line).collect()
    }

    /// Returns the section of a call of which only its own line tells, and the value of that line.
    /// `is_now` says that it failed and that nothing later says otherwise. `last_request` is the
    /// message of the user's last words, and `recent` the first recent message.
    fn section_of_call(
        &self,
        call: &Call<'_>,
        is_now: bool,
        last_request: usize,
        recent: usize,
    ) -> (Section, f32) {
        let sources = &self.span.sources;
        if is_now && call.message >= last_request {
            (Section::Blocked, 8.0)
        } else if is_now && call.is_test(sources) {
            (Section::Blocked, KEY_VALUE + self.recency(call.message))
        } else if call.is_unknown(sources) {
            (Section::Critical, 0.0)
        } else if !call.is_answered {
            (Section::InProgress, 5.0)
        } else if call.went_wrong(sources) {
            (Section::Critical, 3.5)
        } else if call.message >= recent {
            (Section::Done, 5.0)
        } else if call.is_test(sources) {
            (Section::Done, 4.0)
        } else {
            (Section::Done, 0.0)
        }
    }

    /// Returns the line for the facts of a source: that of its call, or a new one.
    fn line_of(&mut self, source: usize, of_call: &[usize]) -> usize {
        let source = &self.span.sources[source];
        let head = match source.origin {
            Origin::Argument(call) | Origin::Result(call) => return of_call[call],
            Origin::User => self.language.named(),
            Origin::Assistant => title(&source.text),
        };
        self.add(Section::Critical, source.message, 0.0, head)
    }
}

/// Whether a call ran a command that is known not to have failed.
fn went_right(call: &Call<'_>, span: &Span<'_>) -> bool {
    call.action == Action::Run && !call.went_wrong(&span.sources) && !call.is_unknown(&span.sources)
}

/// Returns the test runs that did not fail: the index of each call, and its command.
fn passed_tests(span: &Span<'_>) -> impl Iterator<Item = (usize, String)> {
    let calls = span.calls.iter().enumerate();
    let tests = calls.filter(|(_, call)| call.is_test(&span.sources) && went_right(call, span));
    tests.filter_map(|(at, call)| Some((at, call.command(&span.sources)?)))
}

/// Returns the outcome if a line of a digest records a command: `` `make` → ok ``.
fn outcome(line: &str) -> Option<&str> {
    let (_, outcome) = line.strip_prefix('`')?.split_once("` → ")?;
    Some(outcome)
}

/// Returns the first sentence of a text that says more than "Good!", or its first line if there is
/// none.
fn title(text: &str) -> String {
    let first = sentences(text)
        .take(8)
        .map(clean_line)
        .find(|line| chars(line) > 20);
    let first = first.unwrap_or_else(|| clean_line(text.trim().lines().next().unwrap_or_default()));
    clip(&first, 60).trim_end_matches([':', '.']).to_owned()
}

/// Returns what a line is about: its command, or the path that it begins with. Empty for other
/// lines.
fn subject(line: &str) -> &str {
    if let Some(rest) = line.strip_prefix('`') {
        return rest.split('`').next().unwrap_or_default();
    }
    line.split_once(" — ").map_or("", |(subject, _)| subject)
}
