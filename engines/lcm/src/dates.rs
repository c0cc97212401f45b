//! Times as people read and write them.
//!
//! Inside the engine a time is a number of milliseconds since the Unix epoch. This module formats
//! such times for summaries and tools, always in UTC, and parses the times that a model or a user
//! writes as the bounds of a search. [`parse`] returns a range, because a text such as `2026-01-31`
//! names a whole day.

use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// Formats milliseconds since the Unix epoch as `2026-01-31 23:59`, in UTC.
pub(crate) fn minutes(ms: i64) -> String {
    timestamp(ms).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Formats milliseconds since the Unix epoch as `2026-01-31T23:59:59Z`, without the fraction of the
/// second.
pub(crate) fn rfc3339(ms: i64) -> String {
    format!("{:.0}", timestamp(ms))
}

/// Returns the date of a time in UTC. The time is in milliseconds since the Unix epoch.
pub(crate) fn date(ms: i64) -> Date {
    Offset::UTC.to_datetime(timestamp(ms)).date()
}

/// Returns when a date begins in UTC, in milliseconds since the Unix epoch.
pub(crate) fn midnight(date: Date) -> i64 {
    Offset::UTC
        .to_timestamp(date.at(0, 0, 0, 0))
        .unwrap_or(Timestamp::MAX)
        .as_millisecond()
}

/// Converts a time, and clamps it to the nearest one that has a date of four digits. Wrong times in
/// a log must not make formatting fail.
fn timestamp(ms: i64) -> Timestamp {
    let (first, last) = (Timestamp::MIN, Timestamp::MAX);
    let ms = ms.clamp(first.as_millisecond(), last.as_millisecond());
    Timestamp::from_millisecond(ms).unwrap_or(last)
}

/// Parses the time that a text names, as the range from its first millisecond to one past its last.
/// A date is its whole day, and `09:30` is a whole minute.
///
/// The text is ISO 8601, such as `2026-01-31` or `2026-01-31T09:30+02:00`, or a number of seconds
/// since the Unix epoch. A text without an offset is in UTC. Returns None if the text is anything
/// else.
pub(crate) fn parse(text: &str) -> Option<Range<i64>> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        // A larger number is most likely a time in milliseconds. Reading it as seconds would give a
        // date thousands of years away.
        let start = (seconds.abs() < 1e11).then_some((seconds * 1_000.0) as i64)?;
        return Some(start..start + if text.contains('.') { 1 } else { 1_000 });
    }
    // ISO 8601 gives a date no offset, but people write one to mean the day of their time zone.
    let with_time = match text.split_at_checked("2026-01-31".len()) {
        Some((date, offset)) if offset.starts_with(['Z', 'z', '+', '-']) => {
            format!("{date}T00:00{offset}")
        }
        _ => text.to_owned(),
    };
    let pieces = Pieces::parse(&with_time).ok()?;
    let offset = match pieces.to_numeric_offset() {
        Some(offset) => offset,
        None if pieces.time_zone_annotation().is_none() => Offset::UTC,
        // The text has only the name of a zone. Its offset would need a time zone database.
        None => return None,
    };
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let start = offset.to_timestamp(local).ok()?.as_millisecond();
    Some(start..start + precision_ms(text))
}

/// Returns the length of the smallest unit that a valid ISO 8601 text names, in milliseconds. A
/// text without a time has a whole day.
fn precision_ms(text: &str) -> i64 {
    let Some((_, time)) = text.split_once(['T', 't', ' ']) else {
        return 86_400_000;
    };
    let time = time.split(['Z', 'z', '+', '-', '[']).next().unwrap_or("");
    if time.contains(['.', ',']) {
        return 1;
    }
    match time.bytes().filter(u8::is_ascii_digit).count() {
        0..=2 => 3_600_000,
        3..=4 => 60_000,
        _ => 1_000,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(minutes(0), "1970-01-01 00:00");
        assert_eq!(rfc3339(951_782_399_000), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(-1_000), "1969-12-31T23:59:59Z");
        assert_eq!(parse("2026-02-29"), None);
        assert_eq!(parse("2026-01-01T25:00"), None);
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn a_time_is_as_long_as_it_is_said() {
        let new_year = 1_767_225_600_000;
        for (text, start, length) in [
            ("2026-01-01", 0, 86_400_000),
            (" 2026-01-01Z ", 0, 86_400_000),
            ("2026-01-01+02:00", -7_200_000, 86_400_000),
            ("2026-01-01T00", 0, 3_600_000),
            ("2026-01-01T00:00", 0, 60_000),
            ("2026-01-01 00:01", 60_000, 60_000),
            ("2026-01-01T02:00+02:00", 0, 60_000),
            ("2025-12-31T18:30:00-0530", 0, 1_000),
            ("2025-12-31T22:00:07.5-02", 7_500, 1),
            ("2026-01-01t00:00:01z", 1_000, 1_000),
            ("1767225600", 0, 1_000),
            ("1767225600.25", 250, 1),
        ] {
            let start = new_year + start;
            assert_eq!(parse(text), Some(start..start + length), "{text}");
        }
        // A number of milliseconds is too large for seconds, and half a date is not a date.
        for text in [
            "1767225600000",
            "2026-01",
            "2026-01-01T",
            "2026-01-01T10:00+30",
            "2026-01-01+30",
            "2026-01-01T10:00[Europe/Paris]",
            "é026-01-011",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(seconds in -60_000_000_000_i64..60_000_000_000) {
            prop_assert_eq!(parse(&rfc3339(seconds * 1_000)), Some(seconds * 1_000..seconds * 1_000 + 1_000));
        }
    }
}
