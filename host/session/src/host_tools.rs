//! The host's own tools, by which the model keeps and gives up parts of its window.
//!
//! `context_pin` and `context_unpin` hold words as a user's `/pin` does, and `context_reduce` asks for
//! a compaction at a good moment. They work the same with every engine, because the host answers
//! them itself. `compression.model_tools` turns them on. They are offered with the engine's tools
//! ([`EngineLink::offer_tools`](crate::engine_link::EngineLink::offer_tools)) from the first request on.
//!
//! The calls are answered in `host_tool_calls`. A call changes what the session holds
//! ([`HeldState`](crate::held::HeldState)) and nothing else, so the prompt and the provider's cache
//! stay as they are. What is held takes effect with the next compaction. A request for one is
//! granted once the cache no longer holds the conversation, see `compaction`.
//!
//! The model cannot name single messages that may go: it sees no ids, and shortening single results
//! would be a second way to change the window beside the engine's.

use contexture_engine_api::ToolSpec;
use serde_json::json;

/// The prefix of a host's tool in requests whose client has a tool of the same name.
pub(crate) const PREFIX: &str = "contexture_";

pub(crate) const PIN: &str = "context_pin";
pub(crate) const UNPIN: &str = "context_unpin";
pub(crate) const REDUCE: &str = "context_reduce";

/// The host's tools. Only a session whose conversations are compacted automatically `reduces`.
pub(crate) fn specs(reduces: bool) -> Vec<ToolSpec> {
    let text = |about: &str| {
        json!({
            "type": "object",
            "properties": {"text": {"type": "string", "description": about}},
            "required": ["text"],
        })
    };
    let mut specs = vec![
        ToolSpec::new(
            PIN,
            "Keep words in context verbatim when earlier messages are summarised. For a few facts that must not \
             change: a decision, a path, a value.",
            text("The words, best one short line. Each line is a pin."),
        ),
        ToolSpec::new(
            UNPIN,
            "End pins that you made with context_pin.",
            text("The pinned words exactly, each pin on its line."),
        ),
    ];
    if reduces {
        specs.push(ToolSpec::new(
            REDUCE,
            "Say that earlier messages may be summarised now, for instance after a finished step. It happens when \
             it is cheap. Nothing is deleted.",
            json!({
                "type": "object",
                "properties": {
                    "keep": {"type": "string", "description": "What the summary should keep in detail."},
                },
            }),
        ));
    }
    specs
}
