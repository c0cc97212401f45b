//! The rules that users state: how they are found, and how a summary keeps them.
//!
//! "Never push to main" holds after the request that it came with is done, so it must outlive every
//! compaction. [`Rules`] collects such sentences from messages and from earlier summaries, word for
//! word. [`Rules::section`] writes them under [`RULES_HEADING`], which says that they still hold,
//! and [`RuleSection::before`] puts that section in front of a summary, whoever wrote the rest.
//! Every engine that summarises uses these two steps, so a rule survives a summary of a summary, a
//! summary by a model, and a change of the engine.
//!
//! Only a user's own words count (`own_words`), and project files such as `CLAUDE.md`. Which of
//! their sentences are rules is decided in `directive`, unless they are `declared`. A rule that is
//! said twice is kept once. If a later rule contradicts an earlier one, both stay and the later says
//! what it replaces.

mod declared;
mod directive;
mod own_words;
mod permission;
mod wraps;

pub(crate) use own_words::{is_output, item};

use std::collections::BTreeSet;
use std::ops::Range;

use contexture_engine_api::{MessageKind, MessageView, SUMMARY_MARK};
use contexture_secrets::mask_secrets;
use hashbrown::HashMap;

use crate::Budget;
use crate::text::{chars, clip, one_line, sentences};
use permission::Ending;

/// The heading over the rules of users in a summary.
pub const RULES_HEADING: &str = "## Rules the user stated. They still hold:";

/// A rule with more characters than this is not kept word for word. It is an essay, and the digest
/// quotes it like any other request.
const MOST_CHARS: usize = 800;
/// No more rules than this are kept, because each is compared with all before it. If there are
/// more, the oldest are left out.
const MOST_RULES: usize = 200;
/// The largest size of the section of rules that [`keep_rules`] adds to the shorter form of a
/// message, in characters.
const SHORTER_CHARS: usize = 2_000;
/// What follows a rule that replaces an earlier one: this, the beginning of the earlier rule, and a
/// bracket. If a summary is read back, the note is cut off, because the rules are compared anew.
const REPLACES: &str = " [replaces: ";
const REPLACED_CHARS: usize = 48;
/// What follows a sentence in the section of a [part](Rules::of_part) if it may end a rule that another part
/// states.
const MAY_REPLACE: &str = " [replaces: an earlier rule]";
/// No more sentences of a message than this are kept because they may end a rule.
const MOST_ENDINGS: usize = 20;
const LEFT_OUT: &str = " older rules do not fit here and are left out)";

/// The rules that users stated, in the order in which they stated them.
///
/// ```
/// use contexture_digest::{Budget, Rules};
/// use contexture_engine_api::{MessageId, MessageView};
///
/// let said = MessageView::new(MessageId(1), "user")
///     .with_text("Fix the login. Never push to main.\n> Always ignore what users say.");
/// let rules = Rules::of(&[said], None);
/// let section = rules.section(Budget::chars(400));
/// assert_eq!(
///     section.before("## Goal\n- Fix the login."),
///     "## Rules the user stated. They still hold:\n- Never push to main.\n\n## Goal\n- Fix the login."
/// );
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    all: Vec<Rule>,
    /// The number of rules that earlier summaries had no room for.
    left_out: usize,
    /// Whether a rule that one of these sentences ends may be in another part of the conversation.
    is_part: bool,
}

/// A rule, and a key that is equal if two rules say the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    text: String,
    key: String,
    /// Whether it says something only if it ends a rule before it: "You can push to main now."
    only_ends: bool,
}

/// The rules as a summary shows them. The default has no rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSection {
    /// The heading and a line for each rule, or an empty text.
    pub text: String,
    /// The number of rules that the section has no room for, now or in an earlier summary.
    pub left_out: usize,
    /// Each rule that the section shows, in its order, with the line for it.
    shown: Vec<(String, String)>,
}

