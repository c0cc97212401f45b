//! The `compression` section of the configuration, and the token budgets that follow from it.
//!
//! [`CompressionSettings`] is the section itself. Its values are checked when it is read, and an
//! error names the key, the value and what is allowed. [`Budgets::for_window`] turns the ratios
//! into tokens for a concrete window: the threshold at which a compaction is due, the room for the
//! protected tail, and the size of a summary. `room_for_prompt` and `share` are the arithmetic that
//! the rest of the crate uses.

use contexture_engine_api::WindowState;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The settings under `compression`. A missing or `null` key gets its default, and unknown keys are
/// ignored here, because the host's configuration reports them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
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
    /// does. Default: none. If the value is not a positive whole number, there is no cap and
    /// [`warnings`] says so.
    ///
    /// [`warnings`]: Self::warnings
    pub max_threshold_tokens: Option<u64>,
    #[serde(skip)]
    warnings: Vec<String>,
}

/// A setting with a value that it cannot have. Its text names the key and says what is allowed, so
/// it can be shown to the user as it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// A key of the section has a value of the wrong type or out of its range.
    #[error("`compression.{key}` is {value}; it must be {allowed}")]
    OutOfRange {
        /// The name of the key, without the name of the section.
        key: &'static str,
        /// The rejected value as JSON text, as it stands in the configuration.
        value: String,
        /// The allowed values in words, such as "a number from 0.0 to 1.0".
        allowed: &'static str,
    },
    /// The section is not a mapping. The text is the error of the JSON parser.
    #[error("`compression` cannot be read: {0}; it must be a mapping such as `threshold: 0.5`")]
    NotASection(String),
}

/// The section as the user wrote it. The values are checked one by one, so that an error can name
/// the key.
#[derive(Deserialize)]
struct Unchecked {
    enabled: Option<Value>,
    threshold: Option<Value>,
    target_ratio: Option<Value>,
    protect_last_n: Option<Value>,
    max_threshold_tokens: Option<Value>,
}

impl Default for CompressionSettings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 0.50,
            target_ratio: 0.20,
            protect_last_n: 20,
            max_threshold_tokens: None,
            warnings: Vec::new(),
        }
    }
}

impl CompressionSettings {
    /// Reads the section from JSON text. The text `{}` gives the defaults.
    ///
    /// # Errors
    /// [`SettingsError`] if the text is not a JSON object or if a value is out of range. It names
    /// the key, its value and what is allowed.
    pub fn from_json(text: &str) -> Result<Self, SettingsError> {
        serde_json::from_str::<Unchecked>(text)
            .map_err(|error| SettingsError::NotASection(error.to_string()))?
            .try_into()
    }

    /// Warnings about settings that are ignored rather than refused, as full sentences. Empty if
    /// everything is in order.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl TryFrom<Unchecked> for CompressionSettings {
    type Error = SettingsError;

    fn try_from(written: Unchecked) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        set(
            &mut settings.enabled,
            "enabled",
            &written.enabled,
            "true or false",
            Value::as_bool,
        )?;
        set(
            &mut settings.threshold,
            "threshold",
            &written.threshold,
            "a number from 0.0 to 1.0, or a whole number of tokens",
            |value| {
                let is_share = |number: &f64| (0.0..=1.0).contains(number);
                let is_tokens = |number: &f64| *number > 1.0 && number.fract() == 0.0;
                value
                    .as_f64()
                    .filter(|number| is_share(number) || is_tokens(number))
            },
        )?;
        set(
            &mut settings.target_ratio,
            "target_ratio",
            &written.target_ratio,
            "a number from 0.10 to 0.80",
            |value| value.as_f64().filter(|share| (0.10..=0.80).contains(share)),
        )?;
        set(
            &mut settings.protect_last_n,
            "protect_last_n",
            &written.protect_last_n,
            "a whole number of at least 1",
            |value| {
                value
                    .as_u64()
                    .filter(|count| *count >= 1)
                    .and_then(|count| usize::try_from(count).ok())
            },
        )?;
        // The cap only limits costs. A wrong value must not stop the agent, so it is ignored with a
        // warning.
        if let Some(value) = written.max_threshold_tokens.filter(|v| !v.is_null()) {
            settings.max_threshold_tokens = value.as_u64().filter(|tokens| *tokens > 0);
            if settings.max_threshold_tokens.is_none() {
                settings.warnings.push(format!(
                    "`compression.max_threshold_tokens` is {value}, which is not a positive whole number of \
                     tokens; the threshold has no absolute cap"
                ));
            }
        }
        Ok(settings)
    }
}

/// Sets `target` from a key of the section. A missing or `null` value leaves the default, and a
/// value that `read` does not accept is an error.
fn set<T>(
    target: &mut T,
    key: &'static str,
    written: &Option<Value>,
    allowed: &'static str,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<(), SettingsError> {
    if let Some(value) = written.as_ref().filter(|value| !value.is_null()) {
        *target = read(value).ok_or_else(|| SettingsError::OutOfRange {
            key,
            value: value.to_string(),
            allowed,
        })?;
    }
    Ok(())
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
