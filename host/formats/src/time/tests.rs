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
    assert_eq!(parse("2026-01-06"), Some(1_767_657_600_000));
    for unit in [
        "1767690959.915",
        "1767690959915",
        "1767690959915000",
        "1767690959915000000",
    ] {
        assert_eq!(parse(unit), Some(1_767_690_959_915), "{unit}");
        let number = number(unit.parse().unwrap());
        assert_eq!(number, Some(1_767_690_959_915), "{unit}");
    }
    assert_eq!(number(f64::INFINITY), None);
    for text in [
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026",
        "2026-02-31",
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
