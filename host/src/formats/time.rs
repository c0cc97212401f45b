//! Points in time as session logs write them: ISO 8601, to milliseconds since the Unix epoch and back.

use jiff::Timestamp;
use jiff::fmt::temporal::Pieces;
use jiff::tz::Offset;

/// The milliseconds since the Unix epoch of `2026-01-06T09:15:59.915Z` and its like; UTC where no offset
/// is given.
pub(super) fn parse(text: &str) -> Option<i64> {
    let pieces = Pieces::parse(text).ok()?;
    let local = pieces.date().to_datetime(pieces.time()?);
    let offset = pieces.to_numeric_offset().unwrap_or(Offset::UTC);
    Some(offset.to_timestamp(local).ok()?.as_millisecond())
}

/// The time as `2026-01-06T09:15:59.915Z`; the nearest one that can be written, beyond the year 9999.
pub(super) fn format(ms: i64) -> String {
    let (first, last) = (Timestamp::MIN, Timestamp::MAX);
    let ms = ms.clamp(first.as_millisecond(), last.as_millisecond());
    format!("{:.3}", Timestamp::from_millisecond(ms).unwrap_or(last))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_what_logs_write() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(parse("2026-01-06T09:15:59.915Z"), Some(1_767_690_959_915));
        assert_eq!(
            parse("2026-01-06T10:15:59.9+01:00"),
            Some(1_767_690_959_900)
        );
        assert_eq!(parse("2025-01-01T00:01:00.000000"), Some(1_735_689_660_000));
        assert_eq!(parse("2000-02-29 12:00:00"), Some(951_825_600_000));
        for text in [
            "",
            "yesterday",
            "2026-13-01T00:00:00Z",
            "2026-01-06",
            "2026-02-31T00:00:00Z",
            "2026-01-06T24:30:00Z",
            "2026-01-0éT00:00:00Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(ms in -60_000_000_000_000i64..250_000_000_000_000) {
            prop_assert_eq!(parse(&format(ms)), Some(ms));
        }

        #[test]
        fn nothing_panics(text in any::<String>()) {
            let _ = parse(&text);
        }
    }
}
