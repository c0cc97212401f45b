//! `lcm_doctor`: whether everything is there, and whole.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, object};
use crate::dag::NodeId;
use crate::nodes;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    #[serde(default)]
    repair: bool,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "repair": {
                "type": "boolean",
                "description": "Make a backup, then the search index anew and what else can be mended",
            },
        }),
        &[],
    )
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let _ = arguments.repair;
    let lineage = lineage(context)?;
    Ok(json!({"lineage": lineage}))
}

/// Whether each message of the conversation is outside the frontier or under exactly one node of it.
fn lineage(context: &mut Context<'_>) -> Result<Value, EngineError> {
    let session = context.session.id;
    let store = context.session.store.clone();
    let broken = nodes::broken(&store, session)?;
    let (frontier, _) = nodes::frontier(&store, session)?;
    let under: u64 = frontier.iter().map(|placed| placed.node.messages).sum();
    let covered = nodes::covered(&store, session)?.len() as u64;
    let outside = context.session.loose()?.len();
    Ok(json!({
        "ok": broken.is_empty() && under == covered,
        "summaries_without_sources": broken.iter().map(NodeId::to_string).collect::<Vec<_>>(),
        "messages_under_summaries": covered,
        "messages_under_two": under.saturating_sub(covered),
        "messages_outside": outside,
    }))
}
