//! The candidate lines of a summary, before any budget: each with its section, position, value and
//! facts.
//!
//! [`outline`] builds them from three sources: what users said, what tools and the assistant did,
//! and the lines of an earlier summary. Every fact belongs to exactly one line, usually that of its
//! file or its call. Lines of the earlier summary stay in their section unless [`Evidence`] in the
//! new messages shows that an item was done. Which lines and facts are written is decided in
//! `render`. The values are on one scale, on which the goal has 10 and a detail about a file 2.

use std::sync::LazyLock;

use contexture_secrets::mask_secrets;
use hashbrown::{HashMap, HashSet};

use crate::files::files;
use crate::interaction::{answers, last_plan};
use crate::language::{Language, is_left, is_said, last_said};
use crate::rank::Fact;
use crate::sections::{Section, sections};
use crate::shown::{Evidence, Shown};
use crate::source::Origin;
use crate::span::Span;
use crate::text::{chars, clean_line, clip, sentences};
use crate::tool::{Action, Call};
use crate::user::{quote, quotes};
use crate::words::Words;

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
const CARRIED_CHARS: usize = 700;
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

/// Words with which an assistant says that it did not succeed.
static GAVE_UP_WORDS: LazyLock<Words> = LazyLock::new(|| {
    Words::new([
        "could not", "couldn't", "unable to", "cannot", "still fail", "still not", "not yet",
        "not finished", "not done", "blocked", "无法", "不能", "还没", "尚未", "未能", "仍然",
        "仍有", "没有完成", "失败",
    ])
});

