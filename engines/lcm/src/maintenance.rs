//! Store commands from the user that concern no single conversation.

use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use contexture_engine_api::{EngineError, MessageId, StoreCommand};
use serde_json::{Value, json};

use crate::dates::rfc3339;
use crate::error::StoreError;
use crate::store::nodes;
use crate::store::{SessionId, SessionInfo, Store};

/// The most messages in one page of an export.
const MAX_PAGE: usize = 1_000;

/// The progress of a command. Another thread may read it and cancel the command.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    /// The flag of the running command; each command has its own.
    cancelled: Mutex<Arc<AtomicBool>>,
}

impl Progress {
    /// Starts a command: returns a store whose work can be cancelled.
    fn begin(&self, store: &Store) -> Store {
        self.tell(0, 0);
        let cancelled = Arc::new(AtomicBool::new(false));
        *self.flag() = Arc::clone(&cancelled);
        store.until(move || cancelled.load(Ordering::Relaxed))
    }

    /// Cancels the running command.
    pub(crate) fn cancel(&self) -> Value {
        self.flag().store(true, Ordering::Relaxed);
        json!({})
    }

    fn flag(&self) -> MutexGuard<'_, Arc<AtomicBool>> {
        self.cancelled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// `done` of `total` steps; `total` is 0 until known.
    pub(crate) fn answer(&self) -> Value {
        json!({
            "done": self.done.load(Ordering::Relaxed),
            "total": self.total.load(Ordering::Relaxed),
        })
    }
}

/// Answers a command about a store that can be opened.
///
/// # Errors
/// An unknown session; a store that failed; a command of a later version of the host.
pub(crate) fn answer(
    store: &Store,
    command: &StoreCommand,
    progress: &Progress,
) -> Result<Value, EngineError> {
    let tell = |done, total| progress.tell(done, total);
    let until_cancelled = progress.begin(store);
    match command {
        StoreCommand::List => {
            let sessions = store.sessions()?;
            let lines: Vec<Value> = sessions.iter().map(|info| line(store, info)).collect();
            Ok(json!({"store": store.path(), "sessions": lines}))
        }
        StoreCommand::Show { session } => show(store, find(store, session)?),
        StoreCommand::Export {
            session,
            after,
            limit,
        } => export(store, find(store, session)?, *after, *limit),
        StoreCommand::Archive { session, archived } => {
            let at = archived.then(now_ms);
            store.set_archived(find(store, session)?, at)?;
            Ok(json!({"session": session, "archived": at.map(rfc3339)}))
        }
        StoreCommand::Delete {
            session,
            older_than_ms,
            dry_run,
        } => delete(store, session.as_deref(), *older_than_ms, *dry_run),
        StoreCommand::Verify => verify(&until_cancelled, tell),
        StoreCommand::Backup { to } => {
            until_cancelled.backup(to, tell)?;
            let bytes = std::fs::metadata(to).map_or(0, |file| file.len());
            Ok(json!({"backup": to, "bytes": bytes}))
        }
        StoreCommand::Gc { dry_run } => gc(store, *dry_run, tell),
        StoreCommand::Index { session, dry_run } => {
            let sessions = match session {
                Some(session) => vec![store.session_info(find(store, session)?)?],
                None => store.sessions()?,
            };
            if !dry_run {
                make_index(&until_cancelled, &sessions, tell)?;
            }
            index_of(store, &sessions)
        }
        other => Err(EngineError::Unsupported(format!("the command {other:?}"))),
    }
}

