//! A small part of JSON Schema: the keys, and what each may hold.
//!
//! The same checker serves the host's own configuration, whose schema is derived from its structs, the
//! manifest of a plugin, and the settings that a manifest declares.

use http::Uri;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

use super::secrets::shorten;
use super::yaml::KeyPath;
use crate::suggest::nearest;

/// The allowed values of a key. The default allows anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// The types allowed; none for any.
    types: Vec<Type>,
    /// What it is for, with its unit.
    pub description: Option<String>,
    /// The default value.
    pub default: Option<Value>,
    /// The least number allowed.
    minimum: Option<f64>,
    /// The greatest number allowed.
    maximum: Option<f64>,
    /// The fewest characters allowed.
    min_length: u64,
    /// The values allowed; none for any.
    allowed: Vec<Value>,
    format: Option<Format>,
    /// The keys of a mapping; none for a mapping that may hold any.
    properties: Option<Vec<(String, Schema)>>,
    required: Vec<String>,
    /// The schema of keys that are not listed; none if no others are allowed.
    others: Option<Box<Schema>>,
    /// The schema of a list's elements.
    items: Option<Box<Schema>>,
    /// Whether an invalid value is ignored with a warning, rather than an error.
    ignore_invalid: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Url,
    EngineName,
}

/// Why a schema itself is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("the schema at `{at}` is wrong: {message}")]
pub struct SchemaError {
    /// Where in the schema.
    pub at: KeyPath,
    /// What is wrong, and what is allowed.
    pub message: String,
}

/// What is wrong with one key or value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Problem {
    /// A key that nothing reads.
    #[error("unknown key `{key}`{hint}")]
    UnknownKey {
        /// The key.
        key: String,
        /// A suggestion, or the known keys.
        hint: String,
    },
    /// A value that is not allowed.
    #[error("`{key}` is {value}, but must be {allowed}{hint}")]
    WrongValue {
        /// Its path.
        key: KeyPath,
        /// The value, shortened.
        value: String,
        /// What is allowed, in words.
        allowed: String,
        /// A suggestion, if there is one.
        hint: String,
    },
    /// A value that is not allowed and is ignored.
    #[error("`{key}` is {value}, but must be {allowed}; it is ignored")]
    Ignored {
        /// Its path.
        key: KeyPath,
        /// The value, shortened.
        value: String,
        /// What is allowed, in words.
        allowed: String,
    },
    /// A key that must be there.
    #[error("`{key}` is missing: {description}")]
    Missing {
        /// Its path.
        key: KeyPath,
        /// What it is for.
        description: String,
    },
    /// Two values that conflict.
    #[error("{message}")]
    Contradiction {
        /// Which, and what is allowed.
        message: String,
    },
    /// A secret in the file.
    #[error(
        "`{key}` holds what looks like {what}: take it out of the file and set it in the environment \
         (for example `export {variable}=…`)"
    )]
    Secret {
        /// Its path. The value itself is never shown.
        key: KeyPath,
        /// What kind of secret it looks like.
        what: String,
        /// The environment variable to set instead.
        variable: String,
    },
}

impl Problem {
    /// Whether the rest of the file can be used.
    pub(crate) fn is_warning(&self) -> bool {
        matches!(self, Self::UnknownKey { .. } | Self::Ignored { .. })
    }
}

/// A problem and the path of the value it is about.
pub(crate) type Found = (KeyPath, Problem);

