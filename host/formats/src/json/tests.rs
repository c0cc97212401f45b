#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;

#[test]
fn what_json_forbids_is_refused_where_it_stands() {
    for (text, at) in [
        ("{\"a\":}", 5),
        ("[1,]", 3),
        ("[1 2]", 3),
        ("{\"a\" 1}", 5),
        ("{a:1}", 1),
        ("\"open", 0),
        ("\"\\x\"", 1),
        ("\"\\u12g4\"", 1),
        ("\"a\u{0}b\"", 2),
        ("01", 0),
        ("1.", 0),
        ("1e", 0),
        ("-", 0),
        ("tru", 0),
        ("", 0),
        ("{} x", 2),
        ("[", 1),
    ] {
        assert_eq!(Raw::parse(text).unwrap_err().at, at, "{text}");
    }
    assert!(Raw::parse(&"[".repeat(1_000_000)).is_err());
    assert!(Raw::parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
    assert!(Raw::parse(&format!("{}{}", "[".repeat(129), "]".repeat(129))).is_err());
}

#[test]
fn half_a_surrogate_pair_is_replaced_and_a_whole_one_joined() {
    let text = |json: &'static str| Raw::parse(json).unwrap().string().unwrap().into_owned();
    assert_eq!(text(r#""a\ud83d\ude00b""#), "a😀b");
    assert_eq!(text(r#""\ud800""#), "\u{fffd}");
    assert_eq!(text(r#""\ud800\u0041""#), "\u{fffd}A");
    assert_eq!(text(r#""\udc00x""#), "\u{fffd}x");
    assert_eq!(text(r#""\u0000\/\b\f""#), "\0/\u{8}\u{c}");
}

#[test]
fn of_members_that_share_a_key_the_last_counts() {
    let raw = Raw::parse(r#"{"a":1,"b":2,"a":3}"#).unwrap();
    assert_eq!(raw.get("a").unwrap().text(), "3");
}

proptest! {
    /// The scanner and `serde_json` agree on which texts are JSON.
    #[test]
    fn agrees_with_serde_json(text in "[\\[\\]{}:,\"\\\\a0-9.eE+u \n\u{1}é-]{0,40}") {
        let ours = Raw::parse(&text);
        let theirs: Result<Box<serde_json::value::RawValue>, _> = serde_json::from_str(&text);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
    }

    /// They also agree on strings that are longer than a block of the scanner, wherever in a
    /// block something special stands.
    #[test]
    fn long_strings_agree_with_serde_json(
        parts in prop::collection::vec(
            prop_oneof![
                8 => "[a-zé\u{7f}]{1,40}",
                4 => r#"\\["\\/bfnrt]"#,
                2 => r"\\u[0-9a-f]{4}",
                1 => r#"["\\\x00-\x1f]"#,
            ],
            0..12,
        ),
        is_closed: bool,
    ) {
        let text = format!("\"{}{}", parts.concat(), if is_closed { "\"" } else { "" });
        let ours = Raw::parse(&text);
        let theirs: Result<Box<serde_json::value::RawValue>, _> = serde_json::from_str(&text);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
    }

    #[test]
    fn quoting_and_reading_gives_the_text_back(text in any::<String>()) {
        let quoted = quote(&text);
        prop_assert_eq!(&serde_json::from_str::<String>(&quoted).unwrap(), &text);
        let raw = Raw::parse(&quoted).unwrap();
        prop_assert_eq!(raw.string().unwrap(), text.as_str());
        // Every prefix of the text ends at an escaped offset that splits the string at the
        // same place.
        let inner = raw.inner().unwrap();
        for (at, _) in text.char_indices() {
            prop_assert_eq!(unescape(&inner[..escaped_offset(inner, at)]), &text[..at]);
        }
    }
}
