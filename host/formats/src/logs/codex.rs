//! Reads rollout logs of Codex: a sequence of events, some of which are the items that are sent
//! to the model.
//!
//! [`codex`] reads the lines in order and replays what Codex did. It keeps the window as it was
//! at each moment, because a compaction replaces the window and a rollback undoes turns
//! together with their compactions. The `Reader` holds this state.
//!
//! A compaction line usually lists the new window. Items of that list that were in the window
//! before are matched by a hash of their contents, so that they are not taken for new messages.
//! Rollouts from early 2025, whose lines are the items themselves, are read too.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::Xxh3;

use super::super::anatomy::time_of;
use super::super::compacted::is_compaction;
use super::super::json::{Raw, hash_text};
use super::super::reported_usage::known_usage;
use super::super::views::Speaker;
use super::{Log, LogBody, LogItem, LoggedUsage};

/// The beginnings of messages that Codex adds in the user's name.
const CONTEXT: [&str; 8] = [
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<user_shell_command>",
    "<subagent_notification>",
    "<skill>",
    "<permissions instructions>",
];

/// The beginning of a summary that Codex had the model write.
const SUMMARY_BEGINS: &str = "Another language model started to solve this problem";

/// The types of items that Codex records in the log but does not send.
const UNSENT: [&str; 2] = ["ghost_snapshot", "other"];

/// The members that identify an item. Others, such as ids and status, differ between copies of
/// the same item.
const TELLING: [&str; 12] = [
    "type", "role", "content", "call_id", "name", "arguments", "input", "output", "action",
    "summary", "encrypted_content", "result",
];

/// Whether a line without a `payload` comes from a rollout of 2025. In these rollouts, the
/// lines are the items themselves.
pub(in super::super) fn is_bare_line(line: Raw<'_>) -> bool {
    let has = |key| line.get(key).is_some();
    let is_head = has("id") && has("timestamp") && has("instructions") && !has("role");
    is_head || line.get("record_type").is_some_and(Raw::is_string)
}

/// Reads a rollout log of Codex. Items that were rolled back are left out and counted in a
/// warning.
pub(in super::super) fn codex<'a>(lines: &[Raw<'a>]) -> Log<'a> {
    let mut reader = Reader::default();
    for line in lines {
        reader.line(*line);
    }
    reader.finish()
}

/// The state of the session after the lines read so far.
#[derive(Default)]
struct Reader<'a> {
    log: Log<'a>,
    /// The window before each compaction that is in force, oldest first. A rollback restores
    /// them.
    windows: Vec<Vec<usize>>,
    /// The state before each turn that a rollback may undo.
    turns: Vec<TurnStart>,
    is_in_turn: bool,
    rolled_back: usize,
    /// The usage recorded for each response: the number of items before it, the id of the
    /// response, and the usage.
    recorded: Vec<(usize, Option<String>, LoggedUsage)>,
    /// The ids of responses that are summaries and therefore not part of the conversation.
    compactions: HashSet<String>,
}

