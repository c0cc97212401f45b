//! `docs/configuration.md` is what the schema says. After a change of the schema, write the page anew:
//! `CONTEXTURE_UPDATE_DOCS=1 cargo test -p contexture-config --test reference`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;
use std::path::Path;

use contexture_config::{Config, Schema};
use schemars::generate::SchemaSettings;
use serde_json::Value;

const BEGIN: &str =
    "<!-- What follows is written by a test from the schema: host/config/tests/reference.rs -->\n";

/// One key: a row of its section's table, and the section that it is, if it holds keys of its own.
fn row(key: &str, schema: &Value) -> String {
    let parsed = Schema::parse(schema).unwrap();
    let values = match schema.get("oneOf").and_then(Value::as_array) {
        // Each value with its own meaning.
        Some(variants) => {
            let variants = variants.iter().flat_map(|variant| {
                let description = variant["description"].as_str().unwrap_or_default();
                let words = variant.get("enum").and_then(Value::as_array);
                let words = words
                    .cloned()
                    .unwrap_or_else(|| vec![variant["const"].clone()]);
                words.into_iter().map(move |word| {
                    let word = word.as_str().unwrap().to_owned();
                    format!("`{word}`: {}", one_line(description))
                })
            });
            variants.collect::<Vec<_>>().join("<br>")
        }
        None => format!("*{}*", parsed.allowed_in_words()),
    };
    let default = match &schema["default"] {
        Value::Null => String::new(),
        Value::String(default) => format!("`{default}`"),
        default => format!("`{default}`"),
    };
    let description = one_line(schema["description"].as_str().unwrap_or_default());
    format!("| `{key}` | {default} | {description}<br>{values} |\n")
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

/// The tables of a section and of the sections in it.
fn section(path: &str, schema: &Value, page: &mut String) {
    let title = schema["description"].as_str().unwrap_or_default();
    let title = title.strip_prefix(&format!("`{path}`: ")).unwrap_or(title);
    let mut title = one_line(title);
    title[..1].make_ascii_uppercase();
    writeln!(page, "\n## `{path}`\n\n{title}\n").unwrap();
    let properties = schema["properties"].as_object().unwrap();
    let (sections, keys): (Vec<_>, Vec<_>) =
        (properties.iter()).partition(|(_, schema)| schema.get("properties").is_some());
    if !keys.is_empty() {
        page.push_str("| key | default | what it is for, and its values |\n|---|---|---|\n");
        for (key, schema) in keys {
            page.push_str(&row(key, schema));
        }
    }
    for (key, schema) in sections {
        section(&format!("{path}.{key}"), schema, page);
    }
    for (key, schema) in properties {
        // The keys of each entry of a mapping whose own keys the user chooses.
        let entry = &schema["additionalProperties"];
        if entry.get("properties").is_some() {
            section(&format!("{path}.{key}.*"), entry, page);
        }
    }
}

fn inlined<T: schemars::JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

#[test]
fn the_configuration_page_is_what_the_schema_says() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut page = String::from(BEGIN);
    let schema = inlined::<Config>();
    for (key, schema) in schema["properties"].as_object().unwrap() {
        section(key, schema, &mut page);
    }
    let folder = repository.join("plugins/context_engine");
    let mut plugins: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    plugins.sort();
    for plugin in plugins {
        let Ok(manifest) = std::fs::read_to_string(plugin.join("plugin.yaml")) else {
            continue;
        };
        let manifest: Value = serde_yaml::from_str(&manifest).unwrap();
        let Some(settings) = manifest["settings"].as_object() else {
            continue;
        };
        let name = manifest["name"].as_str().unwrap();
        // The example for authors is not part of the command.
        if name == "keep-tail" {
            continue;
        }
        writeln!(page, "\n## `context.engines.{name}`\n").unwrap();
        writeln!(page, "{}.\n", manifest["description"].as_str().unwrap()).unwrap();
        page.push_str("| key | default | what it is for, and its values |\n|---|---|---|\n");
        // The second spelling of a key says nothing that the first does not.
        for (key, schema) in settings
            .iter()
            .filter(|(_, schema)| schema.get("sameAs").is_none())
        {
            page.push_str(&row(key, schema));
        }
    }
    let file = repository.join("docs/configuration.md");
    let written = std::fs::read_to_string(&file).unwrap();
    let (head, tables) = written.split_at(written.find(BEGIN).expect("the page has its mark"));
    if std::env::var_os("CONTEXTURE_UPDATE_DOCS").is_some() {
        std::fs::write(&file, format!("{head}{page}")).unwrap();
    } else if tables != page {
        let differs = tables.lines().zip(page.lines()).find(|(was, is)| was != is);
        panic!(
            "docs/configuration.md is not what the schema says (set CONTEXTURE_UPDATE_DOCS=1 to write it): {differs:?}"
        );
    }
}
