//! The numbers that a replay counts.
//!
//! [`Prompts`] counts the prompts and how the provider would bill them, [`Spent`] splits the cached
//! tokens by the reason for which they were written, and [`Work`] counts what the engine did. All
//! of them can be added over several conversations.
//!
//! Read [`Spent::of`] first. It decides for each prompt whether tokens were written because they
//! were new, because the cache had forgotten them, or because a compaction had changed something
//! before them. This module counts tokens only. Costs in US dollars are computed in `prices`.

use serde::Serialize;

use super::cache::Billed;

/// The prompts that were sent. All fields count tokens unless they say otherwise.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Prompts {
    /// The number of requests, one for each recorded answer of the model.
    pub requests: u64,
    /// The number of requests whose prompt was larger than the model's window. A provider would
    /// have rejected them.
    pub overflows: u64,
    /// The size of the largest prompt. If it exceeds the window, `overflows` is not 0.
    pub peak_prompt_tokens: u64,
    /// The sum of all prompts, however they are billed: read from the cache, written to it, or
    /// neither.
    pub prompt_tokens: u64,
    /// The size of each prompt, in the order of the requests.
    pub each_prompt_tokens: Vec<u64>,
    /// How many of `prompt_tokens` were read from the prompt cache.
    pub cached_tokens: u64,
    /// How many of `prompt_tokens` were written to the prompt cache.
    pub written_tokens: u64,
    /// How many of `written_tokens` were written for an hour. Counted only if the session chooses
    /// the cache's lifetime, and 0 otherwise.
    pub long_written_tokens: u64,
    /// The cached tokens by reason. All 0 if only a log's own usage is known.
    #[serde(flatten)]
    pub spent: Spent,
}

/// What the tokens that were read from the prompt cache, or written to it, consisted of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// System prompt and tools that were read from the cache. They come first in every prompt.
    pub fixed_read_tokens: u64,
    /// Messages that were read from the cache, because they were sent before and nothing in front
    /// of them had changed.
    pub messages_read_tokens: u64,
    /// What was written in the first request besides new messages: system prompt and tools.
    pub fixed_written_tokens: u64,
    /// Messages that were written because they were in no prompt before. An engine cannot avoid
    /// these.
    pub new_written_tokens: u64,
    /// Tokens that were written again because a pause was longer than the cache's lifetime.
    pub after_pauses_tokens: u64,
    /// Tokens that were written again because a compaction or rewrite had changed something before
    /// them.
    pub rewritten_tokens: u64,
}

impl Spent {
    /// Splits one prompt by reason. It begins with `fixed` tokens of system prompt and tools, and
    /// `new` of its tokens were in no prompt before. `before` is the state of the cache when the
    /// prompt arrived, which gives the reason for what was written besides the new tokens.
    pub(super) fn of(billed: Billed, fixed: u64, new: u64, before: Before) -> Self {
        let fixed_read = billed.cached.min(fixed);
        let mut spent = Self {
            fixed_read_tokens: fixed_read,
            messages_read_tokens: billed.cached - fixed_read,
            ..Self::default()
        };
        // A prompt that is too short to be cached writes less than its new tokens.
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

/// What the prompt cache held of a conversation when a prompt arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    /// Nothing, because this is the first prompt. All of it is written.
    Nothing,
    /// Nothing any more: a pause was longer than the cache's lifetime.
    Forgotten,
    /// The prompt before this one, so that the beginning that both have in common is read.
    Kept,
}

impl Prompts {
    /// Counts one more prompt of `tokens`, sent to a model with a window of `context_length`
    /// tokens.
    pub(super) fn count(&mut self, tokens: u64, billed: Billed, spent: Spent, context_length: u64) {
        self.spent.add(&spent);
        self.requests += 1;
        // A prompt above the window is counted and billed like any other, so that rows stay
        // comparable.
        self.overflows += u64::from(tokens > context_length);
        self.peak_prompt_tokens = self.peak_prompt_tokens.max(tokens);
        self.prompt_tokens += tokens;
        self.each_prompt_tokens.push(tokens);
        self.cached_tokens += billed.cached;
        self.written_tokens += billed.written;
    }

    /// Adds the prompts of another conversation. The largest prompt is the larger of the two.
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

    /// Returns the mean size of a prompt, in tokens. 0 if there are none.
    pub fn mean_prompt_tokens(&self) -> u64 {
        self.prompt_tokens
            .checked_div(self.requests)
            .unwrap_or_default()
    }

    /// Returns the part of all prompt tokens that were read from the prompt cache, a ratio from 0
    /// to 1. 0 if there are no prompts.
    pub fn cache_share(&self) -> f64 {
        if self.prompt_tokens == 0 {
            return 0.0;
        }
        self.cached_tokens as f64 / self.prompt_tokens as f64
    }
}

/// What one compaction cost, and what it saved until the next one. A compaction shortens all later
/// prompts, but changes the beginning of the next one, which the provider then has to write again.
/// All fields count tokens unless they say otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct CompactionCost {
    /// The request before which the compaction was made, from 1.
    pub request: u64,
    /// The size of the prompt before the compaction.
    pub tokens_before: u64,
    /// The size of the prompt after the compaction.
    pub tokens_after: u64,
    /// Whether the prompt cache had forgotten the prompt. If so, all of it had to be written in any
    /// case.
    pub cache_was_cold: bool,
    /// Tokens that were written only because of the compaction: they were in the cache in another
    /// form, or are the summary.
    pub rewritten_tokens: u64,
    /// Tokens that later prompts no longer read from the prompt cache.
    pub reads_saved_tokens: u64,
    /// Tokens that did not have to be written again after a pause.
    pub writes_saved_tokens: u64,
    /// What the compaction cost, in US dollars: the price of `rewritten_tokens`. It is 0 until a
    /// [`Row`](crate::Row) is made of it.
    pub cost_usd: f64,
    /// What the compaction saved, in US dollars: the price of the saved reads and writes. Compare
    /// it with `cost_usd` to see if the compaction paid off.
    pub saved_usd: f64,
}

/// What an engine did during a replay, and how long it took. Failures are counted by request, so
/// that one request never counts twice.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Work {
    /// The number of compactions by the engine itself that came into force.
    pub compactions: u64,
    /// How many of `compactions` needed a model and had to do without.
    pub degraded: u64,
    /// The number of compactions that were due and that the engine refused for a reason of its own.
    pub refused: u64,
    /// What each of `compactions` cost and saved, in order.
    pub costs: Vec<CompactionCost>,
    /// The number of requests in which the engine failed or broke the contract. Another engine
    /// served these requests, or none did.
    pub failures: u64,
    /// The number of model calls that the engine made.
    pub model_calls: u64,
    /// The time spent in calls of the engine, in milliseconds. Calls of an engine that replaced it
    /// are included.
    pub engine_ms: f64,
    /// The longest time spent in the engine during a single turn, in milliseconds.
    pub worst_turn_ms: f64,
}

impl Work {
    /// Adds the work for another conversation. The worst turn is the worse of the two.
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
