//! The costs of prompts in US dollars.
//!
//! Providers charge different prices for plain input, for tokens that are read from the prompt
//! cache and for tokens that are written to it. A write that is kept for an hour costs more than
//! one for five minutes. [`Prices`] holds these four prices and applies them to counted
//! [`Prompts`].
//!
//! Read [`Prices::given`] first if the user names prices, or [`Prices::of_model`] to look them up.
//! [`Prices::cost`] is the total, and [`Prices::shares`] splits it by what the tokens were. The
//! price of answers is not included: an engine does not change them. [`ListPrice`] has it for those
//! who count what was spent.

use contexture_formats::prompt_cache::{Ttl, prices as cache_prices};
use contexture_formats::tokens::claude;
use serde::Serialize;

use super::figures::{CompactionCost, Prompts, Spent};

/// The price of a write for an hour, as a multiple of the price of one for five minutes.
const LONG: f64 = 2.0 / 1.25;

/// The day on which the list prices were compared with those that the providers publish, as
/// LiteLLM 1.110.2 lists them. Providers change prices, so whoever shows a cost shows this day.
pub const PRICES_AS_OF: &str = "2026-11-27";

/// The list prices of one model, in US dollars per million tokens. Surcharges for very long prompts
/// and discounts for batches are not included.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ListPrice {
    /// The price of a prompt token that is neither read from the cache nor written to it.
    pub input: f64,
    /// The price of a prompt token that is read from the cache.
    pub cached: f64,
    /// The price of a prompt token that is written to the cache, for Claude for five minutes. Equal
    /// to `input` if the provider charges nothing for writes.
    pub write: f64,
    /// The price of a token of the answer, including reasoning.
    pub output: f64,
}

