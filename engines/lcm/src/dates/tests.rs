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
