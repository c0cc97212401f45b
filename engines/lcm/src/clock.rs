//! Times as people read them.

use std::ops::Range;

/// `2026-01-31 23:59`, in UTC, of milliseconds since the Unix epoch.
pub(crate) fn minutes(ms: i64) -> String {
    let minutes = ms.div_euclid(60_000);
    let (day, minute) = (minutes.div_euclid(1_440), minutes.rem_euclid(1_440));
    let (year, month, day) = civil(day);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}",
        minute / 60,
        minute % 60
    )
}

/// `2026-01-31T23:59:59Z`, of milliseconds since the Unix epoch.
pub(crate) fn rfc3339(ms: i64) -> String {
    let seconds = ms.div_euclid(1_000).rem_euclid(60);
    format!("{}:{seconds:02}Z", minutes(ms).replacen(' ', "T", 1))
}

/// The date of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
pub(crate) fn civil(day: i64) -> (i64, i64, i64) {
    // Years are counted from March, so that the leap day is the last of its year.
    const DAYS_IN_400_YEARS: i64 = 146_097;
    let from_0000_03_01 = day + 719_468;
    let era = from_0000_03_01.div_euclid(DAYS_IN_400_YEARS);
    let of_era = from_0000_03_01.rem_euclid(DAYS_IN_400_YEARS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// Days from 1970-01-01 to a date.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

const DAY_MS: i64 = 86_400_000;

/// Reads a time: `2026-01-31`, with `T23:59`, `:59` and an offset as it likes, in UTC without one; or
/// seconds since the Unix epoch. In milliseconds since the Unix epoch, from the first to the one after the
/// last that is meant: a date is its whole day.
pub(crate) fn parse(text: &str) -> Option<Range<i64>> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        let start = (seconds.abs() < 1e11).then_some((seconds * 1_000.0) as i64)?;
        return Some(start..start + if text.contains('.') { 1 } else { 1_000 });
    }
    let (date, rest) = text.split_at_checked("2026-01-31".len())?;
    let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    if civil(days(year, month, day)) != (year, month, day) {
        return None;
    }
    let (time, offset) = match rest.find(['Z', 'z', '+', '-', '\u{2212}']) {
        Some(at) => (&rest[..at], offset_ms(&rest[at..])?),
        None => (rest, 0),
    };
    let midnight = days(year, month, day) * DAY_MS - offset;
    if time.trim().is_empty() {
        return Some(midnight..midnight + DAY_MS);
    }
    let time = time.trim_start_matches(['T', 't', ' ']).trim_end();
    let mut parts = time.splitn(3, ':');
    let hour: i64 = parts.next()?.parse().ok()?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let (second, length) = match parts.next() {
        None => (0.0, 60_000),
        Some(second) => (
            second.parse().ok()?,
            if second.contains('.') { 1 } else { 1_000 },
        ),
    };
    let in_day =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..61.0).contains(&second);
    let start = midnight + (hour * 60 + minute) * 60_000 + (second * 1_000.0) as i64;
    in_day.then_some(start..start + length)
}

/// The milliseconds that a zone is ahead of UTC: `Z`, `+02:00`, `-0530` or `+2`.
fn offset_ms(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, digits) = match text.strip_prefix('+') {
        Some(digits) => (1, digits),
        None => (-1, text.strip_prefix(['-', '\u{2212}'])?),
    };
    let (hours, minutes) = match digits.split_once(':') {
        Some(parts) => parts,
        None if digits.len() == 4 => digits.split_at_checked(2)?,
        None => (digits, "0"),
    };
    let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
    let in_day = (0..24).contains(&hours) && (0..60).contains(&minutes);
    in_day.then_some(sign * (hours * 60 + minutes) * 60_000)
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
            ("2026-01-01T00:00", 0, 60_000),
            ("2026-01-01 00:01", 60_000, 60_000),
            ("2026-01-01T02:00+02:00", 0, 60_000),
            ("2025-12-31T18:30:00-0530", 0, 1_000),
            ("2025-12-31T22:00:07.5-2", 7_500, 1),
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
            "2026-01-01T10",
            "2026-01-01+25",
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
