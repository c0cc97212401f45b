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
    /// The prompt of each request, in order.
    pub each_prompt_tokens: Vec<u64>,
    /// The part of them that the prompt cache served.
    pub cached_tokens: u64,
    /// The part of them that was written to the prompt cache.
    pub written_tokens: u64,
    /// The part of those that was written for an hour, where the cache's lifetime was chosen.
    pub long_written_tokens: u64,
    /// Where these went; all 0 where a log's own usage is all that is known.
    #[serde(flatten)]
    pub spent: Spent,
}

/// What prompts that were read from the prompt cache, or written to it, consisted of. Tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// System prompt and tools that were read.
    pub fixed_read_tokens: u64,
    /// Messages that were read.
    pub messages_read_tokens: u64,
    /// System prompt and tools, written in the first request.
    pub fixed_written_tokens: u64,
    /// Messages, written when they were new.
    pub new_written_tokens: u64,
    /// What was written once more because a pause had outlived the cache.
    pub after_pauses_tokens: u64,
    /// What was written once more because something before it had changed: compactions and rewrites.
    pub rewritten_tokens: u64,
}

impl Spent {
    /// One prompt, that begins with `fixed` tokens of system prompt and tools, and holds `new` tokens that stood in
    /// none before it. `before` is how the prompt before it and the cache stood.
    pub(super) fn of(billed: Billed, fixed: u64, new: u64, before: Before) -> Self {
        let fixed_read = billed.cached.min(fixed);
        let mut spent = Self {
            fixed_read_tokens: fixed_read,
            messages_read_tokens: billed.cached - fixed_read,
            ..Self::default()
        };
        let new = new.min(billed.written);
        let again = billed.written - new;
        spent.new_written_tokens = new;
        match before {
            Before::Nothing => spent.fixed_written_tokens = again,
            Before::Forgotten => spent.after_pauses_tokens = again,
            Before::Kept => spent.rewritten_tokens = again,
        }
        spent
    }

    fn add(&mut self, other: &Self) {
        self.fixed_read_tokens += other.fixed_read_tokens;
        self.messages_read_tokens += other.messages_read_tokens;
        self.fixed_written_tokens += other.fixed_written_tokens;
        self.new_written_tokens += other.new_written_tokens;
        self.after_pauses_tokens += other.after_pauses_tokens;
        self.rewritten_tokens += other.rewritten_tokens;
    }
}

/// What the prompt cache held of a conversation when a prompt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// It is the first prompt.
    Nothing,
    /// The prompt before it, once; a pause outlived it.
    Forgotten,
    /// The prompt before it.
    Kept,
}

impl Prompts {
    /// Counts one more prompt of `tokens`, sent into a window of `context_length` tokens.
    pub(super) fn count(&mut self, tokens: u64, billed: Billed, spent: Spent, context_length: u64) {
        self.spent.add(&spent);
        self.requests += 1;
        self.overflows += u64::from(tokens > context_length);
        self.peak_prompt_tokens = self.peak_prompt_tokens.max(tokens);
        self.prompt_tokens += tokens;
        self.each_prompt_tokens.push(tokens);
        self.cached_tokens += billed.cached;
        self.written_tokens += billed.written;
    }

    /// Counts the prompts of another conversation among these.
    pub(super) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.overflows += other.overflows;
        self.peak_prompt_tokens = self.peak_prompt_tokens.max(other.peak_prompt_tokens);
        self.prompt_tokens += other.prompt_tokens;
        (self.each_prompt_tokens).extend(&other.each_prompt_tokens);
        self.cached_tokens += other.cached_tokens;
        self.written_tokens += other.written_tokens;
        self.long_written_tokens += other.long_written_tokens;
        self.spent.add(&other.spent);
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

/// What one compaction cost and saved until the next one. Tokens, unless it says otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct CompactionCost {
    /// The request before which it was made, from 1.
    pub request: u64,
    /// The prompt before it.
    pub tokens_before: u64,
    /// The prompt after it.
    pub tokens_after: u64,
    /// Whether the prompt cache had forgotten the prompt, so that all of it was to be written in any case.
    pub cache_was_cold: bool,
    /// What it had written that stood in the prompt cache otherwise, or was made up.
    pub rewritten_tokens: u64,
    /// What was not read from the prompt cache any more.
    pub reads_saved_tokens: u64,
    /// What was not written to it once more after a pause.
    pub writes_saved_tokens: u64,
    /// What it cost, in US dollars.
    pub cost_usd: f64,
    /// What it saved, in US dollars.
    pub saved_usd: f64,
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
    /// What each of them cost and saved.
    pub costs: Vec<CompactionCost>,
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
        self.costs.extend(&other.costs);
        self.refused += other.refused;
        self.failures += other.failures;
        self.model_calls += other.model_calls;
        self.engine_ms += other.engine_ms;
        self.worst_turn_ms = self.worst_turn_ms.max(other.worst_turn_ms);
    }
}
