//! How full the window is, what the provider reported, and what an engine decides on it.

use serde::{Deserialize, Serialize};

use crate::CachePrices;

open_struct! {
    /// What a provider reported for one answer. All figures are tokens.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Usage {
        /// The prompt, cached parts included.
        pub input_tokens: u64,
        /// The answer, reasoning included.
        pub output_tokens: u64,
        /// The part of the prompt that was read from the prompt cache.
        pub cache_read_tokens: u64,
        /// The part of the prompt that was written to the prompt cache.
        pub cache_write_tokens: u64,
        /// The part of the answer that was reasoning and is not in the next prompt.
        pub reasoning_tokens: u64,
    }
}

open_struct! {
    /// The model's window and what stands in it. All figures are tokens unless they say otherwise.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct WindowState {
        /// The agent's model.
        pub model: String,
        /// The model's whole window.
        pub context_length: u64,
        /// What is reserved for the answer.
        pub max_output_tokens: u64,
        /// The prompt as counted now: system prompt, tools and messages.
        pub prompt_tokens: u64,
        /// The part of `prompt_tokens` that no compaction can touch: system prompt and tools.
        pub fixed_tokens: u64,
        /// Whether there is a system prompt; none where the host does not say.
        pub has_system_prompt: Option<bool>,
        /// Whether `prompt_tokens` is a rough estimate rather than a count.
        pub estimated: bool,
        /// The prompt that the provider last reported, with what came since added; none since the last
        /// compaction or change of model.
        pub reported_tokens: Option<u64>,
        /// How long ago the last request of this session was, in milliseconds; none for the first since it was opened.
        pub idle_ms: Option<u64>,
        /// The pauses before the last requests of this session, 32 at most, in milliseconds; `idle_ms` is the last of them.
        pub pauses_ms: Vec<u64>,
        /// How long the provider's prompt cache keeps what it was sent, in milliseconds, as far as the host knows.
        pub cache_ttl_ms: Option<u64>,
        /// What the provider's prompt cache costs; none where that is not known.
        pub cache_prices: Option<CachePrices>,
        /// Whether compactions are timed by these prices, where [`pays`](Self::pays) says so, rather than by size.
        pub timed_by_price: bool,
        /// Whether a compaction that the window does not require waits until it is sure to cost nothing, that is, until
        /// [`pays_surely`](Self::pays_surely) says so.
        pub never_at_a_loss: bool,
        /// The requests since the last compaction, or since the session was opened, this one among them; a number.
        pub requests_since_compaction: u64,
        /// The number of requests that went to the model since the session was opened, including this one.
        pub requests: u64,
        /// The number of compactions since the session was opened.
        pub compactions: u64,
        /// What these compactions have saved minus what they have cost, in tokens of plain input at `cache_prices`.
        pub saved_by_compactions: i64,
        /// Messages in the window, the system prompt not among them.
        pub messages: usize,
        /// Whether the window holds messages that no compaction has seen yet.
        pub new_since_compaction: bool,
    }
}

impl WindowState {
    /// The best figure for the prompt: the reported one where there is one, else the count.
    pub fn best_prompt_tokens(&self) -> u64 {
        self.reported_tokens.unwrap_or(self.prompt_tokens)
    }

    /// Whether the provider's prompt cache still holds the last request; none where that is not known.
    pub fn cache_is_warm(&self) -> Option<bool> {
        Some(self.idle_ms? < self.cache_ttl_ms?)
    }

    /// The window less what is reserved for the answer.
    pub fn usable_tokens(&self) -> u64 {
        self.context_length.saturating_sub(self.max_output_tokens)
    }
}

open_enum! {
    /// Whether to do something now, and why.
    pub enum Decision {
        /// Do it: the reason.
        Yes(String) = "yes",
        /// Do not: the reason.
        No(String) = "no",
    }
    /// One of a later version, by its name. It counts as a no.
    Unknown
}

impl Decision {
    /// Whether it is a yes.
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes(_))
    }

    /// The reason, either way; of one that is not known, its name.
    pub fn reason(&self) -> &str {
        match self {
            Self::Yes(reason) | Self::No(reason) | Self::Unknown(reason) => reason,
        }
    }
}
