//! What a host and an engine say about themselves.
//!
//! Before a host makes an engine, both sides introduce themselves. The host sends a [`HostInfo`]
//! with its version and the features that it supports. The engine answers with an
//! [`EngineDescription`], which holds its name, its version and an [`About`]: the settings it takes
//! and the optional parts of the interface that it uses.
//!
//! An engine author fills in only [`About`], in
//! [`StandaloneEngine::about`](crate::StandaloneEngine::about). Every flag in it is off by default.
//! If a flag stays off, the host does not call the methods that belong to it.

use serde::{Deserialize, Serialize};

use crate::crossing::null_as_default;

/// The version of this interface. Its major number is that of the ABI. If one side has a higher
/// minor version, both sides go on without what only that version has.
pub const API_VERSION: &str = env!("CARGO_PKG_VERSION");

open_struct! {
    /// What a host says about itself before it makes an engine. Engines use it to adapt their
    /// description to an older host.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct HostInfo {
        /// The version of the host program.
        pub version: String,
        /// The version of this interface that the host was built with.
        pub api: String,
        /// The names of everything that the host offers to an engine: the methods it calls, its
        /// services, and the entries it accepts.
        pub features: Vec<String>,
    }
}

impl HostInfo {
    /// Creates the description of a host with this version that supports everything in this version
    /// of the interface.
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            api: API_VERSION.to_owned(),
            features: crate::methods::features().map(str::to_owned).collect(),
        }
    }

    /// Returns true if the host supports the method, service or entry of this name.
    pub fn supports(&self, feature: &str) -> bool {
        self.features.iter().any(|known| known == feature)
    }
}

open_struct! {
    /// What an engine says about itself apart from its name. All of it is optional. The default is
    /// an engine that has no declared settings and uses no optional part of the interface.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct About {
        /// The JSON Schema of the settings under `context.engines.<name>`, which must describe an
        /// object. `None` accepts any settings. The host checks the configuration against it before
        /// it makes the engine.
        pub settings: Option<serde_json::Value>,
        /// Whether the engine reads the conversation with
        /// [`transcript`](crate::HostServices::transcript). If so, the host keeps the text of every
        /// message. Otherwise it keeps only ids and hashes, unless the configuration says `full`.
        #[serde(deserialize_with = "null_as_default")]
        pub reads_transcript: bool,
        /// Whether the engine proposes views for single requests. The host then calls
        /// [`select`](crate::ContextEngine::select).
        #[serde(deserialize_with = "null_as_default")]
        pub selects: bool,
        /// Whether the engine may change the window before every request. The host then calls
        /// [`rewrite`](crate::ContextEngine::rewrite).
        #[serde(deserialize_with = "null_as_default")]
        pub rewrites: bool,
        /// Whether the engine may shorten the user's last message to a marked preview with a
        /// [`Replace`](crate::Entry::Replace) and keep the original itself.
        #[serde(deserialize_with = "null_as_default")]
        pub keeps_user_messages: bool,
        /// Whether the engine's tools are added to every request. They keep their names. If the
        /// client has a tool of the same name, the engine's is called `<engine>_<name>`.
        #[serde(deserialize_with = "null_as_default")]
        pub offers_tools: bool,
        /// Whether the engine may forbid the model to call tools. The host then calls
        /// [`may_call_tools`](crate::ContextEngine::may_call_tools).
        #[serde(deserialize_with = "null_as_default")]
        pub limits_tool_calls: bool,
        /// The marks that the engine's summaries, shorter forms and notices may begin with, in
        /// addition to the marks of this crate. Each must begin with `[` or `【` and have at least
        /// three characters.
        #[serde(deserialize_with = "null_as_default")]
        pub marks: Vec<String>,
    }
}

open_struct! {
    /// An engine's full description. It combines what the engine's crate declares with the engine's
    /// [`About`].
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct EngineDescription {
        /// The name that `context.engine` in the configuration uses.
        pub name: String,
        /// The version of the engine's crate.
        pub version: String,
        /// One line that says what the engine does.
        #[serde(deserialize_with = "null_as_default")]
        pub description: String,
        /// The version of this interface that the engine was built with.
        #[serde(deserialize_with = "null_as_default")]
        pub api: String,
        /// The settings and the optional features of the engine.
        #[serde(deserialize_with = "null_as_default")]
        pub about: About,
    }
}
