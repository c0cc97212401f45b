//! Tools that an engine offers to the agent, and their calls.
//!
//! An engine describes its tools with [`ToolSpec`] in [`tools`](crate::ContextEngine::tools). When
//! the model calls one of them, the host passes a [`ToolCall`] to
//! [`call_tool`](crate::ContextEngine::call_tool).

use serde::{Deserialize, Serialize};

open_struct! {
    /// A tool that an engine offers, independent of any provider's format. The host converts it
    /// when it adds the tool to a request.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct ToolSpec {
        /// The name by which the model calls the tool. It may contain letters, digits, `_` and `-`.
        /// The host does not offer a tool whose name has more than 64 characters.
        pub name: String,
        /// What the tool does and when to use it, for the model.
        #[serde(default)]
        pub description: String,
        /// The JSON Schema of the arguments. It must describe an object, or the host does not offer
        /// the tool.
        pub parameters: serde_json::Value,
    }
}

impl ToolSpec {
    /// Creates a tool with this name, description and schema of its arguments.
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
    /// A call of one of the engine's tools, as the model made it.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct ToolCall {
        /// The name of the tool. If the host renamed the tool for the client, this is still the
        /// engine's name for it.
        pub name: String,
        /// The arguments as JSON text, exactly as the model wrote them, or `{}` if it wrote none.
        /// They are not checked against the schema, so the engine must check them and return
        /// [`EngineError::InvalidInput`](crate::EngineError::InvalidInput) if they are wrong.
        pub arguments: String,
    }
}

impl ToolCall {
    /// Creates a call of the tool `name` with these arguments. A blank text becomes `{}`, because
    /// some models send nothing at all for a call without arguments.
    pub fn new(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        let mut arguments = arguments.into();
        if arguments.trim().is_empty() {
            arguments = "{}".to_owned();
        }
        let name = name.into();
        Self { name, arguments }
    }
}
