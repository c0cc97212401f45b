//! Reads `config.yaml`, checks it and shows the configuration that results.
//!
//! The keys, their ranges and their defaults are the fields of [`Config`]. The schema that a file
//! is checked against is derived from these fields, so no second list of keys exists. Start with
//! [`Config::load`]: it finds the file, reads it and returns a [`Loaded`] with the values, their
//! source and the warnings.
//!
//! [`Schema`] is also the checker for a plugin's manifest and for the settings that a plugin
//! declares. [`with_text`] changes one value of a file and keeps its comments.
//! [`Loaded::effective`] lists every value together with its origin. This crate opens no session
//! and loads no engine: it only says which settings apply.

mod check;
mod document;
mod editor_schema;
pub mod engine_name;
mod guidance;
mod load;
mod schema;
mod secrets;
mod sections;
mod show;
mod threshold;
mod yaml;

pub use check::Problem;
pub use document::{DocumentError, Finding};
pub use editor_schema::editor_schema;
pub use load::{ConfigError, Loaded, home};
pub use schema::{Schema, SchemaError};
pub use sections::{
    Auxiliary, AuxiliaryModel, Compression, Config, Context, Contradicted, Gateway, GatewayMode,
    GatewayTls, Hygiene, Isolation, Model, ModelPrice, OnFailure, OnLoadFailure, OnMissing,
    Plugins, PriceSettings, PromptCaching, Provider, ProviderTls, Supervision, Telemetry, Timing,
    Transcript, TranscriptMode, TranscriptStore, Upstream,
};
pub use show::{Effective, Origin, Setting};
pub use threshold::{ModelCompression, Threshold};
pub use yaml::{KeyPath, Location, PathStep};

pub use document::Document;

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
