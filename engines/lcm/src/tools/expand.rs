//! `lcm_expand`: from a summary back to its sources.
//!
//! The tool returns the messages under a summary as the JSON they were on the wire, or the
//! summaries some levels below it. The result is often larger than an answer may be, so it comes in
//! pages. A page may end in the middle of a message, and the [`ResumePoint`] says where the next
//! one continues. Joining the parts gives the message byte for byte.
//!
//! Messages that cannot be read are marked instead of ending the expansion.

use std::ops::Range;

use contexture_engine_api::{EngineError, Services};
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, is_lean, within};
use super::{
    Context, Id, cursor_schema, invalid, max_tokens_schema, object, put, put_time, session_schema,
};
use crate::dag::{NodeId, NodeSources};
use crate::store::nodes;
use crate::store::{Key, MessageRow, SessionId, StoredMessage};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpandArguments {
    id: String,
    depth: Option<u32>,
    max_tokens: Option<u64>,
    cursor: Option<String>,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "id": {"type": "string", "description": "The summary (s12) or message (m34)"},
            "depth": {
                "type": "integer", "minimum": 1,
                "description": "Return the summaries this many levels below instead of the messages",
            },
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &["id"],
    )
}

/// Where the next page starts: the number of a message or summary, and the byte of its text.
#[derive(Clone, Copy)]
struct ResumePoint {
    number: u32,
    byte: usize,
}

impl ResumePoint {
    /// The longest cursor. The length of the real one is known only at the end. The page is
    /// measured with the longest one, so that the real one fits in any case.
    const LONGEST: Self = Self {
        number: u32::MAX,
        byte: u32::MAX as usize,
    };

    fn parse(text: &str) -> Result<Self, EngineError> {
        text.split_once('.')
            .and_then(|(number, byte)| {
                Some(Self {
                    number: number.parse().ok()?,
                    byte: byte.parse().ok()?,
                })
            })
            .ok_or_else(|| no_cursor(text))
    }
}

impl std::fmt::Display for ResumePoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.number, self.byte)
    }
}

fn no_cursor(text: impl std::fmt::Display) -> EngineError {
    invalid(format!(
        "`{text}` is not a cursor of this id; pass `next_cursor` of the previous page with the same id"
    ))
}

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: ExpandArguments,
) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let cursor = arguments.cursor.as_deref().map(ResumePoint::parse);
    let cursor = cursor.transpose()?;
    let store = &context.session.store;
    let services = &context.session.services;
    let id = Id::parse(&arguments.id)?;
    let (total, keys) = match id {
        Id::Summary(id) => {
            let node = context.summary(session, id)?;
            // Below the leaves there are only messages, so a larger depth gives those.
            if let Some(depth) = arguments.depth.filter(|depth| *depth <= node.depth) {
                let level = level_below(context, session, id, depth)?;
                return within(arguments.max_tokens, services, |room| {
                    summaries(
                        context, session, &arguments.id, &level, cursor, room, services,
                    )
                });
            }
            (node.messages, nodes::messages_under(store, session, id)?)
        }
        Id::Message(id) => {
            let key = store
                .key(session, id)?
                .ok_or_else(|| invalid(format!("there is no message {id} in this session")))?;
            (1, vec![key])
        }
        Id::File(_) => {
            return Err(invalid(
                "lcm_expand takes a summary or a message; read a file with lcm_read",
            ));
        }
    };
    within(arguments.max_tokens, services, |room| {
        let answer = |items: Vec<Value>, next: Option<ResumePoint>| {
            json!({
                "id": arguments.id,
                "total_messages": total,
                "messages": items,
                "next_cursor": next.map(|next| next.to_string()),
            })
        };
        let frame = answer(Vec::new(), Some(ResumePoint::LONGEST));
        let page = Page::new(room, &frame, services);
        let lean = is_lean(room);
        let item = |row: &MessageRow, raw: &str, part| item(row, raw, part, lean);
        let (items, next) = messages(context, &keys, cursor, page, item)?;
        Ok(answer(items, next))
    })
}

