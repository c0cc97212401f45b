//! Store commands from the user, such as list, show, delete, verify and index.
//!
//! These commands concern the data that this engine derives, for the whole store or for sessions by
//! name. They work without an open session, except for those that need the texts of messages. The
//! transcript itself belongs to the host, which lists, exports and backs it up. [`answer`] handles
//! a command and returns an [`StoreAnswer`], which the host prints or passes on as JSON.
//!
//! Verifying and indexing a large store takes a while, so these commands report their [`Progress`]
//! and stop when it is cancelled. Destructive commands have a dry run that reports what would be
//! removed.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use contexture_engine_api::{EngineError, StoreCommand};
use serde::Serialize;

use crate::dates::rfc3339;
use crate::error::StoreError;
use crate::store::nodes;
use crate::store::{SessionId, SessionInfo, Store, lock};

/// The answer to a command. Its JSON form is an object whose keys depend on the command.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum StoreAnswer {
    List {
        store: PathBuf,
        sessions: Vec<SessionLine>,
    },
    Show(Box<ShownSession>),
    Delete {
        dry_run: bool,
        sessions: Vec<String>,
        messages: u64,
        summaries: u64,
        files: u64,
        bytes: u64,
    },
    /// `freed_bytes` is the free space in the file before it was shrunk.
    Gc {
        dry_run: bool,
        summaries: u64,
        freed_bytes: u64,
    },
    Verify {
        ok: bool,
        problems: Vec<String>,
        messages: u64,
        summaries: u64,
        damaged_summaries: usize,
        sessions: Vec<VerifiedSession>,
    },
    /// `missing` counts the messages that have no vector yet. It is 0 if there is no embedder.
    Index {
        sessions: Vec<IndexedSession>,
        missing: u64,
    },
    /// `done` of `total` steps. `total` is 0 until the number is known.
    Progress {
        done: u64,
        total: u64,
    },
    /// The running command was told to stop.
    Cancel {},
}

/// A session in a list. Its size is missing if it cannot be read.
#[derive(Debug, Serialize)]
pub(crate) struct SessionLine {
    session: String,
    messages: u32,
    bytes: Option<u64>,
    created: String,
    last_used: String,
    last_message: Option<String>,
}

/// A session with what the store derives from it.
#[derive(Debug, Serialize)]
pub(crate) struct ShownSession {
    #[serde(flatten)]
    line: SessionLine,
    in_conversation: u64,
    indexed: u32,
    files: FileSizes,
    summaries: Vec<SummaryDepth>,
    window: CoveredWindow,
}

#[derive(Debug, Serialize)]
struct FileSizes {
    count: usize,
    bytes: u64,
}

/// The summaries of one depth. `to_redo` of them were written without a model.
#[derive(Debug, Serialize)]
struct SummaryDepth {
    depth: u32,
    nodes: u64,
    to_redo: u64,
}

/// The summaries in the window, and how many messages are under summaries and outside of them.
#[derive(Debug, Serialize)]
struct CoveredWindow {
    compaction: u64,
    summaries: Vec<String>,
    messages_under_summaries: usize,
    messages_outside: u64,
}

/// A session that was checked. The count is missing if damage prevented the check.
#[derive(Debug, Serialize)]
pub(crate) struct VerifiedSession {
    session: String,
    messages: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    summaries_without_sources: Option<usize>,
}

