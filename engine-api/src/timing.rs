//! When a due compaction is made, and how small it must make the prompt.
//!
//! A compaction does not save money by itself. While the provider's cache is warm, the unchanged
//! prompt costs a fraction of its price, and everything after the point at which a compaction
//! changes it must be written to the cache again. Each later request is then cheaper by the tokens
//! that were removed. Three rules, the same for every engine, keep compactions from costing more
//! than they save:
//!
//! 1. A compaction leaves a quarter of its trigger free ([`roomy`]), or it waits until the window
//!    requires it ([`WindowState::requires_compaction`]).
//! 2. Two compactions are more than five requests apart, as long as the prompt fits the window.
//! 3. A compaction pays at the provider's prices ([`WindowState::pays`],
//!    [`WindowState::pays_surely`]).
//!
//! [`WindowState::may_compact`] applies the last two. Nobody knows how many requests will follow.
//! Without further knowledge, a conversation that has had `n` requests will have `n` more with a
//! probability of one half, and `n / 49` more with a probability of 98 %.

use crate::text::grouped;
use crate::window::{Decision, WindowState};

/// The share of its trigger that a compaction may leave filled. A quarter stays free, so that the
/// next compaction is not due at once.
const ROOMY: f64 = 0.75;
/// The number of requests that must pass between two compactions as long as the prompt fits the
/// window.
const REST: u64 = 5;
/// How full the window must be, in percent, before it requires a compaction. Session hygiene uses
/// the same share.
pub const REQUIRED_PERCENT: u64 = 85;
/// In 49 of 50 cases, a conversation of `n` requests has at least `n / SURE` more requests ahead of
/// it. See the module documentation.
const SURE: u64 = 49;

/// Returns how many tokens a compaction that is due at `trigger` tokens may leave. Both are in the
/// same unit.
///
/// ```
/// assert_eq!(contexture_engine_api::roomy(100_000), 75_000);
/// ```
pub fn roomy(trigger: u64) -> u64 {
    (trigger as f64 * ROOMY) as u64
}

impl WindowState {
    /// Returns true if the window itself requires a compaction, whatever the compaction costs. This
    /// is the case when the window is 85 % full, or when the prompt and the reserved answer no
    /// longer fit. Never true if the size of the window is not known.
    pub fn requires_compaction(&self) -> bool {
        self.required_from()
            .is_some_and(|from| self.best_prompt_tokens() >= from)
    }

