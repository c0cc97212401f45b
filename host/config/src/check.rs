//! Checks a value against a [`Schema`] and says in words what is wrong.
//!
//! [`Schema::check`] walks through a value and its schema together. It collects every [`Problem`]
//! instead of stopping at the first one, so that a user can correct a file in one go. On the way it
//! normalises the value: a null that stands for a default is removed, and words such as `yes` get
//! the type that the schema asks for.
//!
//! The messages of a [`Problem`] name the key, the value and what is allowed. This module knows no positions in a file: [`Document`](super::Document) adds
//! them.

use contexture_base::suggest::nearest;
use serde::Serialize;
use serde_json::{Map, Value};

use super::schema::{Beside, Format, Schema, Type, shorten};
use super::threshold::{self, Threshold};
use super::yaml::KeyPath;

/// One thing that is wrong with a key or a value. The message names the path of the key, the value
/// that was found and the values that are allowed. A problem has no position, see
/// [`Finding`](super::Finding).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("{message}")]
pub struct Problem {
    pub(crate) kind: ProblemKind,
    pub(crate) message: String,
}

/// What follows from a problem.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProblemKind {
    /// The mapping has a key that nothing reads, most likely because it is misspelled. This is a
    /// warning, since the rest of the file can still be used.
    UnknownKey,
    /// There is no configuration before this is corrected.
    Wrong,
}

impl Problem {
    /// A problem that makes the file unusable.
    pub(crate) fn wrong(message: String) -> Self {
        let kind = ProblemKind::Wrong;
        Self { kind, message }
    }

    /// Returns whether the rest of the file can be used in spite of this problem. `config check`
    /// reports warnings as errors.
    pub(crate) fn is_warning(&self) -> bool {
        self.kind != ProblemKind::Wrong
    }
}

/// A problem and the path under which to look up its position. The path of a missing key does not
/// exist in the file, so its mapping's path stands here.
pub(crate) type Found = (KeyPath, Problem);

impl Schema {
    /// Finds what is wrong with `value` and normalises it in place.
    ///
    /// Nulls that stand for a default are removed. Words and numbers are converted to the expected
    /// type: `yes` becomes true, and 20.0 becomes 20. The list is empty if the value is valid.
    pub(crate) fn check(&self, value: &mut Value) -> Vec<Found> {
        self.check_under(value, &KeyPath::default())
    }

    /// Does the same as [`check`](Self::check) for a value that is only a part of its file. The
    /// paths of the problems begin with `at`, the path of the value in the file.
    pub(crate) fn check_under(&self, value: &mut Value, at: &KeyPath) -> Vec<Found> {
        let mut found = Vec::new();
        self.check_at(value, at, self, &mut found);
        found
    }

    fn check_at(&self, value: &mut Value, at: &KeyPath, root: &Self, found: &mut Vec<Found>) {
        self.tidy(value);
        if let Err(hint) = self.admits(value) {
            let (value, allowed) = (shorten(value), self.allowed_in_words());
            let message = format!("`{at}` is {value}, but must be {allowed}{hint}");
            found.push((at.clone(), Problem::wrong(message)));
            return;
        }
        match value {
            Value::Object(object) => self.check_object(object, at, root, found),
            Value::Array(list) => {
                if let Some(items) = &self.items {
                    for (index, item) in list.iter_mut().enumerate() {
                        items.check_at(item, &at.index(index), root, found);
                    }
                }
            }
            _ => {}
        }
    }

    fn check_object(
        &self,
        object: &mut Map<String, Value>,
        at: &KeyPath,
        root: &Self,
        found: &mut Vec<Found>,
    ) {
        for key in &self.required {
            if object.get(key).is_none_or(Value::is_null) {
                let schema = self.property(key);
                let description = schema.and_then(|schema| schema.description.as_deref());
                let description = description.unwrap_or("it is required");
                let message = format!("`{}` is missing: {description}", at.key(key));
                found.push((at.clone(), Problem::wrong(message)));
            }
        }
        object.retain(|key, value| {
            let path = at.key(key);
            let Some(schema) = self.property(key) else {
                if !self.is_open() {
                    let hint = self.hint_for(key, at, root);
                    let problem = Problem {
                        kind: ProblemKind::UnknownKey,
                        message: format!("unknown key `{path}`{hint}"),
                    };
                    found.push((path, problem));
                }
                return true;
            };
            // A section whose lines are all commented out is null. It means the defaults, so a null
            // is dropped and not reported as a value of the wrong type.
            if value.is_null() {
                return false;
            }
            schema.check_at(value, &path, root, found);
            true
        });
        self.check_spellings(object, at, found);
        self.check_beside(object, at, found);
    }

