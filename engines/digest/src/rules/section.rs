//! The section of rules in the text of a summary: how it is written, and how it is found again.
//!
//! [`RuleSection`] has the text. [`without_rules`] removes it, and [`keep_rules`] appends it to the
//! shorter form of a message.

use std::ops::Range;

use contexture_engine_api::MessageView;

use super::{MAY_REPLACE, Rules, declared};
use crate::Budget;
use crate::text::unmarked;

/// The heading over the rules of users in a summary.
pub const RULES_HEADING: &str = "## Rules the user stated. They still hold:";

/// The largest size of the section of rules that [`keep_rules`] adds to the shorter form of a
/// message, in characters.
const SHORTER_CHARS: usize = 2_000;
const LEFT_OUT: &str = " older rules do not fit here and are left out)";

/// The rules as a summary shows them. The default has no rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSection {
    /// The heading and a line for each rule, or an empty text.
    pub text: String,
    /// The number of rules that the section has no room for, now or in an earlier summary.
    pub left_out: usize,
    /// Each rule that the section shows, in its order, with the line for it.
    pub(super) shown: Vec<(String, String)>,
}

impl RuleSection {
    pub(super) fn of(shown: impl Iterator<Item = (String, String)>, left_out: usize) -> Self {
        let shown: Vec<_> = shown.collect();
        let mut lines = vec![RULES_HEADING];
        let is_declared = |(rule, _): &(String, String)| declared::is_declared(rule);
        for alike in shown.chunk_by(|one, next| is_declared(one) == is_declared(next)) {
            let fences = alike.first().filter(|rule| is_declared(rule));
            lines.extend(fences.map(|_| declared::OPEN));
            lines.extend(alike.iter().map(|(_, line)| line.as_str()));
            lines.extend(fences.map(|_| declared::CLOSE));
        }
        let mut text = unmarked(&lines.join("\n"));
        if left_out > 0 {
            text.push_str(&format!("\n({left_out}{LEFT_OUT}"));
        }
        if shown.is_empty() && left_out == 0 {
            text.clear();
        }
        Self {
            text,
            left_out,
            shown,
        }
    }

    /// The rules that the section shows, in its order.
    pub fn shown(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().map(|(rule, _)| rule.as_str())
    }

    /// Returns the part of the section with these rules, for a summary that is shown in several
    /// messages. The number of rules left out stands in the part with the first rule.
    pub fn part(&self, is_in: impl Fn(&str) -> bool) -> Self {
        let left_out = match self.shown.first() {
            Some((first, _)) if is_in(first) => self.left_out,
            _ => 0,
        };
        let shown = self.shown.iter().filter(|(rule, _)| is_in(rule));
        Self::of(shown.cloned(), left_out)
    }

    /// Returns what a summary of all parts surely shows of the section of a [part](Rules::of_part): all but
    /// the sentences that may end a rule of another part.
    #[must_use]
    pub fn surely_shown(&self) -> Self {
        let shown = self.shown.iter();
        let shown = shown.filter(|(_, line)| !line.ends_with(MAY_REPLACE));
        Self::of(shown.cloned(), self.left_out)
    }

    /// Puts the section in front of the text of a summary. An existing section is removed first, so
    /// every rule shown was stated by a user.
    pub fn before(&self, summary: &str) -> String {
        let body = without_rules(summary);
        match (self.text.is_empty(), body.trim().is_empty()) {
            (true, _) => body,
            (false, true) => self.text.clone(),
            (false, false) => format!("{}\n\n{body}", self.text),
        }
    }

    /// Puts the section in the place of an existing one, for a summary that stays otherwise. A summary
    /// without one stays as it is.
    pub fn within(&self, summary: &str) -> String {
        let sections = sections_in(summary);
        let Some(first) = sections.first() else {
            return summary.to_owned();
        };
        let (before, after) = summary.split_at(first.start);
        let blank = &summary[first.clone()];
        let blank = match self.text.is_empty() {
            true => "",
            false => &blank[blank.trim_end().len()..],
        };
        format!("{before}{}{blank}{}", self.text, without_rules(after))
    }
}

/// Appends to the shorter form of a message the rules that the message states, unless the form states
/// the same. So a user's rule stays in the window with it.
pub fn keep_rules(message: &MessageView<'_>, shorter: String) -> String {
    if !message.is_real_user() {
        return shorter;
    }
    // A user may have pasted a text with such a section, which is read back from the shorter form.
    let shorter = without_rules(&shorter);
    let rules = Rules::of_part(&[*message]);
    let shown = MessageView::new(message.id(), message.role()).with_text(&shorter);
    let shown = Rules::of_part(&[shown]);
    // A cut may leave half of a rule, or put one behind a mark.
    if shown == rules {
        return shorter;
    }
    let section = rules.section(Budget::chars(SHORTER_CHARS));
    match section.shown.is_empty() {
        true => shorter,
        false => format!("{shorter}\n\n{}", section.text),
    }
}

/// Returns the text of a summary without its section of rules, for somebody who keeps them
/// themselves. Every section goes, as a model may have written one, too.
pub fn without_rules(summary: &str) -> String {
    let mut text = String::with_capacity(summary.len());
    let mut from = 0;
    for section in sections_in(summary) {
        text.push_str(&summary[from..section.start]);
        from = section.end;
    }
    match from {
        0 => summary.to_owned(),
        _ => text + &summary[from..],
    }
}

/// The sections of rules in a summary, with their headings and the blank lines after them.
fn sections_in(summary: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    let mut is_open = false;
    let mut at = 0;
    for line in summary.split_inclusive('\n') {
        let end = at + line.len();
        let text = line.trim_end();
        let is_heading = text == RULES_HEADING;
        let is_fence = || [declared::OPEN, declared::CLOSE].contains(&text);
        is_open = is_heading || is_open && (text.is_empty() || is_fence() || is_rule_line(text));
        match found.last_mut() {
            Some(section) if is_open && !is_heading => section.end = end,
            _ if is_open => found.push(at..end),
            _ => {}
        }
        // After a blank line a list is somebody else's.
        is_open &= !text.is_empty();
        at = end;
    }
    found
}

fn is_rule_line(line: &str) -> bool {
    line.starts_with("- ") || declared::is_declared(line) || left_out_in(line).is_some()
}

/// The lines of the sections of rules, without their headings.
pub(super) fn section_lines(summary: &str) -> impl Iterator<Item = &str> {
    let sections = sections_in(summary).into_iter();
    let lines = sections.flat_map(|section| summary[section].lines().skip(1));
    lines.map(str::trim_end).filter(|line| is_rule_line(line))
}

pub(super) fn left_out_in(line: &str) -> Option<usize> {
    line.strip_prefix('(')?.strip_suffix(LEFT_OUT)?.parse().ok()
}
