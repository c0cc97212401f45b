//! The settings under `context.engines.two-layer`.
//!
//! Every key may be written as in the document's Java (`tokenThreshold`) or as `token_threshold`.
//! [`Settings`] derives the schema that a configuration is checked against, so its doc comments are
//! shown to users. [`Settings::threshold`] is the size at which Layer 2 runs, in tokens as the
//! engine estimates them. It is fixed unless the setting `threshold_share` makes it follow the
//! window.

use contexture_engine_api::WindowState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The tool that is always protected, in addition to the configured ones. The document protects it
/// by name.
const PROTECTED: &str = "Skill";

/// The settings of the engine. Names and defaults are the document's (`ContextPolicy`), the last four its extensions.
/// The doc comments, defaults and ranges are the schema that a configuration is checked against.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Summarise the conversation above this number of tokens, as the engine estimates them
    #[schemars(range(min = 1))]
    #[serde(alias = "tokenThreshold")]
    pub(crate) token_threshold: u64,
    /// The number of newest rounds of tool calls that stay as they are
    #[schemars(range(min = 1))]
    #[serde(alias = "keepRecentTools")]
    pub(crate) keep_recent_tools: usize,
    /// Cut older arguments and texts with more characters to this length
    #[schemars(range(min = 1))]
    #[serde(alias = "maxToolLength")]
    pub(crate) max_tool_length: usize,
    /// Tools whose calls and results are never cut, in addition to Skill
    #[serde(alias = "protectedTools")]
    pub(crate) protected_tools: Vec<String>,
    /// The number of newest turns that a summary leaves as they are, if they fit
    #[schemars(range(min = 1))]
    #[serde(alias = "keepRecentTurns")]
    pub(crate) keep_recent_turns: usize,
    /// Write a summary for each turn and keep them as a chain, instead of one for all
    #[serde(alias = "perTurnSummaries")]
    pub(crate) per_turn_summaries: bool,
    /// Write summaries as text, or as JSON with topics, entities and actions
    #[serde(alias = "summaryFormat")]
    pub(crate) summary_format: SummaryFormat,
    /// Do not compress messages of at least this importance, from 0 to 1; null compresses all
    #[schemars(range(min = 0.0, max = 1.0))]
    #[serde(alias = "keepImportant")]
    pub(crate) keep_important: Option<f64>,
    /// A share of the model's window that replaces token_threshold; null for the fixed number
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
    /// Returns the number of estimated tokens above which the conversation is summarised. The user's
    /// threshold for the model comes first. A configured share of the window is used only if the
    /// context length is known.
    pub(crate) fn threshold(&self, window: &WindowState) -> u64 {
        let own = || match self.threshold_share {
            Some(share) if window.context_length > 0 => {
                (window.context_length as f64 * share) as u64
            }
            _ => self.token_threshold,
        };
        window.threshold_tokens.unwrap_or_else(own)
    }

    /// Whether the calls and results of this tool are never shortened. Names are compared exactly.
    pub(crate) fn protects(&self, tool: &str) -> bool {
        tool == PROTECTED || self.protected_tools.iter().any(|name| name == tool)
    }
}
