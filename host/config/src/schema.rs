//! A small part of JSON Schema: which keys a mapping has, and what each may hold.
//!
//! [`Schema`] is the type to read first. The same checker serves three kinds of input: the host's
//! own configuration, whose schema is derived from its structs ([`Schema::of`]), the manifest of a
//! plugin, and the settings that a manifest declares ([`Schema::of_properties`]).
//!
//! A general JSON Schema library would accept more keywords but give worse messages. This one
//! refuses a keyword that it does not know, so that a plugin's author notices a misspelled
//! `minumum`. Three keywords are its own: `notBelow`, `sumAtMost` and `sameAs`. The checks
//! themselves are in the `check` module.

use contexture_base::suggest::nearest;
use http::Uri;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

use super::yaml::KeyPath;

/// The values that a key may have. The default schema allows anything. Keywords that only annotate,
/// such as `title`, are dropped when a schema is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Schema {
    /// The allowed types. An empty list allows any.
    pub(super) types: Vec<Type>,
    /// What the key is for, with its unit. Commands that list settings print it, and the message
    /// for a missing key quotes it. None if the schema does not say.
    pub description: Option<String>,
    /// The default value. None if there is no default, or if it is null.
    pub default: Option<Value>,
    pub(super) minimum: Option<f64>,
    pub(super) maximum: Option<f64>,
    pub(super) min_length: u64,
    /// The allowed values. An empty list allows any.
    pub(super) allowed: Vec<Value>,
    pub(super) format: Option<Format>,
    /// The keys of a mapping, in the order declared. None if the mapping may have any.
    pub(super) properties: Option<Vec<(String, Schema)>>,
    pub(super) required: Vec<String>,
    /// The schema of keys that are not listed. None if no others are allowed.
    pub(super) others: Option<Box<Schema>>,
    pub(super) items: Option<Box<Schema>>,
    /// The rules between this number and other keys of its mapping.
    pub(super) beside: Vec<Beside>,
    /// The key of the same mapping that this one is another spelling of.
    pub(super) same_as: Option<String>,
}

/// A rule between a number and another number of the same mapping. If a key is not written, its
/// default is compared.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Beside {
    /// The number must not be less than the one under this key.
    NotBelow(String),
    /// The sum of the number and the one under this key must not be more than this.
    SumAtMost(String, f64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
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
    /// A share or a number of tokens, see [`Threshold`](crate::Threshold).
    Threshold,
}

/// Why a schema itself is invalid. A plugin's author sees this error, since the host's own schemas
/// are covered by tests.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[error("the schema at `{at}` is wrong: {message}")]
pub struct SchemaError {
    /// The path of the keyword in the schema.
    pub at: KeyPath,
    /// What is wrong at that path, and what is allowed. The text follows the path in the message.
    pub message: String,
}

impl Schema {
    /// Derives the schema of `T` from its fields, their attributes and their doc comments. A
    /// field's doc comment becomes the description that users see.
    pub fn of<T: JsonSchema>() -> Self {
        // Schemas are inlined because this parser does not follow `$ref`.
        let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
        let schema = settings.into_generator().into_root_schema_for::<T>();
        // A test parses every schema that is derived here, so this default is never used.
        Self::parse(schema.as_value()).unwrap_or_default()
    }

    /// Reads the schema of a mapping from its keys and their schemas, which is what a manifest
    /// declares under `settings`.
    ///
    /// # Errors
    /// Fails on a keyword that is not known here, on a keyword whose value has the wrong
    /// type, and on a default that its own schema refuses.
    pub fn of_properties(properties: &Map<String, Value>) -> Result<Self, SchemaError> {
        Ok(Self {
            types: vec![Type::Object],
            properties: Some(parse_properties(properties, &KeyPath::default())?),
            ..Self::default()
        })
    }

    /// Reads a schema that is written in JSON.
    ///
    /// # Errors
    /// Fails on a keyword that is not known here, on a keyword whose value has the wrong
    /// type, and on a default that its own schema refuses.
    pub fn parse(schema: &Value) -> Result<Self, SchemaError> {
        Self::parse_at(schema, &KeyPath::default())
    }

    fn parse_at(schema: &Value, at: &KeyPath) -> Result<Self, SchemaError> {
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            // JSON Schema writes "anything is allowed" as `true`.
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
            // A null default says the same as no default, and a null may not pass the check of a
            // default.
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
            // A derived schema writes an enum with documented variants in this form.
            "oneOf" => {
                for variant in value.as_array().ok_or_else(|| expected("a list"))? {
                    self.allowed.extend(Self::parse_at(variant, &here)?.allowed);
                }
            }
            // An unknown format is ignored, as JSON Schema asks for: schemars writes `uint64` and
            // others.
            "format" => {
                self.format = match value.as_str() {
                    Some("uri") => Some(Format::Url),
                    Some("engine-name") => Some(Format::EngineName),
                    Some("threshold") => Some(Format::Threshold),
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
            // These keywords describe a schema and restrict nothing.
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

    /// The keys of a mapping with their schemas, in the order declared. Empty if the mapping may
    /// have any key.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.properties
            .iter()
            .flatten()
            .map(|(key, schema)| (key.as_str(), schema))
    }

    /// Returns the schema for `key`: its own if it is listed, otherwise the one for all other keys.
    /// None if the key is not allowed or if nothing is said about it.
    pub(super) fn property(&self, key: &str) -> Option<&Schema> {
        self.properties()
            .find_map(|(name, schema)| (name == key).then_some(schema))
            .or(self.others.as_deref())
    }

    /// Returns whether a mapping may have keys that are not listed. Only then is an unlisted key no
    /// mistake.
    pub(super) fn is_open(&self) -> bool {
        self.properties.is_none() || self.others.is_some()
    }
}

/// The keywords that [`Schema::keyword`] accepts, for the hint about an unknown one.
const KEYWORDS: [&str; 20] = [
    "type",
    "description",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "enum",
    "const",
    "oneOf",
    "format",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "notBelow",
    "sumAtMost",
    "sameAs",
    "$schema",
    "title",
    "examples",
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
            // It is a number.
            Self::Threshold => false,
        }
    }
}

/// Returns a value as JSON on one short line, for a message. Everything after 60 characters is
/// replaced by an ellipsis.
pub(crate) fn shorten(value: &Value) -> String {
    const MOST_CHARS: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
