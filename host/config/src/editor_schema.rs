//! The schema of `config.yaml` in the form that editors read.
//!
//! An editor with a YAML language server completes keys, shows what each is for, and marks wrong values while the file
//! is written. It wants standard JSON Schema (draft 2020-12), which differs from the project's own checker in three
//! ways: keys that are not listed have to be forbidden, an empty section is null, and a number of tokens may be
//! written as `200k`. [`editor_schema`] writes these rules out. A rule between two keys has no standard form. Only
//! `contexture config check` reports it.

use serde_json::{Map, Value, json};

use super::engine_name::BUILT_IN;
use super::load::COMPRESSOR;
use super::schema::{Format, Schema, Type};
use super::sections::{Config, ISOLATION, Isolation};
use super::threshold::LEAST_TOKENS;

/// The JSON Schema of a configuration file in which the settings of these engines may stand, each a name with the
/// properties that it declares. Settings of other engines are allowed and not checked.
pub fn editor_schema<'e>(engines: impl IntoIterator<Item = (&'e str, &'e Schema)>) -> Value {
    let mut schema = standard(&Schema::of::<Config>());
    let isolation = standard(&Schema::of::<Isolation>());
    let engines: Map<String, Value> = (engines.into_iter())
        .chain([(BUILT_IN, &*COMPRESSOR)])
        .map(|(name, settings)| {
            let mut settings = standard(settings);
            settings["properties"][ISOLATION] = isolation.clone();
            settings["description"] = format!("The settings of `{name}`.").into();
            (name.to_owned(), settings)
        })
        .collect();
    schema["properties"]["context"]["properties"]["engines"]["properties"] = engines.into();
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The configuration of Contexture",
    });
    if let (Some(document), Value::Object(schema)) = (document.as_object_mut(), schema) {
        document.extend(schema);
    }
    document
}

fn standard(schema: &Schema) -> Value {
    let mut out = Map::new();
    let mut put = |keyword: &str, value: Value| out.insert(keyword.to_owned(), value);
    if let Some(description) = &schema.description {
        put("description", description.as_str().into());
    }
    let mut types: Vec<Value> = schema.types.iter().map(|one| json!(one)).collect();
    if schema.takes_unit() {
        types.push(json!(Type::String));
        put("pattern", "^[0-9]+([.][0-9]+)?[kKmM]$".into());
    }
    // The checker takes an empty section for its defaults.
    if schema.types == [Type::Object] {
        types.push(json!(Type::Null));
    }
    match types.as_slice() {
        [] => {}
        [one] => {
            put("type", one.clone());
        }
        _ => {
            put("type", types.into());
        }
    }
    if !schema.allowed.is_empty() {
        put("enum", schema.allowed.clone().into());
    }
    // The default of a section is the defaults of its keys, which stand beside each of them.
    if let Some(default) = schema
        .default
        .as_ref()
        .filter(|_| schema.properties.is_none())
    {
        put("default", default.clone());
    }
    let bounds = [("minimum", schema.minimum), ("maximum", schema.maximum)];
    for (keyword, bound) in bounds {
        if let Some(bound) = bound {
            // Without a fraction where there is none: `1`, not `1.0`.
            let is_whole = bound.fract() == 0.0 && bound.abs() < 1e15;
            put(
                keyword,
                if is_whole {
                    json!(bound as i64)
                } else {
                    json!(bound)
                },
            );
        }
    }
    if schema.min_length > 0 {
        put("minLength", schema.min_length.into());
    }
    match schema.format {
        Some(Format::Url) => put("pattern", "^https?://".into()),
        Some(Format::EngineName) => put("pattern", crate::engine_name::PATTERN.into()),
        Some(Format::Threshold) => {
            let neither = json!({"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": LEAST_TOKENS as u64});
            put("not", neither);
            put("exclusiveMinimum", 0.into())
        }
        None => None,
    };
    if let Some(items) = &schema.items {
        put("items", standard(items));
    }
    if let Some(properties) = &schema.properties {
        let properties = properties.iter();
        let properties: Map<String, Value> = properties
            .map(|(key, schema)| (key.clone(), standard(schema)))
            .collect();
        put("properties", properties.into());
        put("additionalProperties", schema.others.is_some().into());
    }
    if let Some(others) = &schema.others {
        put("additionalProperties", standard(others));
    }
    if !schema.required.is_empty() {
        put("required", json!(schema.required));
    }
    Value::Object(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn each_rule_of_the_checker_is_in_the_standard_form() {
        let settings = json!({"size": {"type": "integer", "minimum": 1, "description": "The size, in tokens.", "default": 5}});
        let settings = Schema::of_properties(settings.as_object().unwrap()).unwrap();
        let schema = editor_schema([("mine", &settings)]);
        let engine = &schema["properties"]["context"]["properties"]["engine"];
        assert_eq!(engine["default"], "compressor");
        assert_eq!(engine["pattern"], crate::engine_name::PATTERN);
        let mine = &schema["properties"]["context"]["properties"]["engines"]["properties"]["mine"];
        assert_eq!(mine["type"], json!(["object", "null"]));
        assert_eq!(mine["additionalProperties"], false);
        assert_eq!(
            mine["properties"]["isolation"]["enum"],
            json!(["none", "process"])
        );
        let size = json!({
            "description": "The size, in tokens.", "type": ["integer", "string"], "pattern": "^[0-9]+([.][0-9]+)?[kKmM]$",
            "default": 5, "minimum": 1,
        });
        assert_eq!(mine["properties"]["size"], size);
        let gateway = &schema["properties"]["gateway"];
        assert_eq!(gateway["additionalProperties"], false);
        assert_eq!(gateway["properties"]["max_hold_ms"]["maximum"], 600_000);
        let upstream = &schema["properties"]["upstream"]["properties"]["openai"]["properties"];
        assert_eq!(upstream["base_url"]["pattern"], "^https?://");
        assert_eq!(schema["additionalProperties"], false);
    }
}
