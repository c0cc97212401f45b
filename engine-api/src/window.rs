//! The state of the window, and what an engine decides from it.
//!
//! A host describes how full the model's window is with a [`WindowState`] and asks the engine for a
//! [`Decision`]. After the answer it passes on what the provider reported, as [`Usage`]. An engine
//! that only compacts when the window is half full needs nothing but
//! [`WindowState::best_prompt_tokens`] and [`WindowState::context_length`].
//!
//! The fields about requests, pauses and cache prices answer a second question: whether a
//! compaction saves money now. The rules for that are methods of [`WindowState`] too, and are in
//! the module `timing`.

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

open_struct! {
    /// What a provider reported for one answer. All figures are tokens, and a figure that the
    /// provider does not report is 0.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct Usage {
        /// The whole prompt, including the parts that came from the prompt cache.
        pub input_tokens: u64,
        /// The whole answer, including the reasoning that the user does not see.
        pub output_tokens: u64,
        /// The part of the prompt that was read from the prompt cache.
        pub cache_read_tokens: u64,
        /// The part of the prompt that was written to the prompt cache.
        pub cache_write_tokens: u64,
        /// The part of the answer that was reasoning. It is not part of the next prompt, unlike the
        /// rest of the answer.
        pub reasoning_tokens: u64,
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let figures = [
            (&mut self.input_tokens, other.input_tokens),
            (&mut self.output_tokens, other.output_tokens),
            (&mut self.cache_read_tokens, other.cache_read_tokens),
            (&mut self.cache_write_tokens, other.cache_write_tokens),
            (&mut self.reasoning_tokens, other.reasoning_tokens),
        ];
        for (sum, tokens) in figures {
            *sum = sum.saturating_add(tokens);
        }
    }
}

open_struct! {
    /// The size of the model's window and what is in it. All figures are tokens unless their
    /// comment names another unit.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct WindowState {
        /// The name of the agent's model.
        pub model: String,
        /// The size of the model's whole window, or 0 if it is not known.
        pub context_length: u64,
        /// The part of the window that is reserved for the answer.
        pub max_output_tokens: u64,
        /// The size of the prompt from which the user wants this model's conversations compacted,
        /// in tokens and not above the usable window. It takes the place of the engine's own
        /// setting. It is `None` if the user says nothing about this model.
        pub threshold_tokens: Option<u64>,
        /// The prompt as the host counts it now: system prompt, tools and messages. It is a rough
        /// figure if `estimated` is set.
        pub prompt_tokens: u64,
        /// The part of `prompt_tokens` that no compaction can remove: the system prompt and the
        /// tools.
        pub fixed_tokens: u64,
        /// Whether there is a system prompt, or `None` if the host does not say.
        pub has_system_prompt: Option<bool>,
        /// Whether `prompt_tokens` is a rough estimate instead of a count.
        pub estimated: bool,
        /// The prompt size that the provider last reported, plus whatever was added since. It is
        /// `None` after a compaction or a change of model, until the next report.
        pub reported_tokens: Option<u64>,
        /// The time since the last request of this session, in milliseconds. It is `None` for the
        /// first request after the session was opened.
        pub idle_ms: Option<u64>,
        /// The pauses before the last requests of this session, in milliseconds and at most 32. The
        /// last of them is `idle_ms`.
        pub pauses_ms: Vec<u64>,
        /// How long the provider's prompt cache keeps a prompt, in milliseconds, or `None` if the
        /// host does not know.
        pub cache_ttl_ms: Option<u64>,
        /// The prices of the provider's prompt cache, or `None` if they are not known.
        pub cache_prices: Option<CachePrices>,
        /// Whether compactions are timed by these prices instead of by size. A compaction is then
        /// made when [`pays`](Self::pays) says yes.
        pub timed_by_price: bool,
        /// Whether a compaction that the window does not require waits until it certainly costs
        /// nothing. It is then made when [`pays_surely`](Self::pays_surely) says yes.
        pub never_at_a_loss: bool,
        /// The number of requests since the last compaction, or since the session was opened if
        /// there was none. It includes this request.
        pub requests_since_compaction: u64,
        /// The number of requests sent to the model since the session was opened, including this
        /// one.
        pub requests: u64,
        /// The number of compactions since the session was opened.
        pub compactions: u64,
        /// What these compactions saved minus what they cost, in tokens of plain input at
        /// `cache_prices`. It is negative when they have not paid off yet.
        pub saved_by_compactions: i64,
        /// The number of messages in the window, without the system prompt.
        pub messages: usize,
        /// Whether the window holds messages that no compaction has seen yet.
        pub new_since_compaction: bool,
    }
}

