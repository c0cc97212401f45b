//! The costs of prompts in US dollars.
//!
//! Providers charge different prices for plain input, for tokens that are read from the prompt
//! cache and for tokens that are written to it. A write that is kept for an hour costs more than
//! one for five minutes. [`Prices`] holds these four prices and applies them to counted
//! [`Prompts`].
//!
//! Read [`Prices::given`] first if the user names prices, or [`Prices::of_model`] to look them up.
//! [`Prices::cost`] is the total, and [`Prices::shares`] splits it by what the tokens were. The
//! price of answers is not included: an engine does not change them.

use contexture_formats::prompt_cache::{Ttl, prices as cache_prices};
use contexture_formats::tokens::claude;
use serde::Serialize;

use super::figures::{CompactionCost, Prompts, Spent};

/// The price of a write for an hour, as a multiple of the price of one for five minutes.
const LONG: f64 = 2.0 / 1.25;

/// The prices of prompt tokens, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prices {
    /// The price of a token that is neither read from the cache nor written to it, as in prompts
    /// too short to be cached.
    pub input: f64,
    /// The price of a token that is read from the cache. It is usually a tenth of the input price.
    pub cached: f64,
    /// The price of a token that is written to the cache with the configured lifetime.
    pub write: f64,
    /// The price of a token that is written for an hour. It applies only if the session chooses the
    /// cache's lifetime.
    pub write_long: f64,
}

/// A price that is negative or not finite, such as one with a sign by mistake.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{0} is not a price: give US dollars for a million tokens, 0 or more, such as 3 or 0.30")]
pub struct PriceError(pub f64);

impl Prices {
    /// Returns the list prices of Anthropic's Sonnet models (platform.claude.com, "Pricing"). A
    /// write for five minutes costs 1.25 times as much as plain input, and a write for an hour
    /// twice as much. `ttl` is the lifetime of ordinary writes.
    pub fn sonnet(ttl: Ttl) -> Self {
        Self {
            input: 3.0,
            cached: 0.3,
            write: match ttl {
                Ttl::FiveMinutes => 3.75,
                Ttl::OneHour => 6.0,
            },
            write_long: 6.0,
        }
    }

    /// Returns the list prices of a Claude model (platform.claude.com, "Pricing"). Returns `None`
    /// if the model is not from Anthropic or its prices are not known.
    pub fn of_model(model: &str, ttl: Ttl) -> Option<Self> {
        let input = match claude(model)? {
            ("opus", (4, 5..=8)) => 5.0,
            ("opus", (3, 0) | (4, 0 | 1)) => 15.0,
            ("sonnet", (3, 5 | 7) | (4, 0 | 5 | 6)) => 3.0,
            ("haiku", (3, 5)) => 0.8,
            ("haiku", (4, 5)) => 1.0,
            _ => return None,
        };
        let write_long = input * 2.0;
        Some(Self {
            input,
            cached: input / 10.0,
            write: match ttl {
                Ttl::FiveMinutes => input * 1.25,
                Ttl::OneHour => write_long,
            },
            write_long,
        })
    }

    /// Returns the prices that fit a model best. They are its list prices if they are known.
    /// Otherwise plain input costs as much as with a Sonnet model, and the prompt cache costs the
    /// share of it that the model's provider charges.
    pub fn fitting(model: &str, ttl: Ttl) -> Self {
        Self::of_model(model, ttl).unwrap_or_else(|| {
            let input = Self::sonnet(ttl).input;
            let percent = |percent: u32| input * f64::from(percent) / 100.0;
            let write = |ttl| percent(cache_prices(model, ttl).write_percent);
            Self {
                input,
                cached: percent(cache_prices(model, ttl).read_percent),
                write: write(ttl),
                write_long: write(Ttl::OneHour),
            }
        })
    }

    /// Returns the prices that a user gives. If none is given, they are those of
    /// [`sonnet`](Self::sonnet). Otherwise a missing input price is Sonnet's, a missing price of
    /// cached tokens is a tenth of the input price, and a missing price of writes is the input
    /// price.
    ///
    /// # Errors
    /// Returns [`PriceError`] if a price is negative or not finite.
    pub fn given(
        input: Option<f64>,
        cached: Option<f64>,
        write: Option<f64>,
        ttl: Ttl,
    ) -> Result<Self, PriceError> {
        let sonnet = Self::sonnet(ttl);
        let prices = match (input, cached, write) {
            (None, None, None) => sonnet,
            _ => {
                let input = input.unwrap_or(sonnet.input);
                let write = write.unwrap_or(input);
                Self {
                    input,
                    cached: cached.unwrap_or(input / 10.0),
                    write,
                    write_long: write * LONG,
                }
            }
        };
        match [prices.input, prices.cached, prices.write]
            .into_iter()
            .find(|price| !price.is_finite() || *price < 0.0)
        {
            Some(wrong) => Err(PriceError(wrong)),
            None => Ok(prices),
        }
    }

    /// Returns what these prompts cost, in US dollars. Each token is charged at one price: as read,
    /// as written for either lifetime, or as plain input.
    pub fn cost(&self, prompts: &Prompts) -> f64 {
        // A log may report more cached tokens than it reports in the prompt, so the subtraction
        // saturates.
        let plain = prompts
            .prompt_tokens
            .saturating_sub(prompts.cached_tokens)
            .saturating_sub(prompts.written_tokens);
        let dollars = plain as f64 * self.input
            + prompts.cached_tokens as f64 * self.cached
            + (prompts.written_tokens - prompts.long_written_tokens) as f64 * self.write
            + prompts.long_written_tokens as f64 * self.write_long;
        dollars / 1e6
    }

