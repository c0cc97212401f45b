//! Tools that an engine gives to the agent, and their calls.

use serde::{Deserialize, Serialize};

/// A tool that an engine offers, in no provider's own form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name, as the model calls it: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// The JSON schema of its arguments: an object schema.
    pub parameters: serde_json::Value,
}

/// A call of one of the engine's tools.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The arguments: JSON text as the model wrote it, not checked against the schema.
    pub arguments: String,
}
