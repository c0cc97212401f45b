//! Store commands from the user, such as list, show, delete, verify and index.
//!
//! These commands concern the data that this engine derives, for the whole store or for sessions by
//! name. They work without an open session, except for those that need the texts of messages. The
//! transcript itself belongs to the host, which lists, exports and backs it up. [`answer`] handles
//! a command and returns JSON that the host prints or passes on.
//!
//! Verifying and indexing a large store takes a while, so these commands report their [`Progress`]
//! and stop when it is cancelled. Destructive commands have a dry run that reports what would be
//! removed.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use contexture_engine_api::{EngineError, StoreCommand};
use serde_json::{Value, json};

use crate::dates::rfc3339;
use crate::error::StoreError;
use crate::store::nodes;
use crate::store::{SessionId, SessionInfo, Store};

/// The progress of a command. Another thread may read it and cancel the command.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    /// The cancellation flag of the running command. Each command gets a new flag, so that
    /// cancelling one does not affect the next.
    cancelled: Mutex<Arc<AtomicBool>>,
}

impl Progress {
    /// Starts a command: resets the counts and returns a store handle whose work stops when the
    /// command is cancelled.
    fn begin(&self, store: &Store) -> Store {
        self.tell(0, 0);
        let cancelled = Arc::new(AtomicBool::new(false));
        *self.flag() = Arc::clone(&cancelled);
        store.until(move || cancelled.load(Ordering::Relaxed))
    }

    /// Cancels the running command and returns an empty JSON object. If no command runs, nothing
    /// happens.
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

    /// Returns the progress as JSON: `done` of `total` steps. `total` is 0 until the number is
    /// known.
    pub(crate) fn answer(&self) -> Value {
        json!({
            "done": self.done.load(Ordering::Relaxed),
            "total": self.total.load(Ordering::Relaxed),
        })
    }
}

/// Answers a command about a store that can be opened. The JSON depends on the command, and
/// `progress` is updated by the commands that take long.
///
/// # Errors
/// Returns an error if the session is unknown, if the store fails, or if the command is one of a
/// later version of the host.
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
        StoreCommand::Delete {
            session,
            older_than_ms,
            dry_run,
        } => delete(store, session.as_deref(), *older_than_ms, *dry_run),
        // Like indexing, this can take long, so it stops when the command is cancelled.
        StoreCommand::Verify => verify(&until_cancelled, tell),
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
    // A list is useful without sizes, and a damaged index should not prevent it.
    let size = store.size(&[info.id]).ok();
    json!({
        "session": info.name,
        "messages": info.messages,
        "bytes": size.map(|size| size.bytes),
        "created": rfc3339(info.created_at),
        "last_used": rfc3339(last_use(info)),
        "last_message": (info.last_at > 0).then(|| rfc3339(info.last_at)),
    })
}

/// Returns the time of a session's last activity, in milliseconds since the Unix epoch. It is the
/// latest of its last delivery, its last message with a time and its creation.
///
/// A time in the future comes from a wrong clock and counts only if there is no other. Such a
/// session is never old enough to be deleted for its age.
fn last_use(info: &SessionInfo) -> i64 {
    let times = [info.touched_at, info.last_at, info.created_at];
    let now = now_ms();
    let past = times.into_iter().filter(|at| *at > 0 && *at <= now);
    (past.max()).unwrap_or_else(|| times.into_iter().max().unwrap_or(0))
}

/// Brings the word index and the vectors of these sessions up to date. The progress counts messages
/// to embed, because embedding takes far longer than indexing.
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
            // Other processes may embed some of the messages meanwhile, or store new ones. The
            // count is capped so that it never exceeds the total.
            tell(done.get().min(missing), missing);
        })?;
    }
    Ok(())
}

/// Reports how many messages of each session are indexed and embedded. `missing` counts the
/// messages that have no vector yet, and is 0 if there is no embedder.
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

/// Deletes the rows of one session, or of all sessions without activity since `older_than_ms`. If
/// both are given, the name decides. The space in the file is released by `gc`, and the size in the
/// answer is what that will free.
fn delete(
    store: &Store,
    session: Option<&str>,
    older_than_ms: Option<i64>,
    dry_run: bool,
) -> Result<Value, EngineError> {
    let chosen: Vec<SessionInfo> = match (session, older_than_ms) {
        (Some(name), _) => vec![store.session_info(find(store, name)?)?],
        (None, Some(before)) => {
            // The time of use and not of creation, because a session may be used for months.
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

/// Removes data that no session can reach and shrinks the file. `freed_bytes` in the answer is the
/// free space in the file before it was shrunk.
fn gc(store: &Store, dry_run: bool, tell: impl FnMut(u64, u64)) -> Result<Value, EngineError> {
    let summaries = store.sweep(dry_run)?;
    let free = store.free_bytes()?;
    if !dry_run {
        store.shrink(tell)?;
    }
    Ok(json!({
        "dry_run": dry_run,
        "summaries": summaries,
        "freed_bytes": free,
    }))
}

/// Checks the file, the summaries and their lineage in all sessions. Damage in one session is a
/// problem in the answer and does not end the check.
fn verify(store: &Store, tell: impl FnMut(u64, u64)) -> Result<Value, EngineError> {
    let check = store.check(tell)?;
    let mut ok = check.is_sound();
    let mut problems = check.problems;
    let mut sessions = Vec::new();
    for info in store.sessions()? {
        let mut line = json!({"session": info.name, "messages": info.messages});
        match nodes::broken(store, info.id) {
            Ok(broken) => {
                ok &= broken.is_empty();
                line["summaries_without_sources"] = json!(broken.len());
            }
            Err(error @ StoreError::Damaged(_)) => {
                ok = false;
                problems.push(format!("{}: {error}", info.name));
            }
            Err(error) => return Err(error.into()),
        }
        sessions.push(line);
    }
    Ok(json!({
        "ok": ok,
        "problems": problems,
        "messages": check.messages,
        "summaries": check.summaries,
        "damaged_summaries": check.damaged_summaries.len(),
        "sessions": sessions,
    }))
}
