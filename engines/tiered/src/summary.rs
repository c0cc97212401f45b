//! The structured summary, which has fields rather than free text.
//!
//! [`StructuredSummary`] stands in the window as JSON, so a later compaction reads it back field by
//! field. `extracted` fills the fields from a digest of the messages if no model can be asked, and
//! merges them into the earlier summary. `filled` adds the figures that the engine knows itself,
//! and `cut_to` shortens the fields to a budget. The prompt for the model and the check of its
//! answer are in `wording`.

use contexture_digest::{Digest, RuleSection, Section, sections, without_rules};
use contexture_engine_api::{MessageView, Services};
use contexture_secrets::mask_secrets;
use contexture_summaries::{digested, excerpt, unmarked};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::event::iso;

const LAST_STEP_CHARS: usize = 200;

/// What a summary says, in fields. Missing fields are read as empty, so that a model may leave some
/// out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StructuredSummary {
    /// The number of messages that the summary replaces, including those that earlier summaries
    /// replaced. The engine counts them, not the model.
    pub count: u64,
    /// The time between the first and the last of these messages, as far as the transcript knows
    /// it.
    pub time_range: TimeRange,
    /// The time at which the summary was made, as in `2024-01-15T10:00:00Z`. A later summary gets
    /// its own time.
    pub timestamp: String,
    /// The paths of files that were written or edited. Files that were only read are not listed.
    pub modified_files: Vec<String>,
    /// What the user wants to reach. A goal that changed later is appended to the first one.
    pub user_goal: String,
    /// What was done last: a line of the assistant or, if it said nothing, its last call.
    pub last_step: String,
    /// Decisions with their reasons, and what the user asked to be done in a certain way.
    pub key_decisions: Vec<String>,
    /// Facts that must not be forgotten, by name. An extracted summary puts them in a list under
    /// `facts`.
    pub critical_context: Map<String, Value>,
}

/// The times of the first and the last message, as in `2024-01-15T10:00:00Z`. Either is `None` if
/// it is unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeRange {
    /// The time of the first message, or `None` if the transcript does not know it.
    pub start: Option<String>,
    /// The time of the last message, or `None` if the transcript does not know it.
    pub end: Option<String>,
}

impl StructuredSummary {
    /// Reads the summary in a text, or returns `None` if it holds no JSON object with these fields.
    /// Text around the object is ignored.
    pub(crate) fn read(text: &str) -> Option<Self> {
        // The rules of users stand before the object, and may have brackets.
        let text = without_rules(&unmarked(text));
        serde_json::from_str(text.get(text.find('{')?..=text.rfind('}')?)?).ok()
    }

