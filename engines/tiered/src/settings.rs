//! The settings under `context.engines.tiered`, and the tiers that follow from them.
//!
//! Every key may be written as in the document's Python (`pre_rot_threshold`) or as in its
//! TypeScript (`preRotThreshold`). [`Settings`] derives the schema that a configuration is checked
//! against, so its doc comments are shown to users. [`Thresholds::tiers`] turns the ratios into
//! tokens for a concrete window, and [`Tiers::counted`] converts them to the host's count.

use contexture_engine_api::WindowState;
use contexture_summaries::{both_spellings, to_host_tokens};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The settings of the engine. The doc comments, defaults and ranges are the schema that a configuration is checked
/// against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Compact automatically; if false, only when asked to
    #[serde(alias = "enableContextManagement")]
    pub(crate) enable_context_management: bool,
    /// When to do what
    pub(crate) thresholds: Thresholds,
    /// How summaries are written: by the model if one is configured, or extracted by the engine
    pub(crate) summarizer: Summarizer,
}

/// When to do what.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct Thresholds {
    /// Prompt tokens from which a model gets worse, capped at the usable window
    #[serde(alias = "preRotThreshold")]
    #[schemars(range(min = 1))]
    pub(crate) pre_rot_threshold: u64,
    /// The share of it from which old messages are compacted
    #[serde(alias = "compactionTrigger")]
    #[schemars(range(min = 0.05, max = 1.0))]
    pub(crate) compaction_trigger: f64,
    /// The share of it from which old messages are summarised
    #[serde(alias = "summarizationTrigger")]
    #[schemars(range(min = 0.05, max = 1.0), extend("notBelow" = "compaction_trigger"))]
    pub(crate) summarization_trigger: f64,
    /// The number of newest messages that are neither compacted nor summarised
    #[serde(alias = "keepRecentCount")]
    pub(crate) keep_recent_count: usize,
}

/// Who writes summaries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum Summarizer {
    Model,
    Extract,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enable_context_management: true,
            thresholds: Thresholds::default(),
            summarizer: Summarizer::Model,
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            pre_rot_threshold: 150_000,
            compaction_trigger: 0.8,
            summarization_trigger: 0.95,
            keep_recent_count: 10,
        }
    }
}

/// The sizes of the prompt, in tokens, at which the two upper tiers begin: compaction and summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tiers {
    pub(crate) compaction: u64,
    pub(crate) summary: u64,
}

impl Thresholds {
    /// Computes the tiers for this window. If its usable part is smaller than the pre-rot
    /// threshold, that size is used instead.
    pub(crate) fn tiers(&self, window: &WindowState) -> Tiers {
        // If the window is not known, the setting is all there is.
        let room = window.room_for_prompt().unwrap_or(u64::MAX);
        let most = self.pre_rot_threshold.min(room);
        let share = |share: f64| (most as f64 * share).round() as u64;
        let tiers = Tiers {
            compaction: share(self.compaction_trigger),
            summary: share(self.summarization_trigger),
        };
        // The user's threshold for the model is where the first tier begins. The second keeps its
        // distance, as far as the window has room.
        match window.threshold_tokens {
            None => tiers,
            Some(tokens) => {
                let ratio = self.summarization_trigger / self.compaction_trigger;
                let summary = (tokens as f64 * ratio).round() as u64;
                Tiers {
                    compaction: tokens,
                    summary: summary.min(room).max(tokens),
                }
            }
        }
    }
}

impl Tiers {
    /// Converts the tiers to the host's count of tokens. `prompt` is the host's count of the prompt
    /// in `window`, which the provider may count differently.
    pub(crate) fn counted(self, prompt: u64, window: &WindowState) -> Self {
        let scale = to_host_tokens(prompt, window);
        let scaled = |tokens: u64| (tokens as f64 * scale) as u64;
        Self {
            compaction: scaled(self.compaction),
            summary: scaled(self.summary),
        }
    }
}

/// The JSON schema of the settings, with both spellings of each key. The host checks the
/// configuration against it.
pub(crate) fn schema() -> Value {
    both_spellings(schemars::schema_for!(Settings).to_value())
}

#[cfg(test)]
mod tests;
