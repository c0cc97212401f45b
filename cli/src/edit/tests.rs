//! Edits of generated config files: whatever a file looks like, the rest of it stays, and taking
//! the edits back leaves what the user had.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// What a generated file is made of.
#[derive(Debug, Clone)]
struct Shape {
    keys: Vec<(String, i32, bool)>,
    /// Whether the file has the parent of what is added, with a key of the user's in it.
    has_parent: bool,
    crlf: bool,
    mark: bool,
    end: &'static str,
}

fn shape() -> impl Strategy<Value = Shape> {
    let key = (any::<i32>(), any::<bool>());
    let keys = proptest::collection::btree_map("[a-z]{3,8}", key, 0..6);
    let keys = keys.prop_map(|keys| {
        let keys = keys
            .into_iter()
            .filter(|(name, _)| !RESERVED.contains(&name.as_str()));
        keys.map(|(name, (value, comment))| (name, value, comment))
            .collect::<Vec<(String, i32, bool)>>()
    });
    let end = prop_oneof![Just(""), Just("\n"), Just("\n\n")];
    (keys, any::<bool>(), any::<bool>(), any::<bool>(), end).prop_map(
        |(keys, has_parent, crlf, mark, end)| Shape {
            keys,
            has_parent,
            crlf,
            mark,
            end,
        },
    )
}

const RESERVED: [&str; 10] = [
    "servers", "hooks", "env", "base", "zzz", "true", "null", "false", "context", "plugins",
];

impl Shape {
    fn text(&self, format: FileFormat) -> String {
        let mut lines: Vec<String> = Vec::new();
        match format {
            FileFormat::Json => {
                let mut members = Vec::new();
                for (name, value, comment) in &self.keys {
                    let comment = if *comment { "  // mine\n" } else { "" };
                    members.push(format!("{comment}  \"{name}\": {value}"));
                }
                if self.has_parent {
                    members.push("  \"servers\": { \"other\": {\"command\": \"x\"} }".to_owned());
                    members
                        .push("  \"hooks\": {\n    /* mine */\n    \"Stop\": [1]\n  }".to_owned());
                }
                lines.push(format!("{{\n{}\n}}", members.join(",\n")));
            }
            FileFormat::Json5 => {
                let mut members = Vec::new();
                for (at, (name, value, comment)) in self.keys.iter().enumerate() {
                    let comment = if *comment { "  // mine\n" } else { "" };
                    let name = match at % 3 {
                        0 => name.clone(),
                        1 => format!("'{name}'"),
                        _ => format!("\"{name}\""),
                    };
                    members.push(format!("{comment}  {name}: {value:+}"));
                }
                if self.has_parent {
                    members.push("  servers: { other: {command: 'it\\'s'} }".to_owned());
                    members
                        .push("  'hooks': {\n    /* mine */\n    Stop: [0x1F,],\n  }".to_owned());
                }
                lines.push(format!("{{\n{}\n}}", members.join(",\n")));
            }
            FileFormat::Toml => {
                for (name, value, comment) in &self.keys {
                    if *comment {
                        lines.push("# mine".to_owned());
                    }
                    lines.push(format!("{name}   = {value} # kept"));
                }
                if self.has_parent {
                    lines.push("\n[servers.other]\ncommand = \"x\"".to_owned());
                }
            }
            FileFormat::Env => {
                for (name, value, comment) in &self.keys {
                    if *comment {
                        lines.push("# mine".to_owned());
                    }
                    let export = if *value > 0 { "export " } else { "" };
                    lines.push(format!("{export}{name} = '{value} #' # kept"));
                }
            }
            FileFormat::Yaml | FileFormat::Own => {
                for (name, value, comment) in &self.keys {
                    if *comment {
                        lines.push("# mine".to_owned());
                    }
                    lines.push(format!("{name}:   {value} # kept"));
                }
                if self.has_parent {
                    lines.push(
                        "context:\n    # mine\n    other: x # kept\n    # mine\nplugins:"
                            .to_owned(),
                    );
                    lines.push(
                        "  text: |\n    enabled: mine\n  enabled:\n  - a # mine\n  - b".to_owned(),
                    );
                }
            }
        }
        let mut text = lines.join("\n") + self.end;
        if self.crlf {
            text = text.replace('\n', "\r\n");
        }
        let is_json = matches!(format, FileFormat::Json | FileFormat::Json5);
        if self.mark && is_json {
            text.insert(0, '\u{feff}');
        }
        text
    }
}