/// The list prices of OpenAI's models (platform.openai.com, "Pricing"): input, cached input, cache
/// write and output. The names are whole, without a date, and with a hyphen for each dot.
#[rustfmt::skip]
const OPENAI: &[(&str, [f64; 4])] = &[
    ("gpt-3-5-turbo",      [0.5, 0.5, 0.5, 1.5]),
    ("gpt-4",              [30.0, 30.0, 30.0, 60.0]),
    ("gpt-4-turbo",        [10.0, 10.0, 10.0, 30.0]),
    ("gpt-4-1",            [2.0, 0.5, 2.0, 8.0]),
    ("gpt-4-1-mini",       [0.4, 0.1, 0.4, 1.6]),
    ("gpt-4-1-nano",       [0.1, 0.025, 0.1, 0.4]),
    ("gpt-4o",             [2.5, 1.25, 2.5, 10.0]),
    ("gpt-4o-mini",        [0.15, 0.075, 0.15, 0.6]),
    ("gpt-5",              [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-chat",         [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-codex",        [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-mini",         [0.25, 0.025, 0.25, 2.0]),
    ("gpt-5-nano",         [0.05, 0.005, 0.05, 0.4]),
    ("gpt-5-pro",          [15.0, 15.0, 15.0, 120.0]),
    ("gpt-5-1",            [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-1-chat",       [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-1-codex",      [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-1-codex-max",  [1.25, 0.125, 1.25, 10.0]),
    ("gpt-5-1-codex-mini", [0.25, 0.025, 0.25, 2.0]),
    ("gpt-5-2",            [1.75, 0.175, 1.75, 14.0]),
    ("gpt-5-2-chat",       [1.75, 0.175, 1.75, 14.0]),
    ("gpt-5-2-codex",      [1.75, 0.175, 1.75, 14.0]),
    ("gpt-5-2-pro",        [21.0, 21.0, 21.0, 168.0]),
    ("gpt-5-3-chat",       [1.75, 0.175, 1.75, 14.0]),
    ("gpt-5-3-codex",      [1.75, 0.175, 1.75, 14.0]),
    ("gpt-5-4",            [2.5, 0.25, 2.5, 15.0]),
    ("gpt-5-4-mini",       [0.75, 0.075, 0.75, 4.5]),
    ("gpt-5-4-nano",       [0.2, 0.02, 0.2, 1.25]),
    ("gpt-5-4-pro",        [30.0, 30.0, 30.0, 180.0]),
    ("gpt-5-5",            [5.0, 0.5, 5.0, 30.0]),
    ("gpt-5-5-pro",        [30.0, 30.0, 30.0, 180.0]),
    ("gpt-5-6",            [4.0, 0.4, 5.0, 20.0]),
    ("gpt-5-6-sol",        [4.0, 0.4, 5.0, 20.0]),
    ("gpt-5-6-terra",      [2.0, 0.2, 2.5, 12.0]),
    ("gpt-5-6-luna",       [0.2, 0.02, 0.25, 1.2]),
    ("gpt-6-astra",        [10.0, 1.0, 12.5, 50.0]),
    ("gpt-6-sol",          [2.0, 0.2, 2.5, 10.0]),
    ("gpt-6-luna",         [0.1, 0.01, 0.125, 0.5]),
    ("gpt-6-1-sol",        [2.0, 0.1, 2.5, 10.0]),
    ("gpt-6-1-terra",      [1.0, 0.05, 1.25, 5.0]),
    ("o1",                 [15.0, 7.5, 15.0, 60.0]),
    ("o1-pro",             [150.0, 150.0, 150.0, 600.0]),
    ("o3",                 [2.0, 0.5, 2.0, 8.0]),
    ("o3-mini",            [1.1, 0.55, 1.1, 4.4]),
    ("o3-pro",             [20.0, 20.0, 20.0, 80.0]),
    ("o4-mini",            [1.1, 0.275, 1.1, 4.4]),
];

/// The list prices of Google's models (ai.google.dev, "Pricing"): input up to 200,000 tokens, input
/// from the implicit cache, and output. Nothing is charged for writes to that cache.
#[rustfmt::skip]
const GOOGLE: &[(&str, [f64; 3])] = &[
    ("gemini-2-5-flash",                   [0.3, 0.03, 2.5]),
    ("gemini-2-5-flash-lite",              [0.1, 0.01, 0.4]),
    ("gemini-2-5-pro",                     [1.25, 0.125, 10.0]),
    ("gemini-3-flash-preview",             [0.5, 0.05, 3.0]),
    ("gemini-3-1-flash-lite",              [0.25, 0.025, 1.5]),
    ("gemini-3-1-pro-preview",             [2.0, 0.2, 12.0]),
    ("gemini-3-1-pro-preview-customtools", [2.0, 0.2, 12.0]),
    ("gemini-3-5-flash",                   [1.5, 0.15, 9.0]),
    ("gemini-3-5-flash-lite",              [0.3, 0.03, 2.5]),
    ("gemini-3-6-flash",                   [0.75, 0.075, 3.75]),
    ("gemini-3-7-flash",                   [0.75, 0.075, 3.75]),
    ("gemini-3-8-flash",                   [0.75, 0.075, 3.75]),
    ("gemini-4-argon",                     [2.0, 0.1, 10.0]),
    ("gemini-4-hydrogen",                  [1.5, 0.075, 7.5]),
];

impl ListPrice {
    /// Returns the list prices of a model by Anthropic, OpenAI or Google, in any provider's spelling.
    /// Returns `None` for every other model, and for a version that the table does not have:
    /// a new version is not known to cost as much as the one before it.
    pub fn of_model(model: &str) -> Option<Self> {
        Self::of_claude(model).or_else(|| {
            let name = plain_name(model);
            let openai = OPENAI.iter().find(|(known, _)| *known == name);
            let google = GOOGLE.iter().find(|(known, _)| *known == name);
            let openai = openai.map(|(_, prices)| *prices);
            let google =
                google.map(|(_, [input, cached, output])| [*input, *cached, *input, *output]);
            let [input, cached, write, output] = openai.or(google)?;
            Some(Self {
                input,
                cached,
                write,
                output,
            })
        })
    }

    /// The list prices of Claude models (platform.claude.com, "Pricing"). A write for five minutes
    /// costs a quarter more than plain input, and an answer five times as much.
    fn of_claude(model: &str) -> Option<Self> {
        let (input, cached) = match claude(model)? {
            ("opus", (5, 5)) => (4.0, 0.2),
            ("opus", (4, 5..=8) | (5, 0)) => (5.0, 0.5),
            ("opus", (3, 0) | (4, 0 | 1)) => (15.0, 1.5),
            ("sonnet", (5, 5)) => (2.0, 0.1),
            ("sonnet", (5, 0)) => (2.0, 0.2),
            ("sonnet", (3, 5 | 7) | (4, 0 | 5 | 6)) => (3.0, 0.3),
            ("haiku", (3, 5)) => (0.8, 0.08),
            ("haiku", (4, 5)) => (1.0, 0.1),
            ("haiku", (5, 5)) => (0.1, 0.01),
            _ => return None,
        };
        Some(Self {
            input,
            cached,
            write: input * 1.25,
            output: input * 5.0,
        })
    }

    /// Returns the prices of prompts. A write for an hour costs twice as much as plain input if the
    /// provider charges for writes, as Anthropic does. `ttl` is the lifetime of ordinary writes.
    pub fn prompts(&self, ttl: Ttl) -> Prices {
        let write_long = match self.write > self.input {
            true => self.write * LONG,
            false => self.write,
        };
        Prices {
            input: self.input,
            cached: self.cached,
            write: match ttl {
                Ttl::FiveMinutes => self.write,
                Ttl::OneHour => write_long,
            },
            write_long,
        }
    }
}

/// A model's name as the table has it: without provider, variant and date, in lower case, with
/// hyphens for dots. `openai/GPT-5.4-2026-03-05:free` becomes `gpt-5-4`.
fn plain_name(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or_default();
    let name = name.split([':', '@', '[']).next().unwrap_or_default();
    let name = name.trim().to_ascii_lowercase().replace(['.', '_'], "-");
    let mut words: Vec<&str> = name.split('-').collect();
    if words.last() == Some(&"latest") {
        words.pop();
    }
    let is_number = |word: &&str, digits| {
        word.len() == digits && word.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let [.., year, month, day] = words.as_slice()
        && is_number(year, 4)
        && is_number(month, 2)
        && is_number(day, 2)
    {
        words.truncate(words.len() - 3);
    }
    words.join("-")
}

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
#[error("{0} is not a price: give US dollars per million tokens, 0 or more, such as 3 or 0.30")]
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

    /// Returns the list prices of a model's prompts, see [`ListPrice::of_model`]. Returns `None` if
    /// they are not known. `ttl` is the lifetime of ordinary writes.
    pub fn of_model(model: &str, ttl: Ttl) -> Option<Self> {
        ListPrice::of_model(model).map(|price| price.prompts(ttl))
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
mod tests;
