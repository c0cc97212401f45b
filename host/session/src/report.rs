//! What a compaction did, for a person and for a program.

use std::collections::BTreeMap;

use contexture_engine_api::grouped;
use contexture_runtime::engines::Source;
use serde::Serialize;
use serde_json::Value;

/// The result of a request to compact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// The window is smaller now.
    Compacted,
    /// There was nothing that a compaction would have made better.
    NothingToDo,
    /// Not now.
    Deferred,
    /// The messages that may not be removed are too large already.
    FloorTooHigh,
    /// The engine failed; the window is as it was.
    Failed,
}

/// What a compaction did. Sizes count the whole prompt: system prompt, tools and messages.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompactionReport {
    /// The engine that did it; after a failure, the one that stood in.
    pub engine: String,
    /// Where that engine comes from.
    pub source: Source,
    /// The result.
    pub outcome: OutcomeKind,
    /// Why.
    pub reason: String,
    /// Messages before, the system prompt not among them.
    pub messages_before: usize,
    /// Messages after.
    pub messages_after: usize,
    /// Tokens of the prompt before.
    pub tokens_before: u64,
    /// Tokens of the prompt after.
    pub tokens_after: u64,
    /// Messages kept as they were.
    pub kept: usize,
    /// Messages replaced by a shorter form.
    pub replaced: usize,
    /// Messages that summaries stand for.
    pub summarised: usize,
    /// Summaries and stubs put in.
    pub inserted: usize,
    /// Messages that left without a trace.
    pub dropped: usize,
    /// Whether a model was wanted and could not be had.
    pub degraded: bool,
    /// Model calls made.
    pub model_calls: u64,
    /// Time spent in the engine and in checking what it proposed, in milliseconds.
    pub elapsed_ms: f64,
    /// What else a person should know.
    pub notes: Vec<String>,
    /// What the engine keeps with messages of the window, by their ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<u64, Value>,
}

impl CompactionReport {
    /// This and the one before it, of the same turn, as one.
    pub(super) fn after(self, first: Self) -> Self {
        let from = |tokens: u64| format!("{} →", grouped(tokens));
        Self {
            reason: (self.reason).replacen(
                &from(self.tokens_before),
                &from(first.tokens_before),
                1,
            ),
            messages_before: first.messages_before,
            tokens_before: first.tokens_before,
            dropped: first.dropped + self.dropped,
            degraded: first.degraded || self.degraded,
            model_calls: first.model_calls + self.model_calls,
            elapsed_ms: first.elapsed_ms + self.elapsed_ms,
            notes: [first.notes, self.notes].concat(),
            ..self
        }
    }
}