fn edits(format: FileFormat) -> Vec<Edit> {
    let server = json!({"command": "/bin/contexture", "args": ["mcp"]});
    match format {
        FileFormat::Json | FileFormat::Json5 => vec![
            Edit::set(&["servers", "contexture"], server),
            Edit::push(
                &["hooks", "PreCompact"],
                json!({"hooks": [{"command": "c"}]}),
            ),
            Edit::set(&["env", "BASE"], "http://127.0.0.1:1"),
        ],
        FileFormat::Toml => vec![
            Edit::set(&["servers", "contexture"], server),
            Edit::set(&["base"], "http://127.0.0.1:1"),
        ],
        FileFormat::Env => vec![Edit::set(&["base"], "http://127.0.0.1:1")],
        FileFormat::Yaml | FileFormat::Own => vec![
            Edit::set(&["base-url"], "http://127.0.0.1:1"),
            Edit::set(&["context", "engine"], "contexture"),
            Edit::push(&["plugins", "enabled"], "contexture"),
            Edit::push(&["set-env"], "A=b"),
        ],
    }
}

fn value_of(format: FileFormat, text: &str) -> Value {
    let plain = text.trim_start_matches('\u{feff}');
    parse(format, plain).unwrap().get(&[]).unwrap_or_else(|| {
        // The documents answer for keys; the whole is put together from the parser's own value.
        match format {
            FileFormat::Json | FileFormat::Json5 => {
                let root = jsonc_parser::cst::CstRootNode::parse(plain, &Default::default());
                root.unwrap().to_serde_value().unwrap_or_default()
            }
            _ => Value::Null,
        }
    })
}

const FORMATS: [FileFormat; 5] = [
    FileFormat::Json,
    FileFormat::Json5,
    FileFormat::Toml,
    FileFormat::Yaml,
    FileFormat::Env,
];

proptest! {
    /// Every line of the user's is still there and in order, the new values are there, a second
    /// run changes nothing, and line ends are of one kind.
    #[test]
    fn edits_leave_the_rest_alone(shape in shape(), at in 0..FORMATS.len()) {
        let format = FORMATS[at];
        let text = shape.text(format);
        let applied = apply(format, Some(&text), &edits(format)).unwrap();
        prop_assert_eq!(applied.done.len(), edits(format).len());
        prop_assert!(applied.conflicts.is_empty());
        let mut rest = applied.text.as_str();
        for word in text.split_whitespace() {
            // A comma may come after what was the last member.
            let at = rest.find(word.trim_end_matches(['}', ','])).expect("a word of the user's");
            rest = &rest[at..];
        }
        prop_assert_eq!(text.matches("mine").count(), applied.text.matches("mine").count());
        if shape.crlf && text.contains('\n') {
            prop_assert_eq!(applied.text.matches('\n').count(), applied.text.matches("\r\n").count());
        }
        let again = apply(format, Some(&applied.text), &edits(format)).unwrap();
        prop_assert!(again.done.is_empty());
        prop_assert_eq!(again.text, applied.text);
    }

    /// If somebody edits the file after the change, taking the edits back leaves that edit and all
    /// that the user had before.
    #[test]
    fn an_edited_file_keeps_what_was_added_to_it(shape in shape(), at in 0..FORMATS.len()) {
        let format = FORMATS[at];
        let text = shape.text(format);
        let applied = apply(format, Some(&text), &edits(format)).unwrap();
        let own = [Edit::set(&["zzz"], "mine, too")];
        let edited = apply(format, Some(&applied.text), &own).unwrap().text;
        let back = take_back(format, &edited, Some(&text), &applied.done).unwrap();
        prop_assert!(back.left.is_empty());
        let wanted = apply(format, Some(&text), &own).unwrap().text;
        prop_assert_eq!(value_of(format, back.text.as_deref().unwrap()), value_of(format, &wanted));
        prop_assert_eq!(text.matches("mine").count() + 1, back.text.unwrap().matches("mine").count());
    }

    /// A variable of any spelling, also one without a value, gets its value in its own line. Every
    /// other line stays as it is.
    #[test]
    fn a_value_in_an_env_file_changes_its_line_alone(
        before in proptest::collection::vec("[A-Z]{3}=[a-z]{0,3}|# mine|[A-Z]{3}=\"\n(base=\\\\\"\n){0,2}x\" # mine|", 0..3),
        after in proptest::collection::vec("[A-Z]{3}=[a-z]{0,3}|# mine|[A-Z]{3}='\nbase=b\n'|", 0..3),
        (head, blanks) in ("(export )?base ?", "[ \t]{0,3}"),
        old in prop_oneof![Just(""), Just("x"), Just("\"\""), Just("'a b'"), Just("\"a\nb\"")],
        comment in prop_oneof![Just(""), Just(" # mine")],
        crlf in any::<bool>(),
        last_line_ends in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let file = |line: &str| {
            let rest = |lines: &[String]| lines.iter().map(|line| format!("{line}{end}")).collect::<String>();
            let mut text = format!("{}{}{end}{}", rest(&before), line, rest(&after));
            if !last_line_ends {
                text.truncate(text.len() - end.len());
            }
            text.replace("\r\n", "\n").replace('\n', end)
        };
        let text = file(&format!("{head}={blanks}{old}{comment}"));
        let edits = [Edit::set(&["base"], "new")];
        let applied = apply(FileFormat::Env, Some(&text), &edits).unwrap();
        let is_set = !old.trim_matches('"').is_empty();
        prop_assert_eq!(!applied.conflicts.is_empty(), is_set, "{}", text);
        // The shell would take what comes after a blank for a command.
        let blanks = if old.is_empty() { "" } else { &blanks };
        let lines: Vec<&str> = applied.text.split(end).collect();
        let wanted = file(&format!("{head}={blanks}new{comment}"));
        let is_same = |(line, wanted): (&&str, &str)| {
            line.split_whitespace().eq(wanted.split_whitespace())
        };
        prop_assert_eq!(lines.len(), wanted.split(end).count(), "{:?}", applied.text);
        prop_assert!(lines.iter().zip(wanted.split(end)).all(is_same), "{:?}", applied.text);
        let back = take_back(FileFormat::Env, &applied.text, Some(&text), &applied.done);
        let back = back.unwrap().text.unwrap();
        prop_assert_eq!(back.lines().count(), text.lines().count(), "{:?}", back);
    }
}

