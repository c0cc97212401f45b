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
//! their sentences are rules is decided in `stated` and `directive`, unless they are `declared`. A
//! rule that is said twice is kept once. If a later rule contradicts an earlier one, both stay and
//! the later says what it replaces, see `compare`. The text of the section is in `section`.

mod compare;
mod declared;
mod directive;
mod learned;
mod own_words;
mod permission;
mod section;
mod stated;
mod topic;
mod words;
mod wraps;

pub(crate) use own_words::{is_output, item};
pub use section::{RULES_HEADING, RuleSection, keep_rules, without_rules};
pub(crate) use stated::stated_in;

use std::collections::BTreeSet;

use contexture_engine_api::{MessageKind, MessageView};
use contexture_secrets::mask_secrets;
use hashbrown::HashMap;

use self::compare::{About, Replacement, key, specificity};
use self::section::{left_out_in, section_lines};
use self::stated::{Statement, statements_in};
use crate::Budget;
use crate::text::clip;

/// Of a rule with more characters than this, the rest is cut off and `…` follows.
const MOST_CHARS: usize = 800;
/// No more rules than this are kept, because each is compared with all before it. If there are
/// more, the oldest are left out.
const MOST_RULES: usize = 200;
/// What follows a rule that replaces an earlier one: this, the beginning of the earlier rule, and a
/// bracket. If a summary is read back, the note is cut off, because the rules are compared anew.
const REPLACES: &str = " [replaces: ";
const REPLACED_CHARS: usize = 48;
/// What follows a sentence in the section of a [part](Rules::of_part) if it may end a rule that another part
/// states.
const MAY_REPLACE: &str = " [replaces: an earlier rule]";
/// What follows a rule of a project file in such a section, since another part may have the file, too.
const FROM_FILE: &str = " [from a project file]";

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
    /// Whether nobody said it but a project file.
    is_project: bool,
}

/// The index of a rule that a later one replaces, and how.
type Replaced = (usize, Replacement);

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
            if message.kind() == MessageKind::Summary {
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
        // If there is no rule yet, there is none to end.
        let with_endings = self.is_part || !self.all.is_empty();
        let statements = statements_in(&own, project_only, with_endings);
        let is_all = !project_only && own.len() == text.len();
        let rules = statements.iter().filter(|statement| !statement.only_ends);
        let stated = is_all.then(|| rules.map(|rule| rule.text.clone()).collect());
        for Statement {
            text,
            only_ends,
            is_project,
        } in statements
        {
            self.add(text, only_ends, is_project);
        }
        stated
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
                self.add(line.to_owned(), false, false);
            } else if let Some(rule) = line.strip_prefix("- ") {
                let of_file = rule.strip_suffix(FROM_FILE);
                let (rule, is_project) = (of_file.unwrap_or(rule), of_file.is_some());
                let (rule, note) = match rule.rfind(REPLACES) {
                    Some(at) if rule.ends_with(']') => rule.split_at(at),
                    _ => (rule, ""),
                };
                self.add(rule.to_owned(), note == MAY_REPLACE, is_project);
            }
        }
        has_section
    }

    fn add(&mut self, rule: String, only_ends: bool, is_project: bool) {
        // The rule is quoted in every summary from here on. If it had a token in it, the token
        // would be sent each time.
        let rule = mask_secrets(&rule).into_owned();
        let key = key(&rule);
        if key.is_empty() {
            return;
        }
        // What is said again is newer than what was said since, so it moves to the end. A client
        // inserts a project file again without saying anything.
        let known = self.all.iter().position(|known| known.key == key);
        if known.is_some() && is_project {
            return;
        }
        let known = known.map(|at| self.all.remove(at));
        // It may be said with more words the second time: "As I said, never push."
        let rule = match &known {
            Some(known) if known.text.len() < rule.len() => known.text.clone(),
            _ => rule,
        };
        if self.all.len() >= MOST_RULES {
            let first = self.all.iter().position(|rule| rule.only_ends);
            let removed = self.all.remove(first.unwrap_or(0));
            self.left_out += usize::from(!removed.only_ends);
        }
        self.all.push(Rule {
            text: rule,
            key,
            only_ends: only_ends && known.is_none_or(|known| known.only_ends),
            is_project,
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
        let is_replaced = |at: usize| replaces.iter().flatten().any(|(earlier, _)| *earlier == at);
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

    fn written(&self, kept: &[usize], replaces: &[Option<Replaced>]) -> RuleSection {
        let kept: BTreeSet<usize> = kept.iter().copied().collect();
        // A rule that the user ended does not hold any more, so nobody misses it. One that a later
        // rule contradicts may still hold in part.
        let is_missed = |at: &usize| {
            let is_ended = replaces.contains(&Some((*at, Replacement::Ends)));
            !is_ended && !self.is_idle(*at, replaces) && !kept.contains(at)
        };
        let left_out = self.left_out + (0..self.all.len()).filter(is_missed).count();
        let note = |at: usize| match self.is_part && self.all[at].is_project {
            true => FROM_FILE,
            false => "",
        };
        let line = |at: usize| match replaces[at].filter(|(earlier, _)| kept.contains(earlier)) {
            // A declared rule is shown as it was declared.
            _ if declared::is_declared(&self.all[at].text) => self.all[at].text.clone(),
            Some((earlier, _)) => {
                let earlier = clip(&self.all[earlier].text, REPLACED_CHARS);
                format!("- {}{REPLACES}{earlier}]{}", self.all[at].text, note(at))
            }
            None if self.is_idle(at, replaces) => {
                format!("- {}{MAY_REPLACE}", self.all[at].text)
            }
            None => format!("- {}{}", self.all[at].text, note(at)),
        };
        RuleSection::of(
            kept.iter()
                .map(|at| (self.all[*at].text.clone(), line(*at))),
            left_out,
        )
    }

    /// Whether a sentence only ends a rule, and no rule before it is one that it ends.
    fn is_idle(&self, at: usize, replaces: &[Option<Replaced>]) -> bool {
        self.all[at].only_ends && replaces[at].is_none()
    }

    /// For each rule, the latest earlier one that it contradicts.
    fn replaced_by_each(&self) -> Vec<Option<Replaced>> {
        let about: Vec<About> = (self.all.iter())
            .map(|rule| About::of(&rule.text, rule.only_ends))
            .collect();
        let mut replaced = Vec::with_capacity(about.len());
        for (at, new) in about.iter().enumerate() {
            let mut earlier = (0..at).rev().filter(|at| !self.is_idle(*at, &replaced));
            replaced.push(earlier.find_map(|at| Some((at, new.replaces(&about[at])?))));
        }
        replaced
    }
}
