//! The sessions in memory. Between its turns a session is let go, so that another gateway on the same store may go on
//! with it; what is in memory only makes going on cheap.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contexture::session::{AgentWindow, Record, Session, SessionError};
use contexture::{Host, SessionBuilder};
use serde::{Deserialize, Serialize};

use crate::diff::Sent;
use crate::failure::Failure;
use crate::hidden::{self, Hidden};
use crate::metrics::Metrics;
use crate::work::Work;

/// A session in memory.
#[derive(Debug)]
pub(crate) struct Slot<L> {
    /// One turn at a time.
    pub(crate) place: Arc<tokio::sync::Mutex<Place>>,
    left: Arc<Mutex<Vec<L>>>,
}

impl<L> Default for Slot<L> {
    fn default() -> Self {
        Self {
            place: Arc::default(),
            left: Arc::default(),
        }
    }
}

impl<L> Clone for Slot<L> {
    fn clone(&self) -> Self {
        Self {
            place: Arc::clone(&self.place),
            left: Arc::clone(&self.left),
        }
    }
}

impl<L> Slot<L> {
    /// Leaves something for whoever is next at the place.
    pub(crate) fn leave(&self, one: L) {
        self.left().push(one);
    }

    pub(crate) fn has_left(&self) -> bool {
        !self.left().is_empty()
    }

    /// What was left.
    pub(crate) fn take_left(&self) -> Vec<L> {
        std::mem::take(&mut self.left())
    }

    fn left(&self) -> MutexGuard<'_, Vec<L>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place, for one piece of work that blocks.
    ///
    /// # Errors
    /// Those of the work, or that it panicked.
    pub(crate) async fn with_place<T: Send + 'static>(
        &self,
        room: &Work,
        work: impl FnOnce(&mut Place) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let mut place = Arc::clone(&self.place).lock_owned().await;
        room.done(move || work(&mut place))
            .await
            .and_then(|done| done)
    }
}

/// A session's place.
#[derive(Debug, Default)]
pub(crate) struct Place {
    open: Option<Open>,
    /// How many turns it had here.
    pub(crate) turns: u64,
    limit: Option<Limit>,
}

/// The window of a model as the provider reported it, if it is smaller than assumed. It is stored with the session,
/// because otherwise every later request would be refused first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limit {
    pub(crate) model: String,
    /// In the provider's tokens.
    pub(crate) tokens: u64,
    /// The part of it that is reserved for the answer.
    pub(crate) answer: u64,
}

/// The key of a [`Limit`] in the data stored with a session.
const LIMIT: &str = "limit";

impl Limit {
    fn load(record: &Record, session: &str) -> Option<Self> {
        let kept = record.kept_as(LIMIT, Some(session)).ok()?;
        serde_json::from_str(&kept.first()?.1).ok()
    }

    /// Shrinks the window to this limit.
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

#[derive(Debug)]
struct Open {
    session: Session,
    agent: AgentWindow,
    hidden: Vec<Hidden>,
    own_tools: Vec<String>,
    sent: Sent,
    failures: u64,
}

/// A session while something is done with it.
pub(crate) struct Held<'p> {
    pub(crate) session: &'p mut Session,
    pub(crate) hidden: &'p mut Vec<Hidden>,
    /// The names of the engine's tools when it was opened, which have a meaning before any of them is offered again.
    pub(crate) own_tools: &'p [String],
    /// What the model saw of the last request here.
    pub(crate) sent: &'p mut Sent,
    /// How many failures of its engine were recorded.
    pub(crate) failures: &'p mut u64,
    /// Whether it stays held when this ends, for [`Place::let_go`].
    pub(crate) stays: bool,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if !self.stays {
            self.session.let_go();
        }
    }
}

/// How a session is to be opened.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    pub(crate) id: String,
    /// Whose session it is.
    pub(crate) tenant: Option<String>,
    pub(crate) agent: AgentWindow,
    pub(crate) provider: &'static str,
    pub(crate) offer_tools: bool,
    pub(crate) wait: Duration,
}

impl Opening {
    fn builder<'h>(&self, host: &'h Host) -> SessionBuilder<'h> {
        let builder = host
            .session(&self.id)
            .model(&self.agent.model, self.agent.context_length)
            .max_output_tokens(self.agent.max_output_tokens)
            .provider(self.provider)
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

