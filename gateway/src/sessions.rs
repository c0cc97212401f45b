//! Keeps sessions in memory between their requests.
//!
//! [`Sessions`] maps a session's id to its [`SessionSlot`]. A slot holds the session cell,
//! [`SessionCell`], behind a lock, so that each session runs one turn at a time.
//! [`SessionCell::acquire`] opens the session if it is not open yet and returns a [`SessionGuard`].
//! Between turns the session is released, so that another gateway on the same store can continue
//! it. What stays in memory is only a cache: if another gateway used the session in the meantime,
//! it is opened again.
//!
//! If more sessions are open than `gateway.open_sessions` allows, the one that was idle for the
//! longest leaves memory. Which session a request belongs to is decided by
//! [`lineage`](crate::lineage).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contexture::session::{
    AgentWindow, KeptChange, KeptContent, Record, RecordError, Session, SessionError, Unrelated,
};
use contexture::{Host, SessionBuilder, lock};
use serde::{Deserialize, Serialize};

use crate::diff::SentMessages;
use crate::failure::Failure;
use crate::hidden::HiddenRounds;
use crate::metrics::Metrics;
use crate::work::WorkPool;

/// The entry of one session in memory. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionSlot {
    /// The session cell. Whoever holds the lock runs a turn.
    pub(crate) cell: Arc<tokio::sync::Mutex<SessionCell>>,
}

impl SessionSlot {
    /// Waits for the session cell, and runs a piece of blocking work with it on a worker thread.
    ///
    /// # Errors
    /// The error of the work, or reason `panic` if the work panicked.
    pub(crate) async fn with_cell<T: Send + 'static>(
        &self,
        pool: &WorkPool,
        work: impl FnOnce(&mut SessionCell) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut cell = Arc::clone(&self.cell).lock_owned().await;
        pool.run(move || work(&mut cell))
            .await
            .and_then(|done| done)
    }
}

/// The cell of one session. It is empty until the first turn opens the session.
#[derive(Debug, Default)]
pub(crate) struct SessionCell {
    open: Option<OpenSession>,
    /// The number of turns that ran in this cell. A turn that finds a higher number than its own
    /// was overtaken.
    pub(crate) turns: u64,
    limit: Option<WindowLimit>,
}

/// The window of a model as the provider reported it, if it is smaller than assumed. It is stored
/// with the session, because otherwise the provider would refuse every later request first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WindowLimit {
    pub(crate) model: String,
    pub(crate) tokens: u64,
    pub(crate) answer: u64,
}

/// The key of a [`WindowLimit`] in the data that is stored with a session.
const LIMIT: &str = "limit";

impl WindowLimit {
    /// Reads a session's limit. Returns None if there is none or it cannot be read, because the
    /// provider will report it again.
    fn load(record: &Record, session: &str) -> Option<Self> {
        let kept = record.kept_text(session, LIMIT).ok()??;
        serde_json::from_str(&kept).ok()
    }

    /// Shrinks the window to this limit, if it is for the same model and smaller.
    fn narrow(&self, agent: &mut AgentWindow) {
        if agent.model != self.model || agent.context_length <= self.tokens {
            return;
        }
        agent.context_length = self.tokens;
        agent.max_output_tokens = agent
            .max_output_tokens
            .min(self.tokens / 2)
            .max(self.answer);
    }
}

/// A session that is open, with what the gateway caches for it. All of this is dropped if another
/// gateway used the session.
#[derive(Debug)]
struct OpenSession {
    session: Session,
    agent: AgentWindow,
    hidden: HiddenRounds,
    own_tools: Vec<String>,
    sent: SentMessages,
    failures: u64,
}

impl OpenSession {
    fn open(host: &Host, spec: &SessionSpec) -> Result<Self, SessionError> {
        let mut session = spec.builder(host).open()?;
        for warning in session.take_warnings() {
            tracing::warn!(session = %spec.id, "{warning}");
        }
        // The turn goes on without them. If the engine's process ended, the turn starts it again.
        let tools = session.tools().unwrap_or_else(|error| {
            tracing::warn!(session = %spec.id, "the tools of the engine are not known: {error}");
            Vec::new()
        });
        let own_tools = tools.into_iter().map(|tool| tool.name).collect();
        let hidden = HiddenRounds::load(host.record(), &spec.id).unwrap_or_else(|error| {
            tracing::warn!(
                session = %spec.id,
                "cannot read the hidden rounds, so the model will not see them: {error}"
            );
            HiddenRounds::unread()
        });
        Ok(Self {
            session,
            agent: spec.agent.clone(),
            hidden,
            own_tools,
            sent: SentMessages::default(),
            failures: 0,
        })
    }

    fn guard(&mut self) -> SessionGuard<'_> {
        SessionGuard {
            session: &mut self.session,
            hidden: &mut self.hidden,
            own_tools: &self.own_tools,
            sent: &mut self.sent,
            failures: &mut self.failures,
            keeps_session: false,
        }
    }
}

