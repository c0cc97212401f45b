//! `lcm_describe`: what a summary, a message or a file consists of, and what covers it.
//!
//! The tool answers questions about an id without giving its whole content: sizes, time, kind, a
//! preview. For a summary it shows the text and the children, so that the model can decide what to
//! expand. If a summary has many children, they come in pages, and the cursor is the number of the
//! next child.

use contexture_engine_api::{EngineError, MessageId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::page::{Page, is_lean, longest, within};
use super::{
    Context, Id, invalid, max_tokens_schema, object, page_start, put_time, session_schema,
};
use crate::dag::{Node, NodeId, NodeSources};
use crate::dates::rfc3339;
use crate::error::StoreError;
use crate::preview::{kind_and_preview, preview};
use crate::store::nodes;
use crate::store::{PREVIEW_CHARS, PayloadId, SessionId};

/// The maximum number of parents of a summary, and of messages of a file, that are listed.
const NAMED: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DescribeArguments {
    id: String,
    max_tokens: Option<u64>,
    cursor: Option<String>,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "id": {"type": "string", "description": "A summary (s12), a message (m34) or a file (f5)"},
            "max_tokens": max_tokens_schema(),
            "cursor": {
                "type": "string",
                "description": "`next_cursor` of the previous page of children",
            },
            "session": session_schema(),
        }),
        &["id"],
    )
}

pub(super) fn run(
    context: &mut Context<'_>,
    arguments: DescribeArguments,
) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    let max_tokens = arguments.max_tokens;
    match Id::parse(&arguments.id)? {
        Id::Summary(id) => {
            let first = page_start(arguments.cursor.as_deref(), "lcm_describe")?;
            summary(context, session, id, first.unwrap_or(0), max_tokens)
        }
        Id::Message(id) => message(context, session, id, max_tokens),
        Id::File(id) => file(context, session, id, max_tokens),
    }
}

fn message(
    context: &Context<'_>,
    session: SessionId,
    id: MessageId,
    max_tokens: Option<u64>,
) -> Result<Value, EngineError> {
    let store = &context.session.store;
    let unknown = || StoreError::Unknown(format!("message {id}"));
    let key = store.key(session, id)?.ok_or_else(unknown)?;
    let row = store.rows(session, key.ordinal()..key.ordinal() + 1)?.pop();
    let row = &row.ok_or_else(unknown)?;
    let covering = nodes::covering(store, session, &[row.key])?;
    let replaces = match row.replaces {
        Some(key) => store.rows(session, key.ordinal()..key.ordinal() + 1)?,
        None => Vec::new(),
    };
    let mut described = json!({
        "id": id.to_string(),
        "kind": "message",
        "role": row.role,
        "tool": row.tool,
        "tokens": row.tokens,
        "in_conversation": row.is_current,
        "replaces": replaces.first().map(|row| row.id.to_string()),
        "covered_by": covering.get(&row.key).map(NodeId::to_string),
        "file": row.payload.map(file_id),
    });
    put_time(&mut described, row.said_at(), row.at.is_some());
    if let Some(file) = row.payload {
        let info = store.payload_info(file)?;
        let more = json!({"text_bytes": info.bytes, "type": info.kind});
        let preview = preview(&store.payload_text(file)?, PREVIEW_CHARS);
        return with_preview(context, max_tokens, &described, &more, &preview);
    }
    let message = store.message(session, id)?;
    // A message without text usually consists of tool calls, so those are described.
    let text = match message.text.trim().is_empty() {
        true => &message.calls,
        false => &message.text,
    };
    let (kind, preview) = kind_and_preview(text, PREVIEW_CHARS);
    let more = json!({
        "bytes": message.raw.len(),
        "text_bytes": message.text.len(),
        "type": kind.name(),
    });
    with_preview(context, max_tokens, &described, &more, &preview)
}

fn file(
    context: &Context<'_>,
    session: SessionId,
    id: PayloadId,
    max_tokens: Option<u64>,
) -> Result<Value, EngineError> {
    let info = context.file(session, id)?;
    let messages = context.session.store.messages_with(id)?;
    let described = json!({
        "id": file_id(id),
        "kind": "file",
        "type": info.kind,
        "bytes": info.bytes,
        "lines": info.lines,
        "tokens": info.tokens,
        "messages": messages.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>(),
        "messages_total": messages.len(),
    });
    let preview = preview(&context.session.store.payload_text(id)?, PREVIEW_CHARS);
    with_preview(context, max_tokens, &described, &Value::Null, &preview)
}

