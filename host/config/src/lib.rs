//! `config.yaml`: its keys, reading it, checking it and showing it.
//!
//! The keys, their ranges and their defaults are the fields of [`Config`]; the schema that a file is
//! checked against is derived from them. [`Config::load`] finds and reads the file.

mod check;
mod document;
mod edit;
pub mod engine_name;
mod load;
mod schema;
mod secrets;
mod sections;
mod show;
mod yaml;

pub use check::Problem;
pub use document::{DocumentError, Finding};
pub use edit::with_text;
pub use load::{ConfigError, Env, Loaded};
pub use schema::{Schema, SchemaError};
pub use sections::{
    Auxiliary, AuxiliaryModel, Compression, Config, Context, Gateway, GatewayMode, Hygiene,
    Isolation, Model, OnFailure, OnLoadFailure, OnMissing, Plugins, PromptCaching, Provider,
    Supervision, Timing, Transcript, TranscriptMode, Upstream,
};
pub use show::{Effective, Origin, Setting};
pub use yaml::{KeyPath, Location, PathStep};

pub use document::Document;
