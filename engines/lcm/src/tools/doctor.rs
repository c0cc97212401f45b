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
    let lineage = lineage(context)?;
    let (store, id) = (&context.session.store, context.session.id);
    let check = store.check(|_, _| {})?;
    let index = store.check_index(id)?;
    let mut answer = json!({
        "ok": check.is_sound() && index.wrong.is_empty() && lineage["ok"] == json!(true),
        "file": {
            "problems": check.problems,
            "messages_read": check.messages,
            "damaged": check.damaged.len(),
        },
        "index": {
            "segments": index.segments,
            "wrong": index.wrong.len(),
            "messages_waiting": index.waiting,
        },
        "lineage": lineage,
    });
    if arguments.repair {
        let now = context.session.services.now_ms();
        let backup = store.path().with_extension(format!("backup-{now}.sqlite3"));
        store.backup(&backup, |_, _| {})?;
        store.rebuild_index(id)?;
        let after = store.check_index(id)?;
        answer["repair"] = json!({
            "backup": backup,
            "index_made_anew": true,
            "index_wrong_after": after.wrong.len(),
        });
        if !check.is_sound() {
            answer["repair"]["not_mended"] = json!(
                "damage to the file itself: end every process that uses the store and restore a backup"
            );
        }
    }
    Ok(answer)
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
