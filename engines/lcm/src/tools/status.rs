//! `lcm_status`: how much is stored, what the window shows of it, and when the next compaction is
//! due.
//!
//! The answer consists of sections, most of them taken from the status that the engine reports
//! about itself. If they do not all fit, the last ones are left out, so their order is the order of
//! importance. The names of omitted sections are listed, so that a caller knows what a larger
//! answer would contain.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::page::{count, within};
use super::{Context, max_tokens_schema, object};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusArguments {
    max_tokens: Option<u64>,
}

pub(super) fn parameters() -> Value {
    object(json!({"max_tokens": max_tokens_schema()}), &[])
}

/// Returns as many sections as fit, the most important first. `engine` is the engine's own status.
pub(super) fn run(
    context: &mut Context<'_>,
    engine: &Value,
    arguments: &StatusArguments,
) -> Result<Value, EngineError> {
    let (store, session) = (&context.session.store, context.session.id);
    let stored = store.session_info(session)?.messages;
    let files = store.payloads(session)?;
    let mut sections = vec![
        ("messages", json!(stored)),
        (
            "in_conversation",
            json!((stored as usize).saturating_sub(store.outdated(session)?.len())),
        ),
        ("window", engine["frontier"].clone()),
        ("summaries", engine["summaries"].clone()),
        (
            "messages_not_indexed",
            json!(stored.saturating_sub(store.indexed(session)?)),
        ),
        (
            "files",
            json!({"count": files.len(), "bytes": files.iter().map(|file| file.bytes).sum::<u64>()}),
        ),
        (
            "compaction_due_at_tokens",
            engine["budgets"]["soft"].clone(),
        ),
        ("summary_model", engine["summary_model"].clone()),
        ("cool_down", engine["cool_down"].clone()),
        ("background", engine["background"].clone()),
        ("settings", engine["settings"].clone()),
    ];
    if let Some(embedded) = store.embedded(session)? {
        let without = json!(u64::from(stored).saturating_sub(embedded));
        sections.insert(5, ("messages_without_vectors", without));
    }
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room| {
        let answer = |kept: usize| {
            let (kept, left_out) = sections.split_at(kept);
            let mut answer: Map<String, Value> = (kept
                .iter()
                .cloned()
                .map(|(name, value)| (name.to_owned(), value)))
            .collect();
            if !left_out.is_empty() {
                let names = left_out.iter().map(|(name, _)| *name);
                answer.insert("left_out".to_owned(), names.collect());
            }
            Value::Object(answer)
        };
        let fits = |answer: &Value| count(services, answer) <= room;
        // There are few sections, so trying from the most to the fewest is fast enough.
        let most = (1..=sections.len()).rev().map(answer).find(fits);
        Ok(most.unwrap_or_else(|| answer(0)))
    })
}
