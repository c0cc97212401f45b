//! `lcm_describe`: what a summary, a message or a file is made of, and what covers it.

use contexture_engine_api::EngineError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Context, Id, invalid, object, session_schema};
use crate::clock::rfc3339;
use crate::dag::{NodeId, Under};
use crate::nodes::{self, Placed};
use crate::preview::{Kind, preview};
use crate::store::SessionId;

/// Children listed, and parents; the rest is a number.
const LISTED: usize = 40;
const PREVIEW_CHARS: usize = 1_200;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    id: String,
    session: Option<String>,
}

pub(super) fn parameters() -> Value {
    object(
        json!({
            "id": {"type": "string", "description": "A summary (s12), a message (m34) or a file (f5)"},
            "session": session_schema(),
        }),
        &["id"],
    )
}

pub(super) fn run(context: &mut Context<'_>, arguments: Arguments) -> Result<Value, EngineError> {
    let session = context.scope(arguments.session.as_deref())?;
    match Id::parse(&arguments.id)? {
        Id::Summary(id) => summary(context, session, id),
        Id::Message(id) => {
            let store = &context.session.store;
            let message = store.message(session, id)?;
            let covering = nodes::covering(store, session, &[message.row.key])?;
            let replaces = message
                .row
                .replaces
                .map(|key| store.rows(session, key.ordinal()..key.ordinal() + 1))
                .transpose()?
                .and_then(|rows| rows.first().map(|row| row.id.to_string()));
            let live = store.live(session)?;
            let ordinal = message.row.key.ordinal();
            Ok(json!({
                "id": id.to_string(),
                "kind": "message",
                "role": message.row.role,
                "tool": message.row.tool,
                "at": message.row.at.map(rfc3339),
                "tokens": message.row.tokens,
                "bytes": message.raw.len(),
                "text_bytes": message.text.len(),
                "type": Kind::of(&message.text).name(),
                "in_conversation": live.iter().any(|range| range.contains(&ordinal)),
                "replaces": replaces,
                "covered_by": covering.get(&message.row.key).map(NodeId::to_string),
                "file": message.row.payload.map(|file| format!("f{}", file.0)),
                "preview": preview(&message.text, PREVIEW_CHARS),
            }))
        }
        Id::File(id) => {
            let store = &context.session.store;
            let info = store.payload_info(id)?;
            if info.session != session {
                return Err(invalid(format!(
                    "there is no file f{} in this session",
                    id.0
                )));
            }
            Ok(json!({
                "id": arguments.id,
                "kind": "file",
                "type": info.kind,
                "bytes": info.bytes,
                "lines": info.lines,
                "tokens": info.tokens,
                "preview": preview(&store.read_payload(id)?, PREVIEW_CHARS),
            }))
        }
    }
}

/// A summary in a few words; with its text where that is asked for.
pub(super) fn summary_line(placed: &Placed, with_text: bool) -> Value {
    let node = &placed.node;
    let mut line = json!({
        "id": node.id.to_string(),
        "kind": "summary",
        "depth": node.depth,
        "level": node.level,
        "to_redo": placed.degraded,
        "tokens": node.tokens,
        "messages": node.messages,
        "source_tokens": node.source_tokens,
        "first": node.first.to_string(),
        "last": node.last.to_string(),
        "from": node.from_ms.map(rfc3339),
        "to": node.to_ms.map(rfc3339),
    });
    if with_text {
        line["text"] = json!(node.text);
    }
    line
}

fn summary(context: &Context<'_>, session: SessionId, id: NodeId) -> Result<Value, EngineError> {
    let store = &context.session.store;
    let placed = nodes::node(store, session, id)?
        .ok_or_else(|| invalid(format!("there is no summary {id} in this session")))?;
    let mut described = summary_line(&placed, true);
    match nodes::under(store, session, id)? {
        Under::Nodes(children) => {
            let mut listed = Vec::new();
            for child in children.iter().take(LISTED) {
                let child = nodes::node(store, session, *child)?;
                listed.extend(child.map(|child| summary_line(&child, false)));
            }
            described["children"] = json!(listed);
            described["children_total"] = json!(children.len());
        }
        Under::Messages(messages) => {
            let listed: Vec<String> = messages
                .iter()
                .take(LISTED)
                .map(ToString::to_string)
                .collect();
            described["children"] = json!(listed);
            described["children_total"] = json!(messages.len());
        }
    }
    let parents = nodes::parents(store, session, id)?;
    described["parents"] = json!(parents.iter().map(NodeId::to_string).collect::<Vec<_>>());
    let (frontier, _) = nodes::frontier(store, session)?;
    described["in_window"] = json!(frontier.iter().any(|placed| placed.node.id == id));
    Ok(described)
}
