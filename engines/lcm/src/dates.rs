//! Times as people read and write them.

use std::ops::Range;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// `2026-01-31 23:59`, in UTC, of milliseconds since the Unix epoch.
pub(crate) fn minutes(ms: i64) -> String {
    timestamp(ms).strftime("%Y-%m-%d %H:%M").to_string()
}

/// `2026-01-31T23:59:59Z`, of milliseconds since the Unix epoch.
pub(crate) fn rfc3339(ms: i64) -> String {
    format!("{:.0}", timestamp(ms))
}

/// The date, in UTC, of milliseconds since the Unix epoch.
pub(crate) fn date(ms: i64) -> Date {
    Offset::UTC.to_datetime(timestamp(ms)).date()
}

/// The nearest point in time that has a date of four digits.
fn timestamp(ms: i64) -> Timestamp {
    let (first, last) = (Timestamp::MIN, Timestamp::MAX);
    let ms = ms.clamp(first.as_millisecond(), last.as_millisecond());
    Timestamp::from_millisecond(ms).unwrap_or(last)
}

/// The time that a text names, in milliseconds since the Unix epoch: from its first millisecond to one past
/// its last, so a date is its whole day. The text is ISO 8601 (`2026-01-31`, `2026-01-31T09:30+02:00`; UTC
/// where no offset is given) or seconds since the Unix epoch.
pub(crate) fn parse(text: &str) -> Option<Range<i64>> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        let start = (seconds.abs() < 1e11).then_some((seconds * 1_000.0) as i64)?;
        return Some(start..start + if text.contains('.') { 1 } else { 1_000 });
    }
    // ISO 8601 gives a date no offset, but people write one for the day of their time zone.
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
        // The offset of a named zone is not known.
        None => return None,
    };
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let start = offset.to_timestamp(local).ok()?.as_millisecond();
    Some(start..start + precision_ms(text))
}

/// How long the smallest unit is that a valid ISO 8601 text names, in milliseconds.
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
        // Milliseconds since the epoch are no seconds since the epoch; half a date is no date.
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
