//! Converts points in time between the forms in session logs and milliseconds since the Unix
//! epoch.
//!
//! Logs write times as ISO 8601 text or as numbers in different units. [`parse`] reads the text
//! form and [`number`] the numeric one, whose unit follows from its size. [`format()`] writes
//! the text form for the logs that this crate writes.
//!
//! A time that cannot be read is `None` rather than an error, because a conversation is useful
//! without times.

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// Parses a time such as `2026-01-06T09:15:59.915Z` to milliseconds since the Unix epoch. If
/// the offset is missing, it is UTC, and if the time is missing, it is midnight. A text that is
/// a number is treated as in [`number`]. `None` if the text is not a time.
pub(super) fn parse(text: &str) -> Option<i64> {
    let is_number = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    if text.len() >= LEAST_DIGITS && text.bytes().all(is_number) {
        return number(text.parse().ok()?);
    }
    let pieces = Pieces::parse(text).ok()?;
    let local = pieces.date().to_datetime(pieces.time().unwrap_or_default());
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    Some(offset.to_timestamp(local).ok()?.as_millisecond())
}

/// The minimum length of a text that is read as a number. A shorter one may be a year.
const LEAST_DIGITS: usize = 9;

/// Converts a number to milliseconds since the Unix epoch. Its size tells whether the unit is
/// seconds, milliseconds, microseconds or nanoseconds. `None` if the result is more than about
/// 3,000 years from 1970.
pub(super) fn number(number: f64) -> Option<i64> {
    let size = number.abs();
    let ms = match size {
        _ if size < 1e11 => number * 1e3,
        _ if size < 1e14 => number,
        _ if size < 1e17 => number / 1e3,
        _ => number / 1e6,
    };
    // A larger number is not a point in time but an id or a counter.
    (ms.abs() < 1e14).then_some(ms.round() as i64)
}

/// Formats a time like `2026-01-06T09:15:59.915Z`. If the time is outside the range that can be
/// written, the nearest one is used.
pub(super) fn format(ms: i64) -> String {
    let (first, last) = (Timestamp::MIN, Timestamp::MAX);
    let ms = ms.clamp(first.as_millisecond(), last.as_millisecond());
    format!("{:.3}", Timestamp::from_millisecond(ms).unwrap_or(last))
}

#[cfg(test)]
mod tests;
