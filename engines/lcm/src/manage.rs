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
        StoreCommand::Delete {
            session,
            older_than_ms,
            dry_run,
        } => delete(store, session.as_deref(), *older_than_ms, *dry_run),
        StoreCommand::Verify => verify(store),
        StoreCommand::Backup { to } => {
            store.backup(to, |_, _| {})?;
            let bytes = std::fs::metadata(to).map_or(0, |file| file.len());
            Ok(json!({"backup": to, "bytes": bytes}))
        }
        StoreCommand::Gc { dry_run } => {
            let free = store.free_bytes()?;
            if !dry_run {
                store.shrink()?;
            }
            Ok(json!({"dry_run": dry_run, "freed_bytes": free}))
        }
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
    shown["indexed"] = json!(store.indexed(session)?);
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

/// Removes one session, or all in which nothing was said since `older_than_ms`. The room in the file is
/// given back by `gc`.
fn delete(
    store: &Store,
    session: Option<&str>,
    older_than_ms: Option<i64>,
    dry_run: bool,
) -> Result<Value, EngineError> {
    let chosen: Vec<SessionInfo> = match (session, older_than_ms) {
        (Some(name), _) => vec![store.session_info(find(store, name)?)?],
        (None, Some(before)) => {
            let last = |info: &SessionInfo| info.last_at.max(info.created_at);
            let mut sessions = store.sessions()?;
            sessions.retain(|info| last(info) < before);
            sessions
        }
        (None, None) => {
            return Err(EngineError::InvalidInput(
                "a deletion names a session or an age".to_owned(),
            ));
        }
    };
    let ids: Vec<SessionId> = chosen.iter().map(|info| info.id).collect();
    let size = store.size(&ids)?;
    if !dry_run {
        store.delete_sessions(&ids)?;
    }
    Ok(json!({
        "dry_run": dry_run,
        "sessions": chosen.iter().map(|info| &info.name).collect::<Vec<_>>(),
        "messages": size.messages,
        "summaries": size.summaries,
        "files": size.files,
        "bytes": size.bytes,
    }))
}

/// Reads everything and compares it with its hashes, its lineage and its index.
fn verify(store: &Store) -> Result<Value, EngineError> {
    let check = store.check(|_, _| {})?;
    let mut ok = check.is_sound();
    let mut sessions = Vec::new();
    for info in store.sessions()? {
        let index = store.check_index(info.id)?;
        let broken = nodes::broken(store, info.id)?;
        ok &= index.wrong.is_empty() && broken.is_empty();
        sessions.push(json!({
            "session": info.name,
            "messages": info.messages,
            "index_wrong": index.wrong.len(),
            "index_waiting": index.waiting,
            "summaries_without_sources": broken.len(),
        }));
    }
    Ok(json!({
        "ok": ok,
        "problems": check.problems,
        "messages": check.messages,
        "damaged": check.damaged.len(),
        "sessions": sessions,
    }))
}
