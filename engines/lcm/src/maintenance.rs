//! Store commands from the user, such as list, show, delete, verify and index.
//!
//! These commands concern the data that this engine derives, for the whole store or for sessions by
//! name. They work without an open session, except for those that need the texts of messages. The
//! transcript itself belongs to the host, which lists, exports and backs it up. [`answer`] handles
//! a command and returns the JSON that the host prints or passes on.
//!
//! Verifying and indexing a large store takes a while, so these commands report their [`Progress`]
//! and stop when it is cancelled.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use contexture_engine_api::{EngineError, StoreCommand};
use serde_json::{Value, json};

use crate::error::StoreError;
use crate::store::nodes;
use crate::store::{SessionId, SessionInfo, Store, lock};

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
        *lock(&self.cancelled) = Arc::clone(&cancelled);
        store.until(move || cancelled.load(Ordering::Relaxed))
    }

    /// Cancels the running command. If no command runs, nothing happens.
    pub(crate) fn cancel(&self) -> Value {
        lock(&self.cancelled).store(true, Ordering::Relaxed);
        json!({})
    }

    fn tell(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Returns how far the running command is: `done` of `total` steps. `total` is 0 until the
    /// number is known.
    pub(crate) fn answer(&self) -> Value {
        json!({
            "done": self.done.load(Ordering::Relaxed),
            "total": self.total.load(Ordering::Relaxed),
        })
    }
}

/// Answers a command about a store that can be opened. `progress` is updated by the commands that
/// take long.
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
            let sessions = store.sessions()?.into_iter().map(|info| info.name);
            Ok(json!({"store": store.path(), "sessions": sessions.collect::<Vec<_>>()}))
        }
        StoreCommand::Show { session } => show(store, find(store, session)?),
        // The space in the file is released by `gc`.
        StoreCommand::Delete { session } => {
            store.delete_session(find(store, session)?)?;
            Ok(json!({}))
        }
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

fn find(store: &Store, name: &str) -> Result<SessionId, EngineError> {
    store
        .find_session(name)?
        .ok_or_else(|| StoreError::Unknown(format!("session `{name}`")).into())
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
        missing += without_vectors(info, store.embedded(info.id)?);
    }
    let done = Cell::new(0);
    for info in sessions {
        store.index_now(info.id)?;
        store.embed_now(info.id, || {
            done.set(done.get() + 1);
            // Other processes may embed some of the messages meanwhile, or store new ones. The
            // count is capped so that it never exceeds the total.
            tell(done.get().min(missing), missing);
        })?;
    }
    Ok(())
}

/// Reports how many messages of each session are indexed and embedded. The latter is null if there
/// is no embedder. `missing` counts all messages that have no vector yet.
fn index_of(store: &Store, sessions: &[SessionInfo]) -> Result<Value, EngineError> {
    let mut missing = 0;
    let mut lines = Vec::new();
    for info in sessions {
        let embedded = store.embedded(info.id)?;
        missing += without_vectors(info, embedded);
        lines.push(json!({
            "session": info.name,
            "messages": info.messages,
            "indexed": store.indexed(info.id)?,
            "embedded": embedded,
        }));
    }
    Ok(json!({"sessions": lines, "missing": missing}))
}

/// Returns how many messages of a session have no vector yet. It is 0 if there is no embedder.
fn without_vectors(info: &SessionInfo, embedded: Option<u64>) -> u64 {
    embedded.map_or(0, |embedded| {
        u64::from(info.messages).saturating_sub(embedded)
    })
}

/// Describes what the store derives from a session: how many messages are indexed, the large texts,
/// the summaries of each depth, and those that the window shows.
fn show(store: &Store, session: SessionId) -> Result<Value, EngineError> {
    let (outdated, covered) = (store.outdated(session)?, nodes::covered(store, session)?);
    let behind = outdated.union(&covered).count();
    let (frontier, compaction) = nodes::frontier(store, session)?;
    let files = store.payloads(session)?;
    let summaries = nodes::count(store, session)?.into_iter();
    let summaries = summaries
        .map(|(depth, nodes, to_redo)| json!({"depth": depth, "nodes": nodes, "to_redo": to_redo}));
    let shown = frontier.iter().map(|node| node.id.to_string());
    Ok(json!({
        "indexed": store.indexed(session)?,
        "files": {
            "count": files.len(),
            "bytes": files.iter().map(|file| file.bytes).sum::<u64>(),
        },
        "summaries": summaries.collect::<Vec<_>>(),
        "window": {
            "compaction": compaction,
            "summaries": shown.collect::<Vec<_>>(),
            "messages_under_summaries": covered.len(),
            "messages_outside": (store.session_info(session)?.messages as usize).saturating_sub(behind),
        },
    }))
}

/// Removes what interrupted deletions have left, and shrinks the file. `freed_bytes` is the free
/// space in the file before that.
fn gc(store: &Store, dry_run: bool, tell: impl FnMut(u64, u64)) -> Result<Value, EngineError> {
    if !dry_run {
        store.remove_deleted()?;
    }
    let free = store.free_bytes()?;
    if !dry_run {
        store.shrink(tell)?;
    }
    Ok(json!({"dry_run": dry_run, "freed_bytes": free}))
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
