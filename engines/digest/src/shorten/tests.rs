#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const MARK: &str = "… [shortened]";

#[test]
fn long_strings_are_cut_and_everything_else_stays_as_written() {
    let long = "x\\n\"é😀 ".repeat(100);
    let arguments = format!(
        r#"{{"n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short","deep":[{{"content": {}}}], "{}": 1e5}}"#,
        serde_json::to_string(&long).unwrap(),
        "k".repeat(500),
    );
    let short = shorten_arguments(&arguments, MARK).unwrap();
    assert!(short.len() < arguments.len() - 600);
    for kept in [
        r#""n": 12345678901234567890123, "f":1.10, "b":true,"z":null,"s":"short""#,
        "1e5",
        &"k".repeat(500),
    ] {
        assert!(short.contains(kept), "{short}");
    }
    let value: Value = serde_json::from_str(&short).unwrap();
    let text = value["deep"][0]["content"].as_str().unwrap();
    assert!(text.ends_with(MARK));
    assert!(long.starts_with(text.strip_suffix(MARK).unwrap()));
}

#[test]
fn what_is_no_json_or_short_stays() {
    assert_eq!(shorten_arguments(r#"{"a":"b"}"#, MARK), None);
    assert_eq!(
        shorten_arguments(&format!("{{\"a\":\"{}", "b".repeat(900)), MARK),
        None
    );
    assert_eq!(
        shorten_arguments(&json!({"n": vec![1; 900]}).to_string(), MARK),
        None
    );
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "\\PC{0,40}|[\"\\\\a\n😀]{300,700}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("\\PC{0,12}", inner), 0..5)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Compares two values that must be equal except for strings, of which the shortened one is a
/// prefix with the mark.
fn same_shape(long: &Value, short: &Value) -> bool {
    match (long, short) {
        (Value::String(long), Value::String(short)) => {
            long == short
                || short
                    .strip_suffix(MARK)
                    .is_some_and(|prefix| long.starts_with(prefix))
        }
        (Value::Array(long), Value::Array(short)) => {
            long.len() == short.len() && long.iter().zip(short).all(|(l, s)| same_shape(l, s))
        }
        (Value::Object(long), Value::Object(short)) => {
            long.len() == short.len()
                && long
                    .iter()
                    .zip(short)
                    .all(|((lk, l), (sk, s))| lk == sk && same_shape(l, s))
        }
        _ => long == short,
    }
}

#[test]
fn arguments_are_cut_to_size_and_stay_an_object() {
    let long = json!({"path": "src/lib.rs", "content": "x\n\"é😀 ".repeat(500)}).to_string();
    let short = cut_arguments(&long, 200, MARK).unwrap();
    assert!(short.chars().count() <= 200, "{short}");
    let value: Value = serde_json::from_str(&short).unwrap();
    assert_eq!(value["path"], "src/lib.rs");
    assert!(
        value["content"].as_str().unwrap().ends_with(MARK),
        "{short}"
    );

    let many = json!({"todos": [], "numbers": vec![7; 900]}).to_string();
    let short = cut_arguments(&many, 200, MARK).unwrap();
    assert_eq!(short, json!({"todos": [], MARK: true}).to_string());
    assert_eq!(cut_arguments(r#"{"a":"b"}"#, 200, MARK), None);
    assert_eq!(
        cut_arguments(&format!("{{\"a\":\"{}", "b".repeat(900)), 200, MARK),
        None
    );
}

proptest! {
    #[test]
    fn shortened_arguments_are_the_same_json_with_shorter_strings(value in any_json()) {
        for json in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            if let Some(short) = shorten_arguments(&json, MARK) {
                prop_assert!(short.len() < json.len());
                prop_assert!(same_shape(&value, &serde_json::from_str(&short).unwrap()));
            }
        }
    }

    #[test]
    fn shortening_survives_any_text(text in "[\"\\\\u{}:d8é, ]{0,900}") {
        shorten_arguments(&text, MARK);
    }
}

proptest! {
    #[test]
    fn cut_arguments_are_shorter_json_of_the_same_kind(value in any_json(), max in 0usize..600) {
        let text = value.to_string();
        if let Some(short) = cut_arguments(&text, max, MARK) {
            prop_assert!(short.len() < text.len());
            let short: Value = serde_json::from_str(&short).unwrap();
            prop_assert_eq!(short.is_object(), value.is_object());
        }
    }
}