impl WindowState {
    /// Returns the best known size of the prompt, in tokens: what the provider reported if it is
    /// known, and the host's count otherwise.
    pub fn best_prompt_tokens(&self) -> u64 {
        // The provider counts with the real tokenizer and framing, which the host can only
        // approximate.
        self.reported_tokens.unwrap_or(self.prompt_tokens)
    }

    /// Returns true if the provider's prompt cache still holds the last request, and `None` if that
    /// is not known.
    pub fn cache_is_warm(&self) -> Option<bool> {
        Some(self.idle_ms? < self.cache_ttl_ms?)
    }

    /// Returns how many tokens a prompt may have: the window without the part that is reserved for
    /// the answer. The result is `None` if the size of the window is not known. A reserved part as
    /// large as the window is a wrong setting and is ignored.
    ///
    /// ```
    /// use contexture_engine_api::WindowState;
    ///
    /// let window = WindowState::default().context_length(100_000);
    /// assert_eq!(window.clone().max_output_tokens(8_000).room_for_prompt(), Some(92_000));
    /// assert_eq!(window.max_output_tokens(100_000).room_for_prompt(), Some(100_000));
    /// assert_eq!(WindowState::default().room_for_prompt(), None);
    /// ```
    pub fn room_for_prompt(&self) -> Option<u64> {
        let all = Some(self.context_length).filter(|all| *all > 0)?;
        let beside_answer = all.checked_sub(self.max_output_tokens);
        beside_answer.filter(|room| *room > 0).or(Some(all))
    }

    /// Returns true if a prompt of so many tokens and the reserved answer fit the window, or if the
    /// size of the window is not known.
    pub fn has_room_for(&self, tokens: u64) -> bool {
        self.room_for_prompt().is_none_or(|room| tokens <= room)
    }

    /// Returns true if [`has_room_for`](Self::has_room_for) is true for the prompt.
    pub fn fits(&self) -> bool {
        self.has_room_for(self.best_prompt_tokens())
    }
}

/// The prices of reading and writing a prompt cache, in percent of what the same tokens cost as
/// plain input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CachePrices {
    /// The price of tokens that are read from the cache. It is usually far below 100.
    pub read_percent: u32,
    /// The price of tokens that are written to the cache. It may be above 100.
    pub write_percent: u32,
}

impl CachePrices {
    /// Creates prices from these percentages of plain input.
    pub fn new(read_percent: u32, write_percent: u32) -> Self {
        Self {
            read_percent,
            write_percent,
        }
    }

    /// Returns what a compaction costs while the cache is warm, in tokens of plain input.
    /// Everything that the compaction leaves after the first `fixed` tokens is written to the cache
    /// again, while without it all `before` tokens would have been read from the cache. Returns 0
    /// if the compaction costs no more than reading the old prompt.
    pub fn cost(&self, before: u64, after: u64, fixed: u64) -> u64 {
        let (read, write) = (u64::from(self.read_percent), u64::from(self.write_percent));
        let fixed = fixed.min(after);
        let with = (after - fixed) * write + fixed * read;
        with.saturating_sub(before * read) / 100
    }
}

open_enum! {
    /// Whether to do something now, with the reason. A reason is shown to people, so it should name
    /// the figures that led to it.
    pub enum Decision {
        /// Do it. The text is the reason.
        Yes(String) = "yes",
        /// Do not do it. The text is the reason.
        No(String) = "no",
    }
    /// A decision of a later version. It holds the decision's name and counts as a no.
    Unknown
}

impl Decision {
    /// Returns true only for [`Yes`](Self::Yes). A decision that this version does not know is not
    /// a yes.
    pub fn is_yes(&self) -> bool {
        matches!(self, Self::Yes(_))
    }

    /// Returns the reason of a yes or a no. For a decision that is not known, this is its name.
    pub fn reason(&self) -> &str {
        match self {
            Self::Yes(reason) | Self::No(reason) | Self::Unknown(reason) => reason,
        }
    }
}
