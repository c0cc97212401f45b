//! The period that a question names.
//!
//! A question such as "what did I buy in May 2024" is most likely answered by a message from that
//! time or shortly after. [`Period::of`] finds a year, a month or a day among the words, and
//! [`Period::told`] says from which times messages fit. Month names are English.

use std::ops::Range;

use jiff::ToSpan;
use jiff::civil::Date;

use crate::dates::{date, midnight};

const MONTHS: [&str; 12] = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
];

/// A date, as far as a question names it. Each part that is None fits any date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Period {
    year: Option<i16>,
    /// The month, counted from 1 for January.
    month: Option<i8>,
    day: Option<i8>,
}

/// The number of days after an event within which people usually first tell of it.
const TOLD_WITHIN_DAYS: i32 = 14;

impl Period {
    /// Returns the period that the folded words of a question name. Returns None if they name
    /// neither a year nor a month, because a day alone is more likely another number.
    pub(super) fn of(words: &[&str]) -> Option<Self> {
        let year = words.iter().find_map(|word| year(word));
        let month = words.iter().enumerate().find_map(|(at, word)| {
            let month = MONTHS.iter().position(|month| month == word)?;
            let beside = |at: Option<usize>| at.and_then(|at| words.get(at).copied()).unwrap_or("");
            let (before, after) = (beside(at.checked_sub(1)), beside(Some(at + 1)));
            let day = day(before).or_else(|| day(after));
            // "May" and "march" are also other words, so they need something else that makes them a
            // date.
            let is_date = !matches!(*word, "may" | "march")
                || matches!(
                    before,
                    "in" | "of" | "last" | "since" | "until" | "by" | "early" | "late"
                )
                || day.is_some()
                || year.is_some();
            is_date.then_some((month as i8 + 1, day))
        });
        if year.is_none() && month.is_none() {
            return None;
        }
        Some(Self {
            year,
            month: month.map(|(month, _)| month),
            day: month.and_then(|(_, day)| day),
        })
    }

    /// Returns when people first tell of an event in that period, within a conversation from the
    /// time `first` to the time `last`. There is a range for each year that fits. Times are in
    /// milliseconds since the Unix epoch, and dates are in UTC.
    pub(super) fn told(self, first: i64, last: i64) -> impl Iterator<Item = Range<i64>> {
        // What happened in December may be told in January.
        let years = date(first).year().saturating_sub(1)..=date(last).year();
        years
            .filter_map(move |year| self.told_of(year))
            .filter(move |told| told.start <= last && first < told.end)
    }

    /// Returns when an event in the part of the period that is in `year` is first told of.
    fn told_of(self, year: i16) -> Option<Range<i64>> {
        if self.year.is_some_and(|named| named != year) {
            return None;
        }
        let first = Date::new(year, self.month.unwrap_or(1), self.day.unwrap_or(1)).ok()?;
        let length = match (self.month, self.day) {
            (None, _) => 1.year(),
            (Some(_), None) => 1.month(),
            (Some(_), Some(_)) => 1.day(),
        };
        let end = first.saturating_add(length);
        let told_until = end.saturating_add(TOLD_WITHIN_DAYS.days());
        Some(midnight(first)..midnight(told_until))
    }
}

fn year(word: &str) -> Option<i16> {
    let year = word.parse().ok()?;
    (word.len() == 4 && (1900..2100).contains(&year)).then_some(year)
}

fn day(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let day = digits.parse().ok()?;
    (1..=31).contains(&day).then_some(day)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dates::parse;

    fn told(question: &str, at: &str) -> Option<bool> {
        let words: Vec<&str> = question.split(' ').collect();
        let at_ms = parse(at).unwrap().start;
        Period::of(&words).map(|period| period.told(at_ms, at_ms).next().is_some())
    }

    #[test]
    fn a_period_is_told_of_in_it_and_soon_after() {
        for (question, at, expected) in [
            ("where was she in july 2022", "2022-07-15", Some(true)),
            ("where was she in july 2022", "2022-08-10", Some(true)),
            ("where was she in july 2022", "2022-09-10", Some(false)),
            ("where was she in july 2022", "2023-07-15", Some(false)),
            ("where was she in december", "2023-01-10", Some(true)),
            ("what happened on 12 may", "2024-05-13", Some(true)),
            ("what happened on 31 april", "2024-04-30", Some(false)),
            ("what happened on may 12th", "2024-05-11", Some(false)),
            ("what did she do in 2021", "2021-03-01", Some(true)),
            ("what may she do", "2021-05-01", None),
            ("when did they march", "2021-03-01", None),
        ] {
            assert_eq!(told(question, at), expected, "{question}, {at}");
        }
    }
}
