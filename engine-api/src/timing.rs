//! When a due compaction is made, and how small it has to make the prompt.
//!
//! A compaction does not save money by itself. While the provider's cache is warm, the unchanged prompt costs a tenth
//! of its price, and everything that a compaction leaves behind its cut has to be written to the cache again. Each
//! later request is then cheaper by the tokens that were removed. Three rules, the same for every engine, keep
//! compactions from costing more than they save:
//!
//! 1. A compaction leaves a quarter of its trigger free ([`roomy`]), or it waits until the window requires it
//!    ([`WindowState::requires_compaction`]).
//! 2. Two compactions are more than five requests apart, as long as the prompt fits the window.
//! 3. It pays, at the provider's prices ([`WindowState::pays`], [`WindowState::pays_surely`]).
//!
//! [`WindowState::may_compact`] applies the last two. Nobody knows how many requests will follow. Without further
//! knowledge, a conversation that has had `n` requests will have `n` more with a probability of one half, and `n / 49`
//! more with a probability of 98 %.

use crate::{Decision, WindowState, grouped};

/// The share of its trigger that a compaction may leave filled.
const ROOMY: f64 = 0.75;
/// The number of requests that have to pass between two compactions, as long as the prompt fits the window.
const REST: u64 = 5;
/// How full the window has to be, in percent, before it requires a compaction. Session hygiene fires at the same share.
const REQUIRED_PERCENT: u64 = 85;
/// In 49 cases of 50, a conversation of `n` requests has at least another `n / SURE` ahead of it.
const SURE: u64 = 49;

/// How many tokens a compaction that is due at `trigger` tokens may leave at most, in the same unit as `trigger`.
///
/// ```
/// assert_eq!(contexture_engine_api::roomy(100_000), 75_000);
/// ```
pub fn roomy(trigger: u64) -> u64 {
    (trigger as f64 * ROOMY) as u64
}

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

    /// What a compaction costs while the cache is warm, in tokens of plain input. Everything that it leaves behind the
    /// `fixed` tokens is written to the cache again. Without it, the prompt of `before` tokens would have been read
    /// from the cache.
    pub fn cost(&self, before: u64, after: u64, fixed: u64) -> u64 {
        let (read, write) = (u64::from(self.read_percent), u64::from(self.write_percent));
        let fixed = fixed.min(after);
        let with = (after - fixed) * write + fixed * read;
        with.saturating_sub(before * read) / 100
    }
}

impl WindowState {
    /// Whether the window itself requires a compaction, whatever it costs: it is 85 % full, or the prompt and the
    /// reserved answer do not fit. Never true if the window is not known.
    pub fn requires_compaction(&self) -> bool {
        self.required_from()
            .is_some_and(|from| self.best_prompt_tokens() >= from)
    }

    /// The number of tokens at which the window starts to require a compaction, or `None` if the window is not known.
    pub fn required_from(&self) -> Option<u64> {
        if self.context_length == 0 {
            return None;
        }
        let share = u128::from(self.context_length) * u128::from(REQUIRED_PERCENT);
        let share = u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX);
        Some(match self.usable_tokens() {
            // An answer as large as the window is a wrong setting, not a reason to compact every turn.
            0 => share,
            usable => share.min(usable),
        })
    }

    /// Whether the prompt and the reserved answer fit the window. True if the window is not known.
    pub fn fits(&self) -> bool {
        let room = match self.usable_tokens() {
            0 => self.context_length,
            usable => usable,
        };
        self.context_length == 0 || self.best_prompt_tokens() <= room
    }

    /// Whether the next compaction has to wait because the last one was only a few requests ago. Never true if the
    /// prompt does not fit.
    pub fn rests(&self) -> bool {
        let since = self.requests_since_compaction;
        self.compactions > 0 && (1..=REST).contains(&since) && self.fits()
    }

    /// Whether a due compaction that would leave a prompt of `after` tokens is made now. It is made if the last one is
    /// long enough ago and either the window requires this one or it pays. If the prompt does not fit, it is always
    /// made.
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

    /// Whether the prompt has reached this share of the size at which the next compaction, leaving `after` tokens, will
    /// be made. That size is `trigger`, or the size at which the window requires a compaction if one does not pay yet.
    /// From this share on, preparing the compaction is worthwhile.
    pub fn is_near(&self, trigger: u64, after: u64, share: f64) -> bool {
        let prompt = self.best_prompt_tokens();
        let reached = |size: u64| prompt as f64 >= size as f64 * share;
        let mut due = self.clone();
        due.prompt_tokens = prompt.max(trigger);
        due.reported_tokens = None;
        due.compactions = 0;
        reached(trigger)
            && (due.may_compact(after).is_yes() || self.required_from().is_none_or(reached))
    }

    /// Says how long a compaction waits that is not made now.
    pub fn until_required(&self) -> String {
        match self.required_from() {
            Some(from) => format!(
                "it waits, at the longest until the window requires it, from {} tokens on",
                grouped(from)
            ),
            None => "it waits".to_owned(),
        }
    }

    /// Whether a compaction that leaves a prompt of `after` tokens pays now. This is a guess: it assumes that the
    /// conversation goes on for as many requests as it has had since the last compaction. Without
    /// [`cache_prices`](Self::cache_prices) a compaction always pays, because a smaller prompt is then a cheaper one.
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

    /// Whether a compaction that leaves a prompt of `after` tokens is sure to pay. It is if its cost is covered by what
    /// earlier compactions have saved, or by the requests that follow in 49 cases of 50. So a conversation whose window
    /// requires no compaction costs no more than it would without an engine. A compaction also pays if the cache holds
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
