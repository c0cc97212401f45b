//! Formats numbers, times and sizes as people read them.
//!
//! Everything that a command shows to a person goes through these functions, so that figures look
//! the same everywhere. JSON output does not: it has plain numbers in the unit that the name of the
//! key tells.
//!
//! Large numbers are grouped by commas, see [`grouped`]. Durations and sizes get the unit in which
//! they have one to four digits.

use std::time::SystemTime;

pub(crate) use contexture_engine_api::grouped;

/// Returns a number with its noun, in the plural unless it is one: `1 message`, `2,000 messages`.
pub(crate) fn counted(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(number))
}

/// Returns a time, which is given in milliseconds, in milliseconds or seconds.
pub(crate) fn duration(milliseconds: f64) -> String {
    match milliseconds {
        short if short < 9.95 => format!("{short:.1} ms"),
        short if short < 999.5 => format!("{short:.0} ms"),
        long => format!("{:.1} s", long / 1_000.0),
    }
}

/// Returns a size, which is given in bytes, in the unit that reads well. The units are powers of
/// ten.
pub(crate) fn size(bytes: u64) -> String {
    match bytes as f64 {
        few if few < 1_000.0 => format!("{few} B"),
        few if few < 999_500.0 => format!("{:.0} kB", few / 1e3),
        many if many < 999_950_000.0 => format!("{:.1} MB", many / 1e6),
        many => format!("{:.1} GB", many / 1e9),
    }
}

/// Returns how long ago something was, in its largest unit. A time up to a minute in the future
/// counts as now, because clocks differ by so much.
pub(crate) fn age(then: SystemTime) -> String {
    let seconds = match then.elapsed() {
        Ok(age) => age.as_secs(),
        // A clock that was wrong then or is wrong now must not show a negative age.
        Err(ahead) if ahead.duration().as_secs() >= 60 => return "in the future".to_owned(),
        Err(_) => 0,
    };
    let (number, unit) = match seconds {
        0..60 => return "just now".to_owned(),
        60..3_600 => (seconds / 60, "min"),
        3_600..86_400 => (seconds / 3_600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{} {unit} ago", grouped(number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn figures_read_well() {
        assert_eq!(counted(1, "message"), "1 message");
        assert_eq!(counted(1_200, "message"), "1,200 messages");
        assert_eq!(duration(3.21), "3.2 ms");
        assert_eq!(duration(9.97), "10 ms");
        assert_eq!(duration(321.4), "321 ms");
        assert_eq!(duration(12_345.0), "12.3 s");
        assert_eq!(size(12), "12 B");
        assert_eq!(size(999_700), "1.0 MB");
        assert_eq!(size(1_575_480), "1.6 MB");
        assert_eq!(size(2_500_000_000), "2.5 GB");
        let ago = |seconds| age(SystemTime::now() - Duration::from_secs(seconds));
        assert_eq!(
            [5, 61, 7_300, 90_000].map(ago),
            ["just now", "1 min ago", "2 h ago", "1 d ago"]
        );
    }
}
