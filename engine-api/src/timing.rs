//! Whether a compaction pays, at the provider's prices for its prompt cache.
//!
//! A compaction is no saving in itself. While the cache is warm, the prompt as it stands costs a tenth of its price,
//! and what a compaction puts in its place has to be written anew. Each request after it is then cheaper, by what was
//! taken out. How many requests will follow is not known; the best guess without any knowledge is that a conversation
//! goes on for as long as it has gone on, counted from the last compaction: whoever does not know how long he will ski
//! rents until the rent has come to the price. Once the cache has forgotten the prompt, all of it is written anew in any
//! case, and a smaller one is cheaper at once.

use crate::{Decision, WindowState, grouped};

/// What reading and writing a prompt cache costs, in percent of the same tokens as plain input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct CachePrices {
    /// Tokens that are read.
    pub read_percent: u32,
    /// Tokens that are written.
    pub write_percent: u32,
}

impl CachePrices {
    /// These prices, in percent of plain input.
    pub fn new(read_percent: u32, write_percent: u32) -> Self {
        Self {
            read_percent,
            write_percent,
        }
    }
}

impl WindowState {
    /// Whether a compaction that leaves a prompt of `after` tokens pays now. Without
    /// [`cache_prices`](Self::cache_prices) it does: a smaller prompt is then a cheaper one.
    ///
    /// ```
    /// use contexture_engine_api::{CachePrices, WindowState};
    ///
    /// let window = WindowState::default()
    ///     .prompt_tokens(60_000)
    ///     .fixed_tokens(20_000)
    ///     .cache_prices(Some(CachePrices::new(10, 125)))
    ///     .cache_ttl_ms(Some(300_000));
    /// // 20,000 tokens to write, and 3,000 saved in each request: not for one more.
    /// assert!(!window.clone().idle_ms(Some(1_000)).requests_since_compaction(1).pays(40_000).is_yes());
    /// assert!(window.clone().idle_ms(Some(1_000)).requests_since_compaction(20).pays(40_000).is_yes());
    /// // The cache has forgotten all of it.
    /// assert!(window.idle_ms(Some(300_000)).pays(40_000).is_yes());
    /// ```
    pub fn pays(&self, after: u64) -> Decision {
        let prompt = self.best_prompt_tokens();
        let saved = prompt.saturating_sub(after);
        if saved == 0 {
            return Decision::No("a compaction would save nothing".to_owned());
        }
        let Some(prices) = self.cache_prices else {
            return Decision::Yes(format!("it saves {} tokens", grouped(saved)));
        };
        if self.cache_is_warm() == Some(false) {
            return Decision::Yes(format!(
                "the prompt cache has forgotten the prompt, and {} tokens less are to be written",
                grouped(saved)
            ));
        }
        let (read, write) = (
            u64::from(prices.read_percent),
            u64::from(prices.write_percent),
        );
        let fixed = self.fixed_tokens.min(after);
        let with = (after - fixed) * write + fixed * read;
        let cost = with.saturating_sub(prompt * read) / 100;
        let saved_each = saved * read / 100;
        let expected = self.requests_since_compaction.max(1);
        let reason = format!(
            "in tokens of plain input, a compaction costs {} now and saves {} in each of some {} requests to come",
            grouped(cost),
            grouped(saved_each),
            grouped(expected)
        );
        match saved_each.saturating_mul(expected) > cost {
            true => Decision::Yes(reason),
            false => Decision::No(reason),
        }
    }
}
