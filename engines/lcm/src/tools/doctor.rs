//! `lcm_doctor`: whether everything is there, and whole.

use contexture_engine_api::{EngineError, MessageId};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, object};
use crate::dag::NodeId;
use crate::nodes;

/// How many ids of each kind are shown.
const SHOWN: usize = 10;

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
    let broken = nodes::broken(&context.session.store, context.session.id)?;
    let coverage = context.session.coverage()?;
    let ok = broken.is_empty()
        && coverage.twice.is_empty()
        && coverage.nowhere.is_empty()
        && coverage.left_behind == 0;
    let first = |ids: &[MessageId]| -> Vec<String> {
        let shown = ids.iter().take(SHOWN);
        shown.map(MessageId::to_string).collect()
    };
    Ok(json!({
        "ok": ok,
        "summaries_with_wrong_sources": broken.iter().take(SHOWN).map(NodeId::to_string).collect::<Vec<_>>(),
        "messages_outside": coverage.outside,
        "messages_under_summaries": coverage.under_one,
        "messages_said_twice": coverage.twice.len(),
        "said_twice": first(&coverage.twice),
        "messages_nowhere": coverage.nowhere.len(),
        "nowhere": first(&coverage.nowhere),
        "messages_left_behind_and_summarised": coverage.left_behind,
    }))
}