impl Place {
    /// The session, open here and nowhere else. Blocks.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) fn hold(
        &mut self,
        host: &Host,
        opening: &Opening,
    ) -> Result<Held<'_>, SessionError> {
        // Close a session that runs a substitute engine once its own engine may load again.
        let has_chance = |open: &Open| {
            open.session.stands_in().is_some() && {
                host.look_at_plugins();
                !open.session.runs_with(&host.engines())
            }
        };
        if self.open.as_ref().is_some_and(has_chance) {
            self.open = None;
        }
        if self.open.is_none() && self.limit.is_none() {
            self.limit = Limit::load(host.record(), &opening.id);
        }
        let mut opening = opening.clone();
        if let Some(limit) = &self.limit {
            limit.narrow(&mut opening.agent);
        }
        let has = match &mut self.open {
            Some(open) => open.session.take_again()?,
            None => false,
        };
        if !has {
            // Another had it meanwhile: what is here is old.
            self.open = None;
            let mut session = opening.builder(host).open()?;
            for warning in session.take_warnings() {
                tracing::warn!(session = %opening.id, "{warning}");
            }
            let own_tools = session.tools()?.into_iter().map(|tool| tool.name).collect();
            let hidden = hidden::load(host.record(), &opening.id).unwrap_or_else(|error| {
                tracing::warn!("hidden rounds of the session `{}`: {error}", opening.id);
                Vec::new()
            });
            self.open = Some(Open {
                session,
                agent: opening.agent.clone(),
                hidden,
                own_tools,
                sent: Sent::default(),
                failures: 0,
            });
        }
        // Just filled where it was empty.
        let Some(open) = &mut self.open else {
            return Err(SessionError::NoTurn);
        };
        if open.agent != opening.agent {
            open.session.set_model(opening.agent.clone())?;
            open.agent = opening.agent.clone();
        }
        Ok(Held {
            session: &mut open.session,
            hidden: &mut open.hidden,
            own_tools: &open.own_tools,
            sent: &mut open.sent,
            failures: &mut open.failures,
            stays: false,
        })
    }

    /// The session as [`hold`](Self::hold) has it, for the window that it had where it is in memory.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn hold_as_it_is(
        &mut self,
        host: &Host,
        opening: &Opening,
    ) -> Result<Held<'_>, SessionError> {
        let mut opening = opening.clone();
        if let Some(open) = &self.open {
            opening.agent.clone_from(&open.agent);
        }
        self.hold(host, &opening)
    }

    /// Remembers what the provider said about the model's window.
    pub(crate) fn learn_limit(&mut self, host: &Host, session: &str, limit: Limit) {
        let text = serde_json::to_string(&limit).unwrap_or_default();
        if let Err(error) = host.record().keep(session, &[(LIMIT, &text)]) {
            tracing::warn!("session `{session}`: {error}");
        }
        self.limit = Some(limit);
    }

    /// Whether the session is in memory, as it was after the last turn here.
    pub(crate) fn hold_again(&mut self) -> Result<Option<Held<'_>>, SessionError> {
        let Some(open) = &mut self.open else {
            return Ok(None);
        };
        Ok(open.session.take_again()?.then_some(Held {
            session: &mut open.session,
            hidden: &mut open.hidden,
            own_tools: &open.own_tools,
            sent: &mut open.sent,
            failures: &mut open.failures,
            stays: false,
        }))
    }

    /// Lets others have the session, and writes what it took in. Blocks.
    pub(crate) fn let_go(&mut self) {
        if let Some(open) = &mut self.open {
            open.session.let_go();
        }
    }
}

/// All that are in memory.
#[derive(Debug)]
pub(crate) struct Sessions<L> {
    slots: Mutex<HashMap<String, (Slot<L>, u64)>>,
    clock: AtomicU64,
    /// The ids of sessions that begin, which the record does not know yet.
    reserved: Arc<Mutex<HashSet<String>>>,
}

/// The id of a session that begins: nobody else's until this is dropped.
#[derive(Debug)]
pub(crate) struct Reserved {
    id: String,
    all: Arc<Mutex<HashSet<String>>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(&self.id);
    }
}

impl<L: Send + 'static> Sessions<L> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Mutex::new(HashMap::new()),
            clock: AtomicU64::new(0),
            reserved: Arc::default(),
        }
    }

    /// Whether the first request of a session is still being answered here.
    pub(crate) fn is_reserved(&self, id: &str) -> bool {
        let all = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        all.contains(id)
    }

    /// Reserves an id; none if somebody else's session begins by it.
    pub(crate) fn reserve(&self, id: &str) -> Option<Reserved> {
        let mut all = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(id.to_owned()).then(|| Reserved {
            id: id.to_owned(),
            all: Arc::clone(&self.reserved),
        })
    }

    /// The place of a session. Beyond `most` the one that was not used for the longest leaves memory.
    pub(crate) fn slot(&self, id: &str, most: usize, metrics: &Metrics) -> Slot<L> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gone = Vec::new();
        let (slot, used) = slots.entry(id.to_owned()).or_default();
        *used = now;
        let slot = slot.clone();
        while slots.len() > most {
            let idle = slots
                .iter()
                .filter(|(_, (slot, _))| Arc::strong_count(&slot.place) == 1);
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
            // An engine may take its time to end.
            tokio::task::spawn_blocking(move || drop(gone));
        }
        slot
    }

    /// Takes all out of memory: they are opened again as the configuration is then.
    pub(crate) fn close_all(&self) {
        let all = std::mem::take(&mut *self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        tokio::task::spawn_blocking(move || drop(all));
    }
}
