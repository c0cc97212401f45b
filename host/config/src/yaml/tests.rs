#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use proptest::prelude::*;
use serde_json::json;

fn at(line: usize, column: usize) -> Option<Location> {
    Some(Location { line, column })
}

#[test]
fn a_value_and_its_key_are_found_where_they_stand() {
    let text = "a: 1\nb:\n  c: two\n  d:\n    - x\n    - {e: 3}\n";
    assert_eq!(
        read(text).unwrap(),
        json!({"a": 1, "b": {"c": "two", "d": ["x", {"e": 3}]}})
    );
    let path = KeyPath::of(["b", "c"]);
    assert_eq!(locate(text, &path, Aim::Value), at(3, 6));
    assert_eq!(locate(text, &path, Aim::Key { nth: 0 }), at(3, 3));
    let deep = KeyPath::of(["b", "d"]).index(1).key("e");
    assert_eq!(deep.to_string(), "b.d[1].e");
    assert_eq!(locate(text, &deep, Aim::Value), at(6, 11));
    assert_eq!(locate(text, &KeyPath::of(["b"]), Aim::Value), at(3, 3));
    assert_eq!(locate(text, &KeyPath::of(["nowhere"]), Aim::Value), None);
}

#[test]
fn a_duplicate_key_is_named_with_both_places() {
    let text = "context:\n  engine: \"compressor\"\n  engine: \"lcm\"\n";
    assert_eq!(
        read(text),
        Err(YamlError {
            location: at(3, 3),
            message: "`context.engine` appears twice, first in line 2; remove one".to_owned(),
        })
    );
}

#[test]
fn a_document_of_nothing_is_null() {
    for text in [
        "", "\n\n", "# only a comment\n", "---\n", "---\n# x\n", "null\n", "~",
    ] {
        assert_eq!(read(text), Ok(Value::Null), "{text:?}");
    }
}

#[test]
fn what_json_cannot_hold_is_an_error_with_its_place() {
    for text in [
        "a: .nan", "a: -.inf", "a: !secret x", "a: 1\n---\nb: 2", "a: [", "a: *x",
    ] {
        assert!(read(text).is_err(), "{text:?} gave {:?}", read(text));
    }
    let Err(YamlError { location, message }) = read("x: 1\na: .nan") else {
        panic!("read");
    };
    assert_eq!(location, at(2, 4));
    assert!(!message.contains("line 2"), "{message}");
}

#[test]
fn an_alias_bomb_is_refused_quickly() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for n in 1..12 {
        let previous = vec![format!("*a{}", n - 1); 10].join(", ");
        text.push_str(&format!("a{n}: &a{n} [{previous}]\n"));
    }
    assert!(read(&text).is_err());
    // serde_yaml accepts this many values, but no config file has them.
    let wide = format!("[{}]", vec!["1"; MAX_NODES].join(","));
    assert!(read(&wide).is_err());
    let deep = "[".repeat(50_000);
    assert!(read(&deep).is_err());
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[ -~\n\u{e9}]{0,200}") {
        let _ = read(&text);
        let _ = locate(&text, &KeyPath::of(["a"]).index(0), Aim::Value);
    }

    #[test]
    fn any_tree_is_read_back(value in tree()) {
        let text = serde_yaml::to_string(&value).unwrap();
        prop_assert_eq!(read(&text).unwrap(), value);
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9:# ]{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,5}", inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
