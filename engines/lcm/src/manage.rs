//! What a person asks of the store, beside any one conversation.

use contexture_engine_api::{EngineError, MessageId, StoreCommand};
use serde_json::{Value, json};

use crate::clock::rfc3339;
use crate::nodes;
use crate::store::{SessionId, SessionInfo, Store};

/// Messages of an export at a time, at most.
const MAX_PAGE: usize = 1_000;

/// Answers a command.
///
/// # Errors
/// A session that is not there; a store that failed; a command of a later version of the host.
pub(crate) fn answer(store: &Store, command: &StoreCommand) -> Result<Value, EngineError> {
    match command {
        StoreCommand::List => {
            let sessions = store.sessions()?;
            let lines: Vec<Value> = sessions.iter().map(line).collect();
            Ok(json!({"store": store.path(), "sessions": lines}))
        }
        StoreCommand::Show { session } => show(store, find(store, session)?),
        StoreCommand::Export {
            session,
            after,
            limit,
        } => export(store, find(store, session)?, *after, *limit),
        other => Err(EngineError::Unsupported(format!("the command {other:?}"))),
    }
}

fn find(store: &Store, name: &str) -> Result<SessionId, EngineError> {
    store
        .find_session(name)?
        .ok_or_else(|| crate::StoreError::UnknownSession(name.to_owned()).into())
}

fn line(info: &SessionInfo) -> Value {
    json!({
        "session": info.name,
        "messages": info.messages,
        "created": rfc3339(info.created_at),
        "last_message": (info.last_at > 0).then(|| rfc3339(info.last_at)),
        "archived": info.archived_at.map(rfc3339),
    })
}

fn show(store: &Store, session: SessionId) -> Result<Value, EngineError> {
    let info = store.session_info(session)?;
    let live: u64 = store
        .live(session)?
        .iter()
        .map(|range| u64::from(range.end - range.start))
        .sum();
    let (frontier, compaction) = nodes::frontier(store, session)?;
    let covered: u64 = frontier.iter().map(|placed| placed.node.messages).sum();
    let files = store.payloads(session)?;
    let mut shown = line(&info);
    shown["in_conversation"] = json!(live);
    shown["indexed"] = json!(info.indexed);
    shown["files"] = json!({
        "count": files.len(),
        "bytes": files.iter().map(|file| file.bytes).sum::<u64>(),
    });
    shown["summaries"] = json!(
        nodes::count(store, session)?
            .iter()
            .map(|(depth, nodes, to_redo)| json!({"depth": depth, "nodes": nodes, "to_redo": to_redo}))
            .collect::<Vec<_>>()
    );
    shown["window"] = json!({
        "compaction": compaction,
        "summaries": frontier.iter().map(|placed| placed.node.id.to_string()).collect::<Vec<_>>(),
        "messages_under_summaries": covered,
        "messages_outside": live.saturating_sub(covered),
    });
    Ok(shown)
}

fn export(
    store: &Store,
    session: SessionId,
    after: Option<u64>,
    limit: usize,
) -> Result<Value, EngineError> {
    let limit = limit.clamp(1, MAX_PAGE);
    let mut messages = Vec::new();
    let mut next = None;
    'ranges: for range in store.live(session)? {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + limit as u32);
            for row in store.rows(session, start..end)? {
                if after.is_some_and(|after| row.id <= MessageId(after)) {
                    continue;
                }
                if messages.len() == limit {
                    next = messages.last().cloned();
                    break 'ranges;
                }
                messages.push(row.id);
            }
            start = end;
        }
    }
    let originals = store.recall(session, &messages)?;
    let lines: Vec<Value> = messages
        .iter()
        .zip(originals)
        .map(|(id, original)| json!({"id": id.0, "message": original}))
        .collect();
    Ok(json!({"messages": lines, "next": next.map(|id: MessageId| id.0)}))
}
