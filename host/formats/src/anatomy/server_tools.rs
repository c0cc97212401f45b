//! Finds messages that must not be separated because of a tool that the provider runs itself.
//!
//! The call and the result of such a tool are parts of the assistant's messages, and nobody but the
//! provider reads them. Usually both are in one message. If the provider pauses its turn, or the
//! code that it runs calls a tool of the client's, the result comes in a later message, and a
//! provider rejects a request with only one of the two.

use std::borrow::Cow;

use crate::gemini::member;
use crate::json::Raw;

/// Whether one of these parts of a message belongs to a call that none of the parts before it
/// makes. The call is then in an earlier message.
pub(super) fn continues(parts: Raw<'_>) -> bool {
    let mut called = Vec::new();
    parts.elements().any(|part| match role_of(part) {
        Some(ServerPart::Call(id)) => {
            called.push(id);
            false
        }
        Some(ServerPart::Of(id)) => !called.contains(&id),
        None => false,
    })
}

/// What a part has to do with a tool that the provider runs.
enum ServerPart<'a> {
    /// It calls the tool, with this id.
    Call(Cow<'a, str>),
    /// It is the result of the call with this id, or a call of the client's tools that the code of
    /// that call made.
    Of(Cow<'a, str>),
}

fn role_of(part: Raw<'_>) -> Option<ServerPart<'_>> {
    let string = |object: Raw<'_>, key| object.get_string(key).unwrap_or_default().into();
    let Some(kind) = part.get("type").and_then(Raw::string) else {
        // Gemini's parts have no type, and its older ones no ids.
        let found = |keys: &[&str; 2]| Some(string(member(part, keys)?, "id"));
        let call = found(&["executableCode", "executable_code"]);
        let result = || found(&["codeExecutionResult", "code_execution_result"]);
        return call
            .map(ServerPart::Call)
            .or_else(|| result().map(ServerPart::Of));
    };
    match kind.as_ref() {
        "server_tool_use" | "mcp_tool_use" => Some(ServerPart::Call(string(part, "id"))),
        "tool_use" => {
            let id = part.get("caller")?.get_string("tool_id")?;
            Some(ServerPart::Of(id.into()))
        }
        kind if kind.ends_with("_tool_result") => Some(ServerPart::Of(string(part, "tool_use_id"))),
        _ => None,
    }
}
