//! The lines of an earlier summary, added to those of the span.
//!
//! [`carry`] takes each line through three steps: which section it belongs to now, what it is worth
//! there, and whether the span has it already.

use contexture_secrets::mask_secrets;
use hashbrown::HashMap;

use super::{Line, Outline, outcome, passed_tests, subject};
use crate::interaction::{Todo, last_plan};
use crate::language::{Language, is_left, is_said, last_said, listed};
use crate::sections::Section;
use crate::shown::{Evidence, Shown};
use crate::span::Span;
use crate::text::clip;
use crate::work_record::covers;

const CARRIED_CHARS: usize = 700;

/// Adds the `lines` of the earlier summary. An item moves to another section only if the span shows
/// that it was done. If the span repeats an item, it is taken from the span. What the summary knows
/// about a file is appended to the new line of that file.
pub(super) fn carry(outline: &mut Outline<'_, '_>, lines: Vec<(Section, String)>) {
    if lines.is_empty() {
        return;
    }
    let mut carried = Carried::of(outline, &lines);
    for (order, (section, text)) in lines.into_iter().enumerate() {
        let text = mask_secrets(&text).into_owned();
        if let Some((section, text)) = carried.section_now(order, section, text) {
            carried.add(&mut outline.lines, order, section, text);
        }
    }
}

/// What decides how a line of the earlier summary is carried.
struct Carried<'s> {
    span: &'s Span<'s>,
    language: Language,
    /// The last to-do list of the span. Empty if there is none, and once `evidence` has it.
    plan: Vec<Todo>,
    is_planned: bool,
    /// The test runs of the span that did not fail, see [`passed_tests`].
    passed: Vec<(usize, String)>,
    /// Evidence is expensive to collect, and many summaries have no open item. So it is collected
    /// for the first one.
    evidence: Option<Evidence<'s>>,
    /// If a summary holds several requests, only the last one is the latest.
    last_request: Option<usize>,
    /// Where the last of several to-do lists begins.
    last_list: Option<usize>,
    has_goal: bool,
    /// The text of each line so far, with the index of the line if it is one of the span.
    said: HashMap<String, Option<usize>>,
    /// The lines of the span by what they are about.
    by_subject: HashMap<String, usize>,
}

impl<'s> Carried<'s> {
    fn of(outline: &Outline<'s, 's>, lines: &[(Section, String)]) -> Self {
        let plan = last_plan(outline.span).map(|(_, todos)| todos);
        let (mut said, mut by_subject) = (HashMap::new(), HashMap::new());
        for (at, line) in outline.lines.iter().enumerate() {
            said.insert(line.head.clone(), Some(at));
            // A command whose outcome is unknown says nothing newer.
            if line.section != Section::Critical || line.value > 0.0 {
                by_subject.insert(subject(&line.head).to_owned(), at);
            }
        }
        Self {
            span: outline.span,
            language: outline.language,
            is_planned: plan.is_some(),
            plan: plan.unwrap_or_default(),
            passed: passed_tests(outline.span).collect(),
            evidence: None,
            last_request: lines
                .iter()
                .rposition(|(_, text)| last_said(text).is_some()),
            last_list: start_of_last_list(lines),
            has_goal: false,
            said,
            by_subject,
        }
    }

    /// Returns the section that a line belongs to now, and its text there. `None` if something
    /// later replaces the line.
    fn section_now(
        &mut self,
        order: usize,
        section: Section,
        text: String,
    ) -> Option<(Section, String)> {
        let is_of_list = listed(&text).is_some() || is_left(&text);
        // A later to-do list replaces an earlier one.
        if is_of_list && (self.is_planned || Some(order) < self.last_list) {
            return None;
        }
        if let Some(words) = last_said(&text) {
            let is_latest = self.last_request == Some(order) && !self.went_on();
            return Some(match is_latest {
                true => (section, self.language.last_said(words)),
                false => (Section::Requests, self.language.said(words)),
            });
        }
        if is_said(&text) {
            return Some((self.section_of_words(section), text));
        }
        match section {
            Section::InProgress | Section::Blocked | Section::NextSteps if !is_left(&text) => {
                self.section_of_item(section, text)
            }
            _ => Some((section, text)),
        }
    }