/// The state before a turn, as lengths of the lists that a rollback truncates.
#[derive(Clone, Copy)]
struct TurnStart {
    items: usize,
    window: usize,
    compactions: usize,
    /// Whether the user said something in the turn. Only such turns count in a rollback.
    is_users: bool,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: Raw<'a>) {
        let time_ms = line.get("timestamp").and_then(time_of);
        let kind = line.get("type").and_then(Raw::string).unwrap_or_default();
        let Some(payload) = line.get("payload") else {
            return self.bare_line(line, time_ms);
        };
        match kind.as_ref() {
            "session_meta" => {
                // The member and its form depend on the version of Codex.
                let instructions = payload
                    .get("base_instructions")
                    .map(|base| base.get("text").unwrap_or(base))
                    .or_else(|| payload.get("instructions"));
                let instructions = instructions.filter(|text| text.is_string());
                self.log.system = instructions.or(self.log.system);
            }
            "turn_context" => {
                self.log.model = payload.get_string("model").or(self.log.model.take());
            }
            "response_item" => self.item(line, payload, time_ms),
            "compacted" => self.compacted(payload, time_ms),
            "token_usage_record" => {
                if let Some(logged) = self.logged(payload.get("usage"), time_ms) {
                    let id = payload.get_string("response_id");
                    self.recorded.push((self.log.items.len(), id, logged));
                }
            }
            "event_msg" => self.event(payload, time_ms),
            _ => {}
        }
    }

    /// Reads a line of a rollout of 2025, which is an item or the head of the file.
    fn bare_line(&mut self, line: Raw<'a>, time_ms: Option<i64>) {
        if is_bare_line(line) {
            let instructions = line.get("instructions").filter(|text| text.is_string());
            self.log.system = instructions.or(self.log.system);
        } else if line.get("type").is_some_and(Raw::is_string) {
            self.item(line, line, time_ms);
        }
    }

    fn logged(&self, usage: Option<Raw<'_>>, time_ms: Option<i64>) -> Option<LoggedUsage> {
        Some(LoggedUsage {
            model: self.log.model.clone(),
            usage: known_usage(&usage?.value())?,
            time_ms,
        })
    }

    /// Adds an item that is sent to the model. A message of the user begins a turn if none is
    /// open.
    fn item(&mut self, line: Raw<'a>, item: Raw<'a>, time_ms: Option<i64>) {
        let kind = item.get("type").and_then(Raw::string).unwrap_or_default();
        if !item.is_object() || UNSENT.contains(&kind.as_ref()) {
            return;
        }
        if is_users_word(item) {
            match self.turns.last_mut().filter(|_| self.is_in_turn) {
                Some(turn) => turn.is_users = true,
                None => self.begin_turn(true),
            }
        }
        // The provider may compact on its own, in the middle of its responses.
        let speaker = match is_compaction(item) {
            true => Speaker::Summary,
            false => Speaker::Wire,
        };
        self.push(Some(line), LogBody::Found(item), speaker, time_ms);
    }

    fn push(
        &mut self,
        line: Option<Raw<'a>>,
        body: LogBody<'a>,
        speaker: Speaker,
        time_ms: Option<i64>,
    ) {
        self.log.window.push(self.log.items.len());
        self.log.items.push(LogItem {
            line,
            body,
            continues: false,
            speaker,
            is_copy: false,
            time_ms,
        });
    }

    fn event(&mut self, event: Raw<'a>, time_ms: Option<i64>) {
        let kind = event.get("type").and_then(Raw::string).unwrap_or_default();
        match kind.as_ref() {
            "task_started" | "turn_started" => {
                self.begin_turn(false);
                self.is_in_turn = true;
            }
            "task_complete" | "turn_complete" | "turn_aborted" => self.is_in_turn = false,
            "user_message" => {
                if let Some(turn) = self.turns.last_mut().filter(|_| self.is_in_turn) {
                    turn.is_users = true;
                }
            }
            "thread_rolled_back" => {
                let turns = event.get("num_turns").and_then(Raw::number);
                self.roll_back(turns.unwrap_or(0.0).max(0.0) as usize);
            }
            "token_count" => {
                let last = (event.get("info")).and_then(|info| info.get("last_token_usage"));
                if let Some(logged) = self.logged(last, time_ms) {
                    self.log.usage.push((self.log.items.len(), logged));
                }
            }
            _ => {}
        }
    }

    /// Remembers the current state, so that a rollback can return to it.
    fn begin_turn(&mut self, is_users: bool) {
        self.turns.push(TurnStart {
            items: self.log.items.len(),
            window: self.log.window.len(),
            compactions: self.windows.len(),
            is_users,
        });
    }

    /// Undoes the last `turns` turns in which the user said something. Everything that came
    /// after is undone too, including compactions.
    fn roll_back(&mut self, mut turns: usize) {
        self.is_in_turn = false;
        while turns > 0
            && let Some(start) = self.turns.pop()
        {
            turns -= usize::from(start.is_users);
            // A compaction in the undone turns is undone by restoring the window before it.
            while self.windows.len() > start.compactions
                && let Some(window) = self.windows.pop()
            {
                self.log.window = window;
            }
            self.log.window.truncate(start.window);
            self.rolled_back += self.log.items.len().saturating_sub(start.items);
            self.log.items.truncate(start.items);
            self.log.usage.retain(|(items, _)| *items <= start.items);
            self.recorded.retain(|(items, ..)| *items <= start.items);
        }
    }

    /// Sets the window after a compaction. It is the list in the line if there is one, and
    /// otherwise the user's messages and the summary.
    fn compacted(&mut self, payload: Raw<'a>, time_ms: Option<i64>) {
        self.compactions
            .extend(payload.get_string("compaction_response_id"));
        let message = payload.get("message").filter(|message| message.is_string());
        let summary = message.and_then(Raw::string).unwrap_or_default();
        let before = std::mem::take(&mut self.log.window);
        match payload
            .get("replacement_history")
            .filter(|list| list.is_array())
        {
            Some(list) => self.replaced(&before, list, &summary, time_ms),
            None => {
                let items = &self.log.items;
                let is_users = |at: &usize| {
                    let item = items.get(*at);
                    item.is_some_and(|item| match item.body {
                        LogBody::Found(body) => is_users_word(body) && !is_summary(body, ""),
                        LogBody::Made(_) => false,
                    })
                };
                self.log.window = before.iter().copied().filter(is_users).collect();
                if let Some(message) = message.filter(|_| !summary.is_empty()) {
                    let text = message.text();
                    let body = format!(
                        "{{\"type\":\"message\",\"role\":\"user\",\"content\":[{{\"type\":\"input_text\",\"text\":{text}}}]}}"
                    );
                    self.push(None, LogBody::Made(body), Speaker::Summary, time_ms);
                }
            }
        }
        match self.log.window.is_empty() {
            // The line does not say how Codex continues, so the window stays.
            true => self.log.window = before,
            false => self.windows.push(before),
        }
    }

    /// Builds the window from a list of items. Items that were in the window `before` are
    /// reused. Among the others, the summary is new. The rest repeats what the history already
    /// holds, such as the instructions and shortened messages of the user.
    fn replaced(&mut self, before: &[usize], list: Raw<'a>, summary: &str, time_ms: Option<i64>) {
        let mut places: HashMap<u128, Vec<usize>> = HashMap::new();
        // In reverse, so that `pop` below returns the earliest of several equal items.
        for at in before.iter().rev() {
            if let Some(LogItem {
                body: LogBody::Found(body),
                ..
            }) = self.log.items.get(*at)
            {
                places.entry(telling_hash(*body)).or_default().push(*at);
            }
        }
        for item in list.elements() {
            let same = places.get_mut(&telling_hash(item)).and_then(Vec::pop);
            if let Some(at) = same {
                self.log.window.push(at);
                continue;
            }
            let is_summary = is_compaction(item) || is_summary(item, summary);
            let speaker = match is_summary {
                true => Speaker::Summary,
                false => Speaker::Wire,
            };
            self.push(None, LogBody::Found(item), speaker, time_ms);
            if let Some(last) = self.log.items.last_mut() {
                // Without an earlier window, nothing in the history could be repeated.
                last.is_copy = !is_summary && !before.is_empty();
            }
        }
    }

    fn finish(mut self) -> Log<'a> {
        if !self.recorded.is_empty() {
            // Each response's own record is more exact than the running totals beside it.
            let mut seen = HashSet::new();
            let compactions = self.compactions;
            let own = self.recorded.into_iter().filter(|(_, id, _)| {
                let id = id.as_deref();
                id.is_none_or(|id| !compactions.contains(id) && seen.insert(id.to_owned()))
            });
            self.log.usage = own.map(|(items, _, logged)| (items, logged)).collect();
        }
        if self.rolled_back > 0 {
            self.log.warnings.push(format!(
                "{} of the log's items were rolled back, and are left out",
                self.rolled_back
            ));
        }
        self.log
    }
}