/// How many messages of a session are indexed and embedded. `embedded` is `None` if there is no
/// embedder.
#[derive(Debug, Serialize)]
pub(crate) struct IndexedSession {
    session: String,
    messages: u64,
    indexed: u32,
    embedded: Option<u64>,
}

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
    pub(crate) fn cancel(&self) -> StoreAnswer {
        lock(&self.cancelled).store(true, Ordering::Relaxed);
        StoreAnswer::Cancel {}
    }

    fn tell(&self, done: u64, total: u64) {
        self.done.store(done, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Returns how far the running command is.
    pub(crate) fn answer(&self) -> StoreAnswer {
        StoreAnswer::Progress {
            done: self.done.load(Ordering::Relaxed),
            total: self.total.load(Ordering::Relaxed),
        }
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
) -> Result<StoreAnswer, EngineError> {
    let tell = |done, total| progress.tell(done, total);
    let until_cancelled = progress.begin(store);
    match command {
        StoreCommand::List => {
            let sessions = store.sessions()?;
            Ok(StoreAnswer::List {
                store: store.path().to_owned(),
                sessions: sessions.iter().map(|info| line(store, info)).collect(),
            })
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

fn line(store: &Store, info: &SessionInfo) -> SessionLine {
    // A list is useful without sizes, and a damaged index should not prevent it.
    let size = store.size(&[info.id]).ok();
    SessionLine {
        session: info.name.clone(),
        messages: info.messages,
        bytes: size.map(|size| size.bytes),
        created: rfc3339(info.created_at),
        last_used: rfc3339(last_use(info)),
        last_message: (info.last_at > 0).then(|| rfc3339(info.last_at)),
    }
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
        store.embed_now(info.id, || {
            done.set(done.get() + 1);
            // Other processes may embed some of the messages meanwhile, or store new ones. The
            // count is capped so that it never exceeds the total.
            tell(done.get().min(missing), missing);
        })?;
    }
    Ok(())
}

/// Reports how many messages of each session are indexed and embedded.
fn index_of(store: &Store, sessions: &[SessionInfo]) -> Result<StoreAnswer, EngineError> {
    let mut lacking = 0;
    let mut lines = Vec::new();
    for info in sessions {
        let messages = u64::from(info.messages);
        let (indexed, embedded) = (store.indexed(info.id)?, store.embedded(info.id)?);
        lacking += embedded.map_or(0, |embedded| messages.saturating_sub(embedded));
        lines.push(IndexedSession {
            session: info.name.clone(),
            messages,
            indexed,
            embedded,
        });
    }
    Ok(StoreAnswer::Index {
        sessions: lines,
        missing: lacking,
    })
}

fn show(store: &Store, session: SessionId) -> Result<StoreAnswer, EngineError> {
    let info = store.session_info(session)?;
    let current = store.current_messages(session)?;
    let covered = nodes::covered(store, session)?;
    let covered_now = covered.iter().filter(|key| current.contains(**key)).count() as u64;
    let (frontier, compaction) = nodes::frontier(store, session)?;
    let files = store.payloads(session)?;
    let summaries = nodes::count(store, session)?;
    let summaries = summaries.into_iter();
    Ok(StoreAnswer::Show(Box::new(ShownSession {
        line: line(store, &info),
        in_conversation: current.count(),
        indexed: store.indexed(session)?,
        files: FileSizes {
            count: files.len(),
            bytes: files.iter().map(|file| file.bytes).sum(),
        },
        summaries: summaries
            .map(|(depth, nodes, to_redo)| SummaryDepth {
                depth,
                nodes,
                to_redo,
            })
            .collect(),
        window: CoveredWindow {
            compaction,
            summaries: (frontier.iter()).map(|node| node.id.to_string()).collect(),
            messages_under_summaries: covered.len(),
            messages_outside: current.count() - covered_now,
        },
    })))
}

/// Deletes the rows of one session, or of all sessions without activity since `older_than_ms`. If
/// both are given, the name decides. The space in the file is released by `gc`, and the size in the
/// answer is what that will free.
fn delete(
    store: &Store,
    session: Option<&str>,
    older_than_ms: Option<i64>,
    dry_run: bool,
) -> Result<StoreAnswer, EngineError> {
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
    Ok(StoreAnswer::Delete {
        dry_run,
        sessions: chosen.into_iter().map(|info| info.name).collect(),
        messages: size.messages,
        summaries: size.summaries,
        files: size.files,
        bytes: size.bytes,
    })
}

/// Removes data that no session can reach and shrinks the file.
fn gc(
    store: &Store,
    dry_run: bool,
    tell: impl FnMut(u64, u64),
) -> Result<StoreAnswer, EngineError> {
    let summaries = store.sweep(dry_run)?;
    let free = store.free_bytes()?;
    if !dry_run {
        store.shrink(tell)?;
    }
    Ok(StoreAnswer::Gc {
        dry_run,
        summaries,
        freed_bytes: free,
    })
}

/// Checks the file, the summaries and their lineage in all sessions. Damage in one session is a
/// problem in the answer and does not end the check.
fn verify(store: &Store, tell: impl FnMut(u64, u64)) -> Result<StoreAnswer, EngineError> {
    let check = store.check(tell)?;
    let mut ok = check.is_sound();
    let mut problems = check.problems;
    let mut sessions = Vec::new();
    for info in store.sessions()? {
        let summaries_without_sources = match nodes::broken(store, info.id) {
            Ok(broken) => {
                ok &= broken.is_empty();
                Some(broken.len())
            }
            Err(error @ StoreError::Damaged(_)) => {
                ok = false;
                problems.push(format!("{}: {error}", info.name));
                None
            }
            Err(error) => return Err(error.into()),
        };
        sessions.push(VerifiedSession {
            session: info.name,
            messages: info.messages,
            summaries_without_sources,
        });
    }
    Ok(StoreAnswer::Verify {
        ok,
        problems,
        messages: check.messages,
        summaries: check.summaries,
        damaged_summaries: check.damaged_summaries.len(),
        sessions,
    })
}
