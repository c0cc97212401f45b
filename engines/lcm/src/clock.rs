//! Times as people read them.

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
fn civil(day: i64) -> (i64, i64, i64) {
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

/// Reads a time in UTC: `2026-01-31`, with `T23:59`, `:59` and `Z` as it likes, or seconds since the Unix
/// epoch. In milliseconds since the Unix epoch.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return (seconds.abs() < 1e12).then_some((seconds * 1_000.0) as i64);
    }
    let text = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, "0:0"));
    let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    let in_calendar = civil(days(year, month, day)) == (year, month, day);
    let mut parts = time.splitn(3, ':');
    let hour: i64 = parts.next()?.parse().ok()?;
    let minute: i64 = parts.next()?.parse().ok()?;
    let second: f64 = parts.next().unwrap_or("0").parse().ok()?;
    let in_day =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0.0..61.0).contains(&second);
    (in_calendar && in_day).then(|| {
        ((days(year, month, day) * 24 + hour) * 60 + minute) * 60_000 + (second * 1_000.0) as i64
    })
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
        assert_eq!(parse("1767225600"), parse("2026-01-01"));
        assert_eq!(parse("yesterday"), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(seconds in -60_000_000_000_i64..60_000_000_000) {
            prop_assert_eq!(parse(&rfc3339(seconds * 1_000)), Some(seconds * 1_000));
        }
    }
}
