#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn a_certificate_is_warned_about_two_weeks_before_its_end_and_after_it() {
    let end = CertificateEnd {
        section: "gateway.tls".to_owned(),
        at: "2026-12-15T00:00:00Z".parse().unwrap(),
    };
    for (now, says) in [
        ("2026-11-30T23:59:59Z", None),
        (
            "2026-12-01T00:00:00Z",
            Some("expires at 2026-12-15T00:00:00Z"),
        ),
        (
            "2026-12-14T23:59:59Z",
            Some("expires at 2026-12-15T00:00:00Z"),
        ),
        (
            "2026-12-15T00:00:00Z",
            Some("expired at 2026-12-15T00:00:00Z"),
        ),
        (
            "2030-01-01T00:00:00Z",
            Some("expired at 2026-12-15T00:00:00Z"),
        ),
    ] {
        let warning = end.warning(now.parse().unwrap());
        let is = match (&warning, says) {
            (Some(warning), Some(says)) => warning.contains(says),
            (warning, says) => warning.is_none() && says.is_none(),
        };
        assert!(is, "{now}: {warning:?}");
    }
}

#[test]
fn no_bytes_of_a_certificate_are_expected() {
    for der in [
        &[][..],
        &[0x30],
        &[0x30, 0x02, 0x30],
        &[0x30, 0x80],
        &[0x30, 0xff, 0x01],
        &[0x30, 0x04, 0x30, 0x02, 0xa0, 0x00],
    ] {
        assert_eq!(end_of(der), None, "{der:?}");
    }
}
