//! A small part of JSON Schema: the keys, and what each may hold.
//!
//! The same checker serves the host's own configuration, whose schema is derived from its structs, the
//! manifest of a plugin, and the settings that a manifest declares.

use contexture_base::suggest::nearest;
use http::Uri;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

use super::secrets::shorten;
use super::yaml::KeyPath;

/// The allowed values of a key. The default allows anything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// The types allowed; none for any.
    pub(super) types: Vec<Type>,
    /// What it is for, with its unit.
    pub description: Option<String>,
    /// The default value.
    pub default: Option<Value>,
    /// The least number allowed.
    pub(super) minimum: Option<f64>,
    /// The greatest number allowed.
    pub(super) maximum: Option<f64>,
    /// The fewest characters allowed.
    pub(super) min_length: u64,
    /// The values allowed; none for any.
    pub(super) allowed: Vec<Value>,
    pub(super) format: Option<Format>,
    /// The keys of a mapping; none for a mapping that may hold any.
    pub(super) properties: Option<Vec<(String, Schema)>>,
    pub(super) required: Vec<String>,
    /// The schema of keys that are not listed; none if no others are allowed.
    pub(super) others: Option<Box<Schema>>,
    /// The schema of a list's elements.
    pub(super) items: Option<Box<Schema>>,
    /// Whether an invalid value is ignored with a warning, rather than an error.
    pub(super) ignore_invalid: bool,
    /// What the value may be beside those of other keys of its mapping.
    pub(super) beside: Vec<Beside>,
    /// The key of the same mapping for which this one is another spelling.
    pub(super) same_as: Option<String>,
}

/// A rule between a number and that of another key of the same mapping.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Beside {
    /// Not less than it.
    NotBelow(String),
    /// Together with it not more than this.
    SumAtMost(String, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
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

impl Schema {
    /// The schema of `T`, from its fields, their attributes and their doc comments.
    pub fn of<T: JsonSchema>() -> Self {
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        // Tests parse every schema that is derived here, so this default is never used.
        Self::parse(schema.as_value()).unwrap_or_default()
    }

    /// A mapping with these keys, each with its schema: what a manifest declares under `settings`.
    ///
    /// # Errors
    /// A keyword that is not known here, or one with a value of the wrong kind.
    pub fn of_properties(properties: &Map<String, Value>) -> Result<Self, SchemaError> {
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
    pub fn parse(schema: &Value) -> Result<Self, SchemaError> {
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
            "notBelow" => {
                let other = value.as_str().ok_or_else(|| expected("a key"))?;
                self.beside.push(Beside::NotBelow(other.to_owned()));
            }
            "sumAtMost" => {
                let sums = value.as_object().ok_or_else(|| expected("a mapping"))?;
                for (other, most) in sums {
                    let most = most
                        .as_f64()
                        .ok_or_else(|| expected("a key and a number"))?;
                    self.beside.push(Beside::SumAtMost(other.clone(), most));
                }
            }
            "sameAs" => {
                let other = value.as_str().ok_or_else(|| expected("a key"))?;
                self.same_as = Some(other.to_owned());
            }
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
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.properties
            .iter()
            .flatten()
            .map(|(key, schema)| (key.as_str(), schema))
    }

    pub(super) fn property(&self, key: &str) -> Option<&Schema> {
        self.properties()
            .find_map(|(name, schema)| (name == key).then_some(schema))
            .or(self.others.as_deref())
    }

    /// Whether a mapping may hold keys that are not listed.
    pub(super) fn is_open(&self) -> bool {
        self.properties.is_none() || self.others.is_some()
    }
}

const KEYWORDS: [&str; 13] = [
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
    "notBelow",
    "sumAtMost",
    "sameAs",
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

    pub(super) fn holds(self, value: &Value) -> bool {
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
    pub(super) fn holds(self, text: &str) -> bool {
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
    fn a_number_of_tokens_may_have_a_unit() {
        let schema = schema(json!({"type": "object", "properties": {
            "window": {"type": ["integer", "null"], "description": "The window, in tokens.", "minimum": 1},
            "timeout_ms": {"type": "integer", "description": "How long, in ms."},
        }}));
        for (written, meant) in [
            ("200k", 200_000),
            ("64K", 64_000),
            ("1M", 1_000_000),
            ("2m", 2_000_000),
        ] {
            let mut value = json!({"window": written});
            assert_eq!(schema.check(&mut value), []);
            assert_eq!(value, json!({"window": meant}));
        }
        for wrong in [
            json!({"window": "k"}),
            json!({"window": "-1k"}),
            json!({"window": "1.5k"}),
            json!({"window": "0k"}),
            json!({"window": "99999999999999999999k"}),
            json!({"timeout_ms": "5k"}),
        ] {
            assert_eq!(problems(&schema, wrong.clone()).len(), 1, "{wrong}");
        }
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
