//! The `compression` section of the configuration, and the token budgets that follow from it.
//!
//! [`CompressionSettings`] is the section itself. The host checks its values against the schema of
//! its configuration before the engine gets them. [`Budgets::for_window`] turns the ratios into
//! tokens for a concrete window: the threshold at which a compaction is due, the room for the
//! protected tail, and the size of a summary. `share` is the arithmetic that the rest of the crate
//! uses.

use contexture_engine_api::WindowState;
use serde::{Deserialize, Serialize};

/// The number of messages protected at the start of the conversation. The system prompt counts as
/// the first of them, so that two messages of the history are protected if there is one.
pub const PROTECT_FIRST_N: usize = 3;

/// The share of the compacted content that its summary may take, within the limits below.
const SUMMARY_RATIO: f64 = 0.20;
/// The share of the threshold from which a compaction may be due if compactions are timed by price.
pub(crate) const ECONOMY_FROM: f64 = 0.5;
/// The smallest budget of a summary, in tokens, if the window allows that much.
const MIN_SUMMARY_TOKENS: u64 = 2_000;
/// The largest share of the window that a summary may take.
const MAX_SUMMARY_SHARE: f64 = 0.05;
/// The largest budget of a summary in tokens, however large the window is.
const MAX_SUMMARY_TOKENS: u64 = 12_000;

/// The settings under `compression`. A missing key gets its default, and unknown keys are ignored
/// here, because the host's configuration reports them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CompressionSettings {
    /// Whether to compact automatically. Default: true. If it is false, only a forced compaction
    /// runs.
    pub enabled: bool,
    /// The size of the prompt at which a compaction is due: a share of the model's window, 0.0 to
    /// 1.0, or a whole number of tokens above 1. Default: 0.50. What the user says of the agent's
    /// model ([`WindowState::threshold_tokens`]) takes its place.
    pub threshold: f64,
    /// The share of the threshold, 0.10 to 0.80, that the protected tail may take. Default: 0.20.
    pub target_ratio: f64,
    /// The smallest number of messages protected at the end, 1 or more. Default: 20. If they leave
    /// too little room, a compaction protects fewer.
    pub protect_last_n: usize,
    /// An absolute cap on the threshold, in tokens. It can make a compaction due before `threshold`
    /// does. Default: none.
    pub max_threshold_tokens: Option<u64>,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 0.50,
            target_ratio: 0.20,
            protect_last_n: 20,
            max_threshold_tokens: None,
        }
    }
}

/// The token budgets for one window. All of them are 0 if the context length is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// The size of the prompt at which a compaction is due. It is never more than the window less
    /// what is reserved for the answer, and half as large if compactions are timed by price.
    pub threshold_tokens: u64,
    /// What the protected tail may take: the threshold times `target_ratio`, before any halving for
    /// the price.
    pub tail_token_budget: u64,
    /// What a summary may take at most: `min(window × 0.05, 12,000)`.
    pub max_summary_tokens: u64,
}

impl Budgets {
    /// Computes the budgets of a window from its context length, its reserved answer and the
    /// settings.
    ///
    /// ```
    /// use contexture_compressor::{Budgets, CompressionSettings};
    /// use contexture_engine_api::WindowState;
    ///
    /// let window = WindowState::default().context_length(200_000);
    /// let budgets = Budgets::for_window(&CompressionSettings::default(), &window);
    /// assert_eq!(budgets.threshold_tokens, 100_000);
    /// assert_eq!(budgets.tail_token_budget, 20_000);
    /// assert_eq!(budgets.max_summary_tokens, 10_000);
    /// ```
    pub fn for_window(settings: &CompressionSettings, window: &WindowState) -> Self {
        let own = match settings.threshold <= 1.0 {
            true => share(window.context_length, settings.threshold),
            // Without a window there is nothing to compact for, also if the number is known.
            false => (settings.threshold as u64).min(window.context_length),
        };
        let threshold_tokens = (window.threshold_tokens.unwrap_or(own))
            .min(settings.max_threshold_tokens.unwrap_or(u64::MAX))
            .min(window.room_for_prompt().unwrap_or_default());
        Self {
            threshold_tokens: match window.timed_by_price {
                true => share(threshold_tokens, ECONOMY_FROM),
                false => threshold_tokens,
            },
            tail_token_budget: share(threshold_tokens, settings.target_ratio),
            max_summary_tokens: share(window.context_length, MAX_SUMMARY_SHARE)
                .min(MAX_SUMMARY_TOKENS),
        }
    }

    /// An estimate of the prompt after a compaction of this window: the fixed part, a full tail and
    /// a summary of the rest.
    pub(crate) fn likely_after(&self, window: &WindowState) -> u64 {
        let kept = window.fixed_tokens + self.tail_token_budget;
        let content = window.best_prompt_tokens().saturating_sub(kept);
        kept + self.summary_tokens(content)
    }

    /// The budget of a summary for content of so many tokens. It is a fifth of the content, but at
    /// least 2,000 and at most `max_summary_tokens`. It is never more than half of the content,
    /// because a summary that is not much shorter than what it replaces is useless.
    pub fn summary_tokens(&self, content_tokens: u64) -> u64 {
        share(content_tokens, SUMMARY_RATIO)
            .max(MIN_SUMMARY_TOKENS)
            .min(self.max_summary_tokens)
            .min(content_tokens / 2)
    }
}

pub(crate) fn share(tokens: u64, ratio: f64) -> u64 {
    (tokens as f64 * ratio).round() as u64
}

#[cfg(test)]
mod tests;