fn file_id(file: PayloadId) -> String {
    format!("f{}", file.0)
}

/// Returns a description with as much of the preview as fits. Fields with the value null are left
/// out, and the fields of `more` are added only if there is room for optional ones.
fn with_preview(
    context: &Context<'_>,
    max_tokens: Option<u64>,
    described: &Value,
    more: &Value,
    preview: &str,
) -> Result<Value, EngineError> {
    let services = &context.session.services;
    within(max_tokens, services, |room| {
        let more = Some(more).filter(|_| !is_lean(room));
        let fields = [Some(described), more].into_iter().flatten();
        let fields: Map<String, Value> = fields
            .filter_map(Value::as_object)
            .flatten()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let answer = |end: usize| {
            let mut answer = fields.clone();
            answer.insert("preview".to_owned(), json!(preview[..end]));
            Value::Object(answer)
        };
        Ok(answer(longest(preview, 0, room, services, answer)))
    })
}

/// Describes a summary in a few fields, without its text and children. `lcm_expand` shows the same
/// fields.
pub(super) fn summary_line(node: &Node) -> Value {
    json!({
        "id": node.id.to_string(),
        "kind": "summary",
        "depth": node.depth,
        "level": node.level,
        "to_redo": node.degraded,
        "tokens": node.tokens,
        "messages": node.messages,
        "source_tokens": node.source_tokens,
        "first": node.first.to_string(),
        "last": node.last.to_string(),
        "from": node.from_ms.map(rfc3339),
        "to": node.to_ms.map(rfc3339),
    })
}

fn summary(
    context: &Context<'_>,
    session: SessionId,
    id: NodeId,
    first: usize,
    max_tokens: Option<u64>,
) -> Result<Value, EngineError> {
    let (store, services) = (&context.session.store, &context.session.services);
    let node = context.summary(session, id)?;
    // The ids of the children, and the children themselves if they are summaries.
    let (ids, summaries): (Vec<String>, _) = match nodes::sources(store, session, id)? {
        NodeSources::Messages(ids) => (ids.iter().map(ToString::to_string).collect(), Vec::new()),
        NodeSources::Nodes(ids) => (ids.iter().map(ToString::to_string).collect(), ids),
    };
    let children = ids.len();
    if first > 0 && first >= children {
        return Err(invalid(format!(
            "`{first}` is not a cursor of {id}, which has {children} children"
        )));
    }
    let parents = nodes::parents(store, session, id)?;
    let (frontier, _) = nodes::frontier(store, session)?;
    let in_window = frontier.iter().any(|node| node.id == id);
    let text = &node.text;
    within(max_tokens, services, |room| {
        let lean = is_lean(room);
        let answer = |end: usize, items: Vec<Value>, next: Option<usize>| {
            let mut described = match lean || first > 0 {
                false => summary_line(&node),
                true => json!({
                    "id": id.to_string(),
                    "first": node.first.to_string(),
                    "last": node.last.to_string(),
                }),
            };
            if first == 0 {
                described["in_window"] = json!(in_window);
                if !lean {
                    let named = parents.iter().take(NAMED).map(NodeId::to_string);
                    described["parents"] = json!(named.collect::<Vec<_>>());
                }
                described["text"] = json!(text[..end]);
                if end < text.len() {
                    described["text_bytes"] = json!(text.len());
                }
            }
            described["children_total"] = json!(children);
            described["children"] = json!(items);
            described["next_cursor"] = json!(next.map(|next| next.to_string()));
            described
        };
        // The text comes first. It gets two thirds of the room, so that some of the children fit as
        // well.
        let end = match first {
            0 => longest(text, 0, room * 2 / 3, services, |end| {
                answer(end, Vec::new(), Some(children))
            }),
            _ => 0,
        };
        let mut page = Page::new(room, &answer(end, Vec::new(), Some(children)), services);
        let mut next = first;
        while next < children {
            let child = match summaries.get(next).filter(|_| !lean) {
                Some(id) => nodes::node(store, session, *id)?,
                None => None,
            };
            let item = child.map_or_else(|| json!(ids[next]), |child| summary_line(&child));
            if !page.push(item) {
                if !page.items.is_empty() {
                    break;
                }
                // A page without any child would never come to an end, so the first child is shown
                // by its id in any case.
                page.items.push(json!(ids[next]));
            }
            next += 1;
        }
        Ok(answer(end, page.items, (next < children).then_some(next)))
    })
}