#[test]
fn a_missing_or_empty_file_is_created_and_goes_again() {
    for format in FORMATS {
        for before in [None, Some(""), Some("\n")] {
            let applied = apply(format, before, &edits(format)).unwrap();
            assert!(applied.text.ends_with('\n'), "{:?}", applied.text);
            let edited = apply(format, Some(&applied.text), &[Edit::set(&["zzz"], "x")]).unwrap();
            let back = take_back(format, &edited.text, before, &applied.done).unwrap();
            let rest = back.text.unwrap();
            assert!(
                rest.contains("zzz") && !rest.contains("127.0.0.1"),
                "{rest}"
            );
        }
        // Somebody only changed the white space of a file that the command created.
        let applied = apply(format, None, &edits(format)).unwrap();
        let back = take_back(format, &format!("{}\n", applied.text), None, &applied.done);
        assert_eq!(back.unwrap().text, None, "{format:?}");
    }
}

#[test]
fn a_value_of_the_users_is_a_conflict_and_comes_back() {
    for (format, text) in [
        (
            FileFormat::Json,
            "{\n  \"env\": {\"BASE\": \"https://corp\"} // mine\n}\n",
        ),
        (
            FileFormat::Toml,
            "base = \"https://corp\" # mine\n[servers]\n",
        ),
        (
            FileFormat::Yaml,
            "base-url: https://corp\nother: 1 # mine\n",
        ),
        (FileFormat::Env, "base=\"https://corp\" # mine"),
    ] {
        let applied = apply(format, Some(text), &edits(format)).unwrap();
        let [conflict] = &applied.conflicts[..] else {
            panic!("{format:?}: {:?}", applied.conflicts);
        };
        assert_eq!(conflict.value, "https://corp");
        assert!(applied.text.contains("mine") && !applied.text.contains("corp"));
        let edited = apply(format, Some(&applied.text), &[Edit::set(&["zzz"], "x")]).unwrap();
        let back = take_back(format, &edited.text, Some(text), &applied.done);
        let back = back.unwrap().text.unwrap();
        assert!(
            back.contains("https://corp") && back.contains("mine"),
            "{back}"
        );
        assert!(!back.contains("127.0.0.1"), "{back}");
    }
}

#[test]
fn what_was_changed_since_is_left_and_named() {
    for format in FORMATS {
        let applied = apply(format, None, &edits(format)).unwrap();
        let changed = applied.text.replace("127.0.0.1:1", "10.0.0.1:2");
        let back = take_back(format, &changed, None, &applied.done).unwrap();
        assert_eq!(back.left.len(), 1, "{format:?}: {:?}", back.left);
        assert!(back.text.unwrap().contains("10.0.0.1:2"));
    }
}