/// Guard of a session that is held. Dropping it releases the session, unless `keeps_session` is set.
pub(crate) struct SessionGuard<'c> {
    pub(crate) session: &'c mut Session,
    pub(crate) hidden: &'c mut HiddenRounds,
    /// The names of the engine's tools when the session was opened. The client's history may
    /// contain calls of them before any is offered again.
    pub(crate) own_tools: &'c [String],
    /// What the model saw of the last request, to compute the diff of the next compaction.
    pub(crate) sent: &'c mut SentMessages,
    /// How many failures of the engine were recorded for the health check.
    pub(crate) failures: &'c mut u64,
    /// Whether the session stays held when this guard is dropped. The caller then has to call
    /// [`SessionCell::release`].
    pub(crate) keeps_session: bool,
}

impl Drop for SessionGuard<'_> {
    fn drop(&mut self) {
        if !self.keeps_session {
            self.session.release();
        }
    }
}

/// The parameters for opening a session. A request determines them, and an open session is adapted
/// if its window differs.
#[derive(Debug, Clone)]
pub(crate) struct SessionSpec {
    pub(crate) id: String,
    pub(crate) tenant: Option<String>,
    pub(crate) agent: AgentWindow,
    pub(crate) provider: &'static str,
    pub(crate) offer_tools: bool,
    pub(crate) wait: Duration,
}

impl SessionSpec {
    fn builder<'h>(&self, host: &'h Host) -> SessionBuilder<'h> {
        let builder = host
            .session(&self.id)
            .model(&self.agent.model, self.agent.context_length)
            .max_output_tokens(self.agent.max_output_tokens)
            .provider(self.provider)
            // A request has proved that it continues the session.
            .unrelated(Unrelated::Compacted)
            .wait(self.wait);
        let builder = match &self.tenant {
            Some(tenant) => builder.tenant(tenant),
            None => builder,
        };
        match self.offer_tools {
            true => builder.offer_tools(),
            false => builder,
        }
    }
}

impl SessionCell {
    /// Holds the session exclusively, and opens it if it is not open or out of date. Blocks for up
    /// to `spec.wait` if another process has it.
    ///
    /// The model's window is limited to what the provider reported earlier.
    ///
    /// # Errors
    /// The session is in use by another process, or its engine cannot be opened.
    pub(crate) fn acquire(
        &mut self,
        host: &Host,
        spec: &SessionSpec,
    ) -> Result<SessionGuard<'_>, SessionError> {
        // A session with a substitute engine is closed once its own engine may load again: after a
        // plugin was installed, or if only the start of its process failed.
        let may_load = |open: &OpenSession| {
            open.session.stands_in().is_some() && {
                host.look_at_plugins();
                !open.session.runs_with(&host.engines())
                    || open.session.engine().may_start_configured()
            }
        };
        if self.open.as_ref().is_some_and(may_load) {
            self.open = None;
        }
        if self.open.is_none() && self.limit.is_none() {
            self.limit = WindowLimit::load(host.record(), &spec.id);
        }
        let mut spec = spec.clone();
        if let Some(limit) = &self.limit {
            limit.narrow(&mut spec.agent);
        }
        let is_current = match &mut self.open {
            Some(open) => open.session.reacquire(spec.wait)?,
            None => false,
        };
        if !is_current {
            // Another process used the session in the meantime, so everything here is out of date.
            self.open = None;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => OpenSession::open(host, &spec)?,
        };
        let open = self.open.insert(open);
        if open.agent != spec.agent {
            open.session.set_model(spec.agent.clone())?;
            open.agent = spec.agent.clone();
        }
        Ok(open.guard())
    }

    /// Like [`acquire`](Self::acquire), but if the session is open, its window stays as it is. A
    /// preview must not change the model of a session.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire).
    pub(crate) fn acquire_unchanged(
        &mut self,
        host: &Host,
        spec: &SessionSpec,
    ) -> Result<SessionGuard<'_>, SessionError> {
        let mut spec = spec.clone();
        if let Some(open) = &self.open {
            spec.agent.clone_from(&open.agent);
        }
        self.acquire(host, &spec)
    }

    /// Remembers and stores a limit that the provider reported. If storing fails, the limit holds
    /// until the session leaves memory.
    pub(crate) fn learn_limit(&mut self, host: &Host, session: &str, limit: WindowLimit) {
        let text = serde_json::to_string(&limit).unwrap_or_default();
        if let Err(error) = host
            .record()
            .keep(session, KeptContent::Exact, &[(LIMIT, &text)])
        {
            tracing::warn!(
                session,
                "cannot store the window that the provider named: {error}"
            );
        }
        self.limit = Some(limit);
    }

    /// Holds the session again after a turn, without opening it. Blocks for up to `wait` if another
    /// process has it. Returns None if it has left memory or another process used it in the
    /// meantime. The answer under way can then not be fed back here.
    ///
    /// # Errors
    /// The session is in use by another process, or the record cannot be read.
    pub(crate) fn reacquire(
        &mut self,
        wait: Duration,
    ) -> Result<Option<SessionGuard<'_>>, SessionError> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        Ok(match open.session.reacquire(wait)? {
            true => Some(open.guard()),
            false => None,
        })
    }

    /// Why what was said in the session is not stored, see [`Session::not_stored`].
    pub(crate) fn not_stored(&self) -> Option<&str> {
        self.open.as_ref()?.session.not_stored()
    }

    /// Releases the session for other processes, after writing what it has ingested, and `changes`
    /// of the record with it. Blocks.
    ///
    /// # Errors
    /// The record cannot be written. The session is released all the same.
    pub(crate) fn release(
        &mut self,
        record: &Record,
        changes: Vec<KeptChange<'_>>,
    ) -> Result<(), RecordError> {
        match &mut self.open {
            Some(open) => open.session.release_with(record, changes),
            None => record.make_changes(changes),
        }
    }
}