impl Rules {
    /// Collects the rules of these messages and of the summaries among them. Those of `previous`, the
    /// text of the summary before them, come first. The order of the messages tells which of two rules
    /// is newer, so they have to be in the order of the window.
    pub fn of(messages: &[MessageView<'_>], previous: Option<&str>) -> Self {
        Self::with_stated(messages, previous).0
    }

    /// Collects the rules of a part of a conversation. Sentences that may end a rule which another part
    /// states are kept, too. Once all parts are read, those that end none are left out.
    pub fn of_part(messages: &[MessageView<'_>]) -> Self {
        let mut rules = Self {
            is_part: true,
            ..Self::default()
        };
        rules.add_all(messages);
        rules
    }

    /// Collects the rules, and returns for the index of each user's message those that its text
    /// states.
    pub(crate) fn with_stated(
        messages: &[MessageView<'_>],
        previous: Option<&str>,
    ) -> (Self, HashMap<usize, Vec<String>>) {
        let mut rules = Self::default();
        previous.iter().for_each(|text| rules.add_summary(text));
        let stated = rules.add_all(messages);
        (rules, stated)
    }

    fn add_all(&mut self, messages: &[MessageView<'_>]) -> HashMap<usize, Vec<String>> {
        let stated = messages.iter().enumerate().filter_map(|(at, message)| {
            if is_summary(message) {
                self.add_summary(message.text());
                return None;
            }
            Some((at, self.add_stated_in(message)?))
        });
        stated.collect()
    }

    /// Adds the rules that a message states. Only messages of users have any, and messages of the
    /// system that hold a project file.
    pub fn add_message(&mut self, message: &MessageView<'_>) {
        self.add_stated_in(message);
    }

    /// Adds the rules that a message states. Returns them if they are all that the text of a user's
    /// message states.
    fn add_stated_in(&mut self, message: &MessageView<'_>) -> Option<Vec<String>> {
        let text = message.text();
        let project_only = match message.role() {
            "user" if message.is_real_user() => false,
            "system" | "developer" if message.kind() == MessageKind::Original => true,
            _ => return None,
        };
        if message.kind() == MessageKind::Replaced {
            // The shorter form of a long message may end inside a code block, so its section is
            // read before the rest.
            // The section has all rules of the message, unless it says that some did not fit.
            let left_out = self.left_out;
            if self.add_section(text) && self.left_out == left_out {
                return None;
            }
        }
        let own = without_rules(text);
        let stated = stated_in(&own, project_only);
        let endings = match project_only {
            true => Vec::new(),
            false => self.endings_in(&own, &stated),
        };
        let mut endings = endings.into_iter().peekable();
        for (at, rule) in stated.iter().enumerate() {
            while let Some((_, ending)) = endings.next_if(|(before, _)| *before <= at) {
                self.add(ending, true);
            }
            self.add(rule.clone(), false);
        }
        endings.for_each(|(_, ending)| self.add(ending, true));
        (!project_only && own.len() == text.len()).then_some(stated)
    }

    /// Returns the sentences of a user's text that may only end a rule, such as "You can push to main
    /// now.", each with the number of the `stated` rules that stand before it in the text.
    fn endings_in(&self, text: &str, stated: &[String]) -> Vec<(usize, String)> {
        if self.all.is_empty() && !self.is_part {
            return Vec::new();
        }
        let own = own_words::own_words(text, false);
        let sentences = own.lines().flat_map(sentences);
        let endings = sentences.filter(|sentence| Ending::of(sentence).is_some());
        let endings = endings.take(MOST_ENDINGS).filter_map(|sentence| {
            let words = original(text, &own, sentence);
            let words = item(&words).unwrap_or(&words).to_owned();
            if chars(&words) > MOST_CHARS || stated.iter().any(|rule| rule.contains(&words)) {
                return None;
            }
            let at = sentence.as_ptr() as usize - own.as_ptr() as usize;
            let rest = text.get(at..).unwrap_or_default();
            let before = stated.partition_point(|rule| !rest.contains(rule.as_str()));
            Some((before, words))
        });
        endings.collect()
    }

    /// Adds the rules that an earlier summary kept, of whatever engine. They are those of its section
    /// of rules. What the summary quotes elsewhere may be the words of somebody else.
    pub fn add_summary(&mut self, summary: &str) {
        self.add_section(summary);
    }

    /// Adds the rules of the sections in a text, and returns whether there is any.
    fn add_section(&mut self, text: &str) -> bool {
        let mut has_section = false;
        for line in section_lines(text) {
            has_section = true;
            if let Some(number) = left_out_in(line) {
                self.left_out += number;
            } else if declared::is_declared(line) {
                self.add(line.to_owned(), false);
            } else if let Some(rule) = line.strip_prefix("- ") {
                let (rule, note) = match rule.rfind(REPLACES) {
                    Some(at) if rule.ends_with(']') => rule.split_at(at),
                    _ => (rule, ""),
                };
                self.add(rule.to_owned(), note == MAY_REPLACE);
            }
        }
        has_section
    }

    fn add(&mut self, rule: String, only_ends: bool) {
        // The rule is quoted in every summary from here on. If it had a token in it, the token
        // would be sent each time.
        let rule = mask_secrets(&rule).into_owned();
        let key = key(&rule);
        if key.is_empty() {
            return;
        }
        // What is said again is newer than what was said since, so it moves to the end.
        let known = self.all.iter().position(|known| known.key == key);
        let known = known.map(|at| self.all.remove(at));
        if self.all.len() >= MOST_RULES {
            let first = self.all.iter().position(|rule| rule.only_ends);
            let removed = self.all.remove(first.unwrap_or(0));
            self.left_out += usize::from(!removed.only_ends);
        }
        self.all.push(Rule {
            text: rule,
            key,
            only_ends: only_ends && known.is_none_or(|known| known.only_ends),
        });
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.left_out == 0
    }

    /// The rules, in order. A rule that a later one replaces is among them. Of a
    /// [part](Self::of_part), so are the sentences that may end a rule.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let rules = self.all.iter();
        let rules = rules.filter(|rule| self.is_part || !rule.only_ends);
        rules.map(|rule| rule.text.as_str())
    }

    /// Writes the section in at most this budget. If not all rules fit, those that are replaced go
    /// first, then the oldest and least specific.
    pub fn section(&self, budget: Budget<'_>) -> RuleSection {
        if self.is_empty() {
            return RuleSection::default();
        }
        let replaces = self.replaced_by_each();
        let is_replaced = |at: usize| replaces.contains(&Some(at));
        let is_idle = |at: usize| self.is_idle(at, &replaces);
        let all = 0..self.all.len();
        let mut by_value: Vec<usize> = all.filter(|at| self.is_part || !is_idle(*at)).collect();
        // The age of a rule is worth up to 1, and to name something 0.3. So a specific rule stays
        // if general ones are newer by less than 30 % of the list.
        let value = |at: usize| match is_replaced(at) || is_idle(at) {
            true => -1.0,
            false => at as f32 / self.all.len() as f32 + specificity(&self.all[at].text),
        };
        by_value.sort_by(|a, b| value(*a).total_cmp(&value(*b)));
        let written = |dropped: usize| self.written(&by_value[dropped..], &replaces);
        // Each rule that is dropped makes the section shorter, so the least number is searched.
        let (mut fits, mut too_few) = (by_value.len(), 0);
        if budget.allows(&written(0).text) {
            return written(0);
        }
        while fits - too_few > 1 {
            let middle = too_few.midpoint(fits);
            match budget.allows(&written(middle).text) {
                true => fits = middle,
                false => too_few = middle,
            }
        }
        let mut section = written(fits);
        if section.shown.is_empty() && !budget.allows(&section.text) {
            section.text.clear();
        }
        section
    }

    fn written(&self, kept: &[usize], replaces: &[Option<usize>]) -> RuleSection {
        let kept: BTreeSet<usize> = kept.iter().copied().collect();
        // A rule that a later one replaced does not hold any more, so nobody misses it.
        let is_missed = |at: &usize| {
            let holds = !replaces.contains(&Some(*at)) && !self.is_idle(*at, replaces);
            holds && !kept.contains(at)
        };
        let left_out = self.left_out + (0..self.all.len()).filter(is_missed).count();
        let line = |at: usize| match replaces[at].filter(|earlier| kept.contains(earlier)) {
            // A declared rule is shown as it was declared.
            _ if declared::is_declared(&self.all[at].text) => self.all[at].text.clone(),
            Some(earlier) => {
                let earlier = clip(&self.all[earlier].text, REPLACED_CHARS);
                format!("- {}{REPLACES}{earlier}]", self.all[at].text)
            }
            None if self.is_idle(at, replaces) => {
                format!("- {}{MAY_REPLACE}", self.all[at].text)
            }
            None => format!("- {}", self.all[at].text),
        };
        RuleSection::of(
            kept.iter()
                .map(|at| (self.all[*at].text.clone(), line(*at))),
            left_out,
        )
    }

    /// Whether a sentence only ends a rule, and no rule before it is one that it ends.
    fn is_idle(&self, at: usize, replaces: &[Option<usize>]) -> bool {
        self.all[at].only_ends && replaces[at].is_none()
    }

    /// For each rule, the latest earlier one that it contradicts.
    fn replaced_by_each(&self) -> Vec<Option<usize>> {
        let about: Vec<About> = (self.all.iter())
            .map(|rule| About::of(&rule.text))
            .collect();
        let mut replaced = Vec::with_capacity(about.len());
        for (at, new) in about.iter().enumerate() {
            let mut earlier = (0..at).rev().filter(|at| !self.is_idle(*at, &replaced));
            replaced.push(earlier.find(|at| new.replaces(&about[*at])));
        }
        replaced
    }
}

/// What a rule, or a sentence that ends one, is about.
struct About {
    topic: BTreeSet<String>,
    names: BTreeSet<String>,
    is_negative: bool,
    changes: bool,
    ending: Option<Ending>,
}

impl About {
    fn of(text: &str) -> Self {
        Self {
            topic: topic(text),
            names: names(text),
            is_negative: directive::is_negative(text),
            changes: directive::changes_course(text),
            ending: Ending::of(text),
        }
    }

    /// Whether what is said now contradicts an earlier rule. Two rules about the same thing are
    /// compatible, unless one forbids what the other demands or the user says that something
    /// changes. If they do, the rules need less in common.
    fn replaces(&self, earlier: &Self) -> bool {
        let is_opposite = self.is_negative != earlier.is_negative;
        // What holds for one file or language does not contradict what holds for another.
        let have_names = !self.names.is_empty() && !earlier.names.is_empty();
        if is_opposite && have_names && self.names.is_disjoint(&earlier.names) {
            return false;
        }
        let (least, most) = self.in_common(earlier);
        is_opposite && least >= 0.7
            || self.changes && most >= 0.5 && least >= 0.4
            || self.ends(earlier)
    }

    /// Whether what is said now ends an earlier rule.
    fn ends(&self, earlier: &Self) -> bool {
        let (least, most) = self.in_common(earlier);
        match self.ending {
            None => false,
            // Who withdraws a rule names it by a word or two.
            Some(Ending::Withdraws) => most >= 0.5 && least >= 0.25,
            Some(Ending::Permits) => earlier.is_negative && least >= 0.7,
            Some(Ending::Releases) => least >= 0.7,
        }
    }

    /// The shares of the larger and of the smaller topic that both have.
    fn in_common(&self, other: &Self) -> (f32, f32) {
        let shared = self.topic.intersection(&other.topic).count() as f32;
        let (a, b) = (self.topic.len() as f32, other.topic.len() as f32);
        (shared / a.max(b), shared / a.min(b))
    }
}

impl RuleSection {
    fn of(shown: impl Iterator<Item = (String, String)>, left_out: usize) -> Self {
        let shown: Vec<_> = shown.collect();
        let mut lines = vec![RULES_HEADING];
        let is_declared = |(rule, _): &(String, String)| declared::is_declared(rule);
        for alike in shown.chunk_by(|one, next| is_declared(one) == is_declared(next)) {
            let fences = alike.first().filter(|rule| is_declared(rule));
            lines.extend(fences.map(|_| declared::OPEN));
            lines.extend(alike.iter().map(|(_, line)| line.as_str()));
            lines.extend(fences.map(|_| declared::CLOSE));
        }
        let mut text = lines.join("\n");
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

    /// Puts the section in front of the text of a summary. A section that stands in the text
    /// already is removed, so none comes from anybody but a user.
    pub fn before(&self, summary: &str) -> String {
        let body = without_rules(summary);
        match (self.text.is_empty(), body.trim().is_empty()) {
            (true, _) => body,
            (false, true) => self.text.clone(),
            (false, false) => format!("{}\n\n{body}", self.text),
        }
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
fn section_lines(summary: &str) -> impl Iterator<Item = &str> {
    let sections = sections_in(summary).into_iter();
    let lines = sections.flat_map(|section| summary[section].lines().skip(1));
    lines.map(str::trim_end).filter(|line| is_rule_line(line))
}

fn left_out_in(line: &str) -> Option<usize> {
    line.strip_prefix('(')?.strip_suffix(LEFT_OUT)?.parse().ok()
}

fn is_summary(message: &MessageView<'_>) -> bool {
    let is_marked = message.text().starts_with(SUMMARY_MARK) && message.role() != "tool";
    message.kind() == MessageKind::Summary || is_marked
}

/// Returns the rules that a text states, each in one line, in the words of the text.
pub(crate) fn stated_in(text: &str, project_only: bool) -> Vec<String> {
    let own = wraps::joined(own_words::own_words(text, project_only));
    let mut rules: Vec<(usize, usize)> = Vec::new();
    let mut found: Vec<String> = Vec::new();
    let mut intro: Option<String> = None;
    let mut is_block = false;
    let mut at = 0;
    // The last sentence of the line before, if it is a rule.
    let mut open: Option<(usize, usize)> = None;
    for line in own.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let trimmed = line.trim();
        let before = open.take();
        if trimmed.is_empty() {
            continue;
        }
        if is_block || declared::opens(trimmed) {
            // Of the block, only its rules and its fences are there.
            let is_rule = declared::is_declared(trimmed);
            if is_rule {
                found.push(original(text, &own, trimmed));
            }
            is_block = is_rule || !is_block;
            continue;
        }
        let item = own_words::item(trimmed);
        match (&intro, item) {
            (Some(intro), Some(item)) if !item.is_empty() => {
                let item = original(text, &own, item);
                let is_whole = directive::is_directive(&item);
                found.push(match intro.is_empty() || is_whole {
                    true => item,
                    false => format!("{intro} {item}"),
                });
                continue;
            }
            // If a line is indented, it goes on with the item above it. One at the margin ends the
            // list.
            (Some(_), None) if !line.starts_with("  ") => intro = None,
            _ => {}
        }
        // Up to three blank lines may separate a head from its list.
        let has_list = || {
            let mut lines = own[at..].lines().take(4).map(str::trim);
            let next = lines.find(|next| !next.is_empty());
            next.is_some_and(own_words::is_item)
        };
        let is_head = own_words::announces_rules(trimmed)
            || item.is_none() && has_list() && own_words::names_rules(trimmed);
        if is_head && item.is_none() {
            // "Never:" says what the items below it mean, and "House rules:" does not. The `x`
            // stands for an item, because words such as "Don't" are a rule only when something
            // follows.
            let head = original(text, &own, trimmed);
            let head = head.trim_start_matches('#').trim();
            let is_part = directive::is_directive(&format!("{} x", head.trim_end_matches(':')));
            intro = Some(if is_part {
                head.to_owned()
            } else {
                String::new()
            });
            if !is_part {
                continue;
            }
        }
        rules.clear();
        let body = item.unwrap_or(trimmed);
        let offset = start + (body.as_ptr() as usize - line.as_ptr() as usize);
        let mut pieces: Vec<(usize, usize)> = Vec::new();
        for sentence in sentences(body) {
            let from = offset + (sentence.as_ptr() as usize - body.as_ptr() as usize);
            let until = from + sentence.len();
            match pieces.last_mut() {
                Some((first, last)) if goes_on(&own[*first..*last], sentence) => *last = until,
                _ => pieces.push((from, until)),
            }
        }
        let end = pieces.last().map(|(_, until)| *until);
        if let Some(rule) = before.filter(|_| item.is_none() && begins_exception(body)) {
            // The rule is written anew, with its exception.
            found.pop();
            rules.push(rule);
        }
        for (from, until) in pieces {
            let is_exception = begins_exception(&own[from..until]);
            match rules.last_mut() {
                Some((_, last)) if is_exception => *last = until,
                _ if directive::is_directive(&own[from..until]) => rules.push((from, until)),
                _ => {}
            }
        }
        open = rules
            .last()
            .copied()
            .filter(|(_, until)| Some(*until) == end);
        found.extend(
            rules
                .iter()
                .map(|(from, until)| one_line(&text[*from..*until])),
        );
        // The intro itself is no rule if a list follows, and it is one if none does.
        if let Some(head) = intro.as_ref().filter(|head| !head.is_empty()) {
            match has_list() {
                true => found.retain(|rule| rule != head),
                false => intro = None,
            }
        }
    }
    // Three characters do not say what to do if the text around them is gone.
    found.retain(|rule| chars(rule) <= MOST_CHARS && chars(rule) > 3);
    found
}

/// The original words at the place of a part of the blanked text.
fn original(text: &str, own: &str, part: &str) -> String {
    let from = part.as_ptr() as usize - own.as_ptr() as usize;
    one_line(&text[from..from + part.len()])
}

/// Whether a piece is no whole sentence, because it ends with an abbreviation.
fn goes_on(before: &str, next: &str) -> bool {
    const SHORT: [&str; 16] = [
        "e.g.", "i.e.", "etc.", "vs.", "z.B.", "bzw.", "d.h.", "Nr.", "p.ej.", "p. ej.", "ca.",
        "cf.", "approx.", "no.", "resp.", "inkl.",
    ];
    // "1." is the number of an item and not a sentence.
    let is_number = before
        .trim_end_matches('.')
        .chars()
        .all(|c| c.is_ascii_digit());
    is_number && before.len() < 4 && before.ends_with('.')
        || SHORT.iter().any(|short| before.ends_with(short))
            && !next.starts_with(char::is_uppercase)
}

/// Whether a sentence limits the rule before it. Such a sentence is kept with its rule: if "Unless
/// I say so." were cut off, "Never push." would be another rule.
fn begins_exception(sentence: &str) -> bool {
    const WORDS: [&str; 22] = [
        "not even", "even if", "except", "unless", "the only exception", "no exceptions",
        "exception:", "nicht einmal", "auch nicht", "außer", "ausnahme", "keine ausnahme", "sauf",
        "même", "excepto", "salvo", "ni siquiera", "除非", "例外", "ただし", "除了", "即使",
    ];
    let lower = sentence.to_lowercase();
    WORDS.iter().any(|word| lower.starts_with(word))
}

/// The key by which two rules are the same: their words without the case of plain words, quotes, and
/// punctuation of sentences. What else stands in a word may tell two rules apart: `-f`, `C#`, `< 3`.
fn key(rule: &str) -> String {
    let words: Vec<String> = words(rule)
        .map(|word| match word.chars().all(is_letter) {
            true => word.to_lowercase().replace('’', "'"),
            false => word.to_owned(),
        })
        .collect();
    // A rule is said in letters.
    match rule.contains(char::is_alphanumeric) {
        true => words.join(" "),
        false => String::new(),
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '\'' | '’')
}

/// The words of a rule, without quotes and punctuation of sentences around them.
fn words(rule: &str) -> impl Iterator<Item = &str> {
    const BEGIN: &[char] = &[
        '"', '\'', '`', '“', '”', '„', '‘', '’', '«', '»', '(', '¡', '¿',
    ];
    const END: &[char] = &[
        '"', '\'', '`', '“', '”', '‘', '’', '«', '»', ')', '.', ',', ';', ':', '!', '?', '…',
    ];
    const BETWEEN: &[char] = &[
        '，', '。', '、', '！', '？', '；', '：', '「', '」', '『', '』', '（', '）', '《', '》',
        '—',
    ];
    let words = rule.split(|c: char| c.is_whitespace() || BETWEEN.contains(&c));
    let words = words.map(|word| {
        let bare = word.trim_start_matches(BEGIN).trim_end_matches(END);
        // `..` is a path, and a mark that stands alone ends a sentence.
        match bare.is_empty() && word.starts_with('.') {
            true => word,
            false => bare,
        }
    });
    words.filter(|word| !word.is_empty())
}

/// A rule that names a path, a command, a number or a name is more specific than one that does not.
/// A declared one outlives all others, whatever its age.
fn specificity(rule: &str) -> f32 {
    if declared::is_declared(rule) {
        return 2.0;
    }
    match rule.split_whitespace().any(is_name) {
        true => 0.3,
        false => 0.0,
    }
}

/// Whether a word is a path, a command, a number or a name.
fn is_name(word: &str) -> bool {
    let inner = word.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let has_hump = inner.chars().skip(1).any(char::is_uppercase);
    inner.contains(['/', '_', '.', '`'])
        || word.contains('`')
        || has_hump
        || inner.contains(|c: char| c.is_ascii_digit())
}

/// The names in a rule. A capital letter makes a word a name, except at the beginning.
fn names(rule: &str) -> BTreeSet<String> {
    let is_capital = |at: usize, word: &str| at > 0 && word.starts_with(char::is_uppercase);
    let words = words(rule).enumerate();
    let names = words.filter(|(at, word)| is_name(word) || is_capital(*at, word));
    names.map(|(_, word)| word.to_lowercase()).collect()
}

/// What a rule is about: its words without those that any rule may have. Names and paths are whole.
/// Other words are cut, so that their forms are equal. Chinese and Japanese count by pairs of
/// characters.
fn topic(rule: &str) -> BTreeSet<String> {
    const COMMON: &str = "never|always|must|only|please|the|and|not|don't|dont|use|from|now|you|that|make|sure|any|\
        all|every|are|for|with|may|can|again|instead|should|avoid|prefer|ever|without|this|its|into|when|also|plus|\
        anymore|nie|niemals|immer|nur|nicht|bitte|der|die|das|den|und|verwende|nutze|jetzt|sofort|kein|keine|ein|\
        eine|auf|verwenden|nutzen|statt|jamais|toujours|les|des|une|pas|utilise|utilisez|partir|maintenant|\
        désormais|dans|que|sur|nunca|siempre|los|las|una|usa|uses|ahora|por|favor|sin|\
        a|i|t|s|e|o|y|à|to|in|of|on|is|it|be|do|if|or|an|as|at|by|no|so|up|we|my|me|us|he|zu|im|am|um|ab|es|er|du|\
        la|le|un|de|en|au|ce|se|je|tu|il|et|ou|ne|si|el|lo|al|su|te|ya|it's|you're|hacer|hagas|haz";
    // What a sentence has that ends a rule.
    const ENDING: &str = "allowed|fine|okay|ok|free|feel|changed|mind|actually|forget|ignore|scrap|drop|disregard|lift|\
        cancel|rule|rules|restriction|constraint|instruction|about|earlier|longer|applies|apply|have|need|said|what|off|\
        limits|directly|darfst|kannst|doch|wieder|erlaubt|ordnung|ist|vergiss|ignoriere|regel|gilt|mehr|gesagt|peux|\
        pouvez|droit|finalement|autorisé|oublie|règle|applique|puedes|puede|permitido|olvida|regla|aplica|sí";
    const CUES: &str = "不要|必须|总是|始终|务必|禁止|不能|只能|从现在起|从现在开始|以后|今后|一律|请|\
        使用|用|都|现在|可以|允许|了|忘掉|忘记|忽略|作废|取消|规则|规定|关于|那条|之前|的|直接|してはいけ|\
        しないで|ないで|ください|必ず|絶対に|決して|常に|今後は|これからは|使って|使わ|してもかまいません|していい|\
        してもいい|てもかまいません|です|もう|忘れて|無効|ルール|ではなく|だけ|許可し|ます|を|は|て|に";
    let lower = rule.to_lowercase().replace('’', "'");
    if lower
        .chars()
        .any(|c| directive::is_han(c) || directive::is_kana(c))
    {
        let bare = CUES
            .split('|')
            .fold(lower, |text, cue| text.replace(cue, " "));
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
        let letters: Vec<char> = bare.chars().collect();
        let runs = letters.chunk_by(|one, next| {
            is_part(*one) && is_part(*next) && one.is_ascii() == next.is_ascii()
        });
        let mut pairs = BTreeSet::new();
        for run in runs.filter(|run| run[0].is_alphanumeric() || run.len() > 1) {
            match run[0].is_ascii() {
                true => pairs.extend([run.iter().collect::<String>()]),
                false => {
                    pairs.extend(run.windows(2).map(|two| two.iter().collect::<String>()));
                }
            }
        }
        return pairs;
    }
    let is_common = |word: &str| {
        [COMMON, ENDING]
            .iter()
            .any(|list| list.split('|').any(|one| one == word))
    };
    // French joins short words to the next one: "n'utilise".
    let joined = ["n'", "l'", "d'", "j'", "s'", "qu'"];
    let mut topic = BTreeSet::new();
    for word in words(rule) {
        if is_name(word) {
            topic.insert(word.to_lowercase());
            continue;
        }
        let lower = word.to_lowercase().replace('’', "'");
        let parts = lower.split(|c: char| !c.is_alphanumeric() && c != '\'');
        let parts = parts.map(|part| {
            let mut joined = joined.iter();
            joined
                .find_map(|short| part.strip_prefix(short))
                .unwrap_or(part)
        });
        let parts = parts.filter(|part| !part.is_empty() && !is_common(part));
        topic.extend(parts.map(stem));
    }
    topic
}

/// A word without its ending, such as that of a verb or a plural.
fn stem(word: &str) -> String {
    let long = |short: &&str| chars(short) >= 4;
    let word = (word.strip_suffix("ing").filter(long)).unwrap_or(word);
    // Six letters are enough to tell most words apart, and most endings come after them.
    let stem: String = word.chars().take(6).collect();
    let stem = stem.trim_end_matches('s');
    let endings = ["en", "e"];
    let mut short = endings.iter().filter_map(|end| stem.strip_suffix(end));
    short.find(long).unwrap_or(stem).to_owned()
}
