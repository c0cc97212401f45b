//! `lcm_recent`: the newest messages, newest first.
//!
//! The tool is for a model that wants to know what was said last, for example after a compaction.
//! It goes back through the current conversation and shows an excerpt of each message. The cursor
//! is the ordinal before which the next page begins, so messages that arrive meanwhile do not shift
//! the pages.

use contexture_engine_api::EngineError;
use contexture_summaries::excerpt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, is_lean, within};
use super::{
    Context, cursor_schema, max_tokens_schema, object, page_start, put, put_time, session_schema,
};
use crate::store::{MessageRow, SessionId};

/// The number of rows that are read between two checks for cancellation.
const BATCH: u32 = 256;
/// The maximum number of characters of a message. Its two ends are shown if it is longer.
const SHOWN_CHARS: usize = 800;
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecentArguments {
    limit: Option<usize>,
    role: Option<String>,
    max_tokens: Option<u64>,
    cursor: Option<String>,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "limit": {
                "type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT,
                "description": "Messages on a page",
            },
            "role": {"type": "string", "description": "Only this role: user, assistant or tool"},
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &[],
    )
}

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: RecentArguments,
) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let before = page_start(arguments.cursor.as_deref(), "lcm_recent")?.unwrap_or(u32::MAX);
    let services = &context.session.services;
    within(arguments.max_tokens, services, |room| {
        let frame = json!({"messages": [], "next_cursor": u32::MAX.to_string()});
        let page = Page::new(room, &frame, services);
        let (items, next) = newest(context, session, before, &arguments, page, is_lean(room))?;
        Ok(json!({"messages": items, "next_cursor": next.map(|next| next.to_string())}))
    })
}

/// Returns the messages of a page before an ordinal, newest first, and the ordinal before which the
/// next page begins. The latter is None if there are no further messages.
fn newest(
    context: &Context<'_>,
    session: SessionId,
    before: u32,
    arguments: &RecentArguments,
    mut page: Page<'_>,
    lean: bool,
) -> Result<(Vec<Value>, Option<u32>), EngineError> {
    let store = &context.session.store;
    let limit = arguments.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let mut end = store.session_info(session)?.messages.min(before);
    while end > 0 {
        if context.session.services.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let start = end.saturating_sub(BATCH);
        let mut rows = store.rows(session, start..end)?;
        rows.retain(|row| {
            row.is_current && (arguments.role.as_ref()).is_none_or(|role| row.is_of(role))
        });
        for row in rows.into_iter().rev() {
            let ordinal = row.key.ordinal();
            // The messages after this one are on the page, so the next page begins before the
            // ordinal that follows it.
            let next = Some(ordinal + 1);
            if page.items.len() == limit {
                return Ok((page.items, next));
            }
            let (row, message) = context.message(row.key)?;
            let text = match message {
                None => String::new(),
                Some(message) if message.text.trim().is_empty() => {
                    excerpt(&message.calls, SHOWN_CHARS)
                }
                Some(message) => excerpt(&message.text, SHOWN_CHARS),
            };
            let item = |end: usize| item(&row, &text[..end], end < text.len(), lean);
            if !page.push(item(text.len())) {
                // The first message of a page is cut so that the page is not empty. Another one is
                // left for the next page.
                if !page.items.is_empty() {
                    return Ok((page.items, next));
                }
                page.push_part(&text, 0, item);
            }
        }
        end = start;
    }
    Ok((page.items, None))
}

fn item(row: &MessageRow, text: &str, is_cut: bool, lean: bool) -> Value {
    let mut item = json!({"id": row.id.to_string(), "role": row.role});
    if !lean {
        put(&mut item, "name", row.name.as_ref());
        put(&mut item, "tool", row.tool.as_ref());
        put_time(&mut item, row.said_at(), row.at.is_some());
        item["tokens"] = json!(row.tokens);
    }
    item["text"] = match is_cut {
        true => json!(format!("{text}…")),
        false => json!(text),
    };
    item
}