impl Schema {
    /// The schema of `T`, from its fields, their attributes and their doc comments.
    pub(crate) fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        // Tests parse every schema that is derived here, so this default is never used.
        Self::parse(schema.as_value()).unwrap_or_default()
    }

    /// A mapping with these keys, each with its schema: what a manifest declares under `settings`.
    ///
    /// # Errors
    /// A keyword that is not known here, or one with a value of the wrong kind.
    pub(crate) fn of_properties(properties: &Map<String, Value>) -> Result<Self, SchemaError> {
        Ok(Self {
            types: vec![Type::Object],
            properties: Some(parse_properties(properties, &KeyPath::default())?),
            ..Self::default()
        })
    }

    /// Reads a schema written in JSON.
    ///
    /// # Errors
    /// A keyword that is not known here, or one with a value of the wrong kind.
    pub(crate) fn parse(schema: &Value) -> Result<Self, SchemaError> {
        Self::parse_at(schema, &KeyPath::default())
    }

    fn parse_at(schema: &Value, at: &KeyPath) -> Result<Self, SchemaError> {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(true) => return Ok(Self::default()),
            other => {
                return Err(wrong(
                    at,
                    &shorten(other),
                    "a mapping such as {type: integer}",
                ));
            }
        };
        let mut parsed = Self::default();
        for (keyword, value) in keywords {
            parsed.keyword(keyword, value, at)?;
        }
        if let Some(default) = parsed.default.clone()
            && let Some((_, problem)) = parsed.check(&mut default.clone()).first()
        {
            let message = format!("its own default is not allowed: {problem}");
            return Err(SchemaError {
                at: at.clone(),
                message,
            });
        }
        Ok(parsed)
    }

    fn keyword(&mut self, keyword: &str, value: &Value, at: &KeyPath) -> Result<(), SchemaError> {
        let here = at.key(keyword);
        let expected = |allowed: &str| wrong(&here, &shorten(value), allowed);
        match keyword {
            "type" => {
                let names = value
                    .as_array()
                    .map_or(std::slice::from_ref(value), Vec::as_slice);
                self.types = names
                    .iter()
                    .map(|name| name.as_str().and_then(Type::from_name))
                    .collect::<Option<_>>()
                    .ok_or_else(|| expected(Type::NAMES))?;
            }
            "description" => {
                let text = value.as_str().ok_or_else(|| expected("text"))?;
                self.description = Some(text.to_owned());
            }
            "default" => self.default = (!value.is_null()).then(|| value.clone()),
            "minimum" => self.minimum = Some(value.as_f64().ok_or_else(|| expected("a number"))?),
            "maximum" => self.maximum = Some(value.as_f64().ok_or_else(|| expected("a number"))?),
            "minLength" => {
                self.min_length = value.as_u64().ok_or_else(|| expected("a whole number"))?;
            }
            "enum" => {
                self.allowed = value.as_array().ok_or_else(|| expected("a list"))?.clone();
            }
            "const" => self.allowed = vec![value.clone()],
            // This is how a derived schema writes an enum with documented variants.
            "oneOf" => {
                for variant in value.as_array().ok_or_else(|| expected("a list"))? {
                    self.allowed.extend(Self::parse_at(variant, &here)?.allowed);
                }
            }
            "format" => {
                self.format = match value.as_str() {
                    Some("uri") => Some(Format::Url),
                    Some("engine-name") => Some(Format::EngineName),
                    _ => None,
                }
            }
            "properties" => {
                let properties = value.as_object().ok_or_else(|| expected("a mapping"))?;
                self.properties = Some(parse_properties(properties, &here)?);
            }
            "required" => {
                let keys = value.as_array().ok_or_else(|| expected("a list"))?;
                self.required = keys
                    .iter()
                    .filter_map(Value::as_str)
                    .map(String::from)
                    .collect();
            }
            "additionalProperties" => {
                self.others = match value {
                    Value::Bool(false) => None,
                    schema => Some(Box::new(Self::parse_at(schema, &here)?)),
                }
            }
            "items" => self.items = Some(Box::new(Self::parse_at(value, &here)?)),
            "ignoreInvalid" => self.ignore_invalid = value == &Value::Bool(true),
            "$schema" | "title" | "examples" => {}
            _ => {
                let hint = nearest(keyword, KEYWORDS).map_or_else(
                    || format!("known are {}", KEYWORDS.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                let message = format!("unknown keyword `{keyword}`, {hint}");
                return Err(SchemaError {
                    at: at.clone(),
                    message,
                });
            }
        }
        Ok(())
    }

    /// The keys of a mapping and what each may hold, in the order declared.
    pub(crate) fn properties(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.properties
            .iter()
            .flatten()
            .map(|(key, schema)| (key.as_str(), schema))
    }

    fn property(&self, key: &str) -> Option<&Schema> {
        self.properties()
            .find_map(|(name, schema)| (name == key).then_some(schema))
            .or(self.others.as_deref())
    }

    /// Whether a mapping may hold keys that are not listed.
    fn is_open(&self) -> bool {
        self.properties.is_none() || self.others.is_some()
    }

    /// Finds what is wrong with `value`, and normalises it: null values with a default and ignored values
    /// are removed, and words and numbers are converted to the expected type (`yes` is true, 20.0 is 20).
    pub(crate) fn check(&self, value: &mut Value) -> Vec<Found> {
        self.check_under(value, &KeyPath::default())
    }

    /// As [`check`](Self::check), for a value at the path `at` in its file.
    pub(crate) fn check_under(&self, value: &mut Value, at: &KeyPath) -> Vec<Found> {
        let mut found = Vec::new();
        self.check_at(value, at, self, &mut found);
        found
    }

    fn check_at(&self, value: &mut Value, at: &KeyPath, root: &Self, found: &mut Vec<Found>) {
        self.tidy(value);
        if let Err(hint) = self.admits(value) {
            let problem = Problem::WrongValue {
                key: at.clone(),
                value: shorten(value),
                allowed: self.allowed_in_words(),
                hint,
            };
            found.push((at.clone(), problem));
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
                let description = self
                    .property(key)
                    .and_then(|schema| schema.description.clone());
                let problem = Problem::Missing {
                    key: at.key(key),
                    description: description.unwrap_or_else(|| "it is required".into()),
                };
                found.push((at.clone(), problem));
            }
        }
        object.retain(|key, value| {
            let path = at.key(key);
            let Some(schema) = self.property(key) else {
                if !self.is_open() {
                    let hint = self.hint_for(key, at, root);
                    let key = path.to_string();
                    found.push((path, Problem::UnknownKey { key, hint }));
                }
                return true;
            };
            // A section whose lines are all commented out is null and means the defaults.
            if value.is_null() {
                return false;
            }
            let before = found.len();
            schema.check_at(value, &path, root, found);
            if found.len() == before || !schema.ignore_invalid {
                return true;
            }
            found.truncate(before);
            let problem = Problem::Ignored {
                key: path.clone(),
                value: shorten(value),
                allowed: schema.allowed_in_words(),
            };
            found.push((path, problem));
            false
        });
    }

    fn hint_for(&self, key: &str, at: &KeyPath, root: &Self) -> String {
        let siblings = || self.properties().map(|(name, _)| name);
        if let Some(near) = nearest(key, siblings()) {
            return format!(", did you mean `{}`?", at.key(near));
        }
        let mut hint = format!(
            "; known here: {}",
            siblings().collect::<Vec<_>>().join(", ")
        );
        let mut elsewhere = Vec::new();
        root.paths_to(key, &KeyPath::default(), &mut elsewhere);
        if let Some(path) = elsewhere.first() {
            hint.push_str(&format!("; there is a `{path}`"));
        }
        hint
    }

    /// The paths of all keys with this name.
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

    fn tidy(&self, value: &mut Value) {
        let tidied = match value {
            // YAML 1.1, which Python programs still use, has more words for true and false.
            Value::String(word) if self.allows(Type::Boolean) && !self.allows(Type::String) => {
                match word.to_ascii_lowercase().as_str() {
                    "yes" | "on" => Value::Bool(true),
                    "no" | "off" => Value::Bool(false),
                    _ => return,
                }
            }
            Value::Number(number) if self.allows(Type::Integer) && !self.allows(Type::Number) => {
                match number.as_f64() {
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

    /// Whether the value itself, without what is inside it, is allowed; if not, a hint.
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

    /// Describes what is allowed.
    fn allowed_in_words(&self) -> String {
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
                Type::Number => format!("a number{range}"),
                Type::String => match self.format {
                    Some(Format::Url) => "an address that begins with http:// or https://".into(),
                    Some(Format::EngineName) => crate::engine_name::NAME_RULE.into(),
                    None if self.min_length > 0 => "text that is not empty".into(),
                    None => "text".into(),
                },
                Type::Array => "a list".into(),
                Type::Object => "a mapping (`key: value` lines, indented)".into(),
            })
            .collect();
        either(&words)
    }
}

const KEYWORDS: [&str; 10] = [
    "type",
    "description",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "enum",
    "properties",
    "required",
    "items",
];

fn parse_properties(
    properties: &Map<String, Value>,
    at: &KeyPath,
) -> Result<Vec<(String, Schema)>, SchemaError> {
    properties
        .iter()
        .map(|(key, schema)| Ok((key.clone(), Schema::parse_at(schema, &at.key(key))?)))
        .collect()
}

fn wrong(at: &KeyPath, value: &str, allowed: &str) -> SchemaError {
    SchemaError {
        at: at.clone(),
        message: format!("it is {value}, but must be {allowed}"),
    }
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

impl Type {
    const NAMES: &str = "null, boolean, integer, number, string, array or object";

    fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Self::Null,
            "boolean" => Self::Boolean,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "string" => Self::String,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    fn holds(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Boolean => value.is_boolean(),
            Self::Integer => value.is_i64() || value.is_u64(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
        }
    }
}

impl Format {
    fn holds(self, text: &str) -> bool {
        match self {
            Self::Url => text
                .parse::<Uri>()
                .is_ok_and(|uri| matches!(uri.scheme_str(), Some("http" | "https"))),
            Self::EngineName => crate::engine_name::is_engine_name(text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    fn schema(value: Value) -> Schema {
        Schema::parse(&value).unwrap()
    }

    fn problems(schema: &Schema, mut value: Value) -> Vec<String> {
        let found = schema.check(&mut value);
        found
            .iter()
            .map(|(_, problem)| problem.to_string())
            .collect()
    }

    #[test]
    fn each_problem_names_key_value_and_what_is_allowed() {
        let schema = schema(
            json!({"type": "object", "required": ["name"], "properties": {
                "name": {"type": "string", "minLength": 1, "description": "what it is called"},
                "ratio": {"type": "number", "minimum": 0.1, "maximum": 0.8},
                "count": {"type": ["integer", "null"], "minimum": 1},
                "mode": {"enum": ["fast", "careful"]},
                "inner": {"type": "object", "properties": {"flag": {"type": "boolean"}}},
                "list": {"type": "array", "items": {"type": "string"}},
            }}),
        );
        assert_eq!(
            problems(
                &schema,
                json!({
                    "name": " ", "ratio": 0.9, "count": 0, "mode": "fats", "inner": {"flag": 1, "flg": true},
                    "list": ["a", 4], "flag": true, "nonsense": 1,
                })
            ),
            [
                "`name` is \" \", but must be text that is not empty",
                "`ratio` is 0.9, but must be a number from 0.1 to 0.8",
                "`count` is 0, but must be a whole number of at least 1 or null",
                "`mode` is \"fats\", but must be `fast` or `careful`; did you mean `fast`?",
                "`inner.flag` is 1, but must be true or false",
                "unknown key `inner.flg`, did you mean `inner.flag`?",
                "`list[1]` is 4, but must be text; put it in quotes",
                "unknown key `flag`; known here: name, ratio, count, mode, inner, list; there is a `inner.flag`",
                "unknown key `nonsense`; known here: name, ratio, count, mode, inner, list",
            ]
        );
        assert_eq!(
            problems(&schema, json!({})),
            ["`name` is missing: what it is called"]
        );
        assert_eq!(
            problems(
                &schema,
                json!({"name": "x", "count": null, "inner": null, "ratio": 0.1})
            ),
            [] as [&str; 0]
        );
        assert_eq!(
            problems(&schema, json!([1])),
            ["`` is [1], but must be a mapping (`key: value` lines, indented)"]
        );
    }

    #[test]
    fn values_get_the_type_that_is_asked_for() {
        let schema = schema(json!({"type": "object", "properties": {
            "on": {"type": "boolean"}, "n": {"type": "integer"}, "word": {"type": "string"},
        }}));
        let mut value = json!({"on": "Yes", "n": 20.0, "word": "no", "x": null});
        assert_eq!(schema.check(&mut value).len(), 1); // `x`, which is unknown
        assert_eq!(value, json!({"on": true, "n": 20, "word": "no", "x": null}));
        assert_eq!(
            problems(&schema, json!({"n": 20.5})),
            ["`n` is 20.5, but must be a whole number"]
        );
        assert_eq!(
            problems(&schema, json!({"n": "20"})),
            ["`n` is \"20\", but must be a whole number; take it out of the quotes"]
        );
    }

    #[test]
    fn a_schema_that_makes_no_sense_says_where() {
        let message = |value: Value| {
            let map = value.as_object().unwrap().clone();
            Schema::of_properties(&map).unwrap_err().to_string()
        };
        assert_eq!(
            message(json!({"a": {"type": "integer", "minumum": 1}})),
            "the schema at `a` is wrong: unknown keyword `minumum`, did you mean `minimum`?"
        );
        assert_eq!(
            message(json!({"a": {"type": "int"}})),
            "the schema at `a.type` is wrong: it is \"int\", but must be null, boolean, integer, number, \
             string, array or object"
        );
        assert!(message(json!({"a": 3})).contains("must be a mapping"));
        assert!(
            message(json!({"a": {"type": "integer", "minimum": 2, "default": 1}}))
                .contains("its own default is not allowed")
        );
    }
}
