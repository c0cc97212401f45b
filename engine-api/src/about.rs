//! What the two sides say of themselves before anything is made.

use serde::{Deserialize, Serialize};

/// The version of this interface: its major number is that of the ABI, and either side does without what only a
/// later minor version has.
pub const API_VERSION: &str = env!("CARGO_PKG_VERSION");

open_struct! {
    /// A host, as an engine learns of it first.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct HostInfo {
        /// The host's own version.
        pub version: String,
        /// The version of the interface that it was built with.
        pub api: String,
        /// What it does for an engine, by name: methods that it calls, services, and entries that it takes.
        pub features: Vec<String>,
    }
}

impl HostInfo {
    /// A host of this version that does all that this version of the interface has.
    pub fn new(version: impl Into<String>) -> Self {
        Self {
            version: version.into(),
            api: API_VERSION.to_owned(),
            features: crate::protocol::features().map(str::to_owned).collect(),
        }
    }

    /// Whether it does this for an engine.
    pub fn supports(&self, feature: &str) -> bool {
        self.features.iter().any(|known| known == feature)
    }
}

open_struct! {
    /// What an engine says of itself beside its name. All of it may be left out.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct About {
        /// The settings under `context.engines.<name>`, as JSON Schema of an object; none for any. The host checks
        /// what is configured before it makes the engine.
        pub settings: Option<serde_json::Value>,
        /// It keeps whole conversations, and answers [`manage`](crate::EngineFactory::manage).
        pub keeps_sessions: bool,
        /// It reads the conversation with [`transcript`](crate::HostServices::transcript), so the host keeps the text of
        /// every message. Otherwise the host keeps only ids and hashes, unless the configuration says `full`.
        pub reads_transcript: bool,
        /// It has views of its own for requests, see [`select`](crate::ContextEngine::select).
        pub selects: bool,
        /// It changes the window before every request, see [`rewrite`](crate::ContextEngine::rewrite).
        pub rewrites: bool,
        /// It may keep the user's last message aside and leave a marked preview of it, in a [`Replace`](crate::Entry::Replace).
        pub keeps_user_messages: bool,
        /// Its tools are put into every request, under their names, or as `<engine>_<name>` where the client uses one of
        /// the same name.
        pub offers_tools: bool,
        /// It may forbid the model to call tools, see [`may_call_tools`](crate::ContextEngine::may_call_tools).
        pub limits_tool_calls: bool,
        /// What its summaries, shorter forms and notices may begin with beside the marks of this crate. Each begins
        /// with `[` or `【` and has three characters at least.
        pub marks: Vec<String>,
    }
}

open_struct! {
    /// An engine's description of itself.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    pub struct EngineDescription {
        /// Its name.
        pub name: String,
        /// Its version.
        pub version: String,
        /// One line on what it does.
        pub description: String,
        /// The version of the interface that it was built with.
        pub api: String,
        /// What else it says of itself.
        pub about: About,
    }
}
