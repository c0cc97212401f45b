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
mod tests;
