//! Changes one value of a YAML text and leaves everything else as it is: comments, order and
//! quotes.
//!
//! serde_yaml would parse the text and write it anew, which loses the user's comments.
//! [`with_text`] changes the syntax tree of yaml-edit instead, which keeps every other line.
//!
//! The result is parsed again by the parser that reads the file, and compared with the value that
//! was asked for. If the two differ, the function returns None, and the caller asks the user to
//! edit the file.

use std::str::FromStr;

use serde_json::{Map, Value};
use yaml_edit::YamlFile;
use yaml_edit::path::YamlPath;

use super::yaml;

/// Returns `text` with `value` as the scalar under the path `keys`. Keys that are missing are
/// inserted, and the value is quoted if YAML would otherwise read it as a number or a word of its
/// own.
///
/// Returns None if the change cannot be made without changing more, or if the text is not valid
/// YAML. Examples are a value that an alias repeats elsewhere, and one behind an alias.
pub fn with_text(text: &str, keys: &[&str], value: &str) -> Option<String> {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let mut wanted = yaml::read(body).ok()?;
    put(&mut wanted, keys, value)?;
    let file = YamlFile::from_str(body).ok()?;
    file.ensure_document()
        .try_set_path(&path(keys), value)
        .ok()?;
    let changed = file.to_string();
    (yaml::read(&changed).ok()? == wanted).then(|| format!("{mark}{changed}"))
}

/// The path as yaml-edit reads it. Each character is escaped, because a bare one may be a digit of
/// an index, a dot or a bracket.
fn path(keys: &[&str]) -> String {
    let escaped = keys.iter().map(|key| {
        key.chars()
            .flat_map(|letter| ['\\', letter])
            .collect::<String>()
    });
    escaped.collect::<Vec<_>>().join(".")
}

fn put(tree: &mut Value, keys: &[&str], value: &str) -> Option<()> {
    let Some((key, rest)) = keys.split_first() else {
        *tree = value.into();
        return Some(());
    };
    if tree.is_null() {
        *tree = Value::Object(Map::new());
    }
    let inner = tree.as_object_mut()?.entry(*key).or_insert(Value::Null);
    put(inner, rest, value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_value_changes_and_nothing_else() {
        let engine = |text: &str| with_text(text, &["context", "engine"], "lcm");
        for (before, after) in [
            ("", "context:\n  engine: lcm\n"),
            ("# mine\n", "# mine\ncontext:\n  engine: lcm\n"),
            ("a: 1", "a: 1\ncontext:\n  engine: lcm\n"),
            ("context:\n", "context:\n  engine: lcm\n"),
            (
                "context:   # which\nb: 2\n",
                "context: # which\n  engine: lcm\nb: 2\n",
            ),
            (
                "# 上\ncontext:\n    # the one\n    engine: compressor  # or lcm\n    on_missing: fail\nz: 1 # end\n",
                "# 上\ncontext:\n    # the one\n    engine: lcm  # or lcm\n    on_missing: fail\nz: 1 # end\n",
            ),
            (
                "context:\n    on_missing: fail\n",
                "context:\n    on_missing: fail\n    engine: lcm\n",
            ),
            (
                "context:\n  engine:\n  on_missing: fail\n",
                "context:\n  engine: lcm\n  on_missing: fail\n",
            ),
            (
                "context:\n  engine: null # none\n",
                "context:\n  engine: lcm # none\n",
            ),
            (
                "context: {engine: 'x', on_missing: fail}\n",
                "context: {engine: lcm, on_missing: fail}\n",
            ),
            ("context: { engine: x }\n", "context: { engine: lcm }\n"),
            (
                "context:\r\n  engine: \"x\"\r\nb: 1\r\n",
                "context:\r\n  engine: lcm\r\nb: 1\r\n",
            ),
            (
                "\u{feff}context:\n  engine: x\n",
                "\u{feff}context:\n  engine: lcm\n",
            ),
            ("context:\n  engine: lcm", "context:\n  engine: lcm"),
            ("context: {}\n", "context: {engine: lcm}\n"),
            (
                "{context: {on_missing: fail}}\n",
                "{context: {on_missing: fail, engine: lcm}}\n",
            ),
            (
                "context:\n  engine: >-\n    a\n    b\n  on_missing: fail\n",
                "context:\n  engine: lcm\n  on_missing: fail\n",
            ),
        ] {
            assert_eq!(engine(before).as_deref(), Some(after), "{before:?}");
        }
        // A text that YAML would read as null or as a number is written in quotes.
        assert_eq!(
            with_text("a: b\n", &["a"], "null").as_deref(),
            Some("a: 'null'\n")
        );
        assert_eq!(
            with_text("a: b\n", &["a"], "1e5").as_deref(),
            Some("a: '1e5'\n")
        );
    }

    #[test]
    fn what_would_change_more_is_left_alone() {
        for text in [
            "base: &b {engine: x}\ncontext: *b\n",
            "context: text\n",
            "context:\n  engine: &e x\nother: *e\n",
            "context: [",
        ] {
            assert_eq!(
                with_text(text, &["context", "engine"], "lcm"),
                None,
                "{text:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_comes_of_it_means_what_was_asked(text in "[a-c:{}, #'\"\n]{0,40}") {
            if let Some(changed) = with_text(&text, &["a", "b"], "x") {
                prop_assert_eq!(&yaml::read(&changed).unwrap()["a"]["b"], "x");
            }
        }
    }
}
