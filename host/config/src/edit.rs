//! Changes one value of a YAML text and leaves everything else as it is: comments, order and
//! quotes.
//!
//! A YAML library would parse the text and write it anew, which loses the user's comments.
//! [`with_text`] instead finds the position of the value and replaces only its characters, or
//! inserts the lines that are missing.
//!
//! The replacement works on the characters and does not understand all of YAML. Therefore the
//! result is parsed again and compared with the value that was asked for. If the two differ, the
//! function returns None, and the caller asks the user to edit the file.

use serde_json::{Map, Value};

use super::yaml::{self, Aim, KeyPath, Location};

/// Returns `text` with `value` as the scalar under the path `keys`. Keys that are missing are
/// inserted, and the value is quoted if YAML would otherwise read it as a number or a word of its
/// own.
///
/// Returns None if the change cannot be made without changing more, or if the text is not valid
/// YAML. Examples are an empty mapping on one line (`context: {}`) and a value behind an alias.
pub fn with_text(text: &str, keys: &[&str], value: &str) -> Option<String> {
    let (mark, body) = match text.strip_prefix('\u{feff}') {
        Some(body) => ("\u{feff}", body),
        None => ("", text),
    };
    let before = match yaml::read(body).ok()? {
        Value::Null => Value::Object(Map::new()),
        value => value,
    };
    let mut wanted = before.clone();
    put(&mut wanted, keys, value)?;
    let written = serde_yaml::to_string(value).ok()?;
    let changed = replaced(body, &before, keys, written.trim_end())?;
    // The replacement looks only at characters. Parsing the result again refuses each change that
    // does not mean what was asked for.
    (yaml::read(&changed).ok()? == wanted).then(|| format!("{mark}{changed}"))
}

fn put(tree: &mut Value, keys: &[&str], value: &str) -> Option<()> {
    let (key, rest) = keys.split_first()?;
    if tree.is_null() {
        *tree = Value::Object(Map::new());
    }
    let place = tree.as_object_mut()?.entry(*key).or_insert(Value::Null);
    if rest.is_empty() {
        *place = value.into();
        return Some(());
    }
    put(place, rest, value)
}

fn replaced(text: &str, before: &Value, keys: &[&str], value: &str) -> Option<String> {
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    // Counts the keys that exist already. Only the rest of the path has to be inserted.
    let mut inner = Some(before);
    let there = keys.iter().take_while(|key| {
        inner = inner.and_then(|tree| tree.get(**key));
        inner.is_some()
    });
    let there = there.count();
    let found = |count: usize| {
        let path = KeyPath::of(keys[..count].iter().copied());
        yaml::locate(text, &path, Aim::Key { nth: 0 })
    };
    if there == keys.len() {
        return with_scalar(text, keys, found(there)?, value);
    }
    let missing = |indent: usize, lines: &[&str]| {
        let mut new = String::new();
        for (at, key) in lines.iter().enumerate() {
            let end = if at + 1 == lines.len() {
                format!(" {value}")
            } else {
                String::new()
            };
            new.push_str(&format!(
                "{}{key}:{end}{line_end}",
                " ".repeat(indent + 2 * at)
            ));
        }
        new
    };
    if there == 0 {
        let gap = if text.is_empty() || text.ends_with('\n') {
            ""
        } else {
            line_end
        };
        return Some(format!("{text}{gap}{}", missing(0, keys)));
    }
    let key = found(there)?;
    let path = KeyPath::of(keys[..there].iter().copied());
    let inside = yaml::locate(text, &path, Aim::Value).filter(|at| at.line > key.line);
    // Indent as far as the mapping's existing lines, or two spaces further than the key if it has
    // none.
    let indent = inside.map_or(key.column + 1, |at| at.column - 1);
    let at = offset(
        text,
        Location {
            line: key.line + 1,
            column: 1,
        },
    )
    .unwrap_or(text.len());
    let gap = if text[..at].ends_with('\n') {
        ""
    } else {
        line_end
    };
    let (before, after) = text.split_at(at);
    Some(format!(
        "{before}{gap}{}{after}",
        missing(indent, &keys[there..])
    ))
}

/// Replaces the scalar behind a key whose position is known, or adds one if nothing follows the
/// colon. A comment on the same line stays. Returns None if a quoted scalar does not end.
fn with_scalar(text: &str, keys: &[&str], key: Location, value: &str) -> Option<String> {
    let path = KeyPath::of(keys.iter().copied());
    // A key without a value has no position of its own, so the new value goes directly behind the
    // colon.
    let after_key = offset(text, key)? + text[offset(text, key)?..].find(':')? + 1;
    let line = text[after_key..].lines().next().unwrap_or_default();
    let is_empty = line.trim_start().is_empty() || line.trim_start().starts_with('#');
    let (start, gap) = match yaml::locate(text, &path, Aim::Value) {
        Some(at) if !is_empty => (offset(text, at)?, ""),
        _ => (after_key, " "),
    };
    let rest = &text[start..];
    let length = match rest.chars().next() {
        _ if !gap.is_empty() => 0,
        Some(quote @ ('"' | '\'')) => rest[1..].find(quote)? + 2,
        _ => {
            let line = rest.lines().next().unwrap_or_default();
            let plain = line.split(" #").next().unwrap_or_default();
            let in_flow = plain.split([',', '}', ']']).next().unwrap_or_default();
            in_flow.trim_end().len()
        }
    };
    Some(format!("{}{gap}{value}{}", &text[..start], &rest[length..]))
}

/// Returns the byte offset of a position in `text`. The column counts characters, so a line with
/// non-ASCII text needs the conversion. None if the text has no such position.
fn offset(text: &str, at: Location) -> Option<usize> {
    let line_start: usize = text
        .split_inclusive('\n')
        .take(at.line - 1)
        .map(str::len)
        .sum();
    let line = text.get(line_start..)?;
    let column = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    column
        .into_iter()
        .nth(at.column - 1)
        .map(|column| line_start + column)
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
                "context:   # which\n  engine: lcm\nb: 2\n",
            ),
            (
                "# 上\ncontext:\n    # the one\n    engine: compressor  # or lcm\n    on_missing: fail\nz: 1 # end\n",
                "# 上\ncontext:\n    # the one\n    engine: lcm  # or lcm\n    on_missing: fail\nz: 1 # end\n",
            ),
            (
                "context:\n    on_missing: fail\n",
                "context:\n    engine: lcm\n    on_missing: fail\n",
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
            "context: {}\n",
            "{context: {on_missing: fail}}\n",
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