/// Recovers what can still be read of a damaged store; or, with `dry_run`, reports what is wrong with it.
///
/// # Errors
/// Another process, or a session of this one, uses the store; nothing can be recovered.
pub(crate) fn repair(
    directory: &Path,
    opened: Result<Store, StoreError>,
    dry_run: bool,
    progress: &Progress,
) -> Result<Value, EngineError> {
    if dry_run {
        let problems = match opened {
            Ok(store) => verify(&progress.begin(&store), |done, total| {
                progress.tell(done, total);
            })?,
            Err(error @ StoreError::Damaged(_)) => {
                json!({"ok": false, "problems": [error.to_string()]})
            }
            Err(error) => return Err(error.into()),
        };
        return Ok(json!({"dry_run": true, "found": problems}));
    }
    drop(opened);
    progress.tell(0, 0);
    let repair = Store::repair(directory, |done, total| progress.tell(done, total))?;
    Ok(json!({
        "dry_run": false,
        "kept": repair.kept,
        "messages": repair.messages,
        "messages_lost": repair.lost,
        "summaries": repair.summaries,
        "summaries_lost": repair.summaries_lost,
    }))
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

fn find(store: &Store, name: &str) -> Result<SessionId, EngineError> {
    store
        .find_session(name)?
        .ok_or_else(|| StoreError::UnknownSession(name.to_owned()).into())
}

fn line(store: &Store, info: &SessionInfo) -> Value {
    // A list of a damaged store is worth having without it.
    let size = store.size(&[info.id]).ok();
    json!({
        "session": info.name,
        "messages": info.messages,
        "bytes": size.map(|size| size.bytes),
        "created": rfc3339(info.created_at),
        "last_used": rfc3339(last_use(info)),
        "last_message": (info.last_at > 0).then(|| rfc3339(info.last_at)),
        "archived": info.archived_at.map(rfc3339),
    })
}

/// The time of a session's last activity: of its last message with a time, or of the last delivery. A time after now is
/// of a clock that was wrong, and counts only if there is no other: such a session is not deleted for its age.
fn last_use(info: &SessionInfo) -> i64 {
    let times = [info.touched_at, info.last_at, info.created_at];
    let now = now_ms();
    let past = times.into_iter().filter(|at| *at > 0 && *at <= now);
    (past.max()).unwrap_or_else(|| times.into_iter().max().unwrap_or(0))
}

/// Updates the word index and the vectors of these sessions.
fn make_index(
    store: &Store,
    sessions: &[SessionInfo],
    tell: impl Fn(u64, u64),
) -> Result<(), EngineError> {
    let mut missing = 0;
    for info in sessions {
        if let Some(embedded) = store.embedded(info.id)? {
            missing += u64::from(info.messages).saturating_sub(embedded);
        }
    }
    let done = Cell::new(0);
    for info in sessions {
        store.index_now(info.id)?;
        store.embed_each(info.id, || {
            done.set(done.get() + 1);
            tell(done.get().min(missing), missing);
        })?;
    }
    Ok(())
}

/// How much of these sessions is indexed for a search.
fn index_of(store: &Store, sessions: &[SessionInfo]) -> Result<Value, EngineError> {
    let mut lacking = 0;
    let mut lines = Vec::new();
    for info in sessions {
        let messages = u64::from(info.messages);
        let (indexed, embedded) = (store.indexed(info.id)?, store.embedded(info.id)?);
        lacking += embedded.map_or(0, |embedded| messages.saturating_sub(embedded));
        lines.push(json!({
            "session": info.name,
            "messages": messages,
            "indexed": indexed,
            "embedded": embedded,
        }));
    }
    Ok(json!({"sessions": lines, "missing": lacking}))
}

fn show(store: &Store, session: SessionId) -> Result<Value, EngineError> {
    let info = store.session_info(session)?;
    let current = store.current_messages(session)?;
    let covered = nodes::covered(store, session)?;
    let covered_now = covered.iter().filter(|key| current.contains(**key)).count() as u64;
    let (frontier, compaction) = nodes::frontier(store, session)?;
    let files = store.payloads(session)?;
    let mut shown = line(store, &info);
    shown["in_conversation"] = json!(current.count());
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
        "messages_under_summaries": covered.len(),
        "messages_outside": current.count() - covered_now,
    });
    Ok(shown)
}

fn export(
    store: &Store,
    session: SessionId,
    after: Option<u64>,
    limit: usize,
) -> Result<Value, EngineError> {
    let page = store.export(session, after.map(MessageId), limit.clamp(1, MAX_PAGE))?;
    let lines: Vec<Value> = page
        .messages
        .iter()
        .map(|wire| {
            let ids: Vec<u64> = wire.ids.iter().map(|id| id.0).collect();
            json!({"id": wire.id.0, "ids": ids, "message": wire.message})
        })
        .collect();
    Ok(json!({"messages": lines, "next": page.next.map(|id| id.0)}))
}

/// Removes one session, or all without activity since `older_than_ms`. `gc` releases the space in the file.
fn delete(
    store: &Store,
    session: Option<&str>,
    older_than_ms: Option<i64>,
    dry_run: bool,
) -> Result<Value, EngineError> {
    let chosen: Vec<SessionInfo> = match (session, older_than_ms) {
        (Some(name), _) => vec![store.session_info(find(store, name)?)?],
        (None, Some(before)) => {
            let mut sessions = store.sessions()?;
            sessions.retain(|info| last_use(info) < before);
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

/// Removes unreachable data and releases its space.
fn gc(store: &Store, dry_run: bool, tell: impl FnMut(u64, u64)) -> Result<Value, EngineError> {
    let summaries = store.sweep(dry_run)?;
    let free = store.free_bytes()?;
    if !dry_run {
        store.shrink(tell)?;
    }
    let copies: Vec<Value> = store
        .copies()?
        .into_iter()
        .map(|(path, bytes)| json!({"path": path, "bytes": bytes}))
        .collect();
    Ok(json!({
        "dry_run": dry_run,
        "summaries": summaries,
        "freed_bytes": free,
        // Copies are removed only by the user.
        "copies_beside_the_store": copies,
    }))
}

/// Reads everything and checks hashes, lineage and index.
fn verify(store: &Store, tell: impl FnMut(u64, u64)) -> Result<Value, EngineError> {
    let check = store.check(tell)?;
    let mut ok = check.is_sound();
    let mut problems = check.problems;
    let mut sessions = Vec::new();
    for info in store.sessions()? {
        let checked = store
            .check_index(info.id)
            .and_then(|index| Ok((index, nodes::broken(store, info.id)?)));
        let (index, broken) = match checked {
            Ok(checked) => checked,
            Err(error @ StoreError::Damaged(_)) => {
                ok = false;
                problems.push(format!("{}: {error}", info.name));
                sessions.push(json!({"session": info.name, "messages": info.messages}));
                continue;
            }
            Err(error) => return Err(error.into()),
        };
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
        "problems": problems,
        "messages": check.messages,
        "damaged": check.damaged.len(),
        "summaries": check.summaries,
        "damaged_summaries": check.damaged_summaries.len(),
        "sessions": sessions,
    }))
}
