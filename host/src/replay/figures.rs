//! What is counted of a replay.

use serde::Serialize;

use super::cache::Billed;

/// The prompts that were sent. Tokens, unless it says otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prompts {
    /// Requests, a number.
    pub requests: u64,
    /// Requests whose prompt was larger than the model's window, a number.
    pub overflows: u64,
    /// The largest prompt.
    pub peak_prompt_tokens: u64,
    /// All prompts together.
    pub prompt_tokens: u64,
    /// The part of them that the prompt cache served.
    pub cached_tokens: u64,
    /// The part of them that was written to the prompt cache.
    pub written_tokens: u64,
}

impl Prompts {
    /// Counts one more prompt of `tokens`, sent into a window of `context_length` tokens.
    pub(super) fn count(&mut self, tokens: u64, billed: Billed, context_length: u64) {
        self.requests += 1;
        self.overflows += u64::from(tokens > context_length);
        self.peak_prompt_tokens = self.peak_prompt_tokens.max(tokens);
        self.prompt_tokens += tokens;
        self.cached_tokens += billed.cached;
        self.written_tokens += billed.written;
    }

    /// Counts the prompts of another conversation among these.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.overflows += other.overflows;
        self.peak_prompt_tokens = self.peak_prompt_tokens.max(other.peak_prompt_tokens);
        self.prompt_tokens += other.prompt_tokens;
        self.cached_tokens += other.cached_tokens;
        self.written_tokens += other.written_tokens;
    }

    /// The mean prompt, in tokens.
    pub fn mean_prompt_tokens(&self) -> u64 {
        self.prompt_tokens
            .checked_div(self.requests)
            .unwrap_or_default()
    }

    /// The part of all prompts that the prompt cache served, a ratio.
    pub fn cache_share(&self) -> f64 {
        if self.prompt_tokens == 0 {
            return 0.0;
        }
        self.cached_tokens as f64 / self.prompt_tokens as f64
    }
}

/// What an engine did for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Work {
    /// Compactions of the engine's own that came into force.
    pub compactions: u64,
    /// Those of them that wanted a model and had to do without.
    pub degraded: u64,
    /// Compactions that were due and that the engine refused, for a reason of its own.
    pub refused: u64,
    /// Requests in which the engine failed or broke the contract, so that another stood in for it, or nothing did.
    pub failures: u64,
    /// Model calls that the engine had made.
    pub model_calls: u64,
    /// Time spent in the engine, in ms.
    pub engine_ms: f64,
    /// The part of it that fell on the worst single turn, in ms.
    pub worst_turn_ms: f64,
}

impl Work {
    /// Counts what was done for another conversation with this.
    pub(super) fn add(&mut self, other: &Self) {
        self.compactions += other.compactions;
        self.degraded += other.degraded;
        self.refused += other.refused;
        self.failures += other.failures;
        self.model_calls += other.model_calls;
        self.engine_ms += other.engine_ms;
        self.worst_turn_ms = self.worst_turn_ms.max(other.worst_turn_ms);
    }
}
