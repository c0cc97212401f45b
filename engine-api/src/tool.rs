//! Tools that an engine gives to the agent, and their calls.

use serde::{Deserialize, Serialize};

open_struct! {
    /// A tool that an engine offers, in no provider's own form.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ToolSpec {
        /// Its name, as the model calls it: letters, digits, `_` and `-`.
        pub name: String,
        /// What it does, for the model.
        #[serde(default)]
        pub description: String,
        /// The JSON schema of its arguments: an object schema.
        pub parameters: serde_json::Value,
    }
}

impl ToolSpec {
    /// A tool of this name, with this JSON schema of its arguments.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: serde_json::Value,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
        }
    }
}

open_struct! {
    /// A call of one of the engine's tools.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ToolCall {
        /// The tool's name.
        pub name: String,
        /// The arguments: JSON text as the model wrote it, not checked against the schema.
        pub arguments: String,
    }
}

impl ToolCall {
    /// A call of the tool `name`.
    pub fn new(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            arguments: arguments.into(),
        }
    }
}
