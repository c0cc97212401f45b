//! A simulation of a provider's prompt cache.
//!
//! A provider bills tokens differently if it reads them from its cache or writes them to it. A
//! replay sends no requests, so [`PromptCache`] predicts how each prompt would be billed. It knows
//! three rules: a prefix that is too short is not cached, an entry that is not used for its
//! lifetime is forgotten, and every use renews the lifetime.
//!
//! [`PromptCache::request`] bills one prompt as [`Billed`]. How many tokens a prompt shares with
//! the one before is computed by the player, and prices are applied in `prices`.

use contexture_formats::prompt_cache::{Ttl, least_prefix};

/// How the tokens of one prompt are billed: the two parts below, and the rest as plain input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Billed {
    /// The tokens that were read from the cache. They are always the first tokens of the prompt.
    pub cached: u64,
    /// The tokens that were written to the cache, because they follow what was read.
    pub written: u64,
}

/// The prompt cache of one conversation. Each request reads what its prompt shares with the one
/// before, if that is not too long ago, and writes the rest. A read renews the lifetime.
#[derive(Debug, Clone)]
pub(crate) struct PromptCache {
    /// The shortest prefix that the provider caches for this model, in tokens.
    least: u64,
    lifetime_ms: i64,
    last_use_ms: Option<i64>,
}

impl PromptCache {
    /// Creates an empty cache of this model's provider. It forgets a prompt that was not used for
    /// the lifetime `ttl`.
    pub(crate) fn new(model: &str, ttl: Ttl) -> Self {
        Self {
            least: least_prefix(model),
            lifetime_ms: ttl.ms() as i64,
            last_use_ms: None,
        }
    }

    /// Changes the lifetime, which counts from the last use. Call it if the session chooses another
    /// lifetime for its requests.
    pub(crate) fn keep_for(&mut self, ttl: Ttl) {
        self.lifetime_ms = ttl.ms() as i64;
    }

    /// Whether the last prompt is still in the cache at this time, in milliseconds since the Unix
    /// epoch. If this request or the last one has no time, no time is assumed to have passed.
    pub(crate) fn is_alive(&self, time_ms: Option<i64>) -> bool {
        match (self.last_use_ms, time_ms) {
            (Some(last), Some(now)) => now.saturating_sub(last) < self.lifetime_ms,
            _ => true,
        }
    }

    /// Bills a prompt of `prompt` tokens, whose first `shared` tokens are also the beginning of the
    /// prompt before. The time is in milliseconds since the Unix epoch. If it is missing, no time
    /// is assumed to have passed.
    pub(crate) fn request(&mut self, prompt: u64, shared: u64, time_ms: Option<i64>) -> Billed {
        let alive = self.is_alive(time_ms);
        self.last_use_ms = time_ms.or(self.last_use_ms);
        // A prompt that is too short is not cached, but counts as a use of what is.
        if prompt < self.least {
            return Billed::default();
        }
        let cached = match shared.min(prompt) {
            shared if alive && shared >= self.least => shared,
            _ => 0,
        };
        Billed {
            cached,
            written: prompt - cached,
        }
    }
}

#[cfg(test)]
mod tests;