/// Returns a page of the messages with these keys, and where the next page begins. `item` makes the
/// JSON of a message, or of a part of it.
fn messages(
    context: &Context<'_>,
    keys: &[Key],
    cursor: Option<ResumePoint>,
    mut page: Page<'_>,
    item: impl Fn(&MessageRow, &str, Range<usize>) -> Value,
) -> Result<(Vec<Value>, Option<ResumePoint>), EngineError> {
    let mut from = cursor.map_or(0, |cursor| cursor.byte);
    let first = cursor.map_or(0, |cursor| {
        keys.partition_point(|key| key.ordinal() < cursor.number)
    });
    for key in &keys[first..] {
        if context.session.services.is_cancelled() {
            return Err(EngineError::Cancelled);
        }
        let (row, message) = context.message(*key)?;
        let Some(StoredMessage { raw, .. }) = message else {
            let lost = json!({"id": row.id.to_string(), "unreadable": true, "message": ""});
            if !page.push(lost) {
                let next = ResumePoint {
                    number: key.ordinal(),
                    byte: 0,
                };
                return Ok((page.items, Some(next)));
            }
            continue;
        };
        // The model may pass a cursor of another expansion. Continuing there would give a wrong
        // part without any sign of it.
        if let Some(cursor) = cursor.filter(|_| from > 0)
            && (cursor.number != key.ordinal() || from >= raw.len() || !raw.is_char_boundary(from))
        {
            return Err(no_cursor(cursor));
        }
        if !page.push(item(&row, &raw, from..raw.len())) {
            let end = page.push_part(&raw, from, |end| item(&row, &raw, from..end));
            let end = end.unwrap_or(from);
            if end < raw.len() {
                let next = ResumePoint {
                    number: key.ordinal(),
                    byte: end,
                };
                return Ok((page.items, Some(next)));
            }
        }
        from = 0;
    }
    Ok((page.items, None))
}

/// Makes the JSON of a message, or of a part of it. `part` is a byte range of the wire JSON in
/// `raw`.
fn item(row: &MessageRow, raw: &str, part: Range<usize>, lean: bool) -> Value {
    let mut item = json!({"id": row.id.to_string()});
    // A continued text was introduced by the part before, so role and time are not repeated.
    if part.start == 0 {
        item["role"] = json!(row.role);
        if !lean {
            put(&mut item, "name", row.name.as_ref());
            put_time(&mut item, row.said_at(), row.at.is_some());
        }
        put(
            &mut item,
            "in_conversation",
            (!row.is_current).then_some(false),
        );
    }
    let bytes = raw.len();
    if part.start > 0 || part.end < bytes {
        item["part"] = json!({"first_byte": part.start, "of_bytes": bytes});
    }
    item["message"] = json!(raw.get(part).unwrap_or(""));
    item
}

/// Returns the summaries `depth` levels below one, in order. The summary should be at least that
/// deep.
fn level_below(
    context: &Context<'_>,
    session: SessionId,
    id: NodeId,
    depth: u32,
) -> Result<Vec<NodeId>, EngineError> {
    let mut level = vec![id];
    for _ in 0..depth {
        let mut below = Vec::new();
        for node in level {
            match nodes::sources(&context.session.store, session, node)? {
                NodeSources::Nodes(children) => below.extend(children),
                // A leaf above this depth has no summaries below it, so it is shown itself.
                NodeSources::Messages(_) => below.push(node),
            }
        }
        level = below;
    }
    Ok(level)
}

/// Returns a page of summaries as the answer of the tool. A cursor counts in `level`.
fn summaries(
    context: &Context<'_>,
    session: SessionId,
    id: &str,
    level: &[NodeId],
    cursor: Option<ResumePoint>,
    room: u64,
    services: &Services,
) -> Result<Value, EngineError> {
    let answer = |items: Vec<Value>, next: Option<ResumePoint>| {
        json!({
            "id": id,
            "total_summaries": level.len(),
            "summaries": items,
            "next_cursor": next.map(|next| next.to_string()),
        })
    };
    let frame = answer(Vec::new(), Some(ResumePoint::LONGEST));
    let mut page = Page::new(room, &frame, services);
    let first = cursor.map_or(0, |cursor| cursor.number as usize);
    let mut from = cursor.map_or(0, |cursor| cursor.byte);
    for (number, node) in level.iter().enumerate().skip(first) {
        let Some(node) = nodes::node(&context.session.store, session, *node)? else {
            continue;
        };
        let text = &node.text;
        if let Some(cursor) = cursor.filter(|_| from > 0 && !text.is_char_boundary(from)) {
            return Err(no_cursor(cursor));
        }
        let item = |end: usize| {
            let mut item = match from == 0 && !is_lean(room) {
                true => super::describe::summary_line(&node),
                false => json!({"id": node.id.to_string()}),
            };
            if from > 0 || end < text.len() {
                item["part"] = json!({"first_byte": from, "of_bytes": text.len()});
            }
            item["text"] = json!(text.get(from..end).unwrap_or(""));
            item
        };
        if !page.push(item(text.len())) {
            let end = page.push_part(text, from, item).unwrap_or(from);
            if end < text.len() {
                let next = ResumePoint {
                    number: number as u32,
                    byte: end,
                };
                return Ok(answer(page.items, Some(next)));
            }
        }
        from = 0;
    }
    Ok(answer(page.items, None))
}
