//! One value of a YAML text changed, and all else left as it was: comments, order, quotes.

use serde_json::{Map, Value};

use super::yaml::{self, Aim, KeyPath, Location};

/// The text with this text under these keys. The keys are put in where they are not there.
///
/// None where that cannot be done without changing more: in a mapping in one line that is empty, say, or behind an
/// alias.
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
    // What was changed by its look is held to what it means.
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
    // How many of the keys are there already.
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
    // As far in as what stands there, or two further where nothing does.
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

/// The text with another scalar behind a key.
fn with_scalar(text: &str, keys: &[&str], key: Location, value: &str) -> Option<String> {
    let path = KeyPath::of(keys.iter().copied());
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

/// Where a position is, in bytes.
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
        // A word of YAML's own, and a number, are text in quotes.
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
