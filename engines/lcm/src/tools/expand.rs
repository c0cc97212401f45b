//! `lcm_expand`: from a summary back to what it was made of.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, piece_end};
use super::{
    Context, Id, bounded, cursor_schema, invalid, max_tokens_schema, object, session_schema,
};
use crate::clock::rfc3339;
use crate::dag::{NodeId, Under};
use crate::nodes;
use crate::store::{Key, SessionId, StoredMessage};

/// Messages read from the store at a time.
const BATCH: usize = 64;
/// Less room than this is not worth the beginning of a message.
const LEAST_PIECE: u64 = 64;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
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
                "description": "Go down so many levels of summaries only; by default down to the messages",
            },
            "max_tokens": max_tokens_schema(),
            "cursor": cursor_schema(),
            "session": session_schema(),
        }),
        &["id"],
    )
}

/// Where the next page begins: a message, and a byte of its JSON.
#[derive(Clone, Copy)]
struct Cursor {
    ordinal: u32,
    byte: usize,
}

impl Cursor {
    fn parse(text: &str) -> Result<Self, EngineError> {
        text.split_once('.')
            .and_then(|(ordinal, byte)| {
                Some(Self {
                    ordinal: ordinal.parse().ok()?,
                    byte: byte.parse().ok()?,
                })
            })
            .ok_or_else(|| invalid(format!("`{text}` is no cursor of lcm_expand")))
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.ordinal, self.byte)
    }
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let max_tokens = bounded(arguments.max_tokens);
    let cursor = arguments.cursor.as_deref().map(Cursor::parse).transpose()?;
    match Id::parse(&arguments.id)? {
        Id::Summary(id) => {
            let node = nodes::node(&context.session.store, session, id)?
                .ok_or_else(|| invalid(format!("there is no summary {id} in this session")))?;
            if let Some(depth) = arguments.depth.filter(|depth| *depth <= node.node.depth) {
                return summaries(context, session, id, depth, max_tokens, cursor);
            }
            let total = node.node.messages;
            let keys = nodes::messages_under(&context.session.store, session, id)?;
            let after = |last: Option<Key>, limit: usize| {
                let from = last.map_or(0, |last| keys.partition_point(|key| *key <= last));
                Ok(keys[from..].iter().copied().take(limit).collect())
            };
            messages(
                context,
                session,
                &arguments.id,
                total,
                cursor,
                max_tokens,
                after,
            )
        }
        Id::Message(id) => {
            let key = context
                .session
                .store
                .key(session, id)?
                .ok_or_else(|| invalid(format!("there is no message {id} in this session")))?;
            let only = |last: Option<Key>, _: usize| {
                Ok(match last.is_none_or(|last| last < key) {
                    true => vec![key],
                    false => Vec::new(),
                })
            };
            messages(context, session, &arguments.id, 1, cursor, max_tokens, only)
        }
        Id::File(_) => Err(invalid(
            "a file is read with lcm_read; lcm_expand takes a summary or a message",
        )),
    }
}

fn messages(
    context: &Context<'_>,
    session: SessionId,
    id: &str,
    total: u64,
    cursor: Option<Cursor>,
    max_tokens: u64,
    keys_after: impl Fn(Option<Key>, usize) -> Result<Vec<Key>, crate::StoreError>,
) -> Result<Value, EngineError> {
    let services = &context.session.services;
    let mut page = Page::new(max_tokens, services);
    let mut next = None;
    let first = cursor.unwrap_or(Cursor {
        ordinal: 0,
        byte: 0,
    });
    let mut last = first
        .ordinal
        .checked_sub(1)
        .map(|ordinal| Key::new(session, ordinal));
    let mut from = first.byte;
    'pages: loop {
        let keys = keys_after(last, BATCH)?;
        if keys.is_empty() {
            break;
        }
        for key in keys {
            let message = whole(context, key)?;
            let end = match page.push(item(&message, &message.raw, from, message.raw.len())) {
                // An item of its own that does not fit is cut, below; the first always is taken.
                true if page.items.len() > 1 || page.left() > 0 => message.raw.len(),
                true => {
                    page.items.clear();
                    let end =
                        piece_end(&message.raw, from, max_tokens.saturating_sub(200), services);
                    page.push(item(&message, &message.raw, from, end));
                    end
                }
                false => {
                    let room = page.left().saturating_sub(LEAST_PIECE);
                    let end = match room > LEAST_PIECE {
                        true => piece_end(&message.raw, from, room, services),
                        false => from,
                    };
                    if end > from && page.push(item(&message, &message.raw, from, end)) {
                        end
                    } else {
                        next = Some(Cursor {
                            ordinal: key.ordinal(),
                            byte: from,
                        });
                        break 'pages;
                    }
                }
            };
            if end < message.raw.len() {
                next = Some(Cursor {
                    ordinal: key.ordinal(),
                    byte: end,
                });
                break 'pages;
            }
            from = 0;
            last = Some(key);
        }
    }
    Ok(json!({
        "id": id,
        "total_messages": total,
        "messages": page.items,
        "next_cursor": next.map(|next| next.to_string()),
    }))
}

fn whole(context: &Context<'_>, key: Key) -> Result<StoredMessage, EngineError> {
    let ordinals = key.ordinal()..key.ordinal() + 1;
    let found = context.session.store.messages(key.session(), ordinals)?;
    found.into_iter().next().ok_or_else(|| {
        EngineError::Storage(format!("message {} is named and not there", key.ordinal()))
    })
}

/// A message, or the bytes from `from` to `end` of its JSON.
fn item(message: &StoredMessage, raw: &str, from: usize, end: usize) -> Value {
    let mut item = json!({
        "id": message.row.id.to_string(),
        "role": message.row.role,
        "at": message.row.at.map(rfc3339),
        "message": raw.get(from..end).unwrap_or(""),
    });
    if from > 0 || end < raw.len() {
        item["part"] = json!({"first_byte": from, "end_byte": end, "of_bytes": raw.len()});
    }
    item
}

/// The summaries `depth` levels down.
fn summaries(
    context: &Context<'_>,
    session: SessionId,
    id: NodeId,
    depth: u32,
    max_tokens: u64,
    cursor: Option<Cursor>,
) -> Result<Value, EngineError> {
    let store = &context.session.store;
    let mut level = vec![id];
    for _ in 0..depth {
        let mut below = Vec::new();
        for node in level {
            match nodes::under(store, session, node)? {
                Under::Nodes(children) => below.extend(children),
                // A leaf that is not as deep as its neighbours stands for itself.
                Under::Messages(_) => below.push(node),
            }
        }
        level = below;
    }
    let mut page = Page::new(max_tokens, &context.session.services);
    let first = cursor.map_or(0, |cursor| cursor.ordinal as usize);
    let mut next = None;
    for (at, node) in level.iter().enumerate().skip(first) {
        let Some(placed) = nodes::node(store, session, *node)? else {
            continue;
        };
        if !page.push(super::describe::summary_line(&placed, true)) {
            next = Some(Cursor {
                ordinal: at as u32,
                byte: 0,
            });
            break;
        }
    }
    Ok(json!({
        "id": id.to_string(),
        "depth": depth,
        "total_summaries": level.len(),
        "summaries": page.items,
        "next_cursor": next.map(|next| next.to_string()),
    }))
}
