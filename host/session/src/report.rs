//! The reports of compactions, turns and sessions, for people and for programs.
//!
//! A turn returns a [`CompactionReport`] for every compaction that was made or tried. It is
//! serialised as JSON by the commands and the gateway, so the names of its fields are part of their
//! output.
//!
//! If a turn compacts several times, the reports are joined into one.

use std::collections::BTreeMap;

use contexture_engine_api::{Decision, WindowState, grouped};
use contexture_runtime::engines::Source;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The outcome of a request to compact.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The window was compacted and is smaller now.
    #[default]
    Compacted,
    /// A compaction would not have made the prompt smaller.
    NothingToDo,
    /// The engine does not compact now but may do so later. The reason says why.
    Deferred,
    /// The prompt does not fit and cannot be made to: what must not be removed is too large, or
    /// automatic compaction is off.
    FloorTooHigh,
    /// The engine failed or broke the contract. The window is as it was.
    Failed,
}

/// A decision, with its reason, as callers in another language get it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DecisionReport {
    /// Whether to compact.
    pub compact: bool,
    /// The reason in one sentence, for the user.
    pub reason: String,
}

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> Self {
        Self {
            compact: decision.is_yes(),
            reason: decision.reason().to_owned(),
        }
    }
}

/// What happened in a turn, apart from the body that it made, for a caller in another language.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct TurnReport {
    /// Whether the model is to see anything other than what the client sent.
    pub changed: bool,
    /// Whether the engine wanted a compaction.
    pub decision: DecisionReport,
    /// The compaction that was made or tried.
    pub compaction: Option<CompactionReport>,
    /// What the engine changed in the window apart from a compaction.
    pub rewrite: Option<CompactionReport>,
    /// The tokens of the messages if the engine selected a view for this request alone.
    pub selected_tokens: Option<u64>,
    /// The reason why the model must not call tools in its answer.
    pub tools_denied: Option<String>,
    /// The number of messages that were not known before.
    pub new: usize,
    /// The number of messages that have another form now.
    pub revised: usize,
    /// Whether the request does not simply continue the conversation.
    pub branched: bool,
    /// Whether the request began the conversation anew.
    pub new_root: bool,
    /// The number of messages that are found neither in the request nor in any store.
    pub without_text: u64,
    /// The warnings for the user since the last turn.
    pub warnings: Vec<String>,
}

/// How full the window of a session is and which engine runs, for a caller in another language.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SessionReport {
    /// The id of the session.
    pub session: String,
    /// The name of the engine that runs.
    pub engine: String,
    /// Where that engine comes from.
    pub source: Source,
    /// The size of the window and what is in it.
    pub window: WindowState,
    /// The number of model calls that the session made.
    pub model_calls: u64,
    /// What the engine says about itself. Each engine has fields of its own.
    pub status: Value,
}

/// What a compaction did. Token counts are for the whole prompt: system prompt, tools and messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompactionReport {
    /// The engine that made the compaction. If the configured one failed, the fallback.
    pub engine: String,
    /// Where that engine comes from.
    pub source: Source,
    /// The outcome. Unless it is `Compacted`, the sizes before and after are equal.
    pub outcome: OutcomeKind,
    /// The reason for the outcome in one sentence, for the user.
    pub reason: String,
    /// The number of messages before, without the system prompt.
    pub messages_before: usize,
    /// The number of messages after, without the system prompt.
    pub messages_after: usize,
    /// The tokens of the prompt before, in the provider's count if it has reported one. The engine's
    /// trigger is in the same count.
    pub tokens_before: u64,
    /// The tokens of the prompt after, in the same count as those before.
    pub tokens_after: u64,
    /// Both sizes in the host's own count, which no report of the provider corrects.
    #[serde(skip)]
    pub counted_tokens: (u64, u64),
    /// How many messages stay unchanged.
    pub kept: usize,
    /// How many messages were replaced by a shorter form.
    pub replaced: usize,
    /// How many messages the new summaries stand for.
    pub summarised: usize,
    /// How many summaries and stub results were added.
    pub inserted: usize,
    /// How many messages were removed and are in no summary.
    pub dropped: usize,
    /// Whether the engine wanted a model and could not get one, so that the result is worse than
    /// usual.
    pub degraded: bool,
    /// How many model calls the compaction made.
    pub model_calls: u64,
    /// The time spent in the engine and on checking its proposal, in milliseconds.
    pub elapsed_ms: f64,
    /// Anything else that the user should know, such as a failure that was made up for.
    pub notes: Vec<String>,
    /// The state that the engine stores with messages of the window, by message id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<u64, Value>,
}

impl CompactionReport {
    /// Whether the window was compacted.
    pub(crate) fn is_made(&self) -> bool {
        self.outcome == OutcomeKind::Compacted
    }

    /// Joins this report with that of an earlier compaction of the same turn: sizes before come
    /// from the first one, sizes after from this one, and costs are summed up.
    pub(crate) fn after(self, first: Self) -> Self {
        let counted_tokens = (first.counted_tokens.0, self.counted_tokens.1);
        // The first compaction ended what the provider had reported.
        let tokens_after = in_count_of(first.tokens_before, counted_tokens);
        Self {
            // The reason names both sizes, and they must be those of the joined report.
            reason: (self.reason).replacen(
                &sizes(self.tokens_before, self.tokens_after),
                &sizes(first.tokens_before, tokens_after),
                1,
            ),
            messages_before: first.messages_before,
            tokens_before: first.tokens_before,
            tokens_after,
            counted_tokens,
            dropped: first.dropped + self.dropped,
            degraded: first.degraded || self.degraded,
            model_calls: first.model_calls + self.model_calls,
            elapsed_ms: first.elapsed_ms + self.elapsed_ms,
            notes: [first.notes, self.notes].concat(),
            ..self
        }
    }
}

/// The two sizes of a compaction, as its reason begins with them.
pub(crate) fn sizes(before: u64, after: u64) -> String {
    format!("{} → {} tokens", grouped(before), grouped(after))
}

/// The size of a prompt after a compaction, in the count in which it had `tokens` tokens before. The
/// host counted the prompt `before` and `after` it.
pub(crate) fn in_count_of(tokens: u64, (before, after): (u64, u64)) -> u64 {
    let scaled = u128::from(after) * u128::from(tokens) / u128::from(before.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}