/// All sessions in memory, by id. Entries are created on demand and removed when there are too
/// many.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    slots: Mutex<HashMap<String, (SessionSlot, u64)>>,
    /// Counts uses, so that the slot that was not used for the longest can be found.
    clock: AtomicU64,
    /// How many requests of each session are being answered. New sessions are in it before the record
    /// knows them.
    under_way: Arc<Mutex<HashMap<String, usize>>>,
}

/// Marks a request of a session as being answered until this is dropped. It also reserves the id of a
/// new session. Without it, two first requests at the same time could get the same id.
#[derive(Debug)]
pub(crate) struct UnderWay {
    id: String,
    all: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(count) = all.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.id);
            }
        }
    }
}

impl Sessions {
    /// Whether this gateway is answering a request of a session.
    pub(crate) fn is_under_way(&self, id: &str) -> bool {
        let all = lock(&self.under_way);
        all.contains_key(id)
    }

    /// Marks a request of a session as being answered.
    pub(crate) fn begin(&self, id: &str) -> UnderWay {
        let mut all = lock(&self.under_way);
        *all.entry(id.to_owned()).or_default() += 1;
        self.mark(id)
    }

    /// Reserves the id of a new session for its first request. Returns None if it is reserved already.
    pub(crate) fn reserve(&self, id: &str) -> Option<UnderWay> {
        let mut all = lock(&self.under_way);
        let is_free = !all.contains_key(id);
        is_free.then(|| {
            all.insert(id.to_owned(), 1);
            self.mark(id)
        })
    }

    fn mark(&self, id: &str) -> UnderWay {
        UnderWay {
            id: id.to_owned(),
            all: Arc::clone(&self.under_way),
        }
    }

    /// The slot of a session. Creates it if the session is not in memory. If there are more than
    /// `most` slots, those that were not used for the longest leave memory. Slots in use stay, so
    /// there may be more than `most` for a while.
    pub(crate) fn slot(&self, id: &str, most: usize, metrics: &Metrics) -> SessionSlot {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut slots = lock(&self.slots);
        // Removed slots are dropped after the lock is released.
        let mut gone = Vec::new();
        if !slots.contains_key(id) {
            metrics.add("sessions_total", "", 1.0);
        }
        let (slot, used) = slots.entry(id.to_owned()).or_default();
        *used = now;
        let slot = slot.clone();
        while slots.len() > most {
            let idle = slots
                .iter()
                // A count of one means that only the map refers to it, so no request uses the slot.
                .filter(|(_, (slot, _))| Arc::strong_count(&slot.cell) == 1);
            let oldest = idle.min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(id, _)| id.clone()) else {
                break;
            };
            gone.extend(slots.remove(&oldest));
        }
        metrics
            .open_sessions
            .store(slots.len() as i64, Ordering::Relaxed);
        drop(slots);
        if !gone.is_empty() {
            // Closing a session can take long, because the engine may have work to finish.
            tokio::task::spawn_blocking(move || drop(gone));
        }
        slot
    }

    /// Removes a session from memory. Returns false if a request of it is being answered. The
    /// session then stays.
    pub(crate) fn close(&self, id: &str) -> bool {
        let mut slots = lock(&self.slots);
        match slots.get(id) {
            Some((slot, _)) if Arc::strong_count(&slot.cell) > 1 => false,
            Some(_) => {
                let gone = slots.remove(id);
                drop(slots);
                // Closing an engine can take long.
                drop(gone);
                true
            }
            None => true,
        }
    }

    /// Removes all sessions from memory. They are opened again with the configuration in force at
    /// that time. Requests under way keep their slots.
    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *lock(&self.slots));
        tokio::task::spawn_blocking(move || drop(all));
    }
}
