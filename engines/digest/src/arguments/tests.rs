#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;

fn pairs(json: &str) -> Vec<(&str, String)> {
    arguments(json)
        .into_iter()
        .map(|argument| (argument.key, argument.value.into_owned()))
        .collect()
}

#[test]
fn reads_values_with_their_keys() {
    assert_eq!(
        pairs(
            r#"{"path": "a\/b.rs", "limit": 40, "todos": [{"content": "x\ny", "status": "pending"}]}"#
        ),
        [
            ("path", "a/b.rs".to_owned()),
            ("limit", "40".into()),
            ("content", "x\ny".into()),
            ("status", "pending".into()),
        ]
    );
    assert_eq!(pairs(r#"{"command": ["bash", "-lc", "ls"]}"#).len(), 3);
    assert_eq!(
        pairs("*** Begin Patch"),
        [("", "*** Begin Patch".to_owned())]
    );
    assert_eq!(pairs(""), []);
}

#[test]
fn reads_what_is_there_when_the_json_is_cut_off() {
    assert_eq!(
        pairs(r#"{"path": "src/ma"#),
        [("path", "src/ma".to_owned())]
    );
    assert_eq!(pairs(r#"{"path": "src\"#), [("path", "src".to_owned())]);
}

proptest! {
    #[test]
    fn every_string_survives_its_escapes(value in any::<String>()) {
        let json = serde_json::json!({ "key": value }).to_string();
        let expected: String = value.replace(['\r', '\u{8}', '\u{c}'], "");
        prop_assert_eq!(pairs(&json), [("key", expected)]);
    }

    #[test]
    fn no_text_makes_it_panic(text in r#"[{}\[\]":\\u0-9a-f -]{0,40}"#) {
        arguments(&text);
    }
}
