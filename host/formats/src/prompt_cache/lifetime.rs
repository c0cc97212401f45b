//! How long the provider is to keep the prompt, chosen by what would have been cheaper so far.

use serde::{Deserialize, Serialize};

use super::{Ttl, prices};

/// `prompt_caching.cache_ttl`: how long the provider keeps what is marked.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub enum CacheTtl {
    /// Five minutes, renewed at each use.
    #[default]
    #[serde(rename = "5m")]
    FiveMinutes,
    /// One hour; writing costs more.
    #[serde(rename = "1h")]
    OneHour,
    /// Whichever would have been cheaper for the pauses so far. It changes only where the provider has forgotten the
    /// prompt, so that all of it is written in any case.
    #[serde(rename = "auto")]
    Auto,
}

impl CacheTtl {
    /// The lifetime before any pause is known.
    pub fn at_first(self) -> Ttl {
        match self {
            Self::FiveMinutes | Self::Auto => Ttl::FiveMinutes,
            Self::OneHour => Ttl::OneHour,
        }
    }
}

impl std::fmt::Display for CacheTtl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            _ => self.at_first().fmt(f),
        }
    }
}

/// What a lifetime of an hour would have cost more than one of five minutes, and saved. In hundredths of tokens of
/// plain input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pauses {
    more: u64,
    saved: u64,
}

impl Pauses {
    /// A request of `prompt` tokens, `new` of which stood in none before it, after a pause of `idle_ms`.
    pub fn of(model: &str, idle_ms: u64, prompt: u64, new: u64) -> Self {
        let mut pause = Self::default();
        let (short, long) = (prices(model, Ttl::FiveMinutes), prices(model, Ttl::OneHour));
        let dearer = u64::from(long.write_percent - short.write_percent);
        let written = match idle_ms {
            idle if idle < Ttl::FiveMinutes.ms() => new,
            idle if idle < Ttl::OneHour.ms() => {
                let again = prompt.saturating_sub(new);
                pause.saved = again * u64::from(short.write_percent - short.read_percent);
                new
            }
            _ => prompt,
        };
        pause.more = written * dearer;
        pause
    }

    /// As it was [stored](Self::to_store).
    pub fn stored(more: i64, saved: i64) -> Self {
        Self {
            more: more.cast_unsigned(),
            saved: saved.cast_unsigned(),
        }
    }

    /// What it would have cost more, and saved.
    pub fn to_store(self) -> (i64, i64) {
        (self.more.cast_signed(), self.saved.cast_signed())
    }

    /// Adds the costs and savings of other pauses.
    pub fn add(&mut self, other: Self) {
        self.more += other.more;
        self.saved += other.saved;
    }

    /// What would have been cheaper.
    pub fn cheaper(self) -> Ttl {
        match self.saved > self.more {
            true => Ttl::OneHour,
            false => Ttl::FiveMinutes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn after(pauses: &[u64]) -> Ttl {
        let mut sums = Pauses::default();
        for (at, minutes) in pauses.iter().enumerate() {
            let prompt = 20_000 + at as u64 * 1_000;
            sums.add(Pauses::of(
                "claude-sonnet-4-5",
                minutes * MINUTE,
                prompt,
                1_000,
            ));
        }
        sums.cheaper()
    }

    #[test]
    fn an_hour_pays_where_pauses_outlive_five_minutes_and_not_the_hour() {
        assert_eq!(after(&[]), Ttl::FiveMinutes);
        assert_eq!(after(&[1; 50]), Ttl::FiveMinutes);
        assert_eq!(after(&[1, 1, 20, 1, 1, 1]), Ttl::OneHour);
        assert_eq!(after(&[1, 1, 90, 1, 90, 1]), Ttl::FiveMinutes);
    }

    #[test]
    fn where_an_hour_costs_no_more_it_is_taken_once_it_saves() {
        let pause = Pauses::of("gpt-5", 20 * MINUTE, 20_000, 500);
        assert_eq!(pause.cheaper(), Ttl::OneHour);
    }
}