/// Returns the lines of the span and of the summary before it. `task` is what the user asked for
/// before the span, and becomes the goal unless the summary has one.
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
    let task = task.filter(|_| !goal_is_carried).and_then(quote);
    if let Some(task) = &task {
        let head = language.said(task);
        let line = outline.add(Section::Goal, 0, 10.0, head);
        outline.lines[line].is_carried = true;
    }
    outline.add_user(goal_is_carried || task.is_some());
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
    outline.carry(carried);
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

    fn add_user(&mut self, has_goal: bool) {
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
            if request == 1 && !has_goal {
                self.add(Section::Goal, quote.message, 10.0, said);
            // If only one request exists and it is the goal, this branch does not repeat it.
            } else if request == requests {
                let head = self.language.last_said(&quote.text);
                self.add(Section::InProgress, quote.message, 9.5, head);
            } else {
                // The requests before the last one may still be open.
                let value = KEY_VALUE + 2.4 / (requests - request) as f32;
                self.add(Section::Done, quote.message, value, said);
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
                "in_progress" => self.add(Section::InProgress, message, 8.0, todo.text),
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
        let mut last_decision = None;
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
                        let line = self.add(
                            Section::Decisions,
                            source.message,
                            value,
                            clip(&text, 200).into_owned(),
                        );
                        let word = DECISION_WORDS.find(sentence, 0);
                        if word.is_some_and(|(word, _)| word >= REASONS) {
                            last_decision = Some(line);
                        }
                    }
                }
            }
        }
        if let Some(line) = last_decision {
            self.lines[line].value = 7.5;
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
        let went_right =
            |call: &Call<'_>| call.action == Action::Run && !call.went_wrong(&span.sources);
        let last_run = span.calls.iter().rposition(went_right);
        let last_test =
            (span.calls.iter()).rposition(|call| call.is_test(&span.sources) && went_right(call));
        for (index, call) in span.calls.iter().enumerate() {
            let outcome = call
                .outcome(&span.sources)
                .filter(|outcome| !outcome.is_empty());
            let wrong = call.went_wrong(&span.sources);
            let mut head = match call.result {
                // A result without its call is named by its own first words.
                Some(result) if call.arguments.is_empty() && outcome.is_none() => {
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
            let last_right = if is_test { last_test } else { last_run };
            // No later run says otherwise, of tests if it is one of tests.
            let still_fails = wrong && Some(index) > last_right;
            let told = matches!(call.action, Action::Run | Action::Other);
            let is_now =
                told && wrong && (call.message >= recent || still_fails) && is_last_of_its_kind();
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
            let (section, value) = if !told {
                (
                    Section::Done,
                    if call.failed && file_of_call[index].is_some() {
                        3.5
                    } else {
                        0.0
                    },
                )
            } else if is_now && call.message >= last_request {
                (Section::Blocked, 8.0)
            } else if is_now && is_test {
                (Section::Critical, 6.0 + self.recency(call.message))
            } else if !call.is_answered {
                (Section::InProgress, 5.0)
            } else if wrong {
                (Section::Critical, 3.5)
            } else if call.message >= recent {
                (Section::Done, 5.0)
            } else if is_test {
                (Section::Done, 4.0)
            } else {
                (Section::Done, 0.0)
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

    /// Adds the lines of the earlier summary. An item moves to another section only if the span
    /// shows that it was done. If the span repeats an item, it is taken from the span. What the
    /// summary knows about a file is appended to the new line of that file.
    fn carry(&mut self, carried: Vec<(Section, String)>) {
        let span = self.span;
        let plan = last_plan(span).map(|(_, todos)| todos);
        let is_planned = plan.is_some();
        let mut evidence = None;
        let mut plan = Some(plan.unwrap_or_default());
        // If a summary holds several requests, only the last one is the latest.
        let last_request = carried
            .iter()
            .rposition(|(_, text)| last_said(text).is_some());
        let last_list = carried.iter().rposition(|(_, text)| is_left(text));
        let mut said: HashSet<String> = HashSet::new();
        let mut by_subject: HashMap<String, usize> = HashMap::new();
        if !carried.is_empty() {
            said.extend(self.lines.iter().map(|line| line.head.clone()));
            for (at, line) in self.lines.iter().enumerate() {
                by_subject.insert(subject(&line.head).to_owned(), at);
            }
        }
        for (order, (mut section, text)) in carried.into_iter().enumerate() {
            let mut text = mask_secrets(&text).into_owned();
            if let Some(words) = last_said(&text).map(str::to_owned) {
                let is_last = last_request == Some(order);
                if !is_last || self.went_on() {
                    text = self.language.said(&words);
                    if !is_last || self.is_answered() {
                        section = Section::Done;
                    }
                } else {
                    text = self.language.last_said(&words);
                }
            } else if section == Section::NextSteps && is_left(&text) {
                // A later to-do list replaces an earlier one.
                if is_planned || last_list != Some(order) {
                    continue;
                }
            } else if matches!(
                section,
                Section::InProgress | Section::Blocked | Section::NextSteps
            ) {
                // Evidence is expensive to collect, and many summaries have no open item.
                let evidence = evidence
                    .get_or_insert_with(|| Evidence::of(span, plan.take().unwrap_or_default()));
                match evidence.of_item(section, &text) {
                    Shown::Superseded => continue,
                    Shown::Done => section = Section::Done,
                    Shown::Nothing if section == Section::InProgress && is_record(&text) => {
                        section = Section::Done;
                    }
                    Shown::Nothing => {}
                }
            }
            let value = match section {
                Section::Goal => 11.0,
                Section::Constraints => 10.0,
                Section::InProgress => 8.5,
                Section::NextSteps => 8.0,
                Section::Blocked => 7.5,
                Section::Done if is_said(&text) => 5.5,
                Section::Decisions => 5.0,
                Section::Files => 4.5,
                Section::Done | Section::Critical => 4.0,
            };
            // If the span has the same line already, carrying it would repeat it.
            if !said.insert(text.clone()) {
                continue;
            }
            let again = Some(subject(&text))
                .filter(|subject| !subject.is_empty())
                .and_then(|subject| by_subject.get(subject));
            match again.map(|at| &mut self.lines[*at]) {
                Some(line) if section == Section::Files => {
                    let earlier = self.language.earlier();
                    let known = text.split_once(": ").map_or("", |(_, known)| known);
                    // The phrase may be in the text already if this file was carried before, and
                    // must not pile up.
                    let known = known.replace(earlier, "; ");
                    if !known.is_empty() {
                        line.head.push_str(earlier);
                        line.head.push_str(&clip(&known, 400));
                    }
                    line.value = line.value.max(value);
                }
                // The newer result of the same command replaces the older one.
                Some(line) if !section_is_quotes(section) => line.value = line.value.max(value),
                _ => self.lines.push(Line {
                    section,
                    order,
                    head_chars: 0,
                    head: clip(&text, CARRIED_CHARS).into_owned(),
                    value,
                    facts: Vec::new(),
                    is_carried: true,
                }),
            }
        }
    }

    /// Whether a user said something in the span, so that the earlier request is no longer the
    /// latest.
    fn went_on(&self) -> bool {
        self.span.user_sources().next().is_some()
    }

    /// Whether the work before the span was finished when the user went on. It was if the last
    /// command of that turn did not fail, and if the assistant did not say that it could not do the
    /// work. An interrupted turn was not finished.
    fn is_answered(&self) -> bool {
        let next = self.span.user_sources().next();
        let Some((end, next)) = next else {
            return false;
        };
        let turn = &self.span.sources[..end];
        let mut calls = self.span.calls.iter().rev();
        let last = calls.find(|call| call.message < next.message);
        let mut texts = turn.iter().rev();
        let reply = texts.find(|source| source.origin == Origin::Assistant);
        let is_interrupted = next.text.contains("[Request interrupted by user");
        !is_interrupted
            && !last.is_some_and(|call| call.went_wrong(&self.span.sources))
            && !reply.is_some_and(|reply| GAVE_UP_WORDS.are_in(&reply.text))
    }
}

/// Whether a line of a digest records a command that did not fail: `` `make` → ok ``.
fn is_record(line: &str) -> bool {
    let outcome = line
        .strip_prefix('`')
        .and_then(|rest| rest.split_once("` → "))
        .map(|(_, outcome)| outcome.to_lowercase());
    outcome.is_some_and(|outcome| {
        let open = [
            "fail", "error", "fix", "todo", "wip", "still", "失败", "错误", "报错", "待", "正在",
        ];
        outcome.contains(" 0 failed") || !open.iter().any(|word| outcome.contains(word))
    })
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

/// Whether equal subjects in this section may still be different statements, because its lines are
/// quotes.
fn section_is_quotes(section: Section) -> bool {
    matches!(
        section,
        Section::Goal | Section::Constraints | Section::Decisions
    )
}

/// Returns what a line is about: its command, or the path that it begins with. Empty for other
/// lines.
fn subject(line: &str) -> &str {
    if let Some(rest) = line.strip_prefix('`') {
        return rest.split('`').next().unwrap_or_default();
    }
    line.split_once(" — ").map_or("", |(subject, _)| subject)
}
