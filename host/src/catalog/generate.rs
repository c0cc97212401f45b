//! A `plugin.yaml` made from what a library says of itself.

use std::path::Path;
use std::time::Duration;

use contexture_engine_api::{About, EngineDescription};
use serde::Serialize;
use serde_json::Value;

use crate::engines::load_plugin;

/// How a manifest begins that was made from a library, and is made anew when that is built.
pub const GENERATED: &str =
    "# Written by `contexture plugins build` from the library; change the engine instead.\n";

#[derive(Serialize)]
struct Written<'a> {
    name: &'a str,
    version: &'a str,
    description: &'a str,
    api: u32,
    asks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<&'a Value>,
}

/// The manifest of the plugin in this library, which is loaded.
///
/// # Errors
/// The library is not a plugin that this host can use, or loading it does not return within `deadline`.
pub fn manifest_of(library: &Path, deadline: Duration) -> Result<String, String> {
    load_plugin(library, deadline).map(|plugin| written(plugin.description()))
}

/// What an engine asks for beside compactions: the names of the flags that it sets.
pub(crate) fn asks_of(about: &About) -> Vec<String> {
    // What it says of itself always has a JSON form.
    let about = serde_json::to_value(about).unwrap_or_default();
    let flags = about.as_object().into_iter().flatten();
    let set = flags.filter(|(_, value)| **value == Value::Bool(true));
    set.map(|(flag, _)| flag.clone()).collect()
}

fn written(description: &EngineDescription) -> String {
    let settings = description.about.settings.as_ref();
    let manifest = Written {
        name: &description.name,
        version: &description.version,
        description: &description.description,
        api: contexture_engine_api::ABI_VERSION,
        asks: asks_of(&description.about),
        settings: settings.and_then(|schema| schema.get("properties")),
    };
    // Text and JSON can be said in YAML.
    let yaml = serde_yaml::to_string(&manifest).unwrap_or_default();
    format!("{GENERATED}{yaml}")
}