    /// The summary as it stands in the window, as indented JSON. A later compaction reads it back
    /// with `read`.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Extracts a summary of at most about `tokens` tokens from the messages without a model. If
    /// there is an earlier summary, the result updates it.
    pub(crate) fn extracted(
        messages: &[MessageView<'_>],
        earlier: Option<&Self>,
        rules: &RuleSection,
        tokens: u64,
        services: &Services,
    ) -> Self {
        let digest = Digest::of(messages, None);
        let mut summary = Self {
            modified_files: digest.changed_files(),
            ..Self::default()
        };
        let (mut said, mut facts) = (Vec::new(), Vec::new());
        for (section, item) in sections(&digested(&digest, &rules.text, tokens, services)) {
            match section {
                Section::Goal => said.push(item),
                Section::Constraints | Section::Decisions => summary.key_decisions.push(item),
                Section::Done | Section::InProgress => summary.last_step = item,
                // The bare name of a changed file is already in another field.
                Section::Files if !item.contains(": ") && is_of(&item, &summary.modified_files) => {
                }
                _ => facts.push(Value::String(item)),
            }
        }
        summary.user_goal = said.join("; ");
        if summary.last_step.is_empty() {
            summary.last_step = last_step(messages);
        }
        if !facts.is_empty() {
            summary
                .critical_context
                .insert("facts".to_owned(), Value::Array(facts));
        }
        match earlier {
            Some(earlier) => earlier.clone().without_figures().updated_by(summary),
            None => summary,
        }
    }

    /// Clears the figures, which the engine computes itself. Figures that a model wrote are
    /// replaced this way, too.
    pub(crate) fn without_figures(self) -> Self {
        Self {
            count: 0,
            time_range: TimeRange::default(),
            timestamp: String::new(),
            ..self
        }
    }

    /// Merges a later summary into this one: lists are joined without duplicates, and the last step
    /// is replaced.
    fn updated_by(mut self, later: Self) -> Self {
        for file in later.modified_files {
            if !self.modified_files.contains(&file) {
                self.modified_files.push(file);
            }
        }
        for decision in later.key_decisions {
            if !self.key_decisions.contains(&decision) {
                self.key_decisions.push(decision);
            }
        }
        for (key, value) in later.critical_context {
            match (self.critical_context.get_mut(&key), value) {
                (Some(Value::Array(old)), Value::Array(new)) => {
                    new.into_iter().for_each(|item| {
                        if !old.contains(&item) {
                            old.push(item);
                        }
                    });
                }
                (_, value) => {
                    self.critical_context.insert(key, value);
                }
            }
        }
        if self.user_goal.is_empty() {
            self.user_goal = later.user_goal;
        } else if !later.user_goal.is_empty() && !self.user_goal.contains(&later.user_goal) {
            self.user_goal = format!("{}; then: {}", self.user_goal, later.user_goal);
        }
        if !later.last_step.is_empty() {
            self.last_step = later.last_step;
        }
        self
    }

    /// Fills in the figures if they are empty: the number of messages, the time between them, and
    /// the time now in milliseconds. An earlier summary contributes its own.
    pub(crate) fn filled(
        mut self,
        messages: &[MessageView<'_>],
        earlier: Option<&Self>,
        now_ms: i64,
    ) -> Self {
        if self.count == 0 {
            self.count = earlier.map_or(0, |earlier| earlier.count) + messages.len() as u64;
        }
        let times = || messages.iter().filter_map(MessageView::time);
        let range = &mut self.time_range;
        if range.start.is_none() {
            let before = earlier.and_then(|earlier| earlier.time_range.start.clone());
            range.start = before.or_else(|| times().min().map(iso));
        }
        if range.end.is_none() {
            let before = earlier.and_then(|earlier| earlier.time_range.end.clone());
            range.end = times().max().map(iso).or(before);
        }
        if self.timestamp.is_empty() {
            self.timestamp = iso(now_ms);
        }
        self
    }

    /// Shortens the summary to `tokens` tokens. The largest part is shortened first: a list loses
    /// its oldest items, a text its end.
    pub(crate) fn cut_to(mut self, tokens: u64, services: &Services) -> Self {
        // Each step removes at least something, but a bound guards against fields that cannot
        // shrink.
        for _ in 0..200 {
            if services.count_tokens(&self.text()) <= tokens {
                break;
            }
            let lists = [&mut self.modified_files, &mut self.key_decisions];
            let longest = lists
                .into_iter()
                .max_by_key(|list| list.iter().map(String::len).sum::<usize>());
            let in_lists = longest
                .as_ref()
                .map_or(0, |list| list.iter().map(String::len).sum::<usize>());
            let context = json!(self.critical_context).to_string().len();
            let texts = self.user_goal.len().max(self.last_step.len());
            if context > 2 && context >= in_lists && context >= texts {
                shrink(&mut self.critical_context);
            } else if in_lists >= texts {
                let Some(list) = longest else { break };
                list.drain(..list.len().div_ceil(10));
            } else {
                let text = match self.user_goal.len() >= self.last_step.len() {
                    true => &mut self.user_goal,
                    false => &mut self.last_step,
                };
                text.truncate(text.floor_char_boundary(text.len() * 4 / 5));
            }
        }
        self
    }
}

fn is_of(line: &str, files: &[String]) -> bool {
    let file = line.split(" — ").next().unwrap_or(line).trim_matches('`');
    files.iter().any(|changed| changed == file)
}

/// The first line of the latest assistant message with text, or its last call. Secrets are masked.
fn last_step(messages: &[MessageView<'_>]) -> String {
    let mut own = messages
        .iter()
        .rev()
        .filter(|message| message.role() == "assistant");
    let step = own.find_map(|message| {
        let text = message.text().lines().find(|line| !line.trim().is_empty());
        let call = message.tool_calls().last();
        let called = || call.map(|call| format!("{} {}", call.name(), call.arguments()));
        text.map(str::to_owned).or_else(called)
    });
    excerpt(&mask_secrets(&step.unwrap_or_default()), LAST_STEP_CHARS)
}

/// Removes a tenth from the largest value. A list loses its oldest items, and any other value is
/// removed whole.
fn shrink(context: &mut Map<String, Value>) {
    let largest = context
        .iter()
        .max_by_key(|(_, value)| value.to_string().len());
    let Some(key) = largest.map(|(key, _)| key.clone()) else {
        return;
    };
    match context.get_mut(&key) {
        Some(Value::Array(items)) if items.len() > 1 => {
            items.drain(..items.len().div_ceil(10));
        }
        _ => {
            context.remove(&key);
        }
    }
}