/// What the user has changed in an element is not there a second time, and is not lost.
#[test]
fn an_element_that_was_edited_is_a_conflict_and_is_left() {
    let group = |timeout: i32| json!({"hooks": [{"command": "c", "timeout": timeout}]});
    let hooks = |groups: Value| json!({"hooks": {"PreCompact": groups}}).to_string();
    let other = json!({"hooks": [{"command": "d"}]});
    for (format, edit, original, edited, count) in [
        (
            FileFormat::Json,
            Edit::push(&["hooks", "PreCompact"], group(120)),
            hooks(json!([other, group(120)])),
            hooks(json!([other, group(600)])),
            2,
        ),
        (
            FileFormat::Yaml,
            Edit::push(&["set-env"], "A=ours"),
            "set-env:\n- B=b\n- A=ours\n".to_owned(),
            "set-env:\n- B=b\n- A=mine\n".to_owned(),
            2,
        ),
    ] {
        let Edit::Push { path, value } = &edit else {
            unreachable!();
        };
        let edits = std::slice::from_ref(&edit);
        let applied = apply(format, Some(&edited), edits).unwrap();
        assert_eq!(applied.conflicts.len(), 1, "{format:?}");
        let list = parse(format, &applied.text).unwrap().get(path).unwrap();
        assert_eq!(list.as_array().unwrap().len(), count, "{list}");
        assert!(list.as_array().unwrap().contains(value), "{list}");
        // It was replaced, and comes back.
        let back = take_back(format, &applied.text, Some(&edited), edits).unwrap();
        assert_eq!(
            value_of(format, &back.text.unwrap()),
            value_of(format, &edited)
        );
        // It was edited after it was added.
        let back = take_back(format, &edited, None, edits).unwrap();
        assert_eq!(back.left.len(), 1, "{format:?}");
        assert_eq!(
            value_of(format, &back.text.unwrap()),
            value_of(format, &edited)
        );
        // The user has removed it, so nothing is left.
        let removed = take_back(format, &original, None, edits)
            .unwrap()
            .text
            .unwrap();
        let back = take_back(format, &removed, None, edits).unwrap();
        assert!(back.left.is_empty());
    }
}

#[test]
fn a_section_without_a_value_gets_one_and_loses_it_again() {
    for text in [
        "{\"servers\": null, \"hooks\": null, \"env\": null}",
        "{\"hooks\": {\"PreCompact\": null}, \"env\": {\"BASE\": null}}",
        "{\"env\": {\"BASE\": \"\"}}",
    ] {
        let format = FileFormat::Json;
        let applied = apply(format, Some(text), &edits(format)).unwrap();
        assert!(applied.conflicts.is_empty());
        let document = parse(format, &applied.text).unwrap();
        for edit in edits(format) {
            match edit {
                Edit::Set { path, value } => assert_eq!(document.get(&path), Some(value)),
                Edit::Push { path, value } => assert_eq!(document.get(&path), Some(json!([value]))),
                Edit::Text(_) => {}
            }
        }
        let back = take_back(format, &applied.text, Some(text), &applied.done).unwrap();
        assert_eq!(
            value_of(format, &back.text.unwrap()),
            value_of(format, text)
        );
    }
}

#[test]
fn a_file_that_cannot_be_parsed_is_an_error() {
    for (format, text) in [
        (FileFormat::Json, "{\"a\": }"),
        (FileFormat::Json, "{\"a\": 1"),
        (FileFormat::Json, "{a: 1}"),
        (FileFormat::Json, "[1]"),
        (FileFormat::Json, "\"text\""),
        (FileFormat::Toml, "a = \n"),
        (FileFormat::Toml, "a = 1\na = 2\n"),
        (FileFormat::Toml, "[a\n"),
        (FileFormat::Env, "a='b\nc\n"),
        (FileFormat::Env, "a b=c\n"),
        (FileFormat::Yaml, "a: b: c\n"),
        (FileFormat::Yaml, "- a\n"),
        (FileFormat::Yaml, "a: 1\n---\nb: 2\n"),
    ] {
        let error = apply(format, Some(text), &edits(format)).unwrap_err();
        assert!(matches!(error, EditError::Syntax(_)), "{text:?}: {error}");
    }
}

#[test]
fn a_valid_file_of_another_shape_is_named() {
    for (text, name, wanted) in [
        ("context: a\n", "context", "mapping"),
        ("context: [a]\n", "context", "mapping"),
        ("plugins: 1\n", "plugins", "mapping"),
        ("plugins:\n  enabled: a\n", "plugins.enabled", "list"),
        (
            "plugins:\n  enabled:\n    a: 1\n",
            "plugins.enabled",
            "list",
        ),
        ("set-env: A=b\n", "set-env", "list"),
        ("? context\n: a\n", "context", "mapping"),
    ] {
        let error = apply(FileFormat::Yaml, Some(text), &edits(FileFormat::Yaml)).unwrap_err();
        let EditError::Shape(key, shape) = error else {
            panic!("{text:?}: {error}");
        };
        assert_eq!((key.as_str(), shape), (name, wanted), "{text:?}");
    }
}

