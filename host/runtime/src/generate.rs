//! Generates a `plugin.yaml` from what a library declares about itself.
//!
//! Authors write the name, version and settings of an engine once, in its code. `contexture plugins
//! build` then loads the library and writes the manifest with [`manifest_of`].

use std::path::Path;
use std::time::Duration;

use contexture_engine_api::EngineDescription;
use serde::Serialize;
use serde_json::Value;

use crate::catalog::{GENERATED, asks_of};
use crate::engines::load_plugin;

/// The keys of a generated manifest, in the order in which they are written.
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

/// Loads the library and returns the manifest of its engine as YAML. The text begins with
/// [`GENERATED`](crate::catalog::GENERATED), so that a later build knows that it may replace the
/// file.
///
/// # Errors
/// Returns a message if the library is not a plugin that this host can use, or if loading it does
/// not return within `deadline`.
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
    // Cannot fail: every value is text or JSON, and YAML can represent both.
    let yaml = serde_yaml::to_string(&manifest).unwrap_or_default();
    format!("{GENERATED}{yaml}")
}
