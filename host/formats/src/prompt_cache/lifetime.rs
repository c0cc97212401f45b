//! Chooses how long the provider keeps the prompt.
//!
//! A cached prompt expires after five minutes without use, or after an hour if it was written
//! at a higher price. Which is cheaper depends on the pauses between the requests of a session.
//! [`Pauses`] sums up, for the pauses so far, what an hour would have cost in addition and what
//! it would have saved.
//!
//! [`CacheTtl`] is the setting: one of the two lifetimes, or `auto` to follow these sums. The
//! session changes the lifetime only when the provider has already dropped the prompt, because
//! all of it is written again then anyway.

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
    /// One hour, which costs more to write.
    #[serde(rename = "1h")]
    OneHour,
    /// The lifetime that would have been cheaper for the pauses so far.
    #[serde(rename = "auto")]
    Auto,
}

impl CacheTtl {
    /// The lifetime to use before any pause is known.
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

/// What a lifetime of an hour would have cost in addition and what it would have saved,
/// compared with five minutes. Both are in hundredths of a token of plain input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pauses {
    more: u64,
    saved: u64,
}

impl Pauses {
    /// The sums for a single pause of `idle_ms` milliseconds before a request of `prompt`
    /// tokens. `new` is the number of these tokens that the previous request did not have. Only
    /// a pause between the two lifetimes saves anything.
    pub fn of(model: &str, idle_ms: u64, prompt: u64, new: u64) -> Self {
        let mut pause = Self::default();
        let (short, long) = (prices(model, Ttl::FiveMinutes), prices(model, Ttl::OneHour));
        let dearer = u64::from(long.write_percent - short.write_percent);
        let written = match idle_ms {
            idle if idle < Ttl::FiveMinutes.ms() => new,
            idle if idle < Ttl::OneHour.ms() => {
                // With a lifetime of an hour, this part would have been read instead of written
                // again.
                let again = prompt.saturating_sub(new);
                pause.saved = again * u64::from(short.write_percent - short.read_percent);
                new
            }
            // After more than an hour, both lifetimes have expired, so the whole prompt is
            // written again.
            _ => prompt,
        };
        pause.more = written * dearer;
        pause
    }

    /// Restores the sums from the values that [`to_store`](Self::to_store) returned.
    pub fn stored(more: i64, saved: i64) -> Self {
        Self {
            more: more.cast_unsigned(),
            saved: saved.cast_unsigned(),
        }
    }

    /// The additional cost and the savings, as signed integers for a database.
    pub fn to_store(self) -> (i64, i64) {
        (self.more.cast_signed(), self.saved.cast_signed())
    }

    /// Adds the additional cost and the savings of other requests.
    pub fn add(&mut self, other: Self) {
        self.more += other.more;
        self.saved += other.saved;
    }

    /// The lifetime that would have been cheaper. Without any pause it is five minutes.
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