    /// Reports keys that the mapping has in both of their spellings. Without this check, the value
    /// of one of the two would silently have no effect.
    fn check_spellings(&self, object: &Map<String, Value>, at: &KeyPath, found: &mut Vec<Found>) {
        for (key, schema) in self.properties() {
            let Some(same) = &schema.same_as else {
                continue;
            };
            if object.contains_key(key) && object.contains_key(same) {
                let path = at.key(key);
                let other = at.key(same);
                let message =
                    format!("`{path}` and `{other}` are the same setting: remove one of them");
                found.push((path, Problem::wrong(message)));
            }
        }
    }

    /// Returns the spelling of `key` that the mapping uses: `key` itself if it is there, otherwise
    /// a key that is declared as the same, and `key` if neither is there.
    fn spelled<'s>(&'s self, key: &'s str, object: &Map<String, Value>) -> &'s str {
        let mut others = self.properties().filter(|(name, schema)| {
            schema.same_as.as_deref() == Some(key) && object.contains_key(*name)
        });
        match object.contains_key(key) {
            true => key,
            false => others.next().map_or(key, |(name, _)| name),
        }
    }

    /// Finds numbers that contradict each other, such as a lower limit above an upper one. If one
    /// of the two numbers is not written in the mapping, its default is compared.
    fn check_beside(&self, object: &Map<String, Value>, at: &KeyPath, found: &mut Vec<Found>) {
        let number = |key: &str| {
            let default = || self.property(key)?.default.as_ref();
            let written = object.get(self.spelled(key, object));
            written.or_else(default)?.as_f64()
        };
        let told = |key: &str| match object.contains_key(key) {
            true => String::new(),
            false => " (its default)".to_owned(),
        };
        for (key, schema) in self.properties() {
            for rule in &schema.beside {
                let (Beside::NotBelow(other) | Beside::SumAtMost(other, _)) = rule;
                let (Some(value), Some(than)) = (number(key), number(other)) else {
                    continue;
                };
                let must = match rule {
                    Beside::NotBelow(_) if value < than => "must not be less than".to_owned(),
                    // Binary fractions do not add up exactly: 0.7 and 0.3 must count as 1.
                    Beside::SumAtMost(_, most) if value + than > most + 1e-9 => {
                        let sum = (1e6 * (value + than)).round() / 1e6;
                        format!("must not be more than {most} together, and is {sum}, with")
                    }
                    _ => continue,
                };
                let (key, other) = (self.spelled(key, object), self.spelled(other, object));
                let message = format!(
                    "`{}` is {value}{}, but {must} `{}`, {than}{}",
                    at.key(key),
                    told(key),
                    at.key(other),
                    told(other)
                );
                // A contradiction is reported at a key that the user wrote, because a default has
                // no position in the file.
                let written = if object.contains_key(key) { key } else { other };
                found.push((at.key(written), Problem::wrong(message)));
            }
        }
    }

    fn hint_for(&self, key: &str, at: &KeyPath, root: &Self) -> String {
        let siblings = || self.properties().map(|(name, _)| name);
        if let Some(near) = nearest(key, siblings()) {
            return format!(", did you mean `{}`?", at.key(near));
        }
        let known: Vec<&str> = (self.properties())
            .filter(|(_, schema)| schema.same_as.is_none())
            .map(|(name, _)| name)
            .collect();
        let mut hint = format!("; known here: {}", known.join(", "));
        let mut elsewhere = Vec::new();
        root.paths_to(key, &KeyPath::default(), &mut elsewhere);
        if let Some(path) = elsewhere.first() {
            hint.push_str(&format!("; there is a `{path}`"));
        }
        hint
    }

    /// Adds the paths of all keys with this name, anywhere in the schema. They become the hint for
    /// a key that stands in the wrong section.
    fn paths_to(&self, key: &str, at: &KeyPath, paths: &mut Vec<KeyPath>) {
        for (name, schema) in self.properties() {
            let path = at.key(name);
            schema.paths_to(key, &path, paths);
            if name == key {
                paths.push(path);
            }
        }
    }

    fn allows(&self, wanted: Type) -> bool {
        self.types.contains(&wanted)
    }

    /// Returns whether the value is true or false, and never a text.
    pub(super) fn is_boolean(&self) -> bool {
        self.allows(Type::Boolean) && !self.allows(Type::String)
    }

    /// Returns whether the value is a whole number of tokens, which may be written with a unit. The
    /// schema has no unit of its own, so the word "tokens" in the description decides. It does not
    /// count in the name of another key, such as `gateway.tokens`.
    fn is_tokens(&self) -> bool {
        let is_number = self.allows(Type::Integer) && !self.allows(Type::String);
        let description = self.description.as_deref().unwrap_or_default();
        // Names stand between backquotes, so every other part is prose.
        let mut prose = description.split('`').step_by(2);
        is_number && prose.any(|text| text.contains("tokens"))
    }

    /// Returns whether the value may be written as a number of tokens with a unit.
    pub(super) fn takes_unit(&self) -> bool {
        self.is_tokens() || self.format == Some(Format::Threshold)
    }