/// Whether the user said this. Codex also adds messages in the user's name.
fn is_users_word(item: Raw<'_>) -> bool {
    if !item.has("type", "message") || !item.has("role", "user") {
        return false;
    }
    let text = first_text(item);
    let text = text.trim_start();
    !CONTEXT.iter().any(|mark| text.starts_with(mark)) && !text.starts_with(SUMMARY_BEGINS)
}

/// Whether an item is or contains the summary that the log names. If the log names none, only
/// the usual beginning of a summary decides.
fn is_summary(item: Raw<'_>, summary: &str) -> bool {
    let text = first_text(item);
    text.starts_with(SUMMARY_BEGINS)
        || (!summary.trim().is_empty() && text.contains(summary.trim()))
}

/// The first text of an item's content, or an empty string if it has none.
fn first_text(item: Raw<'_>) -> String {
    let content = item.get("content");
    if let Some(text) = content.and_then(Raw::string) {
        return text.into_owned();
    }
    let mut parts = content.into_iter().flat_map(Raw::elements);
    parts
        .find_map(|part| part.get_string("text"))
        .unwrap_or_default()
}

/// A hash that identifies an item by the members that carry meaning, independent of their order
/// and form.
fn telling_hash(item: Raw<'_>) -> u128 {
    let mut hash = Xxh3::new();
    let mut members: Vec<_> = item
        .members()
        .filter(|(key, value)| TELLING.contains(&key.as_ref()) && !value.is_null())
        .collect();
    members.sort_by(|a, b| a.0.cmp(&b.0));
    for (key, value) in members {
        hash_text(&key, &mut hash);
        value.hash_meaning(&mut hash);
    }
    hash.digest128()
}