#[test]
fn an_edit_that_would_change_more_is_an_error() {
    for text in [
        "context: &c {engine: a}\nother: *c\n",
        "other: &c {engine: a}\ncontext: *c\n",
    ] {
        let applied = apply(FileFormat::Yaml, Some(text), &edits(FileFormat::Yaml));
        let error = applied.unwrap_err();
        assert!(matches!(error, EditError::Style(_)), "{text:?}: {error}");
    }
}

#[test]
fn lists_of_every_style_get_one_element_and_lose_it_again() {
    let push = [Edit::push(&["plugins", "enabled"], "contexture")];
    for (before, during) in [
        (
            "plugins:\n  enabled: [] # mine\n",
            "enabled: [\"contexture\"] # mine\n",
        ),
        (
            "plugins:\n  enabled: [a, 'b']\n",
            "enabled: [a, 'b', \"contexture\"]\n",
        ),
        ("plugins:\n  enabled:\n", "enabled:\n    - \"contexture\"\n"),
        (
            "plugins:\n  enabled:\n  - a\nz: 1",
            "  - a\n  - \"contexture\"\nz: 1",
        ),
        (
            "\"plugins\":\n    'enabled':\n      - a\n",
            "      - a\n      - \"contexture\"\n",
        ),
        (
            "plugins:\nz: 1\n",
            "plugins:\n  enabled:\n    - \"contexture\"\nz: 1\n",
        ),
    ] {
        let applied = apply(FileFormat::Yaml, Some(before), &push).unwrap();
        assert!(applied.text.contains(during), "{}", applied.text);
        let back = take_back(FileFormat::Yaml, &applied.text, Some(before), &push).unwrap();
        assert!(back.left.is_empty());
        let (back, before) = (back.text.unwrap(), value_of(FileFormat::Yaml, before));
        assert_eq!(value_of(FileFormat::Yaml, &back), before, "{back}");
        assert!(!back.contains("contexture"), "{back}");
    }
}

#[test]
fn a_parent_that_is_something_else_is_an_error() {
    for (format, text) in [
        (FileFormat::Json, "{\"servers\": 1}"),
        (FileFormat::Json, "{\"hooks\": []}"),
        (FileFormat::Json, "{\"hooks\": {\"PreCompact\": {}}}"),
        (FileFormat::Toml, "servers = 1\n"),
        (FileFormat::Toml, "servers = []\n"),
    ] {
        let error = apply(format, Some(text), &edits(format)).unwrap_err();
        assert!(matches!(error, EditError::Shape(..)), "{text:?}: {error}");
    }
}

#[test]
fn a_file_of_our_own_is_not_put_over_another() {
    let own = [Edit::Text("ours".to_owned())];
    assert_eq!(apply(FileFormat::Own, None, &own).unwrap().text, "ours");
    assert!(
        apply(FileFormat::Own, Some("ours"), &own)
            .unwrap()
            .done
            .is_empty()
    );
    let error = apply(FileFormat::Own, Some("theirs"), &own).unwrap_err();
    assert_eq!(error, EditError::Exists);
}

/// A YAML text with this value. None if more would change than the value.
fn with_text(text: &str, path: &[&str], value: &str) -> Option<String> {
    let applied = apply(FileFormat::Yaml, Some(text), &[Edit::set(path, value)]);
    applied.ok().map(|applied| applied.text)
}

#[test]
fn one_value_changes_and_nothing_else() {
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
        let changed = with_text(before, &["context", "engine"], "lcm");
        assert_eq!(changed.as_deref(), Some(after), "{before:?}");
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
    fn any_line_can_be_a_value(value in "\\PC{0,20}", before in prop::sample::select(vec!["", "a: b\n", "{a: b}\n"])) {
        let changed = with_text(before, &["a"], &value);
        let changed = changed.and_then(|text| value_at(FileFormat::Yaml, &text, &["a"]));
        prop_assert_eq!(changed, Some(value.into()));
    }

    #[test]
    fn whatever_comes_of_it_means_what_was_asked(text in "[a-c:{}, #'\"\n]{0,40}") {
        if let Some(changed) = with_text(&text, &["a", "b"], "x") {
            prop_assert_eq!(value_at(FileFormat::Yaml, &changed, &["a", "b"]).unwrap(), "x");
        }
    }
}