    fn tidy(&self, value: &mut Value) {
        let tidied = match value {
            // YAML 1.1, which many Python programs still write, has more words for true and false
            // than YAML 1.2.
            Value::String(word) if self.is_boolean() => match word.to_ascii_lowercase().as_str() {
                "yes" | "on" => Value::Bool(true),
                "no" | "off" => Value::Bool(false),
                _ => return,
            },
            // People write numbers of tokens with a unit: 200k, 1M.
            Value::String(text) if self.takes_unit() => match tokens(text) {
                Some(tokens) => Value::from(tokens),
                None => return,
            },
            Value::Number(number) if self.allows(Type::Integer) && !self.allows(Type::Number) => {
                match number.as_f64() {
                    // Not far above 1e15, floats stop holding every whole number exactly. Such a
                    // number is not converted, so it is refused like a fraction.
                    Some(float)
                        if number.is_f64() && float.fract() == 0.0 && float.abs() < 1e15 =>
                    {
                        Value::from(float as i64)
                    }
                    _ => return,
                }
            }
            _ => return,
        };
        *value = tidied;
    }

    /// Checks the value itself but not what is inside it. The error is a hint for the end of the
    /// message, and is empty if there is nothing to suggest.
    fn admits(&self, value: &Value) -> Result<(), String> {
        let fits = self.types.is_empty() || self.types.iter().any(|wanted| wanted.holds(value));
        if !fits {
            return Err(match value {
                Value::Number(_) if self.allows(Type::String) => "; put it in quotes".into(),
                Value::String(text)
                    if text.parse::<f64>().is_ok()
                        && (self.allows(Type::Number) || self.allows(Type::Integer)) =>
                {
                    "; take it out of the quotes".into()
                }
                _ => String::new(),
            });
        }
        // A null is valid if the type list has null, even if the list of allowed words does not.
        if value.is_null() && self.allows(Type::Null) {
            return Ok(());
        }
        if !self.allowed.is_empty() && !self.allowed.contains(value) {
            let words = self.allowed.iter().filter_map(Value::as_str);
            return Err(value
                .as_str()
                .and_then(|word| nearest(word, words))
                .map_or_else(String::new, |near| format!("; did you mean `{near}`?")));
        }
        let in_range = value.as_f64().is_none_or(|number| {
            self.minimum.is_none_or(|least| number >= least)
                && self.maximum.is_none_or(|most| number <= most)
                && (self.format != Some(Format::Threshold) || Threshold::allows(number))
        });
        let well_formed = value.as_str().is_none_or(|text| {
            text.trim().chars().count() as u64 >= self.min_length
                && self.format.is_none_or(|format| format.holds(text))
        });
        if in_range && well_formed {
            Ok(())
        } else {
            Err(String::new())
        }
    }

    /// Describes the values that are allowed, as error messages and tables of settings print them:
    /// "a whole number from 1 to 64 or null". A list of allowed words takes precedence over the types.
    /// Rules between two keys are not part of it.
    pub fn allowed_in_words(&self) -> String {
        if !self.allowed.is_empty() {
            let words: Vec<_> = self
                .allowed
                .iter()
                .map(|value| format!("`{}`", plain(value)))
                .collect();
            return either(&words);
        }
        let range = match (self.minimum, self.maximum) {
            (Some(least), Some(most)) => format!(" from {least} to {most}"),
            (Some(least), None) => format!(" of at least {least}"),
            (None, Some(most)) => format!(" of at most {most}"),
            (None, None) => String::new(),
        };
        let words: Vec<_> = self
            .types
            .iter()
            .map(|allowed| match allowed {
                Type::Null => "null".into(),
                Type::Boolean => "true or false".into(),
                Type::Integer => format!("a whole number{range}"),
                Type::Number if self.format == Some(Format::Threshold) => threshold::RULE.into(),
                Type::Number => format!("a number{range}"),
                Type::String => match self.format {
                    Some(Format::Url) => "an address that begins with http:// or https://".into(),
                    Some(Format::EngineName) => crate::engine_name::NAME_RULE.into(),
                    _ if self.min_length > 0 => "text that is not empty".into(),
                    _ => "text".into(),
                },
                Type::Array => "a list".into(),
                Type::Object => "a mapping (`key: value` lines, indented)".into(),
            })
            .collect();
        either(&words)
    }
}

/// Parses a number of tokens with a unit: `64k`, `200K`, `1M` or `0.2M`. The units are powers of ten.
/// Returns None for a text without a unit, a fraction of a token, or a number that is too large.
pub(crate) fn tokens(text: &str) -> Option<u64> {
    let (number, places) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 3),
        None => (text.strip_suffix(['m', 'M'])?, 6),
    };
    // The decimals become digits of the whole number, so that nothing is rounded.
    let (whole, decimals) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(decimals) || decimals.len() > places {
        return None;
    }
    format!("{whole}{decimals:0<places$}").parse().ok()
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), String::from)
}

fn either(words: &[String]) -> String {
    match words {
        [] => "anything".into(),
        [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
        [only, ..] => only.clone(),
    }
}
