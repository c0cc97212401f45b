//! What is distinctive in a conversation, and a plain scan for it.
//!
//! The rule. Candidates are, in all that was said, thought, called and answered:
//! - words, names, identifiers and numbers: runs of four or more letters, digits and `_`;
//! - paths: runs of path characters with a `/` or a `.` between two names;
//! - Chinese, Japanese and Korean: each pair of neighbouring characters, and each run of at most eight.
//!
//! Distinctive is a candidate that at most [`FEW`] messages hold.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use contexture::formats::Message;
use regex::Regex;
use serde_json::Value;

/// How many messages may hold a distinctive string.
pub(crate) const FEW: usize = 3;

/// The longest run of a script without spaces that is looked for whole, in characters.
const LONGEST_RUN: usize = 8;

static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new("[A-Za-z0-9_]{4,}").unwrap());
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"[A-Za-z0-9_][A-Za-z0-9_./:@-]*[./][A-Za-z0-9_./:@-]*[A-Za-z0-9_]").unwrap()
});

/// What can be found of one message: its text, its thinking, and the name and every string and number of its
/// calls' arguments.
pub(crate) struct Said {
    fields: Vec<String>,
    lower: Vec<String>,
}

impl Said {
    pub(crate) fn of(message: &Message) -> Self {
        let mut fields = vec![message.text.clone(), message.thinking.clone()];
        for call in &message.calls {
            fields.push(call.name.clone());
            match serde_json::from_str(&call.arguments) {
                Ok(arguments) => strings(&arguments, &mut fields),
                Err(_) => fields.push(call.arguments.clone()),
            }
        }
        let lower = fields.iter().map(|field| field.to_lowercase()).collect();
        Self { fields, lower }
    }

    /// Whether it holds this text anywhere.
    pub(crate) fn holds(&self, needle: &str) -> bool {
        self.fields.iter().any(|field| field.contains(needle))
    }

    /// Whether it holds this text, in any case, where no word is cut at either end of it.
    pub(crate) fn holds_whole(&self, needle: &str) -> bool {
        let needle = needle.to_lowercase();
        let cuts = |one: Option<char>, other: Option<char>| {
            one.is_some_and(is_word) && other.is_some_and(is_word)
        };
        self.lower.iter().any(|field| {
            (0..field.len())
                .filter(|at| field.is_char_boundary(*at) && field[*at..].starts_with(&needle))
                .any(|at| {
                    let (before, rest) = field.split_at(at);
                    let after = &rest[needle.len()..];
                    !cuts(before.chars().next_back(), needle.chars().next())
                        && !cuts(needle.chars().next_back(), after.chars().next())
                })
        })
    }

    fn candidates(&self, into: &mut BTreeSet<String>) {
        for field in &self.fields {
            let words = WORD.find_iter(field).map(|found| found.as_str());
            into.extend(words.map(str::to_owned));
            let paths = PATH.find_iter(field).map(|found| found.as_str());
            into.extend(paths.map(str::to_owned));
            let mut run: Vec<char> = Vec::new();
            for c in field.chars().chain(['.']) {
                if is_spaceless(c) {
                    run.push(c);
                    continue;
                }
                into.extend(run.windows(2).map(|pair| pair.iter().collect()));
                if (2..=LONGEST_RUN).contains(&run.len()) {
                    into.insert(run.iter().collect());
                }
                run.clear();
            }
        }
    }
}

/// The candidates of a conversation, in alphabetical order.
pub(crate) fn candidates(said: &[Said]) -> Vec<String> {
    let mut all = BTreeSet::new();
    for said in said {
        said.candidates(&mut all);
    }
    all.into_iter().collect()
}

fn strings(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::String(text) => into.push(text.clone()),
        Value::Number(number) => into.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| strings(item, into)),
        Value::Object(members) => {
            for (key, member) in members {
                into.push(key.clone());
                strings(member, into);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}

/// Chinese, Japanese or Korean.
fn is_spaceless(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30fa}' | '\u{30fc}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

fn is_word(c: char) -> bool {
    (c.is_alphanumeric() || c == '_') && !is_spaceless(c)
}
