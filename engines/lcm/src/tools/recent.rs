//! `lcm_recent`: the newest messages, newest first.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::Page;
use super::{Context, bounded, cursor_schema, invalid, max_tokens_schema, object, session_schema};
use crate::clock::rfc3339;
use crate::transcript::excerpt;

/// Messages looked at together.
const BATCH: u32 = 32;
/// Of a message, so many characters.
const SHOWN_CHARS: usize = 800;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    limit: Option<usize>,
    role: Option<String>,
    max_tokens: Option<u64>,
    cursor: Option<String>,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "description": "At most so many; 20 by default"},
            "role": {"type": "string", "description": "Only messages of this role: user, assistant or tool"},
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &[],
    )
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let store = &context.session.store;
    let before: u32 = match &arguments.cursor {
        None => u32::MAX,
        Some(cursor) => cursor
            .parse()
            .map_err(|_| invalid(format!("`{cursor}` is no cursor of lcm_recent")))?,
    };
    let limit = arguments.limit.unwrap_or(20).clamp(1, 200);
    let mut page = Page::new(bounded(arguments.max_tokens), &context.session.services);
    let mut next = None;
    'ranges: for range in store.live(session)?.into_iter().rev() {
        let mut end = range.end.min(before);
        while end > range.start {
            let start = end.saturating_sub(BATCH).max(range.start);
            for message in store.messages(session, start..end)?.into_iter().rev() {
                let row = &message.row;
                if arguments
                    .role
                    .as_ref()
                    .is_some_and(|role| *role != row.role)
                {
                    continue;
                }
                let shown = match message.text.trim().is_empty() {
                    true => excerpt(&message.calls, SHOWN_CHARS),
                    false => excerpt(&message.text, SHOWN_CHARS),
                };
                let item = json!({
                    "id": row.id.to_string(),
                    "role": row.role,
                    "tool": row.tool,
                    "at": row.at.map(rfc3339),
                    "tokens": row.tokens,
                    "text": shown,
                });
                if page.items.len() == limit || !page.push(item) {
                    next = Some((row.key.ordinal() + 1).to_string());
                    break 'ranges;
                }
            }
            end = start;
        }
    }
    Ok(json!({"messages": page.items, "next_cursor": next}))
}
