//! Points in time as session logs write them: ISO 8601, to milliseconds since the Unix epoch and back.

/// The milliseconds since the Unix epoch of `2026-01-06T09:15:59.915Z` and its like; without an offset
/// UTC is meant.
pub(super) fn parse(text: &str) -> Option<i64> {
    let number = |span: std::ops::Range<usize>| -> Option<i64> {
        let digits = text.get(span)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    let separators = [(4, "-"), (7, "-"), (10, "T "), (13, ":"), (16, ":")]
        .into_iter()
        .all(|(at, allowed)| {
            let byte = text.as_bytes().get(at);
            byte.is_some_and(|byte| allowed.as_bytes().contains(byte))
        });
    if !separators {
        return None;
    }
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 24 || minute > 59 {
        return None;
    }
    let rest = text.get(19..)?;
    let (millis, offset) = match rest.strip_prefix('.') {
        None => (0, rest),
        Some(fraction) => {
            let digits = fraction.len()
                - fraction
                    .trim_start_matches(|c: char| c.is_ascii_digit())
                    .len();
            let millis = fraction
                .bytes()
                .take(digits.min(3))
                .fold(0, |sum, byte| sum * 10 + i64::from(byte - b'0'));
            let scale = [0, 100, 10, 1];
            (millis * scale[digits.min(3)], fraction.get(digits..)?)
        }
    };
    let offset_minutes = match offset.as_bytes().first() {
        None | Some(b'Z' | b'z') => 0,
        Some(sign @ (b'+' | b'-')) => {
            let hours: i64 = offset.get(1..3)?.parse().ok()?;
            let minutes: i64 = offset
                .get(3..)?
                .trim_start_matches(':')
                .parse()
                .unwrap_or(0);
            (hours * 60 + minutes) * if *sign == b'+' { 1 } else { -1 }
        }
        Some(_) => return None,
    };
    let seconds = days_before(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
    Some((seconds - offset_minutes * 60) * 1_000 + millis)
}

/// The time as `2026-01-06T09:15:59.915Z`.
pub(super) fn format(ms: i64) -> String {
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // The Gregorian calendar repeats every 146,097 days; years start in March, so that a leap day is last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// The days from 1970-01-01 to this date of the Gregorian calendar.
fn days_before(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let march_month = (month + 9) % 12;
    let day_of_year = (153 * march_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
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