    /// The section that earlier words of the user belong to now.
    fn section_of_words(&mut self, section: Section) -> Section {
        match section {
            // Only the first of several summaries knows what the conversation began with.
            Section::Goal if !self.has_goal => {
                self.has_goal = true;
                section
            }
            Section::Goal | Section::Done | Section::InProgress => Section::Requests,
            _ => section,
        }
    }

    /// Returns the section that an open item belongs to according to the span, and its text there.
    /// `None` if something later replaces the item.
    fn section_of_item(&mut self, section: Section, text: String) -> Option<(Section, String)> {
        let evidence = (self.evidence)
            .get_or_insert_with(|| Evidence::of(self.span, std::mem::take(&mut self.plan)));
        let item = listed(&text);
        Some(match evidence.of_item(section, item.unwrap_or(&text)) {
            Shown::Superseded => return None,
            // A run that failed did not succeed because a later one did.
            Shown::Done if section == Section::Blocked && outcome(&text).is_some() => {
                (Section::Critical, text)
            }
            Shown::Done => (Section::Done, item.map(str::to_owned).unwrap_or(text)),
            Shown::Nothing if section == Section::InProgress && is_record(&text) => {
                (Section::Done, text)
            }
            Shown::Nothing if section == Section::Blocked && self.was_tested(&text) => {
                (Section::Critical, text)
            }
            Shown::Nothing => (section, text),
        })
    }

    /// Adds a line, unless the span has the same line already or a newer one about the same.
    fn add(&mut self, lines: &mut Vec<Line>, order: usize, section: Section, text: String) {
        let value = carried_value(section, &text);
        if let Some(again) = self.said.insert(text.clone(), None) {
            if let Some(line) = again.filter(|_| section == Section::Goal) {
                lines[line].section = section;
                lines[line].value = value;
            }
            return;
        }
        let again = Some(subject(&text))
            .filter(|subject| !subject.is_empty())
            .and_then(|subject| self.by_subject.get(subject));
        match again.map(|at| &mut lines[*at]) {
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
            _ => lines.push(Line {
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

    /// Whether a user said something in the span, so that the earlier request is no longer the
    /// latest.
    fn went_on(&self) -> bool {
        self.span.user_sources().next().is_some()
    }

    /// Whether tests passed since that a line reports as failed.
    fn was_tested(&self, line: &str) -> bool {
        let command = outcome(line).map(|_| subject(line));
        command
            .is_some_and(|command| (self.passed.iter()).any(|(_, passed)| covers(passed, command)))
    }
}

/// The value of a line of the earlier summary in this section.
fn carried_value(section: Section, text: &str) -> f32 {
    match section {
        Section::Goal => 11.0,
        // The rules among these words have a section of their own.
        Section::Constraints if is_said(text) => 7.0,
        Section::Constraints => 10.0,
        Section::InProgress => 8.5,
        Section::NextSteps => 8.0,
        Section::Blocked => 7.5,
        Section::Requests => 5.5,
        Section::Decisions => 5.0,
        Section::Files => 4.5,
        Section::Done | Section::Critical => 4.0,
    }
}

/// Returns where the last summary that has a to-do list begins among the lines of several. Their
/// sections have an order, in which the items that are left are the last of the list, so a summary
/// begins where this order starts again.
fn start_of_last_list(carried: &[(Section, String)]) -> Option<usize> {
    let is_of_list = |(_, text): &(Section, String)| is_left(text) || listed(text).is_some();
    let last = carried.iter().rposition(is_of_list)?;
    let starts = |at: &usize| {
        let (section, before) = &carried[at - 1];
        *section > carried[*at].0 || is_left(before)
    };
    Some((1..=last).rev().find(starts).unwrap_or(0))
}

/// Whether a line of a digest records a command that did not fail.
fn is_record(line: &str) -> bool {
    outcome(line).is_some_and(|outcome| {
        let outcome = outcome.to_lowercase();
        let open = [
            "fail", "error", "fix", "todo", "wip", "still", "失败", "错误", "报错", "待", "正在",
        ];
        outcome.contains(" 0 failed") || !open.iter().any(|word| outcome.contains(word))
    })
}

/// Whether equal subjects in this section may still be different statements, because its lines are
/// quotes.
fn section_is_quotes(section: Section) -> bool {
    matches!(
        section,
        Section::Goal | Section::Constraints | Section::Decisions
    )
}