    /// Returns what the parts of the prompts cost. Returns `None` if the parts are not known, which
    /// is the case if only a log's own usage was counted.
    pub fn shares(&self, prompts: &Prompts) -> Option<Shares> {
        let spent = &prompts.spent;
        let write = self.mean_write(prompts);
        let read = |tokens: u64| tokens as f64 * self.cached / 1e6;
        let written = |tokens: u64| tokens as f64 * write / 1e6;
        (*spent != Spent::default()).then(|| Shares {
            fixed_usd: read(spent.fixed_read_tokens) + written(spent.fixed_written_tokens),
            messages_read_usd: read(spent.messages_read_tokens),
            new_usd: written(spent.new_written_tokens),
            after_pauses_usd: written(spent.after_pauses_tokens),
            rewritten_usd: written(spent.rewritten_tokens),
        })
    }

    /// Fills in what a compaction cost and what it saved until the next one, in US dollars. A write
    /// is charged at the mean price over these prompts.
    pub(super) fn balanced(&self, prompts: &Prompts, cost: CompactionCost) -> CompactionCost {
        let write = self.mean_write(prompts) / 1e6;
        let read = self.cached / 1e6;
        CompactionCost {
            cost_usd: cost.rewritten_tokens as f64 * write,
            saved_usd: cost.reads_saved_tokens as f64 * read
                + cost.writes_saved_tokens as f64 * write,
            ..cost
        }
    }

    /// Returns the mean price of a write over these prompts, in US dollars per million tokens. It
    /// lies between the two write prices if the session chose the lifetime.
    fn mean_write(&self, prompts: &Prompts) -> f64 {
        // At least 1, because a conversation may write nothing to the cache.
        let long = prompts.long_written_tokens as f64 / prompts.written_tokens.max(1) as f64;
        self.write * (1.0 - long) + self.write_long * long
    }
}

/// The parts of a cost, in US dollars. Tokens that are neither read from the prompt cache nor
/// written to it are in none of them, so the sum may be less than the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Shares {
    /// System prompt and tools: written in the first request, then read in each later one.
    pub fixed_usd: f64,
    /// Messages that were read from the cache. Compactions reduce this part, because later prompts
    /// are shorter.
    pub messages_read_usd: f64,
    /// Messages that were written to the cache because they were new.
    pub new_usd: f64,
    /// What was written again after pauses that were longer than the cache's lifetime.
    pub after_pauses_usd: f64,
    /// What was written again because of compactions and rewrites, which change the beginning of
    /// the next prompt.
    pub rewritten_usd: f64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn each_part_has_its_price() {
        let prompts = Prompts {
            prompt_tokens: 6_000_000,
            cached_tokens: 3_000_000,
            written_tokens: 2_000_000,
            ..Prompts::default()
        };
        let prices = Prices::given(Some(10.0), Some(1.0), Some(12.0), Ttl::default()).unwrap();
        assert_eq!(prices.cost(&prompts), 10.0 + 3.0 + 24.0);
        assert_eq!(
            Prices::sonnet(Ttl::FiveMinutes).cost(&prompts),
            3.0 + 0.9 + 7.5
        );
    }

    #[test]
    fn a_model_has_its_own_prices_and_an_unknown_one_none() {
        let input = |model| Prices::of_model(model, Ttl::FiveMinutes).map(|prices| prices.input);
        assert_eq!(input("claude-opus-4-5-20251101"), Some(5.0));
        assert_eq!(input("anthropic/claude-opus-4.1"), Some(15.0));
        assert_eq!(input("claude-haiku-4-5"), Some(1.0));
        for unknown in ["claude-opus-6", "claude-latest", "gpt-5", ""] {
            assert_eq!(input(unknown), None, "{unknown}");
        }
        for ttl in [Ttl::FiveMinutes, Ttl::OneHour] {
            let sonnet = Prices::of_model("claude-sonnet-4-5", ttl);
            assert_eq!(sonnet, Some(Prices::sonnet(ttl)));
        }
    }

    #[test]
    fn an_unknown_model_pays_what_its_provider_charges_for_the_cache() {
        let fitting = |model| Prices::fitting(model, Ttl::FiveMinutes);
        let sonnet = Prices::sonnet(Ttl::FiveMinutes);
        assert_eq!(fitting("claude-latest"), sonnet);
        assert_eq!(fitting("claude-opus-4-5").input, 5.0);
        let other = fitting("gpt-5");
        assert_eq!(
            (other.input, other.cached, other.write, other.write_long),
            (3.0, 0.3, 3.0, 3.0)
        );
    }

    #[test]
    fn what_is_not_given_follows_from_what_is() {
        let given = |input, cached, write, ttl| Prices::given(input, cached, write, ttl).unwrap();
        let ttl = Ttl::FiveMinutes;
        assert_eq!(given(None, None, None, ttl), Prices::sonnet(ttl));
        assert_eq!(given(None, None, None, Ttl::OneHour).write, 6.0);
        let own = given(Some(5.0), None, None, ttl);
        assert_eq!((own.input, own.cached, own.write), (5.0, 0.5, 5.0));
        let own = given(None, Some(0.0), Some(7.0), ttl);
        assert_eq!((own.input, own.cached, own.write), (3.0, 0.0, 7.0));
    }

    #[test]
    fn a_price_below_nothing_is_refused() {
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Prices::given(None, None, Some(wrong), Ttl::default()).is_err());
        }
    }
}
