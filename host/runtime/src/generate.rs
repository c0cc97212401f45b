//! A `plugin.yaml` made from what a library says of itself.

use std::path::Path;
use std::time::Duration;

use contexture_engine_api::EngineDescription;
use serde::Serialize;
use serde_json::Value;

use crate::catalog::{GENERATED, asks_of};
use crate::engines::load_plugin;

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