    /// Returns the number of tokens from which the window requires a compaction, or `None` if the
    /// size of the window is not known.
    pub fn required_from(&self) -> Option<u64> {
        let room = self.room_for_prompt()?;
        let share = u128::from(self.context_length) * u128::from(REQUIRED_PERCENT);
        let share = u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX);
        Some(share.min(room))
    }

    /// Returns true if the next compaction has to wait because the last one was only a few requests
    /// ago. Never true if the prompt does not fit the window.
    pub fn rests(&self) -> bool {
        let since = self.requests_since_compaction;
        self.compactions > 0 && (1..=REST).contains(&since) && self.fits()
    }

    /// Decides whether a due compaction that would leave a prompt of `after` tokens is made now.
    /// The answer is yes if the last compaction is long enough ago, and either the window requires
    /// this one or it pays. It is always yes if the prompt does not fit the window.
    ///
    /// ```
    /// use contexture_engine_api::WindowState;
    ///
    /// let window = WindowState::default().context_length(100_000).prompt_tokens(60_000);
    /// assert!(window.may_compact(20_000).is_yes());
    /// let again = window.compactions(1).requests_since_compaction(3);
    /// assert!(!again.may_compact(20_000).is_yes());
    /// assert!(again.prompt_tokens(100_001).may_compact(20_000).is_yes());
    /// ```
    pub fn may_compact(&self, after: u64) -> Decision {
        if self.rests() {
            return Decision::No(format!(
                "the last compaction was {} request{} ago; the next one waits for more than {REST}, as long as the \
                 prompt fits the window",
                self.requests_since_compaction,
                match self.requests_since_compaction {
                    1 => "",
                    _ => "s",
                }
            ));
        }
        if self.requires_compaction() {
            return Decision::Yes("the window requires it".to_owned());
        }
        if self.timed_by_price {
            return self.pays(after);
        }
        if self.never_at_a_loss {
            return self.pays_surely(after);
        }
        Decision::Yes("it is due".to_owned())
    }

    /// Returns true if the prompt has reached the given share of the size at which the next
    /// compaction will be made, assuming that it leaves `after` tokens. That size is `trigger`. If
    /// a compaction does not pay yet at that size, it is the size at which the window requires one.
    /// From this share on, it is worth preparing the compaction.
    pub fn is_near(&self, trigger: u64, after: u64, share: f64) -> bool {
        let prompt = self.best_prompt_tokens();
        let reached = |size: u64| prompt as f64 >= size as f64 * share;
        let mut due = self.clone();
        // Neither a report of an older, smaller prompt nor the pause after the last compaction
        // counts for a prompt that is still to come.
        due.prompt_tokens = prompt.max(trigger);
        due.reported_tokens = None;
        due.compactions = 0;
        reached(trigger)
            && (due.may_compact(after).is_yes() || self.required_from().is_none_or(reached))
    }

    /// Returns a phrase for people that says how long a postponed compaction waits at most.
    pub fn until_required(&self) -> String {
        match self.required_from() {
            Some(from) => format!(
                "it waits, at the longest until the window requires it, from {} tokens on",
                grouped(from)
            ),
            None => "it waits".to_owned(),
        }
    }

    /// Decides whether a compaction that leaves a prompt of `after` tokens pays now. The answer is
    /// a guess: it assumes that the conversation goes on for as many requests as it has had since
    /// the last compaction. Without [`cache_prices`](Self::cache_prices) a compaction always pays
    /// if it saves anything, because a smaller prompt is then a cheaper prompt.
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
        self.pays_within(after, self.requests_since_compaction.max(1), 0)
    }

    /// Decides whether a compaction that leaves a prompt of `after` tokens certainly pays. It does
    /// if its cost is covered by what earlier compactions have saved, or by the requests that
    /// follow in 49 of 50 cases. As long as the window requires no compaction, a conversation then
    /// costs no more than it would without an engine. A compaction also pays if the cache holds
    /// nothing of this session, or if that is not known.
    ///
    /// ```
    /// use contexture_engine_api::{CachePrices, WindowState};
    ///
    /// let window = WindowState::default()
    ///     .prompt_tokens(60_000)
    ///     .fixed_tokens(20_000)
    ///     .cache_prices(Some(CachePrices::new(10, 125)))
    ///     .cache_ttl_ms(Some(300_000));
    /// assert!(window.pays_surely(40_000).is_yes());
    /// let warm = window.idle_ms(Some(1_000)).requests(60);
    /// assert!(!warm.clone().pays_surely(40_000).is_yes());
    /// assert!(warm.clone().requests(900).pays_surely(40_000).is_yes());
    /// assert!(warm.saved_by_compactions(50_000).pays_surely(40_000).is_yes());
    /// ```
    pub fn pays_surely(&self, after: u64) -> Decision {
        let is_known = self.requests > 1 && self.cache_is_warm().is_some();
        if !is_known && after < self.best_prompt_tokens() {
            return Decision::Yes("the prompt cache is not known to hold the prompt".to_owned());
        }
        // The expected number of requests rounds down, so a short conversation expects none.
        self.pays_within(after, self.requests / SURE, self.saved_by_compactions)
    }

    fn pays_within(&self, after: u64, expected: u64, saved_before: i64) -> Decision {
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
        let cost = prices.cost(prompt, after, self.fixed_tokens);
        let saved_each = saved * u64::from(prices.read_percent) / 100;
        let earlier = match u64::try_from(saved_before) {
            Ok(0) | Err(_) => String::new(),
            Ok(earlier) => format!("; those before it saved {}", grouped(earlier)),
        };
        let reason = format!(
            "in tokens of plain input, a compaction costs {} now and saves {} in each of some {} requests to come{earlier}",
            grouped(cost),
            grouped(saved_each),
            grouped(expected)
        );
        let gained = i128::from(saved_each) * i128::from(expected) + i128::from(saved_before);
        match gained >= i128::from(cost) {
            true => Decision::Yes(reason),
            false => Decision::No(match self.timed_by_price {
                true => reason,
                false => format!("{reason}; {}", self.until_required()),
            }),
        }
    }
}
