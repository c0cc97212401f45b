//! The settings under `context.engines.two-layer`. Every key may be written as in the document's Java
//! (`tokenThreshold`) or as `token_threshold`.

use contexture_engine_api::WindowState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool that is always protected.
const PROTECTED: &str = "Skill";

/// The settings of the engine. Names and defaults are the document's (`ContextPolicy`), the last four its extensions.
/// The doc comments, defaults and ranges are the schema that a configuration is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Above so many tokens, as the engine estimates them, the conversation is summarised
    #[schemars(range(min = 1))]
    #[serde(alias = "tokenThreshold")]
    pub(crate) token_threshold: u64,
    /// The newest rounds of tool calls that stay as they are
    #[schemars(range(min = 1))]
    #[serde(alias = "keepRecentTools")]
    pub(crate) keep_recent_tools: usize,
    /// Older arguments and texts of more characters are cut to so many
    #[schemars(range(min = 1))]
    #[serde(alias = "maxToolLength")]
    pub(crate) max_tool_length: usize,
    /// Tools whose calls and results are never cut, beside Skill
    #[serde(alias = "protectedTools")]
    pub(crate) protected_tools: Vec<String>,
    /// The newest turns that a summary leaves as they are, where they fit
    #[schemars(range(min = 1))]
    #[serde(alias = "keepRecentTurns")]
    pub(crate) keep_recent_turns: usize,
    /// A summary for each turn, which stay as a chain, rather than one for all
    #[serde(alias = "perTurnSummaries")]
    pub(crate) per_turn_summaries: bool,
    /// Summaries as text, or as JSON with topics, entities and actions
    #[serde(alias = "summaryFormat")]
    pub(crate) summary_format: SummaryFormat,
    /// Messages of at least this importance, from 0 to 1, are not compressed; null compresses all
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(alias = "keepImportant")]
    pub(crate) keep_important: Option<f64>,
    /// The share of the model's window that takes the place of token_threshold; null for the fixed number
    #[schemars(range(min = 0.05, max = 0.95))]
    #[serde(alias = "thresholdShare")]
    pub(crate) threshold_share: Option<f64>,
}

/// How a summary is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(crate) enum SummaryFormat {
    Text,
    Json,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            token_threshold: 60_000,
            keep_recent_tools: 4,
            max_tool_length: 200,
            protected_tools: Vec::new(),
            keep_recent_turns: 4,
            per_turn_summaries: false,
            summary_format: SummaryFormat::Text,
            keep_important: None,
            threshold_share: None,
        }
    }
}

impl Settings {
    /// Above so many estimated tokens the conversation is summarised.
    pub(crate) fn threshold(&self, window: &WindowState) -> u64 {
        match self.threshold_share {
            Some(share) if window.context_length > 0 => {
                (window.context_length as f64 * share) as u64
            }
            _ => self.token_threshold,
        }
    }

    pub(crate) fn protects(&self, tool: &str) -> bool {
        tool == PROTECTED || self.protected_tools.iter().any(|name| name == tool)
    }
}
